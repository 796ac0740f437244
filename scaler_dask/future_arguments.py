"""Calls among whose arguments are a client's futures, maybe deep inside lists, tuples, sets and dicts.

What the engine is given in their places are its own futures, as arguments of the call or as nodes of a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from scaler import Client as Engine
from scaler.extension import Future as EngineFuture
from scaler.extension import submit_call
from scaler.graph import COLLECTION_BUILDERS, Call, Constant, KeyReference, NestedCall, Node, as_dict, build_call
from scaler_dask.future_state import FutureState
from scaler_dask.keyed_future import Future
from scaler_dask.worker_functions import fail


class FoundFutures(NamedTuple):
    """A call's arguments that were looked through."""

    #: by their keys, or by other names where several of one key stand for different values
    futures: dict[Any, Future]
    #: what each argument means: a KeyReference for a future, a NestedCall for a container of some, or the value itself
    args: list[Any]
    kwargs: dict[str, Any]

    @property
    def states(self) -> tuple[FutureState, ...]:
        """What the futures stand for."""
        return tuple(future.state for future in self.futures.values())


def find_futures(args: tuple[Any, ...], kwargs: dict[str, Any]) -> FoundFutures | None:
    """The futures among a call's arguments, also inside lists, tuples, sets and dicts; None if there are none."""
    found: dict[Any, Future] = {}
    read = [_read(value, found) for value in args]
    read_kwargs = {name: _read(value, found) for name, value in kwargs.items()} if kwargs else kwargs
    return FoundFutures(found, read, read_kwargs) if found else None


def submit_call_of_futures(
    session: Engine, key: Any, function: Callable[..., Any], found: FoundFutures
) -> EngineFuture:
    """Submit a call in whose arguments futures stand for their values. Blocks and raises like the engine's `submit`."""
    is_nested = any(type(value) is NestedCall for value in (*found.args, *found.kwargs.values()))
    if not is_nested:

        def known(value: Any) -> Any:
            return found.futures[value.key].state.argument if type(value) is KeyReference else value

        kwargs = {name: known(value) for name, value in found.kwargs.items()}
        return submit_call(session, function, tuple([known(value) for value in found.args]), kwargs)
    nodes: dict[Any, Node] = {name: node_of(future.state) for name, future in found.futures.items()}
    while key in nodes:  # of a value that it stood for before
        key = (key, "anew")
    nodes[key] = build_call(NestedCall(function, found.args, found.kwargs))
    return session.submit_nodes(nodes, [key])[0]


def node_of(state: FutureState) -> Node:
    """The node of a graph that stands for a value; one that fails if the engine knows that there will be none."""
    try:
        return Constant(state.argument)
    except BaseException as error:
        return Call(fail, (), (error,))


def node_of_value(state: FutureState) -> Node:
    """The node of a graph of anybody's: its value, which comes here; one that fails if there is none. Blocks."""
    try:
        return Constant(state.value())
    except Exception as error:
        return Call(fail, (), (error,))


def _read(value: Any, found: dict[Any, Future]) -> Any:
    """What an argument means, as `FoundFutures` says; the futures in it are added to `found`."""
    if isinstance(value, Future):
        name = value.key
        while found.setdefault(name, value).state is not value.state:
            name = (name, "another")
        return KeyReference(name)
    kind = type(value)
    if kind in COLLECTION_BUILDERS:
        items = [_read(item, found) for item in value]
        return NestedCall(COLLECTION_BUILDERS[kind], items) if _any_read(items) else value
    if kind is dict:
        items = [_read(item, found) for item in value.values()]
        if _any_read(items):
            return NestedCall(as_dict, [part for pair in zip(value, items, strict=True) for part in pair])
    return value


def _any_read(items: list[Any]) -> bool:
    return any(type(item) is KeyReference or type(item) is NestedCall for item in items)
