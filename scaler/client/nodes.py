"""The nodes of a graph: calls, constants, other names; and reading them from `{"a": 2, "c": (inc, "a")}`.

A node is anything with `dependencies` (keys) that can be called with a mapping of their values. The three kinds here
are those that the planner sees through; any other object of that shape, such as a dask GraphNode, runs as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any, Protocol

from scaler.client.reference import Elsewhere
from scaler.common.collector import collector_paused
from scaler.serialize import entry
from scaler.serialize.entry import fill_in

Key = Hashable

#: values estimated larger than this, in bytes, are sent once, as objects, and not inside the rows that use them
LARGE = 65536

#: types whose values are never large; for speed
_SMALL = frozenset({int, float, bool, type(None), complex, slice, type, FunctionType, BuiltinFunctionType})


#: what makes a list of values again, by the type of the list
BUILDERS: dict[type, Callable[..., Any]] = {
    list: entry.as_list,
    tuple: entry.as_tuple,
    set: entry.as_set,
    frozenset: entry.as_frozenset,
}


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


class Call:
    """A function call whose arguments, at any depth of lists and nested calls, may be the values of other nodes."""

    __slots__ = ("args", "dependencies", "fill", "function", "has_large", "inner")

    def __init__(
        self,
        function: Callable[..., Any],
        dependencies: tuple[Key, ...],
        args: Sequence[Any] | None = None,
        fill: Sequence[int] = (),
        inner: Any = (),
        has_large: bool = False,
    ) -> None:
        self.function = function
        #: keys, each once; `fill` counts in it
        self.dependencies = dependencies
        #: as in a step of `scaler.serialize.entry`; None if the arguments are just the dependencies
        self.args = args
        self.fill = fill
        self.inner = inner
        #: whether some argument in `args` is LARGE
        self.has_large = has_large

    def __call__(self, values: Mapping[Any, Any], /) -> Any:
        """Call the function with the arguments filled in."""
        found = [values[key] for key in self.dependencies]
        if self.args is None:
            return self.function(*found)
        return fill_in(self.function, self.args, self.fill, self.inner, found)


class Reference:
    """Stands for the value of `key` among the arguments of a call that is being read."""

    __slots__ = ("key",)

    def __init__(self, key: Key) -> None:
        self.key = key


class Nested:
    """Stands for an argument that is a call itself."""

    __slots__ = ("args", "function", "keywords")

    def __init__(
        self, function: Callable[..., Any], args: Iterable[Any], keywords: Mapping[str, Any] | None = None
    ) -> None:
        self.function = function
        self.args = args
        self.keywords = keywords


def call_of(meaning: Nested) -> Call:
    """Return the call that was read, its arguments being a Reference, a Nested, or a value."""
    indices: dict[Key, int] = {}
    large: list[Any] = []
    return _call_of_step(_step_of(meaning, indices, large), indices, large)


def _call_of_step(step: Any, indices: dict[Key, int], large: list[Any]) -> Call:
    function, args, fill, inner = step
    # Places and indices both run 0, 1, 2, ...: the arguments are the dependencies.
    if not inner and 2 * len(args) == len(fill) == 2 * len(indices):
        return Call(function, tuple(indices))
    return Call(function, tuple(indices), args, fill, inner, bool(large))


def _step_of(meaning: Nested, indices: dict[Key, int], large: list[Any]) -> Any:
    """Return (function, args, fill, inner); collect the keys and the large values that were met."""
    function, args = meaning.function, meaning.args
    if meaning.keywords:
        args = (function, tuple(meaning.keywords), *args, *meaning.keywords.values())
        function = entry.with_keywords
    template: list[Any] = []
    fill: list[int] = []
    inner = []
    for place, value in enumerate(args):
        kind = type(value)
        if kind is Reference:
            template.append(None)
            fill += place, indices.setdefault(value.key, len(indices))
        elif kind is Nested:
            template.append(None)
            inner.append((place, _step_of(value, indices, large)))
        else:
            template.append(value)
            if kind not in _SMALL and is_large(value):
                large.append(value)
    return function, tuple(template), tuple(fill), tuple(inner)


def is_large(value: Any) -> bool:
    """Say whether a value is better sent once than copied into each row that uses it, or is in the cluster already."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) > LARGE
    if kind in _SMALL or (kind in BUILDERS and len(value) < 1000 and _SMALL.issuperset(map(type, value))):
        return False
    return isinstance(value, Elsewhere) or _estimate(value, 2) > LARGE


