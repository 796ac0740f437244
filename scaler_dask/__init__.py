"""Dask on Scaler: `dask.compute(x, scheduler=scaler_get)`, and `Client` for what uses dask.distributed's.

Names are imported when they are first used (PEP 562).
"""

from __future__ import annotations

import importlib

from scaler_dask.get import scaler_get

globals().pop("progress", None)  # the module of this name, which `get` has imported: here it is the function

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler_dask.client import Client
    from scaler_dask.futures import CancelledError, Future, fire_and_forget, futures_of
    from scaler_dask.inside import default_client, get_client, local_client, rejoin, secede, worker_client
    from scaler_dask.report import get_task_stream, performance_report, progress
    from scaler_dask.waiting import as_completed, wait

__all__ = [
    "CancelledError",
    "Client",
    "Future",
    "as_completed",
    "default_client",
    "fire_and_forget",
    "futures_of",
    "get_client",
    "get_task_stream",
    "local_client",
    "performance_report",
    "progress",
    "rejoin",
    "scaler_get",
    "secede",
    "wait",
    "worker_client",
]

#: where a name comes from; the others of `__all__` are in `scaler_dask.inside`
_HOMES = {
    "Client": "client",
    "CancelledError": "futures",
    "Future": "futures",
    "as_completed": "waiting",
    "fire_and_forget": "futures",
    "futures_of": "futures",
    "get_task_stream": "report",
    "performance_report": "report",
    "progress": "report",
    "wait": "waiting",
}

_STATE = "there is no state that tasks share: pass values as arguments, and collect results in the client"
#: names of dask.distributed that are not here -> what to do instead
_ABSENT = {
    "Actor": "keep the state in your program, or in a service of its own",
    "Event": _STATE,
    "LocalCluster": "use scaler.SchedulerClusterCombo(n_workers=...), or Client(n_workers=...)",
    "Lock": _STATE,
    "MultiLock": _STATE,
    "Nanny": "use the command scaler_cluster, whose workers are replaced when they end",
    "Pub": _STATE,
    "Queue": _STATE,
    "SSHCluster": "start scaler_scheduler, and scaler_cluster on each host",
    "Scheduler": "use the command scaler_scheduler",
    "Semaphore": _STATE,
    "Sub": _STATE,
    "Variable": _STATE,
    "Worker": "use the command scaler_cluster",
    "WorkerPlugin": "give Client.register_plugin any object with setup(worker)",
    "get_worker": "a task knows no worker: keep what it needs in a global of its module, or use register_plugin",
    "print": "the builtin prints where the worker's output goes",
}


def __getattr__(name: str) -> object:
    if name in __all__:
        value = getattr(importlib.import_module(f"scaler_dask.{_HOMES.get(name, 'inside')}"), name)
        globals()[name] = value
        return value
    if name in _ABSENT:
        raise AttributeError(f"Scaler has no counterpart to dask.distributed.{name}: {_ABSENT[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
