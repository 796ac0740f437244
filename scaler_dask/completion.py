"""Waiting for several futures: `wait`, and `as_completed`; in threads and in event loops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, NamedTuple

from scaler.extension import Gate
from scaler_dask.end_watching import until_ended, wake, watch_all
from scaler_dask.gathering import futures_of
from scaler_dask.interrupts import taken_back_at_interrupt
from scaler_dask.keyed_future import CancelledError, Future
from scaler_dask.timeouts import seconds_of


class DoneAndNotDoneFutures(NamedTuple):
    """What `wait` returns."""

    done: set[Future]
    not_done: set[Future]


def wait(futures: Any, timeout: float | str | None = None, return_when: str = "ALL_COMPLETED") -> Any:
    """Wait until all, or the first, of the futures have ended: `(done, not_done)`. Collections of futures count, too.

    Blocks, or is awaited if a future is an asynchronous client's; any thread, also inside tasks. `return_when`:
    ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION. Raises TimeoutError after `timeout` seconds, CancelledError if
    one was cancelled, ValueError for another `return_when`.
    """
    handles = futures_of(futures)
    if return_when not in ("ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"):
        raise ValueError(f"return_when must be ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION, not {return_when!r}")
    seconds = seconds_of(timeout)
    if any(handle.client is not None and handle.client.asynchronous for handle in handles):
        return _wait_async(handles, seconds, return_when)
    enough = Gate()
    end_watch = watch_all([handle.state for handle in handles], return_when, enough.open)
    try:
        with taken_back_at_interrupt(lambda: handles):
            if not enough.wait(seconds):
                left = sum(not handle.done() for handle in handles)
                raise TimeoutError(f"{left} of {len(handles)} futures did not end in time")
    finally:
        end_watch()
    return _sorted_out(handles)


async def _wait_async(handles: list[Future], seconds: float | None, return_when: str) -> DoneAndNotDoneFutures:
    async with asyncio.timeout(seconds):
        await until_ended([handle.state for handle in handles], return_when)
    return _sorted_out(handles)


def _sorted_out(handles: Iterable[Future]) -> DoneAndNotDoneFutures:
    done: set[Future] = set()
    not_done: set[Future] = set()
    for handle in handles:
        status = handle.status
        if status == "cancelled":
            raise CancelledError(f"{handle.key!r} was cancelled")
        (not_done if status == "pending" else done).add(handle)
    return DoneAndNotDoneFutures(done, not_done)


class as_completed:
    """An iterator over futures in the order in which they end; more may be added meanwhile. Sync or async.

    With `with_results` it gives pairs of a future and its value; a task's error is raised, or with
    `raise_errors=False` given as `(type, error, traceback)` in the value's place. `loop` is ignored: none is needed.

    Any thread may call its methods. Taking the next one blocks, or is awaited, until one has ended; raises TimeoutError
    `timeout` seconds after this was made.
    """

    def __init__(
        self,
        futures: Iterable[Future] | None = None,
        loop: Any = None,
        with_results: bool = False,
        raise_errors: bool = True,
        *,
        timeout: float | str | None = None,
    ) -> None:
        self._with_results = with_results
        self._raise_errors = raise_errors
        seconds = seconds_of(timeout)
        self._deadline = None if seconds is None else time.monotonic() + seconds
        #: held while one ends, or is taken
        self._lock = threading.RLock()
        #: opened when one has ended
        self._changed = Gate()
        #: those that ended and were not given out
        self._ready: deque[Future] = deque()
        #: those that have not ended, by their `id()`
        self._pending: dict[int, Future] = {}
        #: those that were not given out
        self._left = 0
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        #: of `clear`: what was added before it is not given out
        self._generation = 0
        self.update(futures or ())

    def add(self, future: Future) -> None:
        """Add a future."""
        with self._lock:
            self._left += 1
            self._pending[id(future)] = future
            generation = self._generation
        future.state.watch(lambda: self._ended(future, generation))

    def update(self, futures: Iterable[Future]) -> None:
        """Add futures."""
        for future in futures:
            self.add(future)

    def count(self) -> int:
        """How many futures are still to come, ended or not."""
        return self._left

    def is_empty(self) -> bool:
        """Whether none is to come."""
        return not self._left

    def has_ready(self) -> bool:
        """Whether one can be had without waiting."""
        return bool(self._ready)

    def clear(self) -> None:
        """Forget all futures that were not given out."""
        with self._lock:
            self._generation += 1
            self._left = 0
            self._ready.clear()
            self._pending.clear()

    def next_batch(self, block: bool = True) -> list[Any]:
        """All that have ended; with `block` at least one. Raises StopIteration when none is to come."""
        if block and not self._ready:
            return [next(self), *self._taken()]
        return self._taken()

    def batches(self) -> Iterator[list[Any]]:
        """Lists of all that have ended meanwhile."""
        while not self.is_empty():
            yield self.next_batch()

    def _taken(self) -> list[Any]:
        taken = []
        while (future := self._take()) is not None:
            taken.append(self._given(future))
        return taken

    def _ended(self, future: Future, generation: int) -> None:
        with self._lock:
            if generation != self._generation:
                return
            self._ready.append(future)
            self._pending.pop(id(future), None)
            self._changed.open()
            waiters, self._waiters = self._waiters, []
        for loop, waiter in waiters:
            try:
                loop.call_soon_threadsafe(wake, waiter)
            except RuntimeError:  # that loop is closed
                pass

    def _take(self) -> Future | None:
        with self._lock:
            if not self._ready:
                return None
            self._left -= 1
            return self._ready.popleft()

    def _given(self, future: Future) -> Any:
        if not self._with_results:
            return future
        try:
            return future, future.state.value()
        except (Exception, CancelledError) as error:
            if self._raise_errors:
                raise
            return future, (type(error), error, error.__traceback__)

    def _time_left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with taken_back_at_interrupt(lambda: list(self._pending.values())):
            if not self._changed.wait_for(lambda: self._ready or not self._left, self._time_left()):
                raise TimeoutError(f"{self._left} futures did not end in time")
            if not self._left:
                raise StopIteration
        future = self._take()
        return self._given(future) if future is not None else next(self)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        loop = asyncio.get_running_loop()
        while (future := self._take()) is None:
            with self._lock:
                if not self._left:
                    raise StopAsyncIteration
                if self._ready:
                    continue
                waiter = loop.create_future()
                self._waiters.append((loop, waiter))
            async with asyncio.timeout(self._time_left()):
                await waiter
        return await asyncio.to_thread(self._given, future) if self._with_results else future
