"""Keeps a scheduler running: its process is a child of this one, and if it dies another takes its place at once.

Clients and agents bring all that the new one has to know, so this process keeps nothing and hardly ever does anything.
The engine is loaded here once: a child that is forked begins in a few milliseconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from types import FrameType

from scaler.common.children import die_with_parent
from scaler.common.exits import describe_exit, exit_code
from scaler.common.later_modules import load_all
from scaler.common.loop import ending_signals, ignore_ending_signals
from scaler.common.unexpected_end import tell_end
from scaler.config import SchedulerConfig
from scaler.errors import ScalerError
from scaler.scheduler import server
from scaler.scheduler.later import LATER, OF_PAIRS, modules_of

logger = logging.getLogger("scaler.scheduler")

#: a child that lived for less than so many seconds is followed by a pause: doubled each time, up to a bound, seconds
SHORT_LIFE, FIRST_PAUSE, LONGEST_PAUSE = 1.0, 0.05, 5.0
#: seconds between two looks, in a pause, whether this process was told to end
LOOK = 0.1
#: a child that was told to end is killed after so many seconds, and if it is told again: signals that come sooner are
#: one, which was sent to the whole group as well
GRACE, AGAIN = 15.0, 1.5
#: exit code of a child that ended with an exception
CRASHED = 70


def _needed_to_start(config: SchedulerConfig) -> list[str]:
    """What each scheduler loads as it begins, but for what all have loaded."""
    names: list[str] = []
    if config.journal is not None:
        names.append("scaler.scheduler.copies.copies")
    if config.validate:
        names += ["scaler.common.validating", "scaler.scheduler.state.validate"]
    return names


class Supervisor:
    """One scheduler after the other."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        #: of the process that runs; 0: none does
        self._pid = 0
        #: when this process was first told to end, seconds; None: it was not
        self._told: float | None = None
        #: why the process that runs was killed; empty: it was not
        self._killed_for = ""
        #: what the child is told of
        self._passed_on = (*ending_signals(), signal.SIGUSR1)

    def run(self) -> int:
        """Run until the scheduler ends in order or is told to end; its exit code. Blocks."""
        # here, and not by a scheduler that is started when the package may have been exchanged
        load_all((*LATER, *OF_PAIRS, *modules_of(self._config), *_needed_to_start(self._config)))
        for number in self._passed_on:
            signal.signal(number, self._pass_on)
        signal.signal(signal.SIGALRM, lambda *_: self._kill(f"it did not end within {GRACE:g} s"))
        code = self._run_all()
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        ignore_ending_signals()
        return code

    def _run_all(self) -> int:
        pause = 0.0
        while True:
            began = time.monotonic()
            pid, status = self._run_once()
            code = os.waitstatus_to_exitcode(status)
            if code >= 0 and (self._is_ending or code != CRASHED):
                return code
            if self._is_ending:
                why = f": {self._killed_for}" if self._killed_for else ""
                logger.error("Scheduler: process %d %s and could not end in order%s", pid, describe_exit(status), why)
                return exit_code(status)
            if time.monotonic() - began > SHORT_LIFE:
                pause = 0.0
            logger.error("Scheduler: process %d %s; another takes its place", pid, describe_exit(status))
            if self._is_told_to_end_within(pause):
                return 0
            pause = min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)

    def _is_told_to_end_within(self, seconds: float) -> bool:
        """Let so much time pass, unless this process is told to end; whether it is. Blocks."""
        end = time.monotonic() + seconds
        while not self._is_ending and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK))
        return self._is_ending

    def _run_once(self) -> tuple[int, int]:
        """Run a scheduler; its process, and how that ended, as `os.wait` says it."""
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, self._passed_on)  # none is lost while there is no child to tell
        pid = os.fork()
        if not pid:
            self._be_scheduler(parent)
        self._pid = pid
        if self._is_ending:  # since it was looked last
            self._pass_on(signal.SIGTERM, None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._passed_on)
        ended = os.waitpid(pid, 0)
        self._pid = 0
        return ended

    def _be_scheduler(self, parent: int) -> None:
        """In the child. Never returns."""
        code = CRASHED
        try:
            die_with_parent(parent)
            for number in (*self._passed_on, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._passed_on)
            code = server.run(self._config)
        except KeyboardInterrupt:
            code = 0
        except ScalerError as error:
            tell_end(str(error))
            code = 2
        except BaseException as error:
            logger.exception("Scheduler: it ends by a defect: %s: %s", type(error).__name__, error)
        finally:
            logging.shutdown()
            os._exit(code)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGUSR1:
            now = time.monotonic()
            if self._told is None:
                self._told = now
                signal.setitimer(signal.ITIMER_REAL, GRACE)
            elif now >= self._told + AGAIN:
                self._kill("it was told again")
        self._tell(number)

    def _kill(self, why: str) -> None:
        """The process that runs does not end by itself, or not soon enough."""
        self._killed_for = why
        self._tell(signal.SIGKILL)

    def _tell(self, number: int) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self._pid, number)

    @property
    def _is_ending(self) -> bool:
        """This process was told to end."""
        return self._told is not None
