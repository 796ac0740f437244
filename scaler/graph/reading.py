"""Reading calls as they are written down: from tuples `(inc, "a")`, or from what a translator says that they mean.

A graph `{"a": 2, "c": (inc, "a")}` is read by `from_tuples`. Who translates another library's nodes describes each call
with a `NestedCall`, among whose arguments may be a `KeyReference`, another `NestedCall`, or a value; `build_call` makes
a node of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Any

from scaler.common.collector import collector_paused
from scaler.common.records import entity
from scaler.graph.nodes import SMALL_TYPES, Alias, Call, Constant, Key, Node, is_large
from scaler.serialize import entry

#: what makes a collection of its items again, by the collection's type
COLLECTION_BUILDERS: dict[type, Callable[..., Any]] = {
    list: entry.as_list,
    tuple: entry.as_tuple,
    set: entry.as_set,
    frozenset: entry.as_frozenset,
}


@entity
class KeyReference:
    """Stands for the value of `key` among the arguments of a call that is being read."""

    key: Key


@entity
class NestedCall:
    """Stands for an argument that is a call itself."""

    function: Callable[..., Any]
    args: Iterable[Any]
    keywords: Mapping[str, Any] | None = None


def build_call(meaning: NestedCall) -> Call:
    """Return the call that was read, its arguments being a KeyReference, a NestedCall, or a value."""
    indices: dict[Key, int] = {}
    large: list[Any] = []
    return _call_from_step(_step_of(meaning, indices, large), indices, large)


def _call_from_step(step: Any, indices: dict[Key, int], large: Collection[Any]) -> Call:
    function, args, fill, inner = step
    # Places and indices both run 0, 1, 2, ...: the arguments are the dependencies.
    if not inner and 2 * len(args) == len(fill) == 2 * len(indices):
        return Call(function, tuple(indices))
    return Call(function, tuple(indices), args, fill, inner, bool(large))


def _step_of(meaning: NestedCall, indices: dict[Key, int], large: list[Any]) -> Any:
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
        if kind is KeyReference:
            template.append(None)
            fill += place, indices.setdefault(value.key, len(indices))
        elif kind is NestedCall:
            template.append(None)
            inner.append((place, _step_of(value, indices, large)))
        else:
            template.append(value)
            if kind not in SMALL_TYPES and is_large(value):
                large.append(value)
    return function, tuple(template), tuple(fill), tuple(inner)


class UnsupportedKind(Exception):
    """A call that holds something of a kind that `call_from_tuple` was not told of."""


def call_from_tuple(
    function: Callable[..., Any], items: Collection[Any], graph: Container[Any], kinds: Container[type] | None = None
) -> Call:
    """Return the call of a function with arguments written as in `from_tuples`.

    Raises UnsupportedKind where an argument, or something in it that is looked into, is not of one of `kinds`.
    """
    # Most have keys and small values alone, and need nothing of what `_read` gets ready for what has to be looked into:
    # a third of what it takes to translate a graph of these. (One loop for both takes 0.1 to 0.2 us a call more.)
    keys: list[Key] = []
    places: list[int] = []
    for place, item in enumerate(items):
        kind = type(item)
        if kinds is not None and kind not in kinds:
            raise UnsupportedKind
        if kind is tuple and item and callable(item[0]):
            break
        try:
            is_key = item in graph
        except TypeError:  # not hashable
            break
        if is_key:
            keys.append(item)
            places.append(place)
        elif kind not in SMALL_TYPES:
            break
    else:
        if not keys:
            return Call(function, (), tuple(items))
        if len(keys) == 1 == len(items):
            return Call(function, tuple(keys))
        return _flat_call(function, items, keys, places)
    indices: dict[Key, int] = {}
    large: list[Any] = []
    return _call_from_step(_read(function, items, graph, kinds, indices, large), indices, large)


def _flat_call(function: Callable[..., Any], items: Iterable[Any], keys: list[Key], places: list[int]) -> Call:
    """Return a call of which the arguments at these places stand for the values of the keys."""
    indices = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    template = list(items)
    fill: list[int] = []
    for place, key in zip(places, keys, strict=True):
        template[place] = None
        fill += place, indices[key]
    return _call_from_step((function, tuple(template), tuple(fill), ()), indices, ())


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
            raise UnsupportedKind
        if kind is tuple and item and callable(item[0]):
            inner.append((place, _read(item[0], item[1:], graph, kinds, indices, large)))
            template.append(None)
            continue
        try:
            is_key = item in graph
        except TypeError:  # not hashable
            is_key = False
        if is_key:
            fill += place, indices.setdefault(item, len(indices))
            template.append(None)
            continue
        if kind in SMALL_TYPES:
            template.append(item)
            continue
        if kind in COLLECTION_BUILDERS:
            step = _read(COLLECTION_BUILDERS[kind], item, graph, kinds, indices, large)
            if step[2] or step[3]:  # it has something that stands for something else
                inner.append((place, step))
                template.append(None)
                continue
        template.append(item)
        if is_large(item):
            large.append(item)
    return function, tuple(template), tuple(fill), tuple(inner)


def _is_key(value: Any, graph: Container[Any]) -> bool:
    try:
        return value in graph
    except TypeError:  # not hashable, so no key
        return False


@collector_paused
def from_tuples(graph: Mapping[Any, Any]) -> dict[Any, Node]:
    """Return the nodes of a graph written as tuples.

    A tuple that starts with a callable is a call, anything that is a key of the graph stands for that key's value,
    lists, tuples and sets are looked into, and the rest is a value.

    >>> nodes = from_tuples({"a": 2, "b": (abs, "a"), "c": (sum, ["a", "b", 1])})
    >>> nodes["c"].dependencies, nodes["c"]({"a": 2, "b": 2})
    (('a', 'b'), 5)
    """
    if not isinstance(graph, Mapping):
        raise TypeError(f"a graph is a dict of keys and what they are, not of type {type(graph).__name__}")
    return {key: _node(key, value, graph) for key, value in graph.items()}


def _node(key: Any, value: Any, graph: Mapping[Any, Any]) -> Node:
    kind = type(value)
    if kind is tuple and value and callable(value[0]):
        return call_from_tuple(value[0], value[1:], graph)
    if _is_key(value, graph):
        return Alias(value) if value != key else Constant(value)
    if kind in COLLECTION_BUILDERS:
        call = call_from_tuple(COLLECTION_BUILDERS[kind], value, graph)
        if call.dependencies or call.inner:  # it has something that stands for something else
            return call
    return Constant(value)
