"""Dask's graph nodes to Scaler's, so that the planner sees through them.

Done for the exact classes of `dask._task_spec` that we know; a node of any other class runs as it is. It is also what
makes rows small: a dask Task pickles with nine attributes, ours as a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from dask import _task_spec as spec

from scaler import graph as tasks
from scaler.graph import COLLECTION_BUILDERS, Alias, Constant, KeyReference, NestedCall, Node
from scaler_dask.keyed_future import PersistedPart

#: subgraphs with more tasks than this are left to dask: nested calls are as deep as the chain is long
_DEEPEST = 64

_CONTAINERS: dict[type, Callable[..., Any]] = {
    spec.List: tasks.as_list,
    spec.Tuple: tasks.as_tuple,
    spec.Set: tasks.as_set,
}

#: arguments that mean themselves; for speed
_PLAIN = frozenset({bool, bytes, float, int, slice, str, tuple, type(None)})

#: what a key that is referred to means
_Resolve = Callable[[Any], Any]


#: what `tasks.call_from_tuple` reads as dask does
_KINDS = frozenset({bool, float, frozenset, int, list, set, str, tuple, type(None)})
#: those of them that refer to no key, though it may be one: such keys can be asked for, and a TaskRef refers to them
_NEVER_KEYS = (frozenset, type(None))


def translate(graph: Mapping[Any, Any]) -> dict[Any, Node]:
    """Return a graph of dask's nodes, or of tuples, as nodes for `plan`."""
    nodes: dict[Any, Node] = {}
    referable: Container[Any] = graph
    if any(issubclass(kind, _NEVER_KEYS) for kind in set(map(type, graph))):
        # no set: that would look for a set as for a frozenset
        referable = dict.fromkeys(key for key in graph if not isinstance(key, _NEVER_KEYS))
    for key, value in graph.items():
        if type(value) is tuple and value and callable(value[0]):
            try:
                nodes[key] = tasks.call_from_tuple(value[0], value[1:], referable, _KINDS)
                continue
            except tasks.UnsupportedKind:
                pass
        if not isinstance(value, spec.GraphNode):
            value = spec.convert_legacy_task(key, value, graph)
            if type(value) is spec.Alias and _target(value) == key:
                continue  # to dask it is a key of another graph
        nodes[key] = _node(value)
    return nodes


def _node(node: Any) -> Node:
    kind = type(node)
    if kind is spec.DataNode or kind is PersistedPart:
        return Constant(node.value)
    if kind is spec.Alias:
        return Alias(_target(node))
    if not isinstance(node, spec.GraphNode):
        return Constant(node)
    meaning = _read(node, KeyReference)
    return tasks.build_call(meaning) if type(meaning) is NestedCall else Constant(meaning)


def _read(arg: Any, resolve: _Resolve) -> Any:
    """Return what an argument of a dask task means: a NestedCall for a call, a KeyReference for a key, or the value."""
    kind = type(arg)
    if kind in _PLAIN:
        return arg
    if kind is spec.TaskRef:
        return resolve(arg.key)
    if kind is spec.Task:
        return _task(arg, resolve)
    if kind is spec.Alias:
        return resolve(_target(arg))
    if kind is spec.DataNode:
        return arg.value
    if kind is PersistedPart:
        return resolve(arg.key)
    if kind in _CONTAINERS:
        return NestedCall(_CONTAINERS[kind], [_read(item, resolve) for item in arg.args])
    if kind is spec.Dict:
        return NestedCall(tasks.as_dict, [_read(item, resolve) for item in _flat(arg.args)])
    if isinstance(arg, spec.TaskRef):  # a future of another library
        return resolve(arg.key)
    if isinstance(arg, spec.GraphNode):  # a class we do not know
        keys = tuple(arg.dependencies)
        return NestedCall(tasks.call_node, [arg, keys, *map(resolve, keys)])
    return arg


def _task(task: Any, resolve: _Resolve) -> NestedCall:
    function, args, keywords = task.func, task.args, task.kwargs
    if function is spec._execute_subgraph:
        args = _without_persisted(args)
        unfolded = _unfold(args, resolve)
        if unfolded is not None:
            return unfolded
    if function is spec._identity_cast and len(keywords) == 1:
        cast = COLLECTION_BUILDERS.get(_read(keywords["typ"], resolve))
        if cast is not None:
            return NestedCall(cast, [_read(arg, resolve) for arg in args])
    return NestedCall(
        function,
        [_read(arg, resolve) for arg in args],
        {name: _read(arg, resolve) for name, arg in keywords.items()} if keywords else None,
    )


def _unfold(args: tuple[Any, ...], resolve: _Resolve) -> NestedCall | None:
    """Return the subgraph of a fused task as nested calls, or None where a value inside is used twice.

    Dask would put the subgraph into order anew each time it is called, at several times the cost of a small task.
    """
    inner, output, inputs, *outer = args
    if isinstance(inputs, (dict, spec.Dict)):  # two mappings, in 2024
        given = {key: value for part in (inputs, *outer) for key, value in _items(part)}
    else:
        given = dict(zip(inputs, outer, strict=True))
    if len(inner) > _DEEPEST:
        return None
    seen: set[Any] = set()

    def resolve_inside(key: Any) -> Any:
        if key in given:
            return _read(given[key], resolve)
        if key in seen:
            raise _UsedTwice
        seen.add(key)
        return _read(inner[key], resolve_inside)

    try:
        meaning = resolve_inside(output)
    except (_UsedTwice, KeyError):
        return None
    if len(seen) != len(inner):
        return None
    return meaning if type(meaning) is NestedCall else NestedCall(tasks.itself, [meaning])


def _without_persisted(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a fused task in which parts of persisted collections come from outside."""
    inner, output, inputs, *outer = args
    keys = [key for key, node in inner.items() if type(node) is PersistedPart]
    if not keys:
        return args
    inner = {key: node for key, node in inner.items() if type(node) is not PersistedPart}
    if isinstance(inputs, (dict, spec.Dict)):  # two mappings, in 2024
        outside = {**dict(_items(inputs)), **{key: spec.Alias(key) for key in keys}}
        return (inner, output, spec.Dict(outside), *outer)
    return (inner, output, (*inputs, *keys), *outer, *map(spec.TaskRef, keys))


class _UsedTwice(Exception):
    """A value inside a subgraph is needed in two places."""


def _target(alias: Any) -> Any:
    """Return the key that an alias stands for; it was wrapped in 2024."""
    target = alias.target
    return target.key if isinstance(target, spec.TaskRef) else target


def _items(mapping: Any) -> list[tuple[Any, Any]]:
    """Return the items of a dict, or of dask's Dict."""
    if isinstance(mapping, dict):
        return list(mapping.items())
    flat = _flat(mapping.args)
    return list(zip(flat[::2], flat[1::2], strict=True))


def _flat(items: tuple[Any, ...]) -> list[Any]:
    """Return keys and values of a Dict in turn; in 2024 they came as Tuples of two."""
    if items and all(type(item) is spec.Tuple for item in items) and not issubclass(spec.Dict, Mapping):
        return [part for item in items for part in item.args]
    return list(items)