def _estimate(value: Any, depth: int) -> float:
    """Return about how many bytes a value takes, by a look at some of its items."""
    kind = type(value)
    try:
        if kind in BUILDERS or kind is dict:
            items = list(itertools.islice(value.values() if kind is dict else value, 8)) if depth else []
            per_item = sum(_estimate(item, depth - 1) for item in items) / (len(items) or 1)
            return float(len(value) * (8 + per_item))
        size = getattr(value, "nbytes", None)
        return float(size if type(size) is int else value.__sizeof__())
    except Exception:  # a class, or an object that cannot tell
        return 0.0


class Unusual(Exception):
    """A call that holds something of a kind that `call_of_tuple` was not told of."""


def call_of_tuple(
    function: Callable[..., Any],
    items: Iterable[Any],
    graph: Container[Any],
    kinds: Container[type] | None = None,
) -> Call:
    """Return the call of a function with arguments written as in `from_tuples`.

    Raises Unusual where an argument, or something in it that is looked into, is not of one of `kinds`.
    """
    indices: dict[Key, int] = {}
    large: list[Any] = []
    return _call_of_step(_read(function, items, graph, kinds, indices, large), indices, large)


def _read(
    function: Callable[..., Any],
    items: Iterable[Any],
    graph: Container[Any],
    kinds: Container[type] | None,
    indices: dict[Key, int],
    large: list[Any],
) -> Any:
    """Return (function, args, fill, inner); collect keys and large values."""
    template: list[Any] = []
    fill: list[int] = []
    inner: list[Any] = []
    for place, item in enumerate(items):
        kind = type(item)
        if kinds is not None and kind not in kinds:
            raise Unusual
        if kind is tuple and item and callable(item[0]):
            inner.append((place, _read(item[0], item[1:], graph, kinds, indices, large)))
            template.append(None)
            continue
        if _is_key(item, graph):
            fill += place, indices.setdefault(item, len(indices))
            template.append(None)
            continue
        if kind in BUILDERS:
            step = _read(BUILDERS[kind], item, graph, kinds, indices, large)
            if step[2] or step[3]:  # it has something that stands for something else
                inner.append((place, step))
                template.append(None)
                continue
        template.append(item)
        if kind not in _SMALL and is_large(item):
            large.append(item)
    return function, tuple(template), tuple(fill), tuple(inner)


def _is_key(value: Any, graph: Container[Any]) -> bool:
    try:
        return value in graph
    except TypeError:  # not hashable, so no key
        return False


def from_tuples(graph: Mapping[Any, Any]) -> dict[Any, Node]:
    """Return the nodes of a graph written as tuples.

    A tuple that starts with a callable is a call, anything that is a key of the graph stands for that key's value,
    lists, tuples and sets are looked into, and the rest is a value.

    >>> nodes = from_tuples({"a": 2, "b": (abs, "a"), "c": (sum, ["a", "b", 1])})
    >>> nodes["c"].dependencies, nodes["c"]({"a": 2, "b": 2})
    (('a', 'b'), 5)
    """
    with collector_paused:
        return {key: _node(key, value, graph) for key, value in graph.items()}


def _node(key: Any, value: Any, graph: Mapping[Any, Any]) -> Node:
    kind = type(value)
    if kind is tuple and value and callable(value[0]):
        return call_of_tuple(value[0], value[1:], graph)
    if _is_key(value, graph):
        return Alias(value) if value != key else Constant(value)
    if kind in BUILDERS:
        call = call_of_tuple(BUILDERS[kind], value, graph)
        if call.dependencies or call.inner:  # it has something that stands for something else
            return call
    return Constant(value)
