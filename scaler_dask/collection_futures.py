"""From dask's collections to futures: of what they compute to, or as the parts that they are made of from then on.

Dask is let do as it always does, with a scheduler function that hands out futures in the place of values.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dask.delayed import single_key

from scaler.extension import Future as EngineFuture
from scaler.graph import Node, collector_paused
from scaler_dask.dask_versions import base, has_expressions
from scaler_dask.dependents import GraphDependents
from scaler_dask.future_state import FutureState
from scaler_dask.get import flatten
from scaler_dask.graph_session import GraphSession, SubmittedGraph
from scaler_dask.keyed_future import Future, as_parts, registered
from scaler_dask.registry import Registry
from scaler_dask.sources import TaskValue
from scaler_dask.task_options import AnnotatedGraph, options_of_keys
from scaler_dask.translate import translate
from scaler_dask.worker_functions import finalize


class CollectionFutures:
    """Makes futures of graphs and collections for one client, with some options. Nothing here blocks."""

    def __init__(self, session: GraphSession, registry: Registry) -> None:
        self.session = session
        self._registry = registry

    def of_keys(self, dsk: Any, keys: Any) -> Any:
        """The futures of these keys of a dask graph, nested as the keys are."""
        graph = dict(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
        wanted = list(dict.fromkeys(flatten(keys)))
        options = options_of_keys(dsk)
        nodes, submitted = self._submit(graph, wanted, options)

        def submit_again(key: Any) -> EngineFuture:
            return self.session.submit(nodes, [key], options=options).futures[0]

        under_way = {key: state for key, state in submitted.known.items() if not state.done}
        dependents = GraphDependents(nodes, under_way) if under_way else None
        made = {}
        for key, future in zip(wanted, submitted.futures, strict=True):
            state = self._registry.get(key) if future in submitted.borrowed else None
            if state is None:
                state = FutureState(key, TaskValue(future), partial(submit_again, key))
                if dependents is not None:
                    dependents.add(state)
            made[key] = registered(self._registry, state)
        return _nested(keys, made)

    @collector_paused
    def _submit(
        self, graph: Mapping[Any, Any], wanted: list[Any], options: Mapping[Any, Mapping[str, Any]]
    ) -> tuple[Mapping[Any, Node], SubmittedGraph]:
        nodes = translate(graph)
        return nodes, self.session.submit(nodes, wanted, options=options)

    def persisted(self, collections: Sequence[Any], optimize_graph: bool) -> list[Any]:
        """The collections, made of futures."""

        def submit(dsk: Any, keys: Any, **_: Any) -> Any:
            return as_parts(self.of_keys(dsk, keys))

        return list(base.persist(*collections, traverse=False, optimize_graph=optimize_graph, scheduler=submit))

    def of_values(self, values: Sequence[Any], optimize_graph: bool) -> list[Any]:
        """For each value that is a collection the future of what it computes to; other values as they are."""
        collections = [value for value in values if base.is_dask_collection(value)]
        if not collections:
            return list(values)
        if has_expressions():

            def submit(dsk: Any, keys: Any, **_: Any) -> Any:
                return self.of_keys(dsk, keys)

            made = base.compute(*collections, traverse=False, optimize_graph=optimize_graph, scheduler=submit)
        else:
            made = self._finalized(collections, optimize_graph)
        futures = iter(made)
        return [next(futures) if base.is_dask_collection(value) else value for value in values]

    def _finalized(self, collections: Sequence[Any], optimize_graph: bool) -> list[Any]:
        """The futures of collections in a dask that puts their values together outside of the graph."""
        if optimize_graph:  # as dask.compute does with expressions of data frames
            collections = [value.optimize() if _is_expression(value) else value for value in collections]
        dsk = base.collections_to_dsk(collections, optimize_graph)
        graph = AnnotatedGraph(dsk, dsk)
        names = []
        for collection in collections:
            function, extra = collection.__dask_postcompute__()
            keys = collection.__dask_keys__()
            if function is single_key and len(keys) == 1 and not extra:
                names += keys
                continue
            names.append(f"finalize-{uuid.uuid4().hex}")
            graph[names[-1]] = (partial(finalize, function, extra), keys)
        made: list[Any] = self.of_keys(graph, names)
        return made


def holds_collection(value: Any) -> bool:
    """Whether a value that is no collection has one inside, at any depth of lists, tuples, sets and dicts."""
    if base.is_dask_collection(value) or isinstance(value, Future):
        return False
    if type(value) in (list, tuple, set, frozenset):
        return any(base.is_dask_collection(item) or holds_collection(item) for item in value)
    if type(value) is dict:
        return any(base.is_dask_collection(item) or holds_collection(item) for item in value.values())
    return False


def _is_expression(collection: Any) -> bool:
    return hasattr(type(collection), "expr") and hasattr(type(collection), "optimize")


def _nested(keys: Any, futures: Mapping[Any, Future]) -> Any:
    return [_nested(key, futures) for key in keys] if isinstance(keys, list) else futures[keys]
