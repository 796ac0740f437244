"""What tasks leave changed in their worker's process, put back before another task runs: what that is cheap for.

The working directory, the umask, handlers and mask of signals, timers, the standard streams, the environment, how deep
calls may go (`sys.setrecursionlimit`). Not what would take longer than a short task, or can't be told from what a
library means to last: `sys.path`, modules and what is in them, the decimal context, the time zone of the C library,
limits of resources, states of random numbers.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enums of what this returns, which takes 4 us a call
import contextlib
import os
import signal
import sys
from typing import Any

_NUMBERS = sorted(int(number) for number in signal.valid_signals())
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Leftovers:
    """How the process was when `note` was called last. Main thread only; takes about 10 us."""

    def __init__(self) -> None:
        self.note()

    def note(self) -> None:
        """How the process is now is how each task finds it: what is meant to last has just been done."""
        self._directory = _directory()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        self._handlers: list[Any] = [_signal.getsignal(number) for number in _NUMBERS]
        #: those that nobody has set
        self._timers = [timer for timer in _TIMERS if not _signal.getitimer(timer)[0]]
        self._streams = sys.stdin, sys.stdout, sys.stderr
        self._depth = sys.getrecursionlimit()
        self._environ = os.environ.copy()
        #: as `os.environ` keeps it, so that comparing takes no decoding
        self._raw = dict(_raw_environ())

    def undo(self) -> None:
        """Put back what is not as it was."""
        for timer in self._timers:
            if _signal.getitimer(timer)[0]:
                _signal.setitimer(timer, 0)
        if [_signal.getsignal(number) for number in _NUMBERS] != self._handlers:
            self._undo_handlers()
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)
        os.umask(self._umask)
        if (sys.stdin, sys.stdout, sys.stderr) != self._streams:
            sys.stdin, sys.stdout, sys.stderr = self._streams
        if sys.getrecursionlimit() != self._depth:
            sys.setrecursionlimit(self._depth)
        if _directory() != self._directory:
            with contextlib.suppress(OSError):  # it is gone: the next task finds that out, if it matters
                os.chdir(self._directory)
        if _raw_environ() != self._raw:
            self._undo_environ()

    def _undo_handlers(self) -> None:
        for number, handler in zip(_NUMBERS, self._handlers, strict=True):
            if handler is not None and _signal.getsignal(number) != handler:
                with contextlib.suppress(OSError, ValueError):
                    _signal.signal(number, handler)

    def _undo_environ(self) -> None:
        for name in os.environ.keys() - self._environ.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in self._environ.items() if os.environ.get(name) != value})


#: of this worker; None where there are no tasks
_mine: Leftovers | None = None


def watch() -> Leftovers:
    """Note how this process is, which is a worker now."""
    global _mine
    _mine = Leftovers()
    return _mine


def keep() -> None:
    """What was changed until now is meant to last: what is done once in a worker. Does nothing elsewhere."""
    if _mine is not None:
        _mine.note()


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _raw_environ() -> dict[bytes, bytes]:
    raw: dict[bytes, bytes] = getattr(os.environ, "_data", {})
    return raw
