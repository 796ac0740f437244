"""Telling dask's callbacks (`ProgressBar` and its kin) what a computation on Scaler does.

They are made for schedulers that see each task. We see the keys that were asked for, and tell about those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

#: start(graph), start_state(graph, state), pretask(key, graph, state), posttask(key, value, graph, state, worker),
#: finish(graph, state, failed); each may be missing
Callbacks = Sequence[Any]


class Progress:
    """The callbacks of one computation; a context manager that begins and finishes them."""

    def __init__(self, callbacks: Iterable[Callbacks], graph: dict[Any, Any], wanted: Sequence[Any]) -> None:
        self._callbacks = [tuple(callback) for callback in callbacks]
        self._begun: list[tuple[Any, ...]] = []
        self._graph = graph
        #: what the callbacks look at: how many keys there are in each condition
        self._state: dict[str, Any] = {"waiting": {}, "ready": [], "running": set(wanted), "finished": set()}

    def __enter__(self) -> Progress:
        try:
            for callback in self._callbacks:
                if callback[0]:
                    callback[0](self._graph)
                self._begun.append(callback)
            self._call(1, self._graph, self._state)
            if self._callbacks:
                for key in self._state["running"]:
                    self._call(2, key, self._graph, self._state)
        except BaseException:
            self._finish(failed=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._finish(failed=error is not None)

    def finished(self, key: Any, value: Any) -> Any:
        """Tell that a key has its value, and return the value."""
        if self._callbacks:
            self._state["running"].discard(key)
            self._state["finished"].add(key)
            self._call(3, key, value, self._graph, self._state, None)
        return value

    def _finish(self, failed: bool) -> None:
        for callback in self._begun:
            if callback[4]:
                callback[4](self._graph, self._state, failed)

    def _call(self, which: int, *args: Any) -> None:
        for callback in self._callbacks:
            if callback[which]:
                callback[which](*args)
