"""`scaler_get`: a scheduler function for dask collections that computes their graphs on Scaler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import dask.config
from dask import _task_spec as spec
from dask.callbacks import local_callbacks
from dask.local import nested_get

from scaler import Client as Engine
from scaler.extension import find_client, serializer_of
from scaler.graph import collector_paused
from scaler_dask import joblib_name, store_locks, xarray_locks
from scaler_dask.callbacks import CallbackRun
from scaler_dask.frames import leave_out_our_frames, with_frames
from scaler_dask.graph_session import GraphSession, SubmittedGraph, with_functions_wrapped
from scaler_dask.plugins import initialized_first
from scaler_dask.task_options import options_of_keys
from scaler_dask.translate import translate

store_locks.install()
xarray_locks.install()
joblib_name.install()

#: seconds to wait for one key before looking whether another one has failed
_PATIENCE = 0.5


def scaler_get(
    dsk: Any,
    keys: Any,
    *,
    address: str | None = None,
    client: Any = None,
    serializer: Any = None,
    callbacks: Any = None,
    **kwargs: Any,
) -> Any:
    """Compute `keys` of a dask graph; pass it as `scheduler=` to any dask collection, or to `dask.config.set`.

    `dsk` is a mapping, of tuples or of dask's own nodes, or whatever has `__dask_graph__()`; `keys` is one key or a
    list of keys, which may be nested. Returns the value of the one key, or tuples of values in the shape of the lists.

    The scheduler is the one at `address`, else at dask's `scaler.address` setting, else that of the task around the
    call, else at SCALER_ADDRESS, else one embedded in this process, which starts when it is first needed and ends
    with it. A `scaler.Client` that is at hand may be given as `client` instead; otherwise `serializer`, a
    `scaler.Serializer`, may be. `initializer`, or dask's
    `multiprocessing.initializer` setting, is called once in each worker before its first task. Other keyword arguments
    are those of other schedulers, and are ignored. While dask's callbacks are active the values of all keys come here,
    for them to see.

    Any thread may call it, and so may a task. Blocks until all is computed. Raises what a task raises as soon as it
    fails, and then cancels the rest; like `scaler.Client` and `scaler.SchedulerClusterCombo`; ValueError for a bad
    setting; `CycleError` and KeyError for a graph that can't be computed.

    >>> scaler_get({"a": 1, "b": (abs, "a")}, [["a"], "b"])  # doctest: +SKIP
    ((1,), 1)
    """
    if client is not None and serializer is not None and serializer is not serializer_of(client):
        raise ValueError("scaler_get takes `client` or `serializer`: a client was given its own when it was made")
    session = GraphSession(client or _client_for(address, serializer), shares_memmaps=True)
    return computed(session, dsk, keys, callbacks, kwargs.get("initializer"))


def _client_for(address: str | None, serializer: Any) -> Engine:
    """The client of `address`, of dask's setting, of the surroundings, or of the embedded cluster.

    The settings are dask's own: `scaler.address` and `scaler.n-workers`, the latter for the embedded cluster; from the
    environment DASK_SCALER__ADDRESS and DASK_SCALER__N_WORKERS.
    """
    return find_client(address or dask.config.get("scaler.address", None), _workers_setting, serializer).client


def _workers_setting() -> int | None:
    number = dask.config.get("scaler.n-workers", None)
    if number is None or (isinstance(number, int) and number > 0):
        return number
    raise ValueError(f"dask's setting scaler.n-workers has to be a whole number of 1 or more, not {number!r}")


def computed(
    session: GraphSession, dsk: Any, keys: Any, callbacks: Any = None, initializer: Callable[[], Any] | None = None
) -> Any:
    """The values of these keys of a dask graph; blocks. See `scaler_get`."""
    graph = dict(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
    options = options_of_keys(dsk)
    wanted = list(dict.fromkeys(flatten(keys)))
    initializer = initializer or dask.config.get("multiprocessing.initializer", None)
    session = session.with_warnings_kept()
    with local_callbacks(callbacks) as active:
        if active or _is_of_nodes(graph):
            graph = _culled(graph, wanted)
        with CallbackRun(active, graph, wanted) as callback_run:
            asked = callback_run.asked_for(wanted)
            submitted = _submitted(session, graph, asked, options, initializer)
            try:
                callback_run.follow(asked, submitted.futures)
                values = {
                    key: _value(future, submitted) for key, future in zip(wanted, submitted.futures, strict=False)
                }
            except BaseException as error:
                session.cancel(submitted, force=not isinstance(error, Exception))
                leave_out_our_frames()
                with_frames(error, error.__traceback__)
                raise
            finally:
                session.issue_warnings()
    return nested_get(keys, values)  # type: ignore[no-untyped-call]


@collector_paused
def _submitted(
    session: GraphSession,
    graph: Mapping[Any, Any],
    asked: list[Any],
    options: Mapping[Any, Mapping[str, Any]],
    initializer: Callable[[], Any] | None,
) -> SubmittedGraph:
    nodes = translate(graph)
    if initializer is not None:
        nodes = with_functions_wrapped(nodes, initialized_first(initializer))
    return session.submit(nodes, asked, options=options)


def _is_of_nodes(graph: Mapping[Any, Any]) -> bool:
    return all(isinstance(value, spec.GraphNode) for value in graph.values())


def _culled(graph: Mapping[Any, Any], wanted: list[Any]) -> dict[Any, Any]:
    """Return the part of a graph that is needed, as dask's nodes."""
    return spec.cull(spec.convert_legacy_graph(graph), wanted)


def _value(future: Any, submitted: SubmittedGraph) -> Any:
    """Return a future's value, which nobody else has; raise what another one has failed with in the meantime."""
    read = future.fresh_result if future in submitted.borrowed else future.result
    while True:
        try:
            return read(_PATIENCE)
        except TimeoutError:
            if future.done():  # by now, or the task raised it
                return read()
        for other in submitted.futures:
            if other.done():
                other.result()


def flatten(keys: Any) -> Iterable[Any]:
    """Yield the keys in lists of any depth."""
    if not isinstance(keys, list):
        yield keys
        return
    for key in keys:
        yield from flatten(key)
