"""`scaler_get`: a scheduler function for dask collections that computes their graphs on Scaler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import dask.config
from dask import _task_spec as spec
from dask.callbacks import local_callbacks
from dask.local import nested_get
from dask.order import order

from scaler.extension import collector_paused, issue_warnings, with_warnings_kept
from scaler_dask import external
from scaler_dask.annotations import options_of
from scaler_dask.callbacks import Progress
from scaler_dask.connection import client_for
from scaler_dask.frames import leave_out_our_frames, with_frames
from scaler_dask.translate import translate
from scaler_dask.workers import setup_first

#: seconds to wait for one key before looking whether another one has failed
_PATIENCE = 0.5


def scaler_get(
    dsk: Any, keys: Any, *, address: str | None = None, client: Any = None, callbacks: Any = None, **kwargs: Any
) -> Any:
    """Compute `keys` of a dask graph; pass it as `scheduler=` to any dask collection, or to `dask.config.set`.

    `dsk` is a mapping, of tuples or of dask's own nodes, or whatever has `__dask_graph__()`; `keys` is one key or a
    list of keys, which may be nested. Returns the value of the one key, or tuples of values in the shape of the lists.

    The scheduler is the one at `address`, else at dask's `scaler.address` setting, else that of the task around the
    call, else at SCALER_ADDRESS, else one embedded in this process, which starts when it is first needed and ends
    with it. A `client` that is at hand may be given instead. `initializer`, or dask's `multiprocessing.initializer`
    setting, is called once in each worker before its first task. Other keyword arguments are those of other schedulers,
    and are ignored. While dask's callbacks are active the values of all keys come here, for them to see.

    Blocks until all is computed; raises what a task raises as soon as it fails, and then cancels the rest.

    >>> scaler_get({"a": 1, "b": (abs, "a")}, [["a"], "b"])  # doctest: +SKIP
    ((1,), 1)
    """
    graph = dict(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
    options = options_of(dsk)
    wanted = list(dict.fromkeys(flatten(keys)))
    initializer = kwargs.get("initializer") or dask.config.get("multiprocessing.initializer", None)
    with local_callbacks(callbacks) as active:
        if active or not _is_of_tuples(graph):
            graph = _culled(graph, wanted)
        with Progress(active, graph) as progress:
            session: Any = with_warnings_kept(client or client_for(address))
            asked = progress.asked_for(wanted)
            with collector_paused:
                nodes = translate(graph)
                if initializer is not None:
                    nodes = external.prepared(nodes, setup_first(initializer))
                futures = session.submit_nodes(nodes, asked, lambda: order(_culled(graph, wanted)), options)
            try:
                progress.follow(asked, futures)
                given = getattr(session, "given", ())  # `id`s of futures whose values others have, too
                values = {
                    key: _value(future, futures, id(future) in given)
                    for key, future in zip(wanted, futures, strict=False)
                }
            except BaseException as error:
                session.cancel(futures, force=not isinstance(error, Exception))
                leave_out_our_frames()
                with_frames(error)
                raise
            finally:
                issue_warnings(session)
    return nested_get(keys, values)  # type: ignore[no-untyped-call]


def _is_of_tuples(graph: Mapping[Any, Any]) -> bool:
    return not all(isinstance(value, spec.GraphNode) for value in graph.values())


def _culled(graph: Mapping[Any, Any], wanted: list[Any]) -> dict[Any, Any]:
    """Return the part of a graph that is needed, as dask's nodes."""
    return spec.cull(spec.convert_legacy_graph(graph), wanted)


def _value(future: Any, others: Sequence[Future[Any]], is_given: bool) -> Any:
    """Return a future's value; raise what another one has failed with in the meantime."""
    read = future.fresh_result if is_given else future.result
    while True:
        try:
            return read(_PATIENCE)
        except TimeoutError:
            if future.done():  # by now, or the task raised it
                return read()
        for other in others:
            if other.done():
                other.result()


def flatten(keys: Any) -> Iterable[Any]:
    """Yield the keys in lists of any depth."""
    if not isinstance(keys, list):
        yield keys
        return
    for key in keys:
        yield from flatten(key)
