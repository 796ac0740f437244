"""The warm process: a child of the zygote that has loaded what a program's tasks need, and forks workers that have it.

What it loads may hang, crash or start threads, and a process with threads can't be forked safely. So the zygote itself
loads nothing. It forks this process, which loads one module after the other and looks after each whether it is still
alone; then it serves the zygote as the zygote serves its agent. If it dies before that, or finds that it has company,
it is begun anew without the package that it was at.

It loads in advance, so it gives way: as long as no worker waits for it, it goes on only while nothing else runs, and
has not for a moment: programs pause between two computations. Before there is a cluster, it goes on while a processor
is free.

Two kinds of threads do not matter, since their libraries are prepared for forks: OpenBLAS ends its threads before each
fork and starts them again when they are needed; jemalloc, which Arrow brings along, takes its locks, and does without
its thread in the child.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import mmap
import os
import select
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn, TypeAlias

from scaler.common.interrupts import interrupts_blocked
from scaler.common.processors import available_cores

_TASKS = "/proc/self/task"
#: tells how many threads run or could run now, on the whole host
_LOAD = "/proc/loadavg"
#: names of threads that do not matter, or have just ended
_HARMLESS = frozenset({"jemalloc_bg_thd", ""})
#: seconds for which it leaves the processors to a program and its cluster that are starting
HEAD_START = 0.3
#: seconds between looks whether a processor is free, before there is a cluster; after a look that said that it may go
#: on it does not look again for as long
PAUSE = 0.005
#: beside a cluster, seconds between looks whether nothing runs, each of which takes 0.1 ms of a processor; how many in
#: a row have to say so
CALM_PAUSE, CALM = 0.05, 2
#: how often it is begun anew, at most
ATTEMPTS = 4

#: called in the warm process with its end of a socket, and with what loads the modules
Become: TypeAlias = Callable[[socket.socket, Callable[[], None]], NoReturn]

#: cells that it shares with the zygote: the number of the name that it is at, from 1 on; whether there is a cluster
_NAME, _CLUSTER = 0, 1


class YieldPolicy(NamedTuple):
    """When it goes on loading, as nobody waits for it: if so many looks in a row say that it may."""

    #: threads of others that may run then
    others: int
    #: seconds between looks
    pause: float
    calm: int


class WarmProcess:
    """The warm process, as the zygote sees it."""

    def __init__(self, names: Sequence[str], is_early: bool, become: Become) -> None:
        """It shall load these modules, in order; `is_early`: before there is a cluster. `begin` forks it."""
        self._names = list(names)
        self._become = become
        self._attempts = 0
        self._cells = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("I")
        self._cells[_CLUSTER] = not is_early
        #: readable once somebody waits for it; open in all children
        self._wanted = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.pid = 0
        #: its socket, as long as it lives
        self.socket: socket.socket | None = None
        self.is_ready = False

    @property
    def packages(self) -> frozenset[str]:
        """What its workers have loaded, or will have."""
        return frozenset(name.partition(".")[0] for name in self._names)

    def begin(self) -> None:
        """Fork it."""
        self._attempts += 1
        self._cells[_NAME] = 0
        ours, its = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                ours.close()
                self._become(its, self._load)
            finally:
                os._exit(1)
        its.close()
        self.socket = ours

    def note_cluster(self) -> None:
        """There is a cluster from now on, to which it is to give way."""
        self._cells[_CLUSTER] = 1

    def hurry(self) -> None:
        """Somebody waits for it from now on."""
        os.eventfd_write(self._wanted, 1)

    def kill(self) -> None:
        """Kill it; it is reaped then."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)

    def take_end(self) -> None:
        """It was reaped: begin anew without the package that it was at, if it had not become ready; a few times."""
        assert self.socket is not None
        self.socket.close()
        self.socket, self.pid = None, 0
        was_ready, self.is_ready = self.is_ready, False
        at = self._cells[_NAME]
        if was_ready or not at or self._attempts == ATTEMPTS:
            self._names = []
            return
        package = self._names[at - 1].partition(".")[0]
        self._names = [name for name in self._names if name.partition(".")[0] != package]
        if self._names:
            self.begin()

    def give_up(self) -> None:
        """It takes too long: promise nothing from now on."""
        self._names = []

    def end(self) -> None:
        """End it with its workers; blocks until it is gone."""
        if self.socket is not None:
            self.socket.close()
            # a task may have stopped it
            os.kill(self.pid, signal.SIGCONT if self.is_ready else signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)

    def _load(self) -> None:
        """In the child: load the modules; it ends if that brings company."""
        early, beside = YieldPolicy(available_cores() - 1, PAUSE, 1), YieldPolicy(0, CALM_PAUSE, CALM)
        giving_way = _GivingWay(self._wanted, lambda: beside if self._cells[_CLUSTER] else early)
        if self._cells[_CLUSTER]:
            giving_way.is_wanted(HEAD_START)
        sys.meta_path.insert(0, giving_way)
        for number, name in enumerate(self._names, 1):
            if name in sys.modules:  # another one has loaded it
                continue
            self._cells[_NAME] = number
            with contextlib.suppress(BaseException):  # workers find out when they need it
                importlib.import_module(name)
            if not is_alone():
                os._exit(1)
        sys.meta_path.remove(giving_way)
        gc.freeze()


class _GivingWay:
    """Holds up loading, module by module, as its policy of the moment says, unless somebody waits for it."""

    def __init__(self, wanted: int, policy: Callable[[], YieldPolicy]) -> None:
        """`wanted`: a descriptor that is readable when somebody waits."""
        self._wanted = wanted
        self._policy = policy
        #: when to look next, seconds: a look takes as long as a small module
        self._due = 0.0

    def is_wanted(self, seconds: float = 0.0) -> bool:
        """Leave the processors to others for so long, or until somebody waits; say whether somebody does."""
        return bool(select.select([self._wanted], [], [], seconds)[0])

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Wait as long as it has to; another finder finds the module. Called by the import system."""
        now = time.monotonic()
        if now < self._due:
            return
        policy = self._policy()
        missing = 0 if self.is_wanted() or _running() <= 1 + policy.others else policy.calm
        while missing and not self.is_wanted(policy.pause):
            policy = self._policy()
            missing = missing - 1 if _running() <= 1 + policy.others else policy.calm
        self._due = time.monotonic() + PAUSE


def _running() -> int:
    """How many threads of this host run or could, this one included; 0 if that is not known."""
    try:
        with open(_LOAD, encoding="utf-8") as file:
            return int(file.read().split()[3].partition("/")[0])
    except (OSError, IndexError, ValueError):
        return 0


def can_warm() -> bool:
    """Say whether it can be seen here that a process has one thread."""
    return os.path.isdir(_TASKS)


def fork() -> int:
    """As os.fork, but Python does not warn of the threads that do not matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def is_alone() -> bool:
    """Say whether this process can be forked: it has no threads but those that are prepared for it."""
    if not _other_threads():
        return True
    with interrupts_blocked():
        pid = fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return not _other_threads()


def _other_threads() -> int:
    tasks = os.listdir(_TASKS)
    if len(tasks) == 1:
        return 0
    return sum(task != str(os.getpid()) and _name_of(task) not in _HARMLESS for task in tasks)


def _name_of(task: str) -> str:
    try:
        with open(f"{_TASKS}/{task}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
