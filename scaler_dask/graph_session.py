"""Submitting graphs, with some options, that may refer to futures of clients by their keys alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple

from dask import _task_spec as spec

from scaler import Client as Engine
from scaler.errors import ClientClosed
from scaler.extension import Future as EngineFuture
from scaler.extension import issue_warnings, with_memmaps_shared, with_warnings_kept
from scaler.graph import Call, Constant, Node
from scaler_dask.future_arguments import node_of, node_of_value
from scaler_dask.future_state import FutureState
from scaler_dask.keyed_future import Future
from scaler_dask.plugins import Wrap
from scaler_dask.registry import Registry, are_any, find, is_of_closed
from scaler_dask.task_options import AnnotatedGraph


class SubmittedGraph(NamedTuple):
    """The keys that were wanted of a graph."""

    #: in the order of the keys
    futures: list[EngineFuture]
    #: those of them that were there before: others may hold them, too
    borrowed: Set[EngineFuture]
    #: what stood for keys of the graph, or for keys that it names
    known: Mapping[Any, FutureState]


class GraphSession:
    """Submits graphs for a computation, or for a client: then keys may be those of its futures, and of other clients'.

    Any thread may call the methods.
    """

    def __init__(
        self, engine: Engine, registry: Registry | None = None, wrap: Wrap | None = None, shares_memmaps: bool = False
    ) -> None:
        """`shares_memmaps`: tasks get the files of memory-mapped arrays, where they can open them, as threads do."""
        self._engine = engine
        self._shares_memmaps = shares_memmaps
        #: of the client
        self._registry = registry
        #: is applied to the function of each call
        self._wrap = wrap

    def with_warnings_kept(self) -> GraphSession:
        """The same; warnings of its tasks are kept until `issue_warnings`."""
        return GraphSession(with_warnings_kept(self._engine), self._registry, self._wrap, self._shares_memmaps)

    def issue_warnings(self) -> None:
        """Issue, in the calling thread, the warnings that tasks have issued."""
        issue_warnings(self._engine)

    def submit(
        self, nodes: Mapping[Any, Node], keys: Sequence[Any], options: Mapping[Any, Mapping[str, Any]] | None = None
    ) -> SubmittedGraph:
        """Have these keys of a graph computed. Raises like `submit_graph` of the engine, and ClientClosed for keys that
        were of another client, which is closed. Blocks only without a client, for values that one has persisted.

        `options`: by key, what `with_options` takes.
        """
        if self._wrap is not None:
            nodes = with_functions_wrapped(nodes, self._wrap)
        states = self._known_states(nodes, keys) if self._registry is not None or are_any() else {}
        # without a client it may be another cluster: the values come here, as under dask's threads
        node = node_of if self._registry is not None else node_of_value
        known = {key: node(state) for key, state in states.items()}
        submit = partial(self._engine.submit_nodes, {**nodes, **known} if known else nodes, keys, None, options)
        futures = with_memmaps_shared(self._engine, submit) if self._shares_memmaps else submit()
        values = [node.value for node in known.values() if isinstance(node, Constant)]
        borrowed = frozenset(value for value in values if isinstance(value, EngineFuture))
        return SubmittedGraph(futures, borrowed, states)

    def cancel(self, submitted: SubmittedGraph, force: bool = False) -> None:
        """Take back what was submitted; not what was there before, which others may want. Blocks for an answer."""
        own = [future for future in submitted.futures if future not in submitted.borrowed]
        self._engine.cancel(own, force=force)

    def completed(self, dsk: Any) -> dict[Any, Any]:
        """A dask graph with a node for each future that it refers to: callbacks want to see whole graphs."""
        graph = dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__()
        nodes: dict[Any, Any] = spec.convert_legacy_graph(graph)
        missing = {key for node in nodes.values() for key in node.dependencies if key not in nodes}
        missing.update(key for key in graph if key not in nodes)
        for key in missing:
            state = self._find(key)
            if state is not None:
                nodes[key] = spec.DataNode(key, Future(key, None, state))
        return AnnotatedGraph(nodes, dsk)

    def _known_states(self, nodes: Mapping[Any, Node], wanted: Iterable[Any]) -> dict[Any, FutureState]:
        """What keys stand for that need not be computed.

        They are those that the graph lacks and that stand for something, those that are just a future, and those that
        the client is computing already, or has computed.
        """
        missing = {name for node in nodes.values() for name in node.dependencies if name not in nodes}
        missing.update(key for key in wanted if key not in nodes)
        found: dict[Any, FutureState] = {}
        for key in missing:
            state = self._find(key)
            if state is not None:
                found[key] = state
            elif is_of_closed(key):
                raise ClientClosed(f"the value of {key!r} was with a client that is closed: compute it with this one")
        for key, node in nodes.items():
            if type(node) is Constant and isinstance(node.value, Future):
                found[key] = node.value.state
        for state in self._registry.states() if self._registry is not None else ():
            if state.key in nodes and state.key not in found and state.status in ("pending", "finished"):
                found[state.key] = state
        return found

    def _find(self, key: Any) -> FutureState | None:
        state = self._registry.get(key) if self._registry is not None else None
        if state is None and (known := find(key)) is not None:
            state = known[1]  # of another client: the engine says what is wrong with that, if there is
        return state


def with_functions_wrapped(
    nodes: Mapping[Any, Node], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> dict[Any, Node]:
    """The graph with the function of each call wrapped."""
    made: dict[Any, Node] = {}
    for key, node in nodes.items():
        if isinstance(node, Call):
            node = Call(wrap(node.function), node.dependencies, node.args, node.fill, node.inner, node.has_large)
        made[key] = node
    return made
