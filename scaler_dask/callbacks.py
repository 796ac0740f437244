"""Telling dask's callbacks (`ProgressBar`, `Profiler`, `Cache` and their kin) what a computation on Scaler does.

They are made for schedulers that see each task. So while one is active that looks at tasks, all keys of the graph are
asked for, one task each, and their values come here; without one, only what the user wants does. Large values stay in
their stores if no callback is given them: None stands for them in the state. A key counts as running from when its
dependencies have ended, since nobody tells when a worker begins it. The state that they look at is kept by dask's own
functions: as there, a value is let go of when the keys that need it have ended.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Sequence
from types import TracebackType
from typing import Any

from dask import _task_spec as spec
from dask.local import finish_task, start_state_from_dask
from dask.order import order

from scaler.extension import Future, as_ended
from scaler.graph import collector_paused

#: start(graph), start_state(graph, state), pretask(key, graph, state), posttask(key, value, graph, state, worker),
#: finish(graph, state, failed); each may be missing
Callbacks = Sequence[Any]


class CallbackRun:
    """The callbacks of one computation; a context manager that begins and finishes them."""

    def __init__(self, callbacks: Iterable[Callbacks], graph: dict[Any, Any], wanted: Sequence[Any]) -> None:
        self._callbacks = [tuple(callback) for callback in callbacks]
        self._begun: list[tuple[Any, ...]] = []
        #: some look at tasks; and some are given their values
        self._sees_keys = any(map(_looks_at_keys, self._callbacks))
        self._sees_values = any(callback[3] for callback in self._callbacks)
        #: dask's nodes; callbacks may change it before anything runs
        self._graph = graph
        self._wanted = wanted
        #: the values of these stay
        self._kept = frozenset(wanted)
        #: of each key, when dask would compute it
        self._order: dict[Any, int] = {}
        #: what the callbacks look at, as dask's own schedulers keep it
        self._state: dict[str, Any] = {}

    def __enter__(self) -> CallbackRun:
        try:
            for callback in self._callbacks:
                if callback[0]:
                    callback[0](self._graph)
                self._begun.append(callback)
            if self._callbacks:
                self._leave_out_unneeded()
            if self._sees_keys:
                self._make_state()
                self._call(1, self._graph, self._state)
        except BaseException:
            self._finish(failed=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._finish(failed=error is not None)

    def _leave_out_unneeded(self) -> None:
        """A callback that knows some values has put them into the graph: what they were to be made of goes."""
        needed = spec.cull(spec.convert_legacy_graph(self._graph), self._wanted)
        self._graph.clear()
        self._graph.update(needed)

    @collector_paused
    def _make_state(self) -> None:
        self._order = order(self._graph)
        self._state = start_state_from_dask(self._graph, sortkey=self._order.get)  # type: ignore[no-untyped-call]

    def asked_for(self, wanted: list[Any]) -> list[Any]:
        """What has to come here: what is wanted, and behind it what the callbacks want to see."""
        if not self._sees_keys:
            return wanted
        return list(dict.fromkeys([*wanted, *self._state["waiting"], *self._state["ready"]]))

    def follow(self, keys: Sequence[Any], futures: list[Any]) -> None:
        """Tell of each key when it has its value; blocks until all have. Raises what a task has raised.

        `futures` are those of `keys`. Only those of what is wanted are left in it, and if this raises, those that were
        not told of: all others are let go of as they are told of, so that their values take no room.
        """
        if not self._sees_keys:
            return
        state = self._state
        tasks = {*state["waiting"], *state["ready"]}
        of: dict[Future, list[Any]] = {}
        for key, future in zip(keys, futures, strict=True):
            of.setdefault(future, []).extend([key] if key in tasks else [])
        del futures[len(self._wanted) :]
        #: values that came before those which they need were told
        early: dict[Any, Any] = {}
        try:
            self._start_ready()
            for future in as_ended(of):
                its_keys = of.pop(future)
                is_left = not self._sees_values and future.is_unread and self._kept.isdisjoint(its_keys)
                value = None if is_left else future.result()
                early.update(dict.fromkeys(its_keys, value))
                del future, value
                told = [key for key in its_keys if key in state["running"]]
                while told:
                    key = told.pop()
                    self._ends(key, early.pop(key))
                    told += [freed for freed in self._start_ready() if freed in early]
        except BaseException:
            futures += of.keys() - set(futures)
            raise

    def _start_ready(self) -> list[Any]:
        """Tell of the keys that have all they need, the first in dask's order first; these."""
        ready, started = self._state["ready"], []
        while ready:
            key = ready.pop()
            started.append(key)
            self._state["running"].add(key)
            self._call(2, key, self._graph, self._state)
        return started

    def _ends(self, key: Hashable, value: Any) -> None:
        """Tell that a key has its value; those that lacked nothing else are ready by that."""
        state = self._state
        state["cache"][key] = value
        finish_task(self._graph, key, state, self._kept, self._order.get)  # type: ignore[no-untyped-call]
        self._call(3, key, value, self._graph, state, None)

    def _finish(self, failed: bool) -> None:
        for callback in self._begun:
            if callback[4]:
                callback[4](self._graph, self._state, failed)

    def _call(self, which: int, *args: Any) -> None:
        for callback in self._callbacks:
            if callback[which]:
                callback[which](*args)


def _looks_at_keys(callback: Callbacks) -> bool:
    """All do but one with nothing between start and finish, if it is known that its finish does without the state."""
    profile = sys.modules.get("dask.diagnostics.profile")
    of_resources = profile is not None and getattr(callback[4], "__func__", None) is profile.ResourceProfiler._finish
    return any(callback[1:4]) or bool(callback[4] and not of_resources)
