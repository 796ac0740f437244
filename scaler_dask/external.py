"""Calls and graphs among whose arguments are this client's futures.

In calls they may be deep inside lists and dicts; graphs may refer to them by their keys alone. What the engine is given
are its own futures, as nodes of a graph or as arguments of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from scaler.client.nodes import BUILDERS, Call, Constant, Nested, Node, Reference, call_of
from scaler.serialize import entry
from scaler_dask import remote
from scaler_dask.futures import Future
from scaler_dask.work import Work

#: keywords that the engine's `submit` takes for its own
_OWN = frozenset({"profiling", "stream_output"})

#: the work that a key stands for, if it is known
Find = Callable[[Any], Work | None]


def submit_call(
    session: Any, key: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
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
    nodes: dict[Any, Node] = {name: _node(future.work) for name, future in found.items()}
    nodes[key] = call_of(Nested(function, read, read_kwargs))
    return session.submit_nodes(nodes, [key])[0]


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
    if kind in BUILDERS:
        items = [_read(item, found) for item in value]
        return Nested(BUILDERS[kind], items) if _any_read(items) else value
    if kind is dict:
        items = [_read(item, found) for item in value.values()]
        if _any_read(items):
            return Nested(entry.as_dict, [part for pair in zip(value, items, strict=True) for part in pair])
    return value


def _any_read(items: list[Any]) -> bool:
    return any(type(item) is Reference or type(item) is Nested for item in items)


def given(nodes: Mapping[Any, Node], wanted: Iterable[Any], find: Find, live: Iterable[Work]) -> dict[Any, Node]:
    """Nodes for keys that a graph need not compute.

    They are those that it lacks and that are works, those that are just a future, and those that are `live` works.
    """
    missing = {name for node in nodes.values() for name in node.dependencies if name not in nodes}
    missing.update(key for key in wanted if key not in nodes)
    found = {key: _node(work) for key in missing if (work := find(key)) is not None}
    for key, node in nodes.items():
        if type(node) is Constant and isinstance(node.value, Future):
            found[key] = _node(node.value.work)
    for work in live:
        if work.key in nodes and work.key not in found and work.status in ("pending", "finished"):
            found[work.key] = _node(work)
    return found


def _node(work: Work) -> Node:
    try:
        return Constant(work.argument)
    except BaseException as error:  # it has ended without a value, and the engine does not know it
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
