"""Telling dask's callbacks (`ProgressBar`, `Profiler`, `Cache` and their kin) what a computation on Scaler does.

They are made for schedulers that see each task. So while one is active, all keys of the graph are asked for, one task
each, and their values come here; without one, only what the user wants does. A key counts as running from when its
dependencies have ended, since nobody tells when a worker begins it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import Future, as_completed
from types import TracebackType
from typing import Any

from dask.local import start_state_from_dask

#: start(graph), start_state(graph, state), pretask(key, graph, state), posttask(key, value, graph, state, worker),
#: finish(graph, state, failed); each may be missing
Callbacks = Sequence[Any]


class CallbackRun:
    """The callbacks of one computation; a context manager that begins and finishes them."""

    def __init__(self, callbacks: Iterable[Callbacks], graph: dict[Any, Any]) -> None:
        self._callbacks = [tuple(callback) for callback in callbacks]
        self._begun: list[tuple[Any, ...]] = []
        #: dask's nodes; callbacks may change it before anything runs
        self._graph = graph
        #: what the callbacks look at, as dask's own schedulers keep it
        self._state: dict[str, Any] = {}

    def __enter__(self) -> CallbackRun:
        try:
            for callback in self._callbacks:
                if callback[0]:
                    callback[0](self._graph)
                self._begun.append(callback)
            if self._callbacks:
                self._state = start_state_from_dask(self._graph)  # type: ignore[no-untyped-call]
                self._call(1, self._graph, self._state)
        except BaseException:
            self._finish(failed=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._finish(failed=error is not None)

    def asked_for(self, wanted: list[Any]) -> list[Any]:
        """What has to come here: what is wanted, and what the callbacks want to see."""
        if not self._callbacks:
            return wanted
        return list(dict.fromkeys([*wanted, *self._state["waiting"], *self._state["ready"]]))

    def follow(self, keys: Sequence[Any], futures: Sequence[Future[Any]]) -> None:
        """Tell of each key when it has its value; blocks until all have. Raises what a task has raised."""
        if not self._callbacks:
            return
        state = self._state
        of: dict[Future[Any], list[Any]] = {}
        for key, future in zip(keys, futures, strict=True):
            of.setdefault(future, []).append(key)
        for key in list(state["ready"]):
            self._starts(key)
        early: dict[Any, Any] = {}
        for future in as_completed(of):
            value = future.result()
            early.update((key, value) for key in of[future] if key not in state["cache"])
            told = [key for key in of[future] if key in early]
            while told:
                key = told.pop()
                if key in early and key not in state["waiting"]:  # what it needs was told before
                    told += self._ends(key, early.pop(key))

    def _starts(self, key: Hashable) -> None:
        state = self._state
        if key in state["running"] or key in state["finished"]:
            return
        if key in state["ready"]:
            state["ready"].remove(key)
        state["waiting"].pop(key, None)
        state["running"].add(key)
        self._call(2, key, self._graph, state)

    def _ends(self, key: Hashable, value: Any) -> list[Any]:
        """Tell that a key has its value; the keys that have all they need by that."""
        state = self._state
        self._starts(key)
        state["running"].discard(key)
        state["finished"].add(key)
        freed = []
        for dependent in state["dependents"].get(key, ()):
            lacking = state["waiting"].get(dependent)
            if lacking is not None:
                lacking.discard(key)
                if not lacking:
                    freed.append(dependent)
        self._call(3, key, value, self._graph, state, None)
        for dependent in freed:
            self._starts(dependent)
        return freed

    def _finish(self, failed: bool) -> None:
        for callback in self._begun:
            if callback[4]:
                callback[4](self._graph, self._state, failed)

    def _call(self, which: int, *args: Any) -> None:
        for callback in self._callbacks:
            if callback[which]:
                callback[which](*args)
