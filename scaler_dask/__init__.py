"""Dask on Scaler: `dask.compute(x, scheduler=scaler_get)`, and `Client` for what uses dask.distributed's.

Names are imported when they are first used (PEP 562).
"""

from __future__ import annotations

import importlib

try:
    from scaler_dask import absent, early_cluster  # noqa: F401 - first, as it does something while the rest is loaded
    from scaler_dask.get import scaler_get
except ModuleNotFoundError as error:
    if error.name != "dask":
        raise
    raise ModuleNotFoundError("scaler_dask needs dask: pip install scaler[dask]", name="dask") from None

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler_dask.client import Client
    from scaler_dask.completion import as_completed, wait
    from scaler_dask.current_client import default_client, get_client, local_client, rejoin, secede, worker_client
    from scaler_dask.gathering import fire_and_forget, futures_of
    from scaler_dask.keyed_future import CancelledError, Future
    from scaler_dask.plugins import WorkerPlugin
    from scaler_dask.progress_bar import progress
    from scaler_dask.report import get_task_stream, performance_report

#: as in distributed: Python's own
TimeoutError = TimeoutError

__all__ = [
    "CancelledError",
    "Client",
    "Future",
    "TimeoutError",
    "WorkerPlugin",
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

#: where a name comes from; the others of `__all__` are in `scaler_dask.current_client`
_HOMES = {
    "CancelledError": "keyed_future",
    "Client": "client",
    "Future": "keyed_future",
    "WorkerPlugin": "plugins",
    "as_completed": "completion",
    "fire_and_forget": "gathering",
    "futures_of": "gathering",
    "get_task_stream": "report",
    "performance_report": "report",
    "progress": "progress_bar",
    "wait": "completion",
}


def __getattr__(name: str) -> object:
    if name in __all__:
        try:
            value = getattr(importlib.import_module(f"scaler_dask.{_HOMES.get(name, 'current_client')}"), name)
        except AttributeError as error:  # as below
            raise ImportError(f"scaler_dask.{name} can't be imported: {error}", name=name) from error
        globals()[name] = value
        return value
    if name in absent.NAMES:
        # an AttributeError would leave `from scaler_dask import ...` without these words
        raise ImportError(f"Scaler has no counterpart to dask.distributed.{name}: {absent.NAMES[name]}", name=name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
