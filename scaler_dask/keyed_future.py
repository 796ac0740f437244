"""`Future`, as users of dask.distributed know it: with a key, on top of the engine's.

It is a reference in dask's graphs, too: where one is met, the key that it names is a dependency. So collections of
futures flow into further computations without their values.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator
from functools import partial
from types import TracebackType
from typing import Any

from dask import _task_spec as spec

from scaler.extension import CallbackThread, callback_of_task
from scaler.extension import Future as EngineFuture
from scaler_dask.end_watching import until_ended
from scaler_dask.frames import with_frames
from scaler_dask.future_state import FutureState
from scaler_dask.registry import FutureOwner, Registry, find
from scaler_dask.sources import LocalValue
from scaler_dask.timeouts import seconds_of

CancelledError = concurrent.futures.CancelledError

#: runs what users want done when futures end: it may wait for other futures
_callbacks = CallbackThread("scaler-dask-callbacks")


class Future(spec.TaskRef):
    """The value of a task, some time. Given to `submit`, `map`, `compute` or a collection it stands for that value.

    So it does inside lists, tuples, sets and dicts. Inside any other object that is pickled it travels with its value:
    pickling blocks until that is there, and brings it to the client.

    Two futures are never equal, also not those of one key: programs keep by each what they have submitted it for.

    Any thread may call the methods, and those that wait may be called inside tasks: that never deadlocks. With
    `Client(asynchronous=True)`, `result`, `exception`, `traceback`, `cancel` and `retry` are awaited; `await future` is
    its value in any case.
    """

    __slots__ = ("__weakref__", "_owner", "_state")

    def __init__(self, key: Any, client: FutureOwner | None = None, state: FutureState | None = None) -> None:
        """Another future of a key that one is held of: of this client's, or of any of the program's.

        Raises ValueError for other keys. Clients give the `state`.
        """
        if state is None:
            found = find(key, client)
            if found is None:
                raise ValueError(f"no future of {key!r} is held here: submit the task, or keep its future")
            client, state = found
        super().__init__(state.key)
        #: None after `release`
        self._state: FutureState | None = state
        #: None if it came with a pickle
        self._owner = client

    @property
    def state(self) -> FutureState:
        """What its key stands for. Raises CancelledError after `release`."""
        if self._state is None:
            raise CancelledError(f"the future {self.key!r} was released: submit the task anew")
        return self._state

    @property
    def client(self) -> Any:
        """The client that made it, or None if it came with a pickle."""
        return self._owner

    @property
    def engine_future(self) -> EngineFuture | None:
        """The engine's, for what `scaler.Client` can be asked of its task; None if the value is that of no task."""
        return self.state.task

    @property
    def status(self) -> str:
        """One of pending, finished, error, cancelled. Does not block."""
        return self._state.status if self._state is not None else "cancelled"

    def _repr_html_(self) -> str:
        from html import escape  # here, as it takes a millisecond and few notebooks show one

        cells = f"<tr><th>key</th><td>{escape(str(self.key))}</td></tr><tr><th>status</th><td>{self.status}</td></tr>"
        return f"<table><caption>Future</caption>{cells}</table>"

    def done(self) -> bool:
        """Whether it has ended, however it did. Does not block."""
        return self._state is None or self._state.done

    def cancelled(self) -> bool:
        """Whether it was cancelled or released. Does not block."""
        return self.status == "cancelled"

    def result(self, timeout: float | str | None = None) -> Any:
        """The value; blocks, at most `timeout` seconds.

        Raises what the task raised, CancelledError, TimeoutError, or WorkerLost, ObjectLost and the like.
        """
        return self._blocking(self.state.value, timeout)

    def exception(self, timeout: float | str | None = None) -> Any:
        """What the task raised, or None; blocks like `result`. Raises CancelledError and TimeoutError."""
        return self._blocking(self.state.error, timeout)

    def traceback(self, timeout: float | str | None = None) -> Any:
        """The traceback of what the task raised, with the worker's frames, or None; blocks like `result`."""

        def traceback(timeout: float | None) -> TracebackType | None:
            error = self.state.error(timeout)
            return with_frames(error, error.__traceback__).__traceback__ if error is not None else None

        return self._blocking(traceback, timeout)

    def add_done_callback(self, function: Callable[[Future], Any]) -> None:
        """Call `function(future)`, on a thread for all callbacks, when it has ended. What it raises is logged."""
        call = callback_of_task(partial(function, self))
        self.state.watch(lambda: _callbacks.run(call))

    def cancel(self, reason: str | None = None, msg: str | None = None) -> Any:
        """Take the task back, and let go of its value. One that runs goes on to its end. Blocks for an answer."""
        return self._its_owner().cancel([self])

    def retry(self) -> Any:
        """Run the task again if it has failed, and those of its arguments that have. Blocks shortly.

        Raises ValueError if it is not known any more what to call.
        """
        return self._its_owner().retry([self])

    def release(self) -> None:
        """Let go of the value; it is freed when no other future and no task needs it. The task is not taken back."""
        self._state = None

    def _its_owner(self) -> FutureOwner:
        if self._owner is None:
            raise ValueError(f"the future {self.key!r} came with a pickle and belongs to no client")
        return self._owner

    def _blocking(self, read: Callable[[float | None], Any], timeout: float | str | None) -> Any:
        """Read, or with an asynchronous client what is to be awaited for it."""
        seconds = seconds_of(timeout)
        if self._owner is not None and self._owner.asynchronous:
            return self._awaited(read, seconds)
        try:
            return read(seconds)
        except TimeoutError:
            if seconds is None or self.status == "error":  # of the task
                raise
            raise self._timed_out(seconds) from None

    def _timed_out(self, seconds: float) -> TimeoutError:
        return TimeoutError(f"{self.key!r}: timed out after {seconds:g} s")

    async def _awaited(self, read: Callable[[float | None], Any], seconds: float | None = None) -> Any:
        try:
            async with asyncio.timeout(seconds):
                await until_ended([self.state])
        except TimeoutError:
            assert seconds is not None
            raise self._timed_out(seconds) from None
        return await asyncio.to_thread(_without_stop, read)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._awaited(self.state.value).__await__()

    # a reference's are those of its key
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __dask_tokenize__(self) -> Any:
        return "scaler-future", self.key

    def __copy__(self) -> Future:
        return self

    def __deepcopy__(self, memo: Any) -> Future:
        return self

    def __reduce__(self) -> Any:
        return _unpickled, (self.key, self.state.value())

    def __repr__(self) -> str:
        return f"<Future: {self.status}, key: {self.key}>"

    __str__ = __repr__


