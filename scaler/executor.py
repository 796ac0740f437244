"""`Executor`: a `concurrent.futures.Executor` on a cluster.

A thin wrapper around a client. Without an address it starts a local cluster of its own, which ends with it.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from scaler.client import Client, Future
from scaler.client.mapping import MapJob
from scaler.cluster import SchedulerClusterCombo

_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


class Executor(concurrent.futures.Executor):
    """Runs calls on the cluster at `address`, or on a local one of `max_workers` processes (default: one for each
    core).

    `initializer(*initargs)` runs once in each worker before its first task. The futures are standard futures. Blocks
    until the cluster is there. Raises like `Client` and `SchedulerClusterCombo`.
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
        self._cluster: SchedulerClusterCombo | None = None
        if address is None:
            self._cluster = SchedulerClusterCombo(n_workers=max_workers)
            address = self._cluster.address
            client_options.setdefault("security", self._cluster.security)
        try:
            self._client = Client(address, **client_options)
        except BaseException:
            if self._cluster is not None:
                self._cluster.shutdown()
            raise
        self._initializer = (initializer, initargs) if initializer is not None else None
        self._lock = threading.Lock()
        self._shut_down = False
        #: futures that have not ended, for `shutdown`
        self._pending: weakref.WeakSet[Future] = weakref.WeakSet()
        #: maps whose rows may not have ended
        self._jobs: weakref.WeakSet[MapJob] = weakref.WeakSet()
        _executors.add(self)

    @property
    def client(self) -> Client:
        """The client it runs on."""
        return self._client

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Call `fn(*args, **kwargs)` on the cluster. Raises RuntimeError after `shutdown`."""
        if self._shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._initializer is not None:
            fn = _Initialized(fn, *self._initializer)
        if {"profiling", "stream_output"} & kwargs.keys():
            fn, kwargs = _WithKeywords(fn, kwargs), {}
        future = self._client.submit(fn, *args, **kwargs)
        self._pending.add(future)
        return future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """The results of `fn(*items)` in order, each when it is there, as the standard executors do it.

        Everything is sent at once (with `buffersize`: that many items ahead). `chunksize` is the least number of items
        that travel together; more do where that is faster.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None:
            if buffersize < 1:
                raise ValueError("buffersize must be None or > 0")
            return _buffered(self, fn, zip(*iterables, strict=False), timeout, buffersize)
        if self._shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._initializer is not None:
            fn = _Initialized(fn, *self._initializer)
        if len(iterables) == 1:
            job = self._client.map_job(fn, list(iterables[0]), True, chunksize)
        else:
            job = self._client.map_job(fn, list(zip(*iterables, strict=False)), False, chunksize)
        self._jobs.add(job)
        return job.iterate(timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `wait`, block until those under way have ended; `cancel_futures` those not begun."""
        with self._lock:
            first, self._shut_down = not self._shut_down, True
        pending = [future for future in self._pending if not future.done()]
        jobs = list(self._jobs)
        if cancel_futures:
            for job in jobs:
                job.cancel()
            if pending:
                self._client.cancel(pending)
        if wait:
            self._close_when_done(pending, jobs)
        elif first:
            threading.Thread(target=self._close_when_done, args=(pending, jobs), daemon=True).start()

    def _close_when_done(self, pending: list[Future], jobs: list[MapJob]) -> None:
        concurrent.futures.wait(pending)
        for job in jobs:
            job.wait()
        self._close()

    def _close(self) -> None:
        self._client.disconnect()
        if self._cluster is not None:
            self._cluster.shutdown()


class _Initialized:
    """A function whose worker has run the initializer first, once."""

    def __init__(
        self, function: Callable[..., Any], initializer: Callable[..., Any], initargs: tuple[Any, ...]
    ) -> None:
        self._function = function
        self._initializer = initializer
        self._initargs = initargs
        self._key = id(initializer), id(initargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._key not in _initialized:
            self._initializer(*self._initargs)
            _initialized.add(self._key)
        return self._function(*args, **kwargs)


#: initializers that this worker has run
_initialized: set[tuple[int, int]] = set()


class _WithKeywords:
    """A call whose keywords have names that `Client.submit` takes for its own."""

    def __init__(self, function: Callable[..., Any], keywords: dict[str, Any]) -> None:
        self._function = function
        self._keywords = keywords

    def __call__(self, *args: Any) -> Any:
        return self._function(*args, **self._keywords)


def _buffered(
    executor: Executor, fn: Callable[..., Any], rows: Iterator[tuple[Any, ...]], timeout: float | None, size: int
) -> Iterator[Any]:
    import collections
    import itertools
    import time

    deadline = None if timeout is None else time.monotonic() + timeout
    ahead = collections.deque(executor.submit(fn, *row) for row in itertools.islice(rows, size))

    def results() -> Iterator[Any]:
        try:
            while ahead:
                left = None if deadline is None else deadline - time.monotonic()
                result = ahead.popleft().result(left)
                for row in itertools.islice(rows, 1):
                    ahead.append(executor.submit(fn, *row))
                yield result
        finally:
            for future in ahead:
                future.cancel()

    return results()


@atexit.register
def _wait_for_all() -> None:
    """Like the standard executors: the interpreter does not end before the calls under way."""
    for executor in list(_executors):
        executor.shutdown(wait=True)
