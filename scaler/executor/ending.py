"""How an executor ends: when it is shut down or forgotten, and with the interpreter, not before its last call."""

from __future__ import annotations

import _thread
import atexit
import concurrent.futures
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from scaler.client import Client, Future
from scaler.cluster import SchedulerClusterCombo
from scaler.executor.calls_under_way import CallsUnderWay
from scaler.extension import has_ended_program, lifetime_of

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler.provisioning.cluster import Cluster

#: seconds between looks at the end of the interpreter while a future is waited for
LOOK = 0.5
#: seconds after which a program that has come to its end says what it waits for
SAY_AFTER = 10.0


class Ending:
    """Waits for the calls of an executor, then closes what it has used. Lives while one is under way; any thread.

    It reaches none of the functions that are called: these reach their globals, and an executor among those would be
    held by what waits for it to be forgotten.
    """

    def __init__(self, client: Client, cluster: SchedulerClusterCombo | Cluster | None) -> None:
        self._lifetime = lifetime_of(client)
        #: started for this executor, and ended with it
        self.cluster = cluster
        #: of the process that may end it: children that are forked may not
        self._owner = os.getpid()
        self.calls = CallsUnderWay()
        #: the user has shut it down
        self._ended = False
        #: what is said of the initializer that has raised
        self.broken: str | None = None
        #: held by the thread that waits for the last task and closes everything; a signal's handler may do so, too
        self._closing = threading.RLock()
        #: nothing is waited for any more
        self._closed = False
        wait_for_at_exit(self)

    @property
    def is_forked(self) -> bool:
        """The calling process is a child of the one that may end it."""
        return os.getpid() != self._owner

    def take_no_more_after_shutdown(self) -> None:
        """`take_no_more`, as the user wants it."""
        self._ended = True
        self.take_no_more()

    def finish(self) -> None:
        """Wait until all has ended, then close what is used; blocks as long as that takes."""
        if self.is_forked:
            return
        with self._closing:
            try:
                if not self._closed:
                    self._wait()
            except KeyboardInterrupt:
                self.abandon()
                raise
            self._close(self._lifetime.disconnect)

    def _wait(self) -> None:
        self.calls.wait_until_sent()
        for future in self.calls.futures():
            self._await(future)
        for job in self.calls.maps():
            job.wait()

    def _close(self, leave: Callable[[], None]) -> None:
        """Let go of the client by this, and of the cluster; goes on where an earlier call was left, or still is."""
        self._closed = True
        forget(self)
        try:
            leave()
        finally:
            if self.cluster is not None:
                self.cluster.shutdown()

    def _await(self, future: Future) -> None:
        """Wait until a future has ended. While the interpreter ends, callbacks that do not end hold nothing up."""
        while not future.done():
            concurrent.futures.wait([future], LOOK)
            if _interpreter_ends:
                self._lifetime.pass_callback()

    def abandon(self) -> None:
        """The program was interrupted: take no more calls, and wait for none. What is under way is cancelled, and what
        runs ends with the cluster if that is the executor's own. Blocks for a moment.
        """
        if self.is_forked:
            return
        self._ended = True
        self.take_no_more()
        self._close(self._lifetime.leave_at_once)

    @property
    def calls_under_way(self) -> int:
        """Calls that have not ended, those of maps as one for each map."""
        return len(self.calls.futures()) + len(self.calls.maps())

    def finish_in_background(self) -> None:
        """Have another thread `finish`. The garbage collector may call it: takes no lock, and makes no `Thread`."""
        if not (self.is_forked or self._closed):
            try:
                _thread.start_new_thread(self.finish, ())
            except RuntimeError:  # the interpreter ends, and has waited already
                pass

    def take_no_more(self) -> None:
        """Refuse all further calls, and say why."""
        self.calls.refuse(self.refusal)

    def refusal(self) -> Exception:
        """Why it takes no calls."""
        if self.broken is not None:
            from scaler.executor.initializer_failed import InitializerFailed  # here, as it is slow to load

            return InitializerFailed(self.broken)
        return RuntimeError(f"cannot schedule new futures after {'' if self._ended else 'interpreter '}shutdown")


class Waited(Protocol):
    """What the interpreter does not end before."""

    @property
    def calls_under_way(self) -> int: ...

    def take_no_more(self) -> None: ...

    def finish(self) -> None: ...

    def abandon(self) -> None: ...


#: those of this process that are not closed
_open: set[Waited] = set()
_interpreter_ends = False


def wait_for_at_exit(ending: Waited) -> None:
    """Have the interpreter end after the calls of this one; it takes none if that has begun."""
    _open.add(ending)
    if _interpreter_ends:
        ending.take_no_more()


def forget(ending: Waited) -> None:
    """It is closed."""
    _open.discard(ending)


def _wait_for_all() -> None:
    """Like the standard executors: the interpreter does not end before the calls under way, unless by Ctrl-C."""
    global _interpreter_ends
    _interpreter_ends = True
    for ending in list(_open):
        ending.take_no_more()
    over = threading.Event()
    if any(ending.calls_under_way for ending in _open):
        with contextlib.suppress(RuntimeError):  # Python 3.12.1 starts no thread here any more: then it waits silently
            threading.Thread(target=_say_what_is_waited_for, args=(over,), daemon=True).start()
    for ending in list(_open):
        with contextlib.suppress(Exception):
            if has_ended_program():
                ending.abandon()
            else:
                ending.finish()
    over.set()


def _say_what_is_waited_for(over: threading.Event) -> None:
    """A program that sits there after its last line seems to hang."""
    if not over.wait(SAY_AFTER) and sys.stderr is not None:
        calls = sum(ending.calls_under_way for ending in list(_open))
        said = f"{calls} calls or maps of an Executor" if calls != 1 else "a call of an Executor"
        sys.stderr.write(f"scaler: the program is over but for {said}, and waits; Ctrl-C gives up\n")
        sys.stderr.flush()


# The standard executors' place, before any function of `atexit`: those find everything done.
getattr(threading, "_register_atexit", atexit.register)(_wait_for_all)