def _without_stop(read: Callable[[float | None], Any]) -> Any:
    """What is read of a future that has ended. A coroutine can't raise StopIteration, and asyncio would hang."""
    try:
        return read(None)
    except StopIteration as error:
        raise RuntimeError("the task raised StopIteration, which a coroutine can't raise") from error


def _unpickled(key: Any, value: Any) -> Future:
    return Future(key, None, FutureState(key, LocalValue(value)))


def registered(registry: Registry, state: FutureState) -> Future:
    """A future of a state, for which its key stands from now on."""
    registry.add(state)
    return Future(state.key, registry.owner, state)


class PersistedPart(spec.DataNode):
    """A part of a collection that was persisted. It is pickled with the value, for graphs that tasks are given as data.

    A bare future in a graph would be a reference to its own key there, which nobody has.
    """

    __slots__ = ()

    def copy(self) -> PersistedPart:
        return PersistedPart(self.key, self.value)

    def __call__(self, values: Any = ()) -> Any:
        return self.value.state.value()

    def __reduce__(self) -> Any:
        return spec.DataNode, (self.key, self())


def as_parts(futures: Any) -> Any:
    """Futures, in nested lists, as parts of collections."""
    if isinstance(futures, list):
        return [as_parts(future) for future in futures]
    return PersistedPart(futures.key, futures)
