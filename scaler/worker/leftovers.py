"""What tasks leave changed in their worker's process, put back before another task runs: what that is cheap for.

The working directory, the umask, handlers and mask of signals, timers, the standard streams, the environment, how deep
calls may go (`sys.setrecursionlimit`), what traces and profiles, a collector of garbage that is off, and an
`__import__` that can't be called. Not what would take longer than a short task, or can't be told from what a library
means to last: `sys.path`, modules and what is in them, the decimal context, the time zone of the C library, states of
random numbers, the niceness and the processors of the process. For limits of resources, and what descriptors 0, 1 and 2
are, see `fitness.py`.

It is done behind each lone task, before the next one may begin. What takes longest to compare, handlers, timers and
the environment, is compared only if something of it was set: the functions by which Python sets them are wrapped to say
so. Timers of processor time that a library in C has set, a profiler, go on.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enums of what this returns, which takes 4 us a call
import builtins
import contextlib
import functools
import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from scaler.worker import fitness

P = ParamSpec("P")
R = TypeVar("R")

#: all that there are
SIGNALS = sorted(int(number) for number in signal.valid_signals())
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Leftovers:
    """How the process was when `note` was called last. Main thread only; takes about 2 us if nothing was set."""

    def __init__(self) -> None:
        #: handlers of signals may be others than they were; so may be timers, and variables of the environment
        self._sets_handlers = self._sets_timers = self._sets_environ = False
        self.note()
        _signal.signal = _telling(_signal.signal, self._note_handlers)
        # They are from the module of the system, as whom they are pickled.
        for module, name, note in (
            (signal, "setitimer", self._note_timers),
            (signal, "alarm", self._note_timers),
            (os, "putenv", self._note_environ),
            (os, "unsetenv", self._note_environ),
            (os, "dup2", fitness.look_soon),
        ):
            told = _telling(getattr(module, name), note)
            for each in (module, sys.modules[told.__module__]):
                setattr(each, name, told)

    def _note_handlers(self) -> None:
        self._sets_handlers = True

    def _note_timers(self) -> None:
        self._sets_timers = True

    def _note_environ(self) -> None:
        self._sets_environ = True

    def note(self) -> None:
        """How the process is now is how each task finds it: what is meant to last has just been done."""
        self._directory = _directory()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        self._handlers: list[Any] = [_signal.getsignal(number) for number in SIGNALS]
        #: those that nobody has set
        self._timers = [timer for timer in _TIMERS if not _signal.getitimer(timer)[0]]
        self._streams = sys.stdin, sys.stdout, sys.stderr
        self._depth = sys.getrecursionlimit()
        self._trace, self._profile = sys.gettrace(), sys.getprofile()
        self._collects = gc.isenabled()
        self._import = builtins.__import__
        self._mapping = os.environ
        self._environ = os.environ.copy()
        self._sets_handlers = self._sets_timers = self._sets_environ = False

    def undo(self) -> None:
        """Put back what is not as it was."""
        # Before the handlers, whom they would call. That of `alarm` is asked for in any case: a program may have this
        # function by its name since before it was wrapped.
        if self._sets_timers or _signal.getitimer(signal.ITIMER_REAL)[0]:
            self._undo_timers()
        if self._sets_handlers:
            self._undo_handlers()
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)
        os.umask(self._umask)
        if (sys.stdin, sys.stdout, sys.stderr) != self._streams:
            sys.stdin, sys.stdout, sys.stderr = self._streams
        if sys.getrecursionlimit() != self._depth:
            sys.setrecursionlimit(self._depth)
        if sys.gettrace() is not self._trace:
            sys.settrace(self._trace)
        if sys.getprofile() is not self._profile:
            sys.setprofile(self._profile)
        if self._collects and not gc.isenabled():  # off it may have been noted for a moment, between two threads
            gc.enable()
        if not callable(getattr(builtins, "__import__", None)):  # another one may be a library's, to last
            builtins.__import__ = self._import
        if _directory() != self._directory:
            with contextlib.suppress(OSError):  # it is gone: the next task finds that out, if it matters
                os.chdir(self._directory)
        if self._sets_environ or os.environ is not self._mapping:
            self._undo_environ()

    def _undo_timers(self) -> None:
        for timer in self._timers:
            if _signal.getitimer(timer)[0]:
                _signal.setitimer(timer, 0)
        self._sets_timers = False

    def _undo_handlers(self) -> None:
        for number, handler in zip(SIGNALS, self._handlers, strict=True):
            if handler is not None and _signal.getsignal(number) != handler:
                with contextlib.suppress(OSError, ValueError):
                    _signal.signal(number, handler)
        self._sets_handlers = False

    def _undo_environ(self) -> None:
        for name in os.environ.keys() - self._environ.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in self._environ.items() if os.environ.get(name) != value})
        self._sets_environ = False


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
    fitness.keep()


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _telling(function: Callable[P, R], note: Callable[[], None]) -> Callable[P, R]:
    """A function that does the same, and says that it was called."""

    @functools.wraps(function)
    def telling(*args: P.args, **kwargs: P.kwargs) -> R:
        note()
        return function(*args, **kwargs)

    return telling
