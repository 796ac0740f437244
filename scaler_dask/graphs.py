"""From collections to futures: graphs that may refer to futures, and what stands for a computed collection.

Dask is let do as it always does, with a scheduler function that hands out futures in the place of values.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dask import _task_spec as spec
from dask import base as _base
from dask.delayed import single_key

from scaler.client.graph import Order
from scaler.client.nodes import Constant, Node
from scaler.extension import collector_paused
from scaler_dask import external, remote
from scaler_dask.annotations import Annotated, options_of
from scaler_dask.futures import Future, held
from scaler_dask.get import flatten
from scaler_dask.translate import translate
from scaler_dask.work import Work

if TYPE_CHECKING:
    from scaler_dask.client import Client

#: dask's functions; their types differ from version to version
base: Any = _base


class Graphs:
    """Submits graphs for one client with some options. Has what `scaler_get` uses of the engine's client."""

    def __init__(
        self,
        session: Any,
        find: external.Find,
        live: Callable[[], Iterable[Work]],
        wrap: Callable[[Callable[..., Any]], Any] | None,
    ) -> None:
        self._session = session
        self._find = find
        #: the works of the client: keys that they have are not computed again
        self._live = live
        #: wraps each function, or None
        self._wrap = wrap
        #: `id`s of the engine's futures that graphs referred to
        self.given: set[int] = set()

    def with_options(self, **options: Any) -> Graphs:
        """The same with other options."""
        return Graphs(self._session.with_options(**options), self._find, self._live, self._wrap)

    def submit_nodes(
        self,
        nodes: Mapping[Any, Node],
        keys: Sequence[Any],
        order: Order | None = None,
        options: Mapping[Any, Mapping[str, Any]] | None = None,
    ) -> list[Any]:
        """The engine's futures of these keys; keys that the graph lacks may be those of the client's futures."""
        if self._wrap is not None:
            nodes = external.prepared(nodes, self._wrap)
        given = external.given(nodes, keys, self._find, self._live())
        self.given.update(id(node.value) for node in given.values() if isinstance(node, Constant))
        made: list[Any] = self._session.submit_nodes({**nodes, **given}, keys, order, options)
        return made

    def cancel(self, futures: Iterable[Any], force: bool = False) -> None:
        """Cancel those of these futures that were made here: others may be wanted by somebody else."""
        self._session.cancel([future for future in futures if id(future) not in self.given], force=force)

    def completed(self, dsk: Any) -> dict[Any, Any]:
        """A dask graph with a node for each future that it refers to: callbacks want to see whole graphs."""
        graph = dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__()
        nodes: dict[Any, Any] = spec.convert_legacy_graph(graph)
        missing = {key for node in nodes.values() for key in node.dependencies if key not in nodes}
        missing.update(key for key in graph if key not in nodes)
        for key in missing:
            work = self._find(key)
            if work is not None:
                nodes[key] = spec.DataNode(key, Future(work, None))
        return Annotated(nodes, dsk)

    def futures(self, client: Client, dsk: Any, keys: Any) -> Any:
        """The client's futures of these keys of a dask graph, nested as the keys are."""
        graph = dict(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
        wanted = list(dict.fromkeys(flatten(keys)))
        with collector_paused:
            nodes, options = translate(graph), options_of(dsk)
            inner = self.submit_nodes(nodes, wanted, options=options)
        made = {}
        for key, future in zip(wanted, inner, strict=True):
            known = client.work_of(key) if id(future) in self.given else None
            again = partial(self._again, nodes, key, options)
            made[key] = client.future_of(known or Work(key, future, client.engine, again))
        return _nested(keys, made)

    def _again(self, nodes: Mapping[Any, Node], key: Any, options: Mapping[Any, Mapping[str, Any]]) -> Any:
        return self.submit_nodes(nodes, [key], options=options)[0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def persisted(client: Client, graphs: Graphs, collections: Sequence[Any], optimize_graph: bool) -> list[Any]:
    """The collections, made of futures."""

    def submit(dsk: Any, keys: Any, **_: Any) -> Any:
        return held(graphs.futures(client, dsk, keys))

    return list(base.persist(*collections, traverse=False, optimize_graph=optimize_graph, scheduler=submit))


def is_called_by_persist() -> bool:
    """Whether the caller of the caller is `dask.persist`, which then wants futures.

    Newer versions of dask call a client's `persist` themselves; before, they did so for distributed's alone.
    """
    return sys._getframe(2).f_code is base.persist.__code__


def futures_of_collections(client: Client, graphs: Graphs, values: Sequence[Any], optimize_graph: bool) -> list[Any]:
    """For each value that is a collection the future of what it computes to; other values as they are."""
    collections = [value for value in values if base.is_dask_collection(value)]
    if not collections:
        return list(values)
    if _has_expressions():

        def submit(dsk: Any, keys: Any, **_: Any) -> Any:
            return graphs.futures(client, dsk, keys)

        made = base.compute(*collections, traverse=False, optimize_graph=optimize_graph, scheduler=submit)
    else:
        made = _finalized(client, graphs, collections, optimize_graph)
    futures = iter(made)
    return [next(futures) if base.is_dask_collection(value) else value for value in values]


def _has_expressions() -> bool:
    """Whether this dask's graphs end in one key for each collection (since 2025.4)."""
    try:
        from dask._expr import FinalizeCompute  # noqa: F401
    except ImportError:
        return False
    return True


def _finalized(client: Client, graphs: Graphs, collections: Sequence[Any], optimize_graph: bool) -> list[Any]:
    """The futures of collections in a dask that puts their values together outside of the graph."""
    if optimize_graph:  # as dask.compute does with expressions of data frames
        collections = [value.optimize() if _is_expression(value) else value for value in collections]
    dsk = base.collections_to_dsk(collections, optimize_graph)
    graph = Annotated(dsk, dsk)
    names = []
    for collection in collections:
        function, extra = collection.__dask_postcompute__()
        keys = collection.__dask_keys__()
        if function is single_key and len(keys) == 1 and not extra:
            names += keys
            continue
        names.append(f"finalize-{uuid.uuid4().hex}")
        graph[names[-1]] = (partial(remote.finalize, function, extra), keys)
    made: list[Any] = graphs.futures(client, graph, names)
    return made


def _is_expression(collection: Any) -> bool:
    return hasattr(type(collection), "expr") and hasattr(type(collection), "optimize")


def _nested(keys: Any, futures: Mapping[Any, Future]) -> Any:
    return [_nested(key, futures) for key in keys] if isinstance(keys, list) else futures[keys]
