"""Whether this process is as fit for rows as it was before any ran in it, whatever they have done to it.

A task may take limits down, use up the descriptors, or become another user of the system. Its own next steps then fail,
and so do the worker's: what it does for the rows of others before their functions begin, and with their results after.

put back here     limits that were taken down, the effective user and group, descriptors 0, 1 and 2
told the agent    what can't be put back, and that descriptors or memory run out: another worker takes its place
doubtful          an error before a row's function began, or with its result, that is the process's rather than the
                  row's: the agent gives the row to another worker, see scaler/agent/state/doubts.py

Looking takes 10 us. It is done after a row that failed, behind each lone task, and between the rows of a map every few
milliseconds; but not more often than `FAILED_NS` and `EVERY_NS` say, unless there is reason to: descriptors that are
closed, which takes 0.8 us to see, or a function that was called which may change what is looked at (`look_soon`).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import sys
import time
from collections.abc import Callable

from scaler.store.segments import is_shortage
from scaler.worker.kept_descriptors import KeptDescriptors

#: between two looks at a process: if a row has failed, and else, ns
FAILED_NS, EVERY_NS = 250_000, 5_000_000
#: of the descriptors that the process may have, these may be in use
MOST_IN_USE = 0.75
#: bytes that it can still have
LEAST_MEMORY = 32 << 20

_NAMES = ("AS", "CPU", "DATA", "FSIZE", "NOFILE", "NPROC", "STACK")
#: number -> name; systems differ in those that they have
_LIMITS = {getattr(resource, name): name for name in (f"RLIMIT_{short}" for short in _NAMES) if hasattr(resource, name)}
_NO_LIMIT = resource.RLIM_INFINITY
#: how Python names a module of which somebody has emptied the dict
_EMPTIED = ("<module '?'", "<unknown module name>")
#: errors behind an error that are looked at
_DEPTH = 8


class Fitness:
    """How the process was when `note` was called last. Main thread only."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], int] = time.monotonic_ns) -> None:
        #: called once, with why another worker is to take the place of this one
        self._tell = tell
        self._why = ""
        #: it is no worker for others any more: the agent knows
        self.is_told = False
        self._clock = clock
        #: when it was looked at last, ns
        self._looked = 0
        #: it is to be looked at the next time, whenever that was
        self.is_due = False
        self._standard = KeptDescriptors()
        #: there were descriptors and memory; where they are scarce from the beginning that says nothing of tasks
        self._had_descriptors, self._had_memory = not _descriptors(), not _memory()
        self.note()

    def note(self) -> None:
        """How the process is now is how it is meant to be."""
        self._standard.note()
        self._limits = [(number, *resource.getrlimit(number)) for number in _LIMITS]
        self._user, self._group = os.geteuid(), os.getegid()

    def attend(self, has_failed: bool) -> None:
        """Look, if that is due, sooner if a row `has_failed`, and tell the agent what can't be put back."""
        now = self._clock()
        is_early = now - self._looked < (FAILED_NS if has_failed else EVERY_NS)
        if self.is_told or (is_early and not self.is_due and self._standard.seem_right()):
            return
        self._looked, self.is_due = now, False
        self.restore()
        if not self._why and self._had_descriptors:
            self._why = _descriptors()
        if not self._why and self._had_memory and has_failed:
            self._why = _memory()
        if self._why:
            self.is_told = True
            self._tell(self._why)

    def restore(self) -> bool:
        """Put back what can be put back; whether anything was not as it should be."""
        changed = False
        if (os.geteuid(), os.getegid()) != (self._user, self._group):
            changed = True
            with contextlib.suppress(OSError):
                os.seteuid(self._user)
                os.setegid(self._group)
            if (os.geteuid(), os.getegid()) != (self._user, self._group):
                self._why = f"is the process of user {os.geteuid()} and group {os.getegid()} now"
        for number, soft, hard in self._limits:
            if _is_below(resource.getrlimit(number)[0], soft):
                changed = True
                if not _allow(number, soft, hard):
                    self._why = f"has {_LIMITS[number]} at {resource.getrlimit(number)[0]:,}, which can't be put back"
        for number in self._standard.changed():
            changed = True
            if not self._standard.put_back(number):
                self._why = f"has lost descriptor {number}, which can't be put back"
        return changed

    def close(self) -> None:
        """Let go of what was kept to put it back."""
        self._standard.let_go()


#: of this worker; None where there are no tasks
_mine: Fitness | None = None


def watch(tell: Callable[[str], None]) -> Fitness:
    """Note how this process is, which is a worker now."""
    global _mine
    _mine = Fitness(tell)
    return _mine


def keep() -> None:
    """What was changed until now is meant to last. Does nothing where there are no tasks."""
    if _mine is not None:
        _mine.note()


def look_soon() -> None:
    """What was called may have changed the process: look behind the row that runs. Any thread."""
    if _mine is not None:
        _mine.is_due = True


def is_unfit() -> bool:
    """Say whether rows before the one that runs have spoilt this process for good: its agent knows, and replaces it."""
    return _mine is not None and _mine.is_told


def leave() -> None:
    """This is a process that a task has forked: nothing is put back, or held open for that."""
    global _mine
    if _mine is not None:
        _mine.close()
        _mine = None


def is_doubtful(error: BaseException) -> bool:
    """Say whether what the worker does before a function begins may have failed for what earlier rows have done to it.

    It may if the process is not as it was, or for errors that say so. All others are taken to be the row's own: most
    are, like a module that is not there, and no worker shall lose what it has loaded for them.
    """
    return _is_short(error) or _finds_modules_emptied(error) or (_mine is not None and _mine.restore())


def _is_short(error: BaseException) -> bool:
    behind: BaseException | None = error
    for _ in range(_DEPTH):
        if behind is None:
            return False
        if isinstance(behind, MemoryError):
            return True
        if isinstance(behind, OSError) and (is_shortage(behind) or behind.errno == errno.EBADF):  # it was closed
            return True
        if isinstance(behind, RuntimeError) and _raiser(behind) == "threading":  # it can't start one
            return True
        behind = behind.__cause__ or behind.__context__
    return False


def _finds_modules_emptied(error: BaseException) -> bool:
    if sys.modules.get("sys") is not sys:  # all are gone: what imports anything fails in its own way
        return True
    return isinstance(error, (AttributeError, ImportError)) and any(words in str(error) for words in _EMPTIED)


def _raiser(error: BaseException) -> str:
    """The name of the module whose code has raised an error."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return str(place.tb_frame.f_globals.get("__name__")) if place is not None else ""


def _is_below(limit: int, other: int) -> bool:
    return limit != _NO_LIMIT and (other == _NO_LIMIT or limit < other)


def _allow(number: int, soft: int, hard: int) -> bool:
    """Have a limit be as it was, or at least what the process may have by it."""
    for most in (hard, resource.getrlimit(number)[1]):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(number, (soft, most))
            return True
    return False


def _descriptors() -> str:
    """What is wrong with opening files; empty if nothing is. The first free descriptor tells how many are in use."""
    try:
        first_free = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return "" if error.errno == errno.ENFILE else f"can open no files: {error.strerror}"  # of the host, not of it
    os.close(first_free)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return f"has {first_free:,} files open" if most != _NO_LIMIT and first_free > MOST_IN_USE * most else ""


def _memory() -> str:
    """Whether there is little memory that the process may still have."""
    try:
        mmap.mmap(-1, LEAST_MEMORY).close()
    except OSError as error:
        return f"can have no more memory: {error.strerror}"
    return ""
