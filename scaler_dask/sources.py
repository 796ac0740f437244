"""Where the value of a key comes from: a task, an object that was sent, or nowhere else than this process."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable
from typing import Any

from scaler import Client as Engine
from scaler import ObjectRef
from scaler.extension import Future as EngineFuture
from scaler_dask.frames import with_frames


class TaskValue:
    """What a task returns, or has raised. Any thread may ask it, as all sources; only `value` and `error` block."""

    __slots__ = ("future",)

    def __init__(self, future: EngineFuture) -> None:
        self.future = future

    @property
    def status(self) -> str:
        """One of pending, finished, error, cancelled. Brings no value here."""
        future = self.future
        if not future.done():
            return "pending"
        if future.cancelled():
            return "cancelled"
        error = None if future.is_stored else future.exception(0)  # which would bring a value here that is stored
        if error is None:
            return "finished"
        return "cancelled" if isinstance(error, concurrent.futures.CancelledError) else "error"

    @property
    def done(self) -> bool:
        """Whether it is known how it ends."""
        return self.future.done()

    @property
    def argument(self) -> Any:
        """What the engine's tasks are given for the value. Raises what has been instead of it."""
        return self.future

    def value(self, timeout: float | None) -> Any:
        """The value, which nobody else has; raises like `result` of the engine's futures."""
        left = timeout if self.future.done() else self.future.wait_until_done(timeout)
        error = None if self.future.is_stored else self.future.exception(0)
        if error is None:
            return self.future.fresh_result(left)
        try:
            raise with_frames(error)  # here, as a thread in which the engine raises it would take the frames away
        finally:
            del error  # whose traceback keeps this frame

    def error(self, timeout: float | None) -> BaseException | None:
        """What the task has raised, or None; raises CancelledError and TimeoutError."""
        return self.future.exception(timeout)

    def call_when_done(self, callback: Callable[[], None]) -> None:
        """Call this, from any thread, when it is done; at once if it is."""
        self.future.add_done_callback(lambda _: callback())


class _Ended:
    """A source of which it is known how it ends."""

    __slots__ = ()
    status = "finished"
    done = True

    def error(self, timeout: float | None) -> BaseException | None:
        return None

    def call_when_done(self, callback: Callable[[], None]) -> None:
        callback()


class SentValue(_Ended):
    """An object that was sent to the cluster."""

    __slots__ = ("_reference", "engine")

    def __init__(self, engine: Engine, reference: ObjectRef) -> None:
        #: reads it
        self.engine = engine
        self._reference = reference

    @property
    def argument(self) -> Any:
        return self._reference

    def value(self, timeout: float | None) -> Any:
        return request([self])[self].result(timeout)


def request(sent: Iterable[SentValue]) -> dict[SentValue, EngineFuture]:
    """Ask for the values of all at once: the futures that bring them here. Does not block."""
    by_engine: dict[Engine, list[SentValue]] = {}
    for source in sent:
        by_engine.setdefault(source.engine, []).append(source)
    requested: dict[SentValue, EngineFuture] = {}
    for engine, sources in by_engine.items():
        graph = {index: source.argument for index, source in enumerate(sources)}
        requested.update(zip(sources, engine.submit_graph(graph, list(graph)), strict=True))
    return requested


class LocalValue(_Ended):
    """A value that is in this process, as that of a future that was pickled."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    @property
    def argument(self) -> Any:
        return self._value

    def value(self, timeout: float | None) -> Any:
        return self._value


class NoValue(_Ended):
    """There will be none: it was cancelled."""

    __slots__ = ("_key",)
    status = "cancelled"

    def __init__(self, key: Any) -> None:
        self._key = key

    @property
    def argument(self) -> Any:
        raise self._error()

    def value(self, timeout: float | None) -> Any:
        raise self._error()

    def error(self, timeout: float | None) -> BaseException | None:
        raise self._error()

    def _error(self) -> concurrent.futures.CancelledError:
        return concurrent.futures.CancelledError(
            f"{self._key!r} was cancelled, itself or with all else by `restart`: submit the task anew"
        )


Source = TaskValue | SentValue | LocalValue | NoValue
