"""Which futures need the values of others, for cancelling these: there will be no values for them then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from scaler.graph import Node
from scaler_dask.future_state import FutureState


def with_dependents(states: Iterable[FutureState]) -> dict[FutureState, FutureState]:
    """These, and those under way that need a value of them, or of each other: for each the one of these it is for."""
    found = {state: state for state in states}
    todo = list(found)
    while todo:
        needed = todo.pop()
        for state in needed.dependents():
            if state not in found and not state.done:
                found[state] = found[needed]
                todo.append(state)
    return found


class GraphDependents:
    """The futures of a graph that was given other futures for some of its keys."""

    __slots__ = ("__weakref__", "_given", "_made", "_nodes")

    def __init__(self, nodes: Mapping[Any, Node], given: Mapping[Any, FutureState]) -> None:
        self._nodes = nodes
        self._given = WeakValueDictionary(given)
        self._made: WeakValueDictionary[Any, FutureState] = WeakValueDictionary()
        for state in given.values():
            state.note_dependents(self)

    def add(self, state: FutureState) -> None:
        """The future of one of its keys."""
        self._made[state.key] = state
        state.graph = self

    def needing(self, state: FutureState) -> list[FutureState]:
        """Those that need a value which the graph was given."""
        users: dict[Any, list[Any]] = defaultdict(list)
        for key, node in self._nodes.items():
            for name in node.dependencies:
                users[name].append(key)
        todo = [key for key, given in self._given.items() if given is state]
        found: dict[Any, FutureState | None] = {}
        while todo:
            for key in users.get(todo.pop(), ()):
                if key not in found:
                    found[key] = self._made.get(key)
                    todo.append(key)
        return [made for made in found.values() if made is not None]
