"""Calls and graphs among whose arguments are futures.

The engine lets futures be arguments of calls, but not of rows in a graph. So where a graph needs values that are in
stores or still to come, the part that depends on them is submitted call by call, and only the rest as a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from scaler import ObjectRef
from scaler.client.graph import Order, depth_first
from scaler.client.nodes import Alias, Call, Constant, Nested, Node, Reference, call_of
from scaler.serialize import entry
from scaler_dask import remote
from scaler_dask.futures import Future
from scaler_dask.work import Work

_BUILDERS: dict[type, Callable[..., Any]] = {
    list: entry.as_list,
    tuple: entry.as_tuple,
    set: entry.as_set,
    frozenset: entry.as_frozenset,
}

#: keywords that the engine's `submit` takes for its own
_OWN = frozenset({"profiling", "stream_output"})

#: the work that a key stands for, if it is known
Find = Callable[[Any], Work | None]


def submit_call(session: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Submit a call in whose arguments futures stand for their values, also inside lists, tuples, sets and dicts."""
    if _OWN & kwargs.keys():
        names = _OWN & kwargs.keys()
        function = partial(function, **{name: kwargs[name] for name in names})
        kwargs = {name: value for name, value in kwargs.items() if name not in names}
    found: dict[Any, Future] = {}
    read = [_read(value, found) for value in args]
    read_kwargs = {name: _read(value, found) for name, value in kwargs.items()}
    if not found:
        return session.submit(function, *args, **kwargs)
    if not any(type(value) is Nested for value in (*read, *read_kwargs.values())):
        plain = [found[value.key].work.argument if type(value) is Reference else value for value in read]
        plain_kwargs = {
            name: found[value.key].work.argument if type(value) is Reference else value
            for name, value in read_kwargs.items()
        }
        return session.submit(function, *plain, **plain_kwargs)
    call = call_of(Nested(function, read, read_kwargs))
    return _submit(session, call, [found[key].work.argument for key in call.dependencies])


def works_in(values: Iterable[Any]) -> list[Work]:
    """The works of the futures in these arguments."""
    found: dict[Any, Future] = {}
    for value in values:
        _read(value, found)
    return [future.work for future in found.values()]


def _read(value: Any, found: dict[Any, Future]) -> Any:
    if isinstance(value, Future):
        found[value.key] = value
        return Reference(value.key)
    kind = type(value)
    if kind in _BUILDERS:
        items = [_read(item, found) for item in value]
        return Nested(_BUILDERS[kind], items) if _any_read(items) else value
    if kind is dict:
        items = [_read(item, found) for item in value.values()]
        if _any_read(items):
            return Nested(entry.as_dict, [part for pair in zip(value, items, strict=True) for part in pair])
    return value


def _any_read(items: list[Any]) -> bool:
    return any(type(item) is Reference or type(item) is Nested for item in items)


def _submit(session: Any, node: Node, values: list[Any]) -> Any:
    """Submit one node; `values` are those of its dependencies, or what stands for them."""
    if not isinstance(node, Call):
        return session.submit(remote.call_node, node, tuple(node.dependencies), *values)
    if node.args is None:
        return session.submit(node.function, *values)
    return session.submit(remote.fill, node.function, node.args, node.fill, node.inner, *values)


def submit_nodes(session: Any, nodes: Mapping[Any, Node], wanted: list[Any], order: Order | None, find: Find) -> Any:
    """Do as the engine's `submit_nodes`, for a graph in which keys that it lacks may be those of futures."""
    missing = {name for node in nodes.values() for name in node.dependencies if name not in nodes}
    missing.update(key for key in wanted if key not in nodes)
    works: dict[Any, Work | None] = {key: find(key) for key in missing}
    for key, node in nodes.items():
        if type(node) is Constant and isinstance(node.value, Future):
            works[key] = node.value.work
    if not works:
        return session.submit_nodes(nodes, wanted, order)
    nodes = dict(nodes)
    #: what has to be an argument of a call
    given: dict[Any, Any] = {}
    for key, work in works.items():
        if work is None:
            continue  # the planner knows if it is needed, and what to say then
        if isinstance(work.inner, ObjectRef) or not work.done or getattr(work.inner, "is_stored", False):
            given[key] = work.inner
            nodes[key] = Constant(None)
        else:
            nodes[key] = _ended(work)
    sequence = depth_first(nodes, wanted)
    behind = set(given)
    for key in sequence:
        if not behind.isdisjoint(nodes[key].dependencies):
            behind.add(key)
    later = [key for key in sequence if key in behind and key not in given]
    needed = [name for key in later for name in nodes[key].dependencies]
    first = [key for key in dict.fromkeys([*needed, *wanted]) if key not in behind]
    values = dict(given)
    if first:
        values.update(zip(first, session.submit_nodes(nodes, first), strict=True))
    for key in later:
        node = nodes[key]
        if isinstance(node, Alias):
            values[key] = values[node.target]
        else:
            values[key] = _submit(session, node, [values[name] for name in node.dependencies])
    return [
        session.submit(remote.same, values[key]) if isinstance(values[key], ObjectRef) else values[key]
        for key in wanted
    ]


def _ended(work: Work) -> Node:
    """A node for work whose outcome is here."""
    try:
        return Constant(work.value(0))
    except BaseException as error:
        return Call(remote.fail, (), (error,))


def prepared(nodes: Mapping[Any, Node], wrap: Callable[[Callable[..., Any]], Any]) -> dict[Any, Node]:
    """The graph with the function of each call wrapped."""
    made: dict[Any, Node] = {}
    for key, node in nodes.items():
        if isinstance(node, Call):
            node = Call(
                wrap(node.function),
                node.dependencies,
                node.args,
                node.fill,
                node.inner,
                node.has_large,
            )
        made[key] = node
    return made
