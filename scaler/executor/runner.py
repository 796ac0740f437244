"""What an executor works with, apart from what users hold: its client, its cluster, and the calls under way."""

from __future__ import annotations

import _thread
import atexit
import concurrent.futures
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, Protocol

from scaler.client import Client, Future
from scaler.cluster import SchedulerClusterCombo
from scaler.errors import SerializationError
from scaler.executor.calls_under_way import CallsUnderWay
from scaler.executor.unpicklable import error_of_call
from scaler.executor.worker_calls import InitializedCall, InitializerFailed, PickledFunction
from scaler.extension import (
    MapJob,
    fail_future,
    has_ended_program,
    leave_at_once,
    name_of,
    pass_callback,
    pickled_if_small,
    submit_call,
    submit_map,
)

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler.provisioning.cluster import Cluster

#: seconds between looks at the end of the interpreter while a future is waited for
LOOK = 0.5
#: seconds after which a program that has come to its end says what it waits for
SAY_AFTER = 10.0

#: where the standard executors say that an initializer has failed
_log = logging.getLogger("concurrent.futures")


class Runner:
    """Sends an executor's calls, and lives for as long as one is under way. Any thread may call its methods."""

    def __init__(
        self,
        client: Client,
        cluster: SchedulerClusterCombo | Cluster | None,
        initialized_call: InitializedCall | None,
        custom: bool,
    ) -> None:
        self.client = client
        #: started for this executor, and ended with it
        self._cluster = cluster
        #: the user's serializer writes functions
        self._custom = custom
        #: what is called in the place of each function, with it as the first argument
        self._initialized_call = initialized_call
        #: of the process that may end it: children that are forked may not
        self._owner = os.getpid()
        self._calls = CallsUnderWay()
        #: `end` was called
        self._ended = False
        #: what is said of the initializer that has raised
        self.broken: str | None = None
        #: held by who breaks this
        self._breaking = threading.RLock()
        #: held by the thread that waits for the last task and closes everything; a signal's handler may do so, too
        self._closing = threading.RLock()
        #: nothing is waited for any more
        self._closed = False
        wait_for_at_exit(self)

    @property
    def has_initializer(self) -> bool:
        """Whether workers are prepared before their first task."""
        return self._initialized_call is not None

    def submit(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future:
        """See `Executor.submit`."""
        call = self._initialized_call
        calls, token = self._calls, object()
        try:
            calls.begin(token)
            if call is None:
                future = submit_call(self.client, self._without_object(fn), args, kwargs)
            else:
                future = submit_call(self.client, call, (fn, *args), kwargs)
            calls.keep_future(future)
        except SerializationError as error:
            if call is None or self._custom:
                raise
            raise error_of_call(fn, args, kwargs, error) from error.__cause__
        finally:
            calls.sending.pop(token, None)
            calls.end()
        if call is not None:
            future.add_done_callback(self._break_if_initializer_failed)
            if self.broken is not None:  # since it was sent
                fail_future(future, self._failure())
        return future

    def submit_map(self, fn: Callable[..., Any], items: list[Any], single: bool, chunksize: int) -> MapJob:
        """Send the items of a map in blocks: arguments if they are `single`, else tuples of arguments."""
        calls, token = self._calls, object()
        try:
            calls.begin(token)
            job = submit_map(self.client, self._without_object(fn), items, single, chunksize, fails_apart=True)
            calls.keep_map(job)
        finally:
            calls.sending.pop(token, None)
            calls.end()
        return job

    def _without_object(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """What to submit instead of `fn`, if it is an object or has one that must not be kept."""
        if isinstance(fn, (FunctionType, BuiltinFunctionType, type)) or self._custom:
            return fn
        try:
            pickled = pickled_if_small(fn)
        except SerializationError:
            return fn  # which says what is the matter
        return fn if pickled is None else PickledFunction(pickled, name_of(fn))

    def end(self, cancel_futures: bool) -> None:
        """Take no more calls, and cancel what has not begun. Blocks for an answer if something is to be cancelled."""
        if os.getpid() != self._owner:
            return
        self._ended = True
        self.take_no_more()
        if cancel_futures:
            maps = self._calls.maps()
            for job in maps:
                job.cancel()
            futures = self._calls.futures()
            if isinstance(self._cluster, SchedulerClusterCombo) and not maps:
                # All workers are ours, so the oldest calls have one each, also those that are on their way there.
                futures = futures[self._cluster.n_workers :]
            self.client.cancel(futures)

    def finish(self) -> None:
        """Wait until all has ended, then close what is used; blocks as long as that takes."""
        if os.getpid() != self._owner:
            return
        with self._closing:
            try:
                if not self._closed:
                    self._wait()
            except KeyboardInterrupt:
                self.abandon()
                raise
            self._close(self.client.disconnect)

    def _wait(self) -> None:
        self._calls.wait_until_sent()
        for future in self._calls.futures():
            self._await(future)
        for job in self._calls.maps():
            job.wait()

    def _close(self, leave: Callable[[], None]) -> None:
        """Let go of the client by this, and of the cluster; goes on where an earlier call was left, or still is."""
        self._closed = True
        forget(self)
        try:
            leave()
        finally:
            if self._cluster is not None:
                self._cluster.shutdown()

    def _await(self, future: Future) -> None:
        """Wait until a future has ended. While the interpreter ends, callbacks that do not end hold nothing up."""
        while not future.done():
            concurrent.futures.wait([future], LOOK)
            if _interpreter_ends:
                pass_callback(self.client)

    def abandon(self) -> None:
        """The program was interrupted: take no more calls, and wait for none. What is under way is cancelled, and what
        runs ends with the cluster if that is the executor's own. Blocks for a moment.
        """
        if os.getpid() != self._owner:
            return
        self._ended = True
        self.take_no_more()
        self._close(partial(leave_at_once, self.client))

    @property
    def calls_under_way(self) -> int:
        """Calls that have not ended, those of maps as one for each map."""
        return len(self._calls.futures()) + len(self._calls.maps())

    def finish_in_background(self) -> None:
        """Have another thread `finish`. The garbage collector may call it: takes no lock, and makes no `Thread`."""
        if os.getpid() == self._owner and not self._closed:
            try:
                _thread.start_new_thread(self.finish, ())
            except RuntimeError:  # the interpreter ends, and has waited already
                pass

    def take_no_more(self) -> None:
        """Refuse all further calls, and say why."""
        self._calls.refuse(self._refusal)

    def _refusal(self) -> Exception:
        if self.broken is not None:
            return self._failure()
        return RuntimeError(f"cannot schedule new futures after {'' if self._ended else 'interpreter '}shutdown")

    def _break_if_initializer_failed(self, future: concurrent.futures.Future[Any]) -> None:
        """A future has ended: if that is since the initializer raised, all do."""
        assert isinstance(future, Future)
        if future.cancelled() or future.is_stored:
            return
        error = future.exception()
        call = self._initialized_call
        if isinstance(error, InitializerFailed) and call is not None and error.key == call.key:
            self._break(error)

    def _break(self, error: InitializerFailed) -> None:
        with self._breaking:
            if self.broken is not None:
                return
            self.broken = str(error)
        self.take_no_more()
        _log.critical("Exception in initializer:\n%s", error.remote_traceback)
        for future in self._calls.futures():
            fail_future(future, self._failure())
        self.finish_in_background()

    def _failure(self) -> InitializerFailed:
        return InitializerFailed(self.broken or "")


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


def wait_for_at_exit(runner: Waited) -> None:
    """Have the interpreter end after the calls of this one; it takes none if that has begun."""
    _open.add(runner)
    if _interpreter_ends:
        runner.take_no_more()


def forget(runner: Waited) -> None:
    """It is closed."""
    _open.discard(runner)


def _wait_for_all() -> None:
    """Like the standard executors: the interpreter does not end before the calls under way, unless by Ctrl-C."""
    global _interpreter_ends
    _interpreter_ends = True
    for runner in list(_open):
        runner.take_no_more()
    over = threading.Event()
    if any(runner.calls_under_way for runner in _open):
        with contextlib.suppress(RuntimeError):  # Python 3.12.1 starts no thread here any more: then it waits silently
            threading.Thread(target=_say_what_is_waited_for, args=(over,), daemon=True).start()
    for runner in list(_open):
        with contextlib.suppress(Exception):
            if has_ended_program():
                runner.abandon()
            else:
                runner.finish()
    over.set()


def _say_what_is_waited_for(over: threading.Event) -> None:
    """A program that sits there after its last line seems to hang."""
    if not over.wait(SAY_AFTER) and sys.stderr is not None:
        calls = sum(runner.calls_under_way for runner in list(_open))
        said = f"{calls} calls or maps of an Executor" if calls != 1 else "a call of an Executor"
        sys.stderr.write(f"scaler: the program is over but for {said}, and waits; Ctrl-C gives up\n")
        sys.stderr.flush()


# The standard executors' place, before any function of `atexit`: those find everything done.
getattr(threading, "_register_atexit", atexit.register)(_wait_for_all)
