"""What an executor works with: its client, its cluster, and the calls under way."""

from __future__ import annotations

import _thread
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
import uuid
import weakref
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any

from scaler.client import Client, Future
from scaler.cluster import SchedulerClusterCombo
from scaler.errors import SerializationError
from scaler.executor.remote import Initializer, InitializerFailed, Pickled
from scaler.extension import MapJob, fail_future, name_of, pickled_if_small, submit_map

#: where the standard executors say that an initializer has failed
_log = logging.getLogger("concurrent.futures")

#: futures among which those that have ended are looked for
MANY = 1_000


class Engine:
    """What an executor works with, for as long as anything is under way. Any thread may call its methods."""

    def __init__(
        self,
        client: Client,
        cluster: SchedulerClusterCombo | None,
        initializer: Callable[..., Any] | None,
        initargs: tuple[Any, ...],
        custom: bool,
    ) -> None:
        self.client = client
        self._cluster = cluster
        #: the user's serializer writes functions
        self._custom = custom
        #: tells this executor's initializer from all others
        self._key = uuid.uuid4().hex
        self._initialize = None if initializer is None else self._unheld(Initializer(self._key, initializer, initargs))
        self._owner = os.getpid()
        self._lock = threading.Lock()
        #: `_entering` is 0 again
        self._changed = threading.Condition(self._lock)
        #: calls that are being sent at this moment
        self._entering = 0
        #: no more calls are taken
        self._ended = False
        #: what is said of the initializer that has raised
        self.broken: str | None = None
        #: futures that may not have ended, in the order of their calls; kept by the client, not here
        self._pending: list[weakref.ref[Future]] = []
        #: when there are so many, those that have ended are forgotten
        self._many = MANY
        #: maps whose rows may not have ended
        self._jobs: weakref.WeakSet[MapJob] = weakref.WeakSet()
        #: held by the thread that waits for the last task and closes everything
        self._closing = threading.Lock()
        self._closed = False
        _open.add(self)

    @property
    def has_initializer(self) -> bool:
        """Workers are prepared before their first task."""
        return self._initialize is not None

    def submit(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future:
        """See `Executor.submit`."""
        if kwargs and (own := {"profiling", "stream_output"} & kwargs.keys()):  # the client takes these for itself
            fn = partial(fn, **{name: kwargs.pop(name) for name in own})
        if self._initialize is None:
            fn = self._unheld(fn)
        else:
            fn, args = self._initialize, (fn, *args)
        self._enter()
        future = None
        try:
            future = self.client.submit(fn, *args, **kwargs)
        finally:
            self._leave(future)
        if self._initialize is not None:
            future.add_done_callback(self._look)
            if self.broken is not None:  # since it was sent
                fail_future(future, self._failure())
        return future

    def map_job(self, fn: Callable[..., Any], rows: list[tuple[Any, ...]], single: bool, chunksize: int) -> MapJob:
        """Send the rows of a map in blocks; `single` says that each has one item."""
        items: list[Any] = [item for (item,) in rows] if single else rows
        self._enter()
        job = None
        try:
            job = submit_map(self.client, self._unheld(fn), items, single, chunksize)
        finally:
            self._leave(job)
        return job

    def _unheld(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """What to submit instead of `fn`, if it is an object or has one that must not be kept."""
        if isinstance(fn, (FunctionType, BuiltinFunctionType, type)) or self._custom:
            return fn
        try:
            pickled = pickled_if_small(fn)
        except SerializationError:
            return fn  # which says what is the matter
        return fn if pickled is None else Pickled(pickled, name_of(fn))

    def _enter(self) -> None:
        with self._lock:
            if self.broken is not None:
                raise self._failure()
            if self._ended or _interpreter_ends:
                what = "shutdown" if self._ended else "interpreter shutdown"
                raise RuntimeError(f"cannot schedule new futures after {what}")
            self._entering += 1

    def _leave(self, sent: Future | MapJob | None) -> None:
        with self._lock:
            if isinstance(sent, Future):
                self._pending.append(weakref.ref(sent))
                if len(self._pending) > self._many:
                    self._pending = [known for known in self._pending if not _is_over(known)]
                    self._many = max(MANY, 2 * len(self._pending))
            elif sent is not None:
                self._jobs.add(sent)
            self._entering -= 1
            if not self._entering:
                self._changed.notify_all()

    def end(self, cancel_futures: bool) -> None:
        """Take no more calls, and cancel what has not begun. Blocks for an answer if something is to be cancelled."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._ended = True
        if cancel_futures:
            jobs = self._unfinished_jobs()
            for job in jobs:
                job.cancel()
            futures = self._unfinished()
            if self._cluster is not None and not jobs:
                # All workers are ours, so the oldest calls have one each, also those that are on their way there.
                futures = futures[self._cluster.n_workers :]
            self.client.cancel(futures)

    def finish(self) -> None:
        """Wait until all has ended, then close what is used; blocks as long as that takes."""
        if os.getpid() != self._owner:
            return
        with self._closing:
            if self._closed:
                return
            with self._lock:
                self._changed.wait_for(lambda: not self._entering)
            for future in self._unfinished():
                if not future.done():
                    concurrent.futures.wait([future])
            for job in self._unfinished_jobs():
                job.wait()
            self._closed = True
            _open.discard(self)
            self.client.disconnect()
            if self._cluster is not None:
                self._cluster.shutdown()

    def finish_aside(self) -> None:
        """Have another thread `finish`. The garbage collector may call it: takes no lock, and makes no `Thread`."""
        if os.getpid() == self._owner and not self._closed:
            try:
                _thread.start_new_thread(self.finish, ())
            except RuntimeError:  # the interpreter ends, and has waited already
                pass

    def _unfinished(self) -> list[Future]:
        with self._lock:
            futures = [known() for known in self._pending]
            return [future for future in futures if future is not None and not future.done()]

    def _unfinished_jobs(self) -> list[MapJob]:
        with self._lock:
            return list(self._jobs)

    def _look(self, future: concurrent.futures.Future[Any]) -> None:
        """A future has ended: if that is since the initializer raised, all do."""
        assert isinstance(future, Future)
        if future.cancelled() or future.is_stored:
            return
        error = future.exception()
        if isinstance(error, InitializerFailed) and error.key == self._key:
            self._break(error)

    def _break(self, error: InitializerFailed) -> None:
        with self._lock:
            if self.broken is not None:
                return
            self.broken = str(error)
        _log.critical("Exception in initializer:\n%s", error.remote_traceback)
        for future in self._unfinished():
            fail_future(future, self._failure())
        self.finish_aside()

    def _failure(self) -> InitializerFailed:
        return InitializerFailed(self.broken or "")


def _is_over(known: weakref.ref[Future]) -> bool:
    future = known()
    return future is None or future.done()


#: engines of this process that are not closed
_open: set[Engine] = set()
_interpreter_ends = False


def _wait_for_all() -> None:
    """Like the standard executors: the interpreter does not end before the calls under way."""
    global _interpreter_ends
    _interpreter_ends = True
    for engine in list(_open):
        with contextlib.suppress(Exception):
            engine.finish()


# The standard executors' place, before any function of `atexit`: those find everything done.
getattr(threading, "_register_atexit", atexit.register)(_wait_for_all)
