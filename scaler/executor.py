"""`Executor`: a `concurrent.futures.Executor` on a cluster.

    Executor ──holds──► _Engine: client, its own cluster, what is under way
                           ▲
    _open: the engines of this process that are not closed; the end of the interpreter waits for them

Without an address it starts a local cluster of its own, which ends with it. An executor that is forgotten without
`shutdown` lets what is under way end, as the standard ones do: therefore what works is apart from what users hold.
"""

from __future__ import annotations

import _thread
import atexit
import collections
import concurrent.futures
import contextlib
import itertools
import logging
import os
import threading
import time
import traceback
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any

from scaler.client import Client, Future
from scaler.client.mapping import MapJob
from scaler.cluster import SchedulerClusterCombo
from scaler.errors import SerializationError
from scaler.protocol.messages import INLINE_LIMIT
from scaler.serialize import payload as pickling
from scaler.serialize.function import name_of
from scaler.serialize.outofband import pack_large

#: where the standard executors say that an initializer has failed
_log = logging.getLogger("concurrent.futures")

#: a map of more rows than this sends them in blocks, whose results come together
ROWS_APART = 1_000
#: futures among which those that have ended are looked for
MANY = 1_000


class InitializerFailed(BrokenProcessPool):
    """The executor's initializer has raised in a worker, and the executor is of no use any more: make a new one.

    `key` tells the executors apart, `remote_traceback` is the text of the worker's traceback.
    """

    def __init__(self, message: str = "", key: str = "", remote_traceback: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.remote_traceback = remote_traceback

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.key, self.remote_traceback)


