"""Futures as users of dask.distributed know them: with a key, on top of the engine's.

A `Future` is a reference in dask's graphs, too: where one is met, the key that it names is a dependency. So collections
of futures flow into further computations without their values.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from dask import _task_spec as spec
from dask.base import is_dask_collection
from dask.utils import parse_timedelta

from scaler.extension import CallbackThread
from scaler_dask.frames import with_frames
from scaler_dask.work import Work, ready, settled

if TYPE_CHECKING:
    from types import TracebackType

    from scaler_dask.client import Client

CancelledError = concurrent.futures.CancelledError

#: runs what users want done when futures end: it may wait for other futures
_callbacks = CallbackThread("scaler-dask-callbacks")


class Future(spec.TaskRef):
    """The value of a task, some time. Given to `submit`, `map`, `compute` or a collection it stands for that value.

    So it does inside lists, tuples, sets and dicts. Inside any other object that is pickled it travels with its value:
    pickling blocks until that is there, and brings it to the client.
    With `Client(asynchronous=True)`, `result`, `exception`, `traceback`, `cancel` and `retry` are awaited.
    """

    __slots__ = ("__weakref__", "_client", "_work")

    def __init__(self, work: Work, client: Client | None) -> None:
        """Made by clients only."""
        super().__init__(work.key)
        self._work: Work | None = work
        self._client = client

    @property
    def work(self) -> Work:
        """What it stands for. Raises CancelledError after `release`."""
        if self._work is None:
            raise CancelledError(f"the future {self.key!r} was released: submit the task anew")
        return self._work

    @property
    def client(self) -> Client | None:
        """The client that made it."""
        return self._client

    @property
    def status(self) -> str:
        """One of pending, finished, error, cancelled. Does not block."""
        return self._work.status if self._work is not None else "cancelled"

    def done(self) -> bool:
        """Whether it has ended, however it did."""
        return self._work is None or self._work.done

    def cancelled(self) -> bool:
        """Whether it was cancelled or released."""
        return self.status == "cancelled"

    def result(self, timeout: float | str | None = None) -> Any:
        """The value; blocks, at most `timeout` seconds.

        Raises what the task raised, CancelledError, TimeoutError, or WorkerLost, ObjectLost and the like.
        """
        return self._sync(self.work.value, timeout)

    def exception(self, timeout: float | str | None = None) -> Any:
        """What the task raised, or None; blocks like `result`."""
        return self._sync(self.work.error, timeout)

    def traceback(self, timeout: float | str | None = None) -> Any:
        """The traceback of what the task raised, with the worker's frames, or None; blocks like `result`."""

        def traceback(timeout: float | None) -> TracebackType | None:
            error = self.work.error(timeout)
            return with_frames(error).__traceback__ if error is not None else None

        return self._sync(traceback, timeout)

    def add_done_callback(self, function: Callable[[Future], Any]) -> None:
        """Call `function(future)`, on a thread for all callbacks, when it has ended. What it raises is logged."""
        call = partial(function, self)
        self.work.watch(lambda: _callbacks.run(call))

    def cancel(self, reason: str | None = None, msg: str | None = None) -> Any:
        """Take the task back, and let go of its value. One that runs goes on to its end."""
        return self._owner.cancel([self])

    def retry(self) -> Any:
        """Run the task again if it has failed, and those of its arguments that have."""
        return self._owner.retry([self])

    def release(self) -> None:
        """Let go of the value; it is freed when no other future and no task needs it. The task is not taken back."""
        self._work = None

    @property
    def _owner(self) -> Client:
        if self._client is None:
            raise ValueError(f"the future {self.key!r} came with a pickle and belongs to no client")
        return self._client

    def _sync(self, read: Callable[[float | None], Any], timeout: float | str | None) -> Any:
        seconds: float | None = parse_timedelta(timeout)
        if self._client is not None and self._client.asynchronous:
            return self._awaited(read, seconds)
        return read(seconds)

    async def _awaited(self, read: Callable[[float | None], Any], seconds: float | None = None) -> Any:
        async with asyncio.timeout(seconds):
            await settled([self.work])
        return await asyncio.to_thread(read, None)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._awaited(self.work.value).__await__()

    def __dask_tokenize__(self) -> Any:
        return "scaler-future", self.key

    def __copy__(self) -> Future:
        return self

    def __deepcopy__(self, memo: Any) -> Future:
        return self

    def __reduce__(self) -> Any:
        return _unpickled, (self.key, self.work.value())

    def __repr__(self) -> str:
        return f"<Future: {self.status}, key: {self.key}>"

    __str__ = __repr__


class Held(spec.DataNode):
    """A part of a collection that was persisted. It is pickled with the value, for graphs that tasks are given as data.

    A bare future in a graph would be a reference to its own key there, which nobody has.
    """

    __slots__ = ()

    def copy(self) -> Held:
        return Held(self.key, self.value)

    def __call__(self, values: Any = ()) -> Any:
        return self.value.work.value()

    def __reduce__(self) -> Any:
        return spec.DataNode, (self.key, self())


def held(futures: Any) -> Any:
    """Futures, in nested lists, as parts of collections."""
    return [held(future) for future in futures] if isinstance(futures, list) else Held(futures.key, futures)


def _unpickled(key: Any, value: Any) -> Future:
    return Future(ready(key, value), None)


def futures_of(value: Any, client: Client | None = None) -> list[Future]:
    """The futures in a value: lists, tuples, sets and dicts are looked into, and collections that were persisted."""
    found: dict[Any, Future] = {}
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Future):
            found[item.key] = item
        elif type(item) in (list, tuple, set, frozenset):
            stack.extend(reversed(list(item)))
        elif type(item) is dict:
            stack.extend(reversed(list(item.values())))
        elif is_dask_collection(item):
            stack.extend(_of_graph(dict(item.__dask_graph__())))
    return list(found.values())


def _of_graph(graph: dict[Any, Any]) -> Iterator[Future]:
    from scaler_dask.client import find_work

    for value in graph.values():
        if isinstance(value, Future):
            yield value
        elif isinstance(value, spec.DataNode) and isinstance(value.value, Future):
            yield value.value
        elif isinstance(value, spec.Alias):
            known = find_work(next(iter(value.dependencies)))
            if known is not None:
                yield Future(known[1], known[0])


def fire_and_forget(obj: Any) -> None:
    """Let tasks run to their ends although nobody keeps their futures, and their client is closed.

    Closing it waits for them, unless the cluster is the client's own, which ends.
    """
    for future in futures_of(obj):
        if future.client is not None:
            future.client.forgotten.add(future.work)


def gathered(value: Any, read: Callable[[Future], Any], skip: bool) -> Any:
    """The value with each future in it, at any depth of lists, tuples, sets and dicts, replaced by what `read` gives.

    With `skip`, those for which it raises are left out of the lists, tuples, sets and dicts that they are in.
    """
    if isinstance(value, Future):
        return read(value)
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind(_each(value, read, skip))
    if kind is dict:
        items = ((key, _or_skipped(item, read, skip)) for key, item in value.items())
        return {key: item for key, item in items if item is not _SKIPPED}
    return value


_SKIPPED = object()


def _each(values: Iterable[Any], read: Callable[[Future], Any], skip: bool) -> Iterator[Any]:
    for value in values:
        item = _or_skipped(value, read, skip)
        if item is not _SKIPPED:
            yield item


def _or_skipped(value: Any, read: Callable[[Future], Any], skip: bool) -> Any:
    if not skip or not isinstance(value, Future):
        return gathered(value, read, skip)
    try:
        return read(value)
    except (Exception, CancelledError):
        return _SKIPPED
