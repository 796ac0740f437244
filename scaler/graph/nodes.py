"""The nodes of a graph: calls, constants, other names for a value; and what counts as a large value among them.

A node is anything with `dependencies` (keys) that can be called with a mapping of their values. The three kinds here
are those that the planner sees through; any other object of that shape, such as a dask GraphNode, runs as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any, Protocol

from scaler.common.records import entity
from scaler.graph.remote_value import RemoteValue
from scaler.serialize.entry import fill_in

Key = Hashable

#: values estimated larger than this, in bytes, are sent once, as objects, and not inside the rows that use them
LARGE = 65536

#: types whose values are never large; for speed
SMALL_TYPES = frozenset({int, float, bool, type(None), complex, slice, type, FunctionType, BuiltinFunctionType})

#: types into which is looked for large values
_COLLECTIONS = frozenset({list, tuple, set, frozenset})

#: how many values are looked at to say how large one is, and how many of each collection among them
_LOOKS = 72
_LOOKS_EACH = 8


class Node(Protocol):
    """One vertex of a graph."""

    @property
    def dependencies(self) -> Iterable[Any]:
        """The keys whose values it needs."""
        ...

    def __call__(self, values: Mapping[Any, Any], /) -> Any:
        """Return its own value."""
        ...


class Constant:
    """A value that is there already."""

    __slots__ = ("value",)
    dependencies: tuple[Key, ...] = ()

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, values: Mapping[Any, Any], /) -> Any:
        """Return the value."""
        return self.value


class Alias:
    """Another name for the value of `target`."""

    __slots__ = ("target",)

    def __init__(self, target: Key) -> None:
        self.target = target

    @property
    def dependencies(self) -> tuple[Key, ...]:
        """The target alone."""
        return (self.target,)

    def __call__(self, values: Mapping[Any, Any], /) -> Any:
        """Return the target's value."""
        return values[self.target]


@entity
class Call:
    """A function call whose arguments, at any depth of lists and nested calls, may be the values of other nodes."""

    function: Callable[..., Any]
    #: keys, each once; `fill` counts in it
    dependencies: tuple[Key, ...]
    #: as in a step of `scaler.serialize.entry`; None if the arguments are just the dependencies
    args: Sequence[Any] | None = None
    fill: Sequence[int] = ()
    inner: Any = ()
    #: whether some argument in `args` is LARGE
    has_large: bool = False

    def __call__(self, values: Mapping[Any, Any], /) -> Any:
        """Call the function with the arguments filled in."""
        found = [values[key] for key in self.dependencies]
        if self.args is None:
            return self.function(*found)
        return fill_in(self.function, self.args, self.fill, self.inner, found)


def is_large(value: Any) -> bool:
    """Say whether a value is better sent once than copied into each row that uses it, or is in the cluster already."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) > LARGE
    if kind in SMALL_TYPES or (kind in _COLLECTIONS and len(value) < 1000 and SMALL_TYPES.issuperset(map(type, value))):
        return False
    return isinstance(value, RemoteValue) or _estimate(value) > LARGE


def _estimate(value: Any) -> float:
    """Return about how many bytes a value takes, by a look at some of what is in it: at what is less deep first."""
    total = 0.0
    left = _LOOKS
    #: (a value, how many like it there may be)
    seen: list[tuple[Any, float]] = [(value, 1.0)]
    for item, times in seen:
        kind = type(item)
        try:
            if kind in _COLLECTIONS or kind is dict:
                total += times * 8 * len(item)
                inner = list(itertools.islice(item.values() if kind is dict else item, min(left, _LOOKS_EACH)))
                left -= len(inner)
                seen += [(value, times * len(item) / len(inner)) for value in inner]
            else:
                size = getattr(item, "nbytes", None)
                if type(size) is not int:
                    size = 0 if _is_empty_table(item) else item.__sizeof__()
                total += times * size
        except Exception:  # a class, or an object that cannot tell
            continue
    return total


def _is_empty_table(item: Any) -> bool:
    """It has no rows: what dask gives to each task to say which columns there are. A look inside takes 0.4 ms."""
    return getattr(item, "size", None) == 0 and hasattr(item, "memory_usage")
