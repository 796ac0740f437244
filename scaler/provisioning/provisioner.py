"""The process that provides hosts: it watches the cluster and the provider, and does what its core says.

Three threads: one reads snapshots (`Watcher`), one speaks with the provider, and this one decides; what they have for
it comes through a queue. A scheduler that goes is waited for; meanwhile nothing is asked for and nobody is sent away.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable

from scaler.config import OptionError, ProvisionConfig
from scaler.errors import ConnectionFailed, HandshakeRefused, ProtocolError, ScalerError
from scaler.monitor.commands import CommandRefused, Commands
from scaler.monitor.watcher import Seen, Watcher
from scaler.provisioning.asking import limits_of, template_of
from scaler.provisioning.core import FleetCore
from scaler.provisioning.core import events as ev
from scaler.provisioning.provider import Provider, ProviderError
from scaler.provisioning.seeing import observed
from scaler.transport import Security

logger = logging.getLogger("scaler.provision")

#: seconds between two reports to the scheduler that say the same
REPORT_INTERVAL = 5.0
#: seconds for which the end of all jobs is waited for
END_TIMEOUT = 60.0
#: seconds between two questions for jobs that are to end
END_INTERVAL = 0.3
#: seconds between two such questions while it is not known which jobs there are
DOUBT_INTERVAL = 1.0
#: seconds between two attempts to find a scheduler
PAUSE = 0.5

OnStatus = Callable[[ev.Status], None]


class Provisioner:
    """See the module. `tell` may be called by any thread, and by signal handlers."""

    def __init__(
        self, config: ProvisionConfig, provider: Provider, security: Security, *, is_new: bool = False,
        on_status: OnStatus = lambda status: None,
    ) -> None:  # fmt: skip
        """`is_new`: no jobs with this tag can be there. `on_status` is called with what has changed."""
        self._config = config
        self._provider = provider
        self._security = security
        self._on_status = on_status
        self._core = FleetCore(limits_of(config), time.monotonic(), is_new)
        self._inbox: queue.SimpleQueue[ev.Event | Seen] = queue.SimpleQueue()
        self._errands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._watcher: Watcher | None = None
        self._commands: Commands | None = None
        #: the scheduler was there when it was last looked for; since when it has not been
        self._unseen_since: float | None = time.monotonic()
        self._complained = ""
        self._next_attempt = 0.0
        self._next_list = 0.0
        self._is_listing = False
        self._next_report = 0.0
        self._status: ev.Status | None = None
        self._end_by: float | None = None
        self._is_abandoned = False

    def tell(self, event: ev.Event) -> None:
        """Something that others want: `Adapt` or `End`. Does not block."""
        self._inbox.put(event)

    def run(self) -> int:
        """Serve until told to end, and no job is left; the exit code. Blocks."""
        threading.Thread(target=self._do_errands, name="scaler-provider", daemon=True).start()
        try:
            return self._serve()
        finally:
            self._leave()

    def _serve(self) -> int:
        while True:
            now = time.monotonic()
            self._look_for_scheduler(now)
            events = self._gather(0.05 if self._end_by is not None else 0.25)
            now = time.monotonic()
            if ev.End() in events and self._end_by is None:
                if self._config.keep:
                    logger.info("jobs are kept as they are")
                    return 0
                self._end_by = now + END_TIMEOUT
            for effect in self._core.handle(events, now):
                self._carry_out(effect)
            self._tell_status(now)
            if self._end_by is not None:
                if self._core.is_over:
                    logger.info("all jobs have ended")
                    return int(self._is_abandoned)
                if now >= self._end_by:
                    logger.error("jobs are left that did not end in %g s: %s", END_TIMEOUT, self._left())
                    return 1
            self._list(now)

    def _left(self) -> str:
        return ", ".join(sorted(self._core.jobs.by_id)[:20])

    # ---- what comes ------------------------------------------------------------------------------------------------
    def _gather(self, timeout: float) -> list[ev.Event]:
        """What has come; waits a while for the first."""
        come: list[ev.Event | Seen] = []
        with contextlib.suppress(queue.Empty):
            come.append(self._inbox.get(timeout=timeout))
            while True:
                come.append(self._inbox.get_nowait())
        seen = [each for each in come if isinstance(each, Seen)]
        events: list[ev.Event] = [each for each in come if not isinstance(each, Seen)]
        if seen:
            events.append(self._see(seen[-1]))
        return events

    def _see(self, seen: Seen) -> ev.Event:
        if seen.is_connected and seen.snapshot is not None:
            self._unseen_since = None
            self._complained = ""
            return observed(seen.snapshot)
        if self._unseen_since is None:
            self._unseen_since = time.monotonic()
        self._complain(f"no scheduler: {seen.reason}")
        return ev.Unseen()

    def _complain(self, text: str) -> None:
        if text != self._complained:
            self._complained = text
            logger.warning("%s; trying until it is there", text)

    def _look_for_scheduler(self, now: float) -> None:
        """Connect, unless that was done; end everything if there has been none for too long."""
        if self._end_by is not None:
            return
        if self._unseen_since is not None and now - self._unseen_since > self._config.orphan_timeout:
            logger.error("no scheduler for %g s (orphan_timeout): all jobs are cancelled", now - self._unseen_since)
            self._is_abandoned = True
            self.tell(ev.End())
            self._unseen_since = None
        if self._watcher is not None or now < self._next_attempt:
            return
        try:
            self._watcher = Watcher(
                self._config.address, self._config.interval, security=self._security, name="scaler-provision",
                on_change=self._inbox.put,
            )  # fmt: skip
            logger.info("watches the scheduler at %s", self._config.address)
        except HandshakeRefused:
            raise
        except ConnectionFailed as error:
            self._complain(str(error))
            self._next_attempt = now + PAUSE

    # ---- what is to be done ----------------------------------------------------------------------------------------
    def _carry_out(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Submit():
                logger.info("asks for %d hosts (request %d)", effect.n, effect.request)
                self._errands.put(lambda: self._submit(effect))
            case ev.Cancel():
                logger.info("cancels %s", _some(effect.ids))
                self._errands.put(lambda: self._cancel(effect))
            case ev.Drain():
                logger.info("lets go of %s", _some(effect.ids))
                self._say(lambda commands: commands.drain(jobs=effect.ids))
            case ev.Log():
                logger.log(logging.getLevelNamesMapping()[effect.level], "%s", effect.text)

    def _do_errands(self) -> None:
        """What the thread for the provider does."""
        while True:
            self._errands.get()()

    def _submit(self, effect: ev.Submit) -> None:
        template = template_of(self._config, effect.request, self._security)
        try:
            ids = self._provider.submit(effect.n, template)
        except Exception as error:
            self._inbox.put(ev.SubmitFailed(effect.request, _line(error)))
        else:
            logger.info("request %d: %s", effect.request, _some(tuple(ids)))
            self._inbox.put(ev.Submitted(effect.request, tuple(ids)))

    def _cancel(self, effect: ev.Cancel) -> None:
        try:
            self._provider.cancel(effect.ids)
        except Exception as error:
            logger.warning("%s", _line(error))

    def _list(self, now: float) -> None:
        """Ask for the jobs, when it is time and the last question was answered."""
        if self._is_listing or now < self._next_list:
            return
        self._is_listing = True
        self._errands.put(self._list_now)

    def _list_now(self) -> None:
        began = time.monotonic()
        try:
            self._inbox.put(ev.Listed(tuple(self._provider.list(self._config.tag)), began))
        except Exception as error:
            self._inbox.put(ev.ListFailed(_line(error)))
        interval = END_INTERVAL if self._end_by is not None else self._config.list_interval
        if self._core.is_in_doubt:
            interval = min(interval, DOUBT_INTERVAL)
        self._next_list = time.monotonic() + interval
        self._is_listing = False

    # ---- what others are told --------------------------------------------------------------------------------------
    def _tell_status(self, now: float) -> None:
        status = self._core.status(now)
        before = self._status
        is_news = before is None or _without_time(before) != _without_time(status)
        if is_news:
            self._status = status
            self._on_status(status)
        if self._unseen_since is not None:
            return
        if is_news or now >= self._next_report:
            self._next_report = now + REPORT_INTERVAL
            self._say(
                lambda commands: commands.report_fleet(
                    f"{self._config.provider} {self._config.tag}", desired=status.desired, pending=status.pending,
                    running=status.running, draining=status.draining, waited=status.waited, lines=status.lines,
                )
            )  # fmt: skip
        elif self._commands is not None:
            try:
                self._commands.beat()
            except (ConnectionFailed, ProtocolError):
                self._drop_commands()

    def _say(self, what: Callable[[Commands], object]) -> None:
        """Tell the scheduler something; if it is not there, it will be told later."""
        try:
            if self._commands is None:
                self._commands = Commands(self._config.address, security=self._security)
            what(self._commands)
        except CommandRefused as error:
            logger.debug("%s", error)
        except (ConnectionFailed, ProtocolError) as error:
            logger.debug("cannot tell the scheduler: %s", error)
            self._drop_commands()

    def _drop_commands(self) -> None:
        commands, self._commands = self._commands, None
        if commands is not None:
            with contextlib.suppress(ScalerError, OSError):
                commands.close()

    def _leave(self) -> None:
        self._drop_commands()
        if self._watcher is not None:
            self._watcher.close()
        close = getattr(self._provider, "close", None)
        if close is not None:
            with contextlib.suppress(ProviderError):
                close()


def _without_time(status: ev.Status) -> tuple[object, ...]:
    return status.desired, status.pending, status.running, status.draining, status.lines


def _line(error: Exception) -> str:
    """What went wrong, in a line; a provider of others may raise anything."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ProviderError | OptionError) and text else f"{type(error).__name__}: {text}"


def _some(ids: tuple[str, ...]) -> str:
    return f"{len(ids)} jobs: {', '.join(ids[:4])}{', ...' if len(ids) > 4 else ''}"
