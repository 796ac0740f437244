"""What adapters of other libraries are built on, besides `scaler`, `scaler.errors` and `scaler.graph`.

A user of Scaler needs none of this. An adapter makes another library's programs run on Scaler, as `scaler_dask`,
`scaler.Executor` and `scaler.joblib` do; it should need nothing of the engine but these four modules.

    find_client, shared_client, surrounding_address, is_inside_task     where the client comes from
    submit_map, fail_future, with_warnings_kept, issue_warnings         clients and futures, beyond what users do
    Future, MapJob                                                      what `submit` and `submit_map` return
    CallbackThread                                                      for callbacks that may block
    run_once, forget_run, worker_slot_lent                              for code that runs in workers
    name_of, pickled_if_small, SCALAR_TYPES                             functions and values, as the engine sees them

Each says whether it blocks and who may call it. Names are imported when they are first used (PEP 562): what runs in
workers comes here for `run_once`, and needs no client.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler.client import Future
    from scaler.client.waiting.map_job import MapJob
    from scaler.common.callback_thread import CallbackThread
    from scaler.extension.clients import FoundClient, find_client, is_inside_task, shared_client, surrounding_address
    from scaler.extension.in_worker import forget_run, run_once, worker_slot_lent
    from scaler.extension.submitting import fail_future, issue_warnings, submit_map, with_warnings_kept
    from scaler.extension.values import SCALAR_TYPES, name_of, pickled_if_small

__all__ = [
    "SCALAR_TYPES",
    "CallbackThread",
    "FoundClient",
    "Future",
    "MapJob",
    "fail_future",
    "find_client",
    "forget_run",
    "is_inside_task",
    "issue_warnings",
    "name_of",
    "pickled_if_small",
    "run_once",
    "shared_client",
    "submit_map",
    "surrounding_address",
    "with_warnings_kept",
    "worker_slot_lent",
]

#: where a name comes from
_HOMES = {
    "CallbackThread": "scaler.common.callback_thread",
    "FoundClient": "scaler.extension.clients",
    "Future": "scaler.client",
    "MapJob": "scaler.client.waiting.map_job",
    "SCALAR_TYPES": "scaler.extension.values",
    "fail_future": "scaler.extension.submitting",
    "find_client": "scaler.extension.clients",
    "forget_run": "scaler.extension.in_worker",
    "is_inside_task": "scaler.extension.clients",
    "issue_warnings": "scaler.extension.submitting",
    "name_of": "scaler.extension.values",
    "pickled_if_small": "scaler.extension.values",
    "run_once": "scaler.extension.in_worker",
    "shared_client": "scaler.extension.clients",
    "submit_map": "scaler.extension.submitting",
    "surrounding_address": "scaler.extension.clients",
    "with_warnings_kept": "scaler.extension.submitting",
    "worker_slot_lent": "scaler.extension.in_worker",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