class Executor(concurrent.futures.Executor):
    """Runs calls on the cluster at `address`, or on a local one of `max_workers` processes (default: one for each
    core).

    `initializer(*initargs)` runs once in each worker before its first task; if it raises, all futures that have not
    ended and all further calls raise `InitializerFailed`, a `concurrent.futures.process.BrokenProcessPool`. The futures
    are standard futures. Blocks until the cluster is there. Raises like `Client` and `SchedulerClusterCombo`.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        address: str | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
        **client_options: Any,
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        cluster: SchedulerClusterCombo | None = None
        if address is None:
            cluster = SchedulerClusterCombo(n_workers=max_workers)
            address = cluster.address
            client_options.setdefault("security", cluster.security)
        try:
            client = Client(address, **client_options)
        except BaseException:
            if cluster is not None:
                cluster.shutdown()
            raise
        self._given_workers = cluster.n_workers if cluster is not None else max_workers
        custom = client_options.get("serializer") is not None
        self._engine = _Engine(client, cluster, initializer, initargs, custom)
        weakref.finalize(self, self._engine.finish_aside).atexit = False

    @property
    def client(self) -> Client:
        """The client it runs on."""
        return self._engine.client

    @property
    def _max_workers(self) -> int:
        """What dask and others ask the standard executors for."""
        return self._given_workers or max(1, self.client.n_workers)

    @property
    def _broken(self) -> str | bool:
        """What the standard executors are asked: False, or why it is of no use any more."""
        return self._engine.broken or False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Call `fn(*args, **kwargs)` on the cluster. Raises RuntimeError after `shutdown` and at the interpreter's end,
        `InitializerFailed`, and like `Client.submit`."""
        return self._engine.submit(fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """The results of `fn(*items)` in order, each when it is there, as the standard executors do it.

        The iterables are read, and everything is sent, at once; with `buffersize` only so many items (or chunks) ahead
        of the results that were taken, so that the iterables may be endless. `chunksize` is the least number of items
        that travel together; more do if there are very many. Raises TimeoutError if a result is not there `timeout`
        seconds after the call of `map`. What has not begun when the iterator ends early is cancelled.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and type(buffersize) is not int:
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        deadline = None if timeout is None else time.monotonic() + timeout
        rows: Iterable[tuple[Any, ...]] = zip(*iterables, strict=False)
        if buffersize is None:
            rows = list(rows)
            if (chunksize > 1 or len(rows) > ROWS_APART) and not self._engine.has_initializer:
                return _rest_of(self._engine.map_job(fn, rows, len(iterables) == 1, chunksize), deadline)
        if chunksize == 1:
            return _in_order(self, partial(self.submit, fn), iter(rows), deadline, buffersize)
        chunks = _chunks(iter(rows), chunksize)
        return _flat(_in_order(self, partial(self.submit, _call_each, fn), chunks, deadline, buffersize))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `wait`, block until those under way have ended; `cancel_futures` those not begun.

        Without `wait` what is under way ends in the background, and the interpreter does not end before it.
        """
        self._engine.end(cancel_futures)
        if wait:
            self._engine.finish()
        else:
            self._engine.finish_aside()


class _Engine:
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
        self._initialize = None if initializer is None else self._unheld(_Initializer(self._key, initializer, initargs))
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
                future.fail(self._failure())
        return future

    def map_job(self, fn: Callable[..., Any], rows: list[tuple[Any, ...]], single: bool, chunksize: int) -> MapJob:
        """Send the rows of a map in blocks; `single` says that each has one item."""
        items: list[Any] = [item for (item,) in rows] if single else rows
        self._enter()
        job = None
        try:
            job = self.client.map_job(self._unheld(fn), items, single, chunksize)
        finally:
            self._leave(job)
        return job

    def _unheld(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """What to submit instead of `fn`, if it is an object or has one that must not be kept."""
        if isinstance(fn, (FunctionType, BuiltinFunctionType, type)) or self._custom:
            return fn
        try:
            packed = pack_large(fn, INLINE_LIMIT)
        except SerializationError:
            return fn  # which says what is the matter
        return _Pickled(packed, name_of(fn)) if isinstance(packed, bytes) else fn

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
            future.fail(self._failure())
        self.finish_aside()

    def _failure(self) -> InitializerFailed:
        return InitializerFailed(self.broken or "")


def _is_over(known: weakref.ref[Future]) -> bool:
    future = known()
    return future is None or future.done()


class _Initializer:
    """Calls a function in a worker that has run the initializer first, once."""

    def __init__(self, key: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        #: of the executor: unique, whoever else uses these workers
        self.key = key
        self._function = function
        self._args = args

    def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if self.key not in _initialized:
            _initialized[self.key] = None  # tasks that run inside of it find it begun
            try:
                self._function(*self._args)
            except BaseException:
                _initialized[self.key] = traceback.format_exc()
        failure = _initialized[self.key]
        if failure is not None:
            name, last = name_of(self._function), failure.splitlines()[-1]
            message = f"the initializer {name} has raised in a worker, and its executor takes no more calls: {last}"
            raise InitializerFailed(message, self.key, failure)
        return fn(*args, **kwargs)


#: initializers that this worker has run: None, or the traceback of what one has raised, by the executor's key
_initialized: dict[str, str | None] = {}


class _Pickled:
    """Stands for a callable without keeping it: what was submitted may be kept for long, and the user's object not."""

    def __init__(self, payload: bytes, name: str) -> None:
        self._payload = payload
        #: for messages, in the place of a function's
        self.__module__, _, self.__qualname__ = name.rpartition(".")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return pickling.loads(self._payload)(*args, **kwargs)

    def __reduce__(self) -> Any:
        return pickling.loads, (self._payload,)


def _in_order(
    executor: Executor,
    submit: Callable[..., Future],
    rows: Iterator[tuple[Any, ...]],
    deadline: float | None,
    ahead: int | None,
) -> Iterator[Any]:
    """Submit rows, at once or only so many ahead, and return what yields their results. The executor lives as long."""
    futures = collections.deque(itertools.starmap(submit, itertools.islice(rows, ahead)))

    def results() -> Iterator[Any]:
        try:
            while futures:
                row = next(rows, None)
                if row is not None:
                    futures.append(submit(*row))
                yield _first_of(futures, deadline)
        finally:
            unfinished = [future for future in futures if not future.done()]
            if unfinished and not executor.client.closed:
                executor.client.cancel(unfinished)

    return results()


def _first_of(futures: collections.deque[Future], deadline: float | None) -> Any:
    """Return the first future's result, and take it out. Nothing keeps it, as a variable of a generator would."""
    result = futures[0].result(None if deadline is None else max(0.0, deadline - time.monotonic()))
    futures.popleft()
    return result


def _rest_of(job: MapJob, deadline: float | None) -> Iterator[Any]:
    yield from job.iterate(None if deadline is None else max(0.0, deadline - time.monotonic()))


def _chunks(rows: Iterator[tuple[Any, ...]], size: int) -> Iterator[tuple[list[tuple[Any, ...]]]]:
    while chunk := list(itertools.islice(rows, size)):
        yield (chunk,)


def _flat(chunks: Iterator[list[Any]]) -> Iterator[Any]:
    for chunk in chunks:
        chunk.reverse()
        while chunk:
            yield chunk.pop()


def _call_each(function: Callable[..., Any], rows: list[tuple[Any, ...]]) -> list[Any]:
    return [function(*row) for row in rows]


#: engines of this process that are not closed
_open: set[_Engine] = set()
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
