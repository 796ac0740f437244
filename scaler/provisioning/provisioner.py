"""The process that provides hosts: it watches the cluster and the provider, and does what its core says.

Three threads: one reads snapshots (`Watcher`), one speaks with the provider (`errands`), and this one decides; what
they have for it comes through a queue. A scheduler that goes is waited for; meanwhile nothing is asked for and nobody
is sent away.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Callable

from scaler.config import ProvisionConfig
from scaler.errors import ConnectionFailed, HandshakeRefused, ProtocolError, ScalerError
from scaler.monitor.commands import CommandRefused, Commands
from scaler.monitor.watcher import Seen, Watcher
from scaler.provisioning.asking import limits_of, template_of
from scaler.provisioning.core import FleetCore, Limits
from scaler.provisioning.core import events as ev
from scaler.provisioning.errands import Errands, some
from scaler.provisioning.provider import Provider, ProviderError
from scaler.provisioning.seeing import observed
from scaler.transport import Security

logger = logging.getLogger("scaler.provision")

#: seconds between two reports to the scheduler that say the same
REPORT_INTERVAL = 5.0
#: seconds for which the end of all jobs is waited for
END_TIMEOUT = 60.0
#: the same where the provider does nothing of what it is asked for
OUTAGE_TIMEOUT = 25.0
#: seconds between two questions for jobs that are to end
END_INTERVAL = 0.3
#: seconds between two such questions while it is not known which jobs there are
DOUBT_INTERVAL = 1.0
#: seconds between two attempts to find a scheduler
PAUSE = 0.5
#: seconds for which the provider may think about an answer before that is said
PATIENCE = 60.0

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
        self._errands = Errands(provider, config.tag, self._inbox.put)
        #: what it was last said of that it takes long
        self._slow: tuple[str, float] | None = None
        self._watcher: Watcher | None = None
        self._commands: Commands | None = None
        #: the scheduler was there when it was last looked for; since when it has not been
        self._unseen_since: float | None = time.monotonic()
        self._complained = ""
        self._next_attempt = 0.0
        self._next_report = 0.0
        self._status: ev.Status | None = None
        #: when it was told to end, and until when all jobs have to
        self._told_to_end = 0.0
        self._end_by: float | None = None
        self._is_abandoned = False

    def tell(self, event: ev.Event) -> None:
        """Something that others want: `Adapt` or `End`. Does not block."""
        self._inbox.put(event)

    def run(self) -> int:
        """Serve until told to end, and no job is left; the exit code. Blocks."""
        self._errands.start()
        if self._core.is_in_doubt:
            pause = 2 * self._config.settle_time + Limits.MISSED_LISTS * DOUBT_INTERVAL
            logger.info("looks for jobs that were asked for before, for about %g s: then it asks for others", pause)
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
                    return int(self._is_abandoned)
                self._told_to_end, self._end_by = now, now + END_TIMEOUT
            for effect in self._core.handle(events, now):
                self._carry_out(effect)
            self._tell_status(now)
            if self._end_by is not None:
                if self._core.is_over:
                    logger.info("all jobs have ended")
                    return int(self._is_abandoned)
                quiet = now - max(self._told_to_end, self._errands.answered_at)
                if now >= self._end_by or quiet >= OUTAGE_TIMEOUT:
                    took = now - self._told_to_end
                    logger.error("jobs are left that did not end in %.1f s: %s", took, self._left())
                    return 1
            self._list(now)
            self._say_if_slow(now)

    def _left(self) -> str:
        """Jobs that have not ended, and what may be the cause."""
        ids = ", ".join(sorted(self._core.jobs.by_id)[:20]) or "perhaps some that are not known"
        asked = self._errands.asked
        words = self._core.status(time.monotonic()).lines if asked is None else (_slowness(*asked),)
        return "; ".join([ids, *words])

    # ---- what comes ------------------------------------------------------------------------------------------------
    def _gather(self, timeout: float) -> list[ev.Event]:
        """What has come; waits a while for the first."""
        come: list[ev.Event | Seen] = []
        with contextlib.suppress(queue.Empty):
            come.append(self._inbox.get(timeout=timeout))
            while True:
                come.append(self._inbox.get_nowait())
        seen = [each for each in come if isinstance(each, Seen) and not each.silence]  # which has nothing new
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
            fate = "hosts end by themselves" if self._config.keep else "all jobs are cancelled"
            logger.error("no scheduler for %g s (orphan_timeout): %s", round(now - self._unseen_since), fate)
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
                template = template_of(self._config, effect.request, self._security)
                self._errands.submit(effect.request, effect.n, template)
            case ev.Cancel():
                logger.info("cancels %s", some(effect.ids))
                self._errands.cancel(effect.ids)
            case ev.Drain():
                logger.info("lets go of %s", some(effect.ids))
                self._say(lambda commands: commands.drain(jobs=effect.ids))
            case ev.Log():
                logger.log(logging.getLevelNamesMapping()[effect.level], "%s", effect.text)

    def _list(self, now: float) -> None:
        """Ask for the jobs, when it is time and the last question was answered."""
        interval = END_INTERVAL if self._end_by is not None else self._config.list_interval
        if self._core.is_in_doubt:
            interval = min(interval, DOUBT_INTERVAL)
        if not self._errands.is_listing and now >= self._errands.listed_at + interval:
            self._errands.list()

    def _say_if_slow(self, now: float) -> None:
        """Once of each question that the provider does not answer: nothing else can be asked meanwhile."""
        asked = self._errands.asked
        if asked is not None and asked != self._slow and now - asked[1] > PATIENCE:
            self._slow = asked
            self._inbox.put(ev.ListFailed(_slowness(*asked)))

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


def _slowness(function: str, since: float) -> str:
    return f"the provider has not answered {function}() for {time.monotonic() - since:.0f} s"
