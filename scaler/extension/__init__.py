"""What adapters of other libraries are built on, besides `scaler`, `scaler.errors` and `scaler.graph`.

A user of Scaler needs none of this. An adapter makes another library's programs run on Scaler, as `scaler_dask`,
`scaler.Executor` and `scaler.joblib` do; it should need nothing of the engine but these four modules.

    find_client, shared_client, surrounding_address, is_inside_task     where the client comes from,
    host_for_tasks                                                      and how tasks come here,
    surrounding_serializer, serializer_of, with_memmaps_shared          and how its values become bytes
    begin_local_cluster                                                 the cluster that a script will need, if it does
    submit_call, capture_function, submit_map, failed_call, fail_future,
    take_result, as_ended,
    with_warnings_kept, issue_warnings                                  clients and futures, beyond what users do
    is_interrupt, has_ended_program, abandon                            what to do when the user presses Ctrl-C
    wait_in_steps, Gate                                                 so that it is heard,
    Uninterrupted, RenewedLock                                          and leaves nothing half done
    lifetime_of                                                         how a client ends, apart from its functions
    durable_calls                                                       calls that outlive their program
    Future, MapJob, TaskTemplate                                        what these return
    CallbackThread, callback_of_task                                    for callbacks that may block
    run_once, forget_run, worker_slot_lent                              for code that runs in workers
    PreparedFunctions                                                   and for what is called after it,
    InSpace, SpaceBegins, begin_in_space                                with the globals that it has left
    name_of, pickled, pickled_if_small, SCALAR_TYPES                    functions and values, as the engine sees them
    fresh_function                                                      functions that have a state, as each row has it
    note_item, kept_for_note                                            errors, as the engine tells of them
    when_imported                                                       what is done to the other library itself

Each says whether it blocks and who may call it. Names are imported when they are first used (PEP 562): what runs in
workers comes here for `run_once`, and needs no client.
"""

from __future__ import annotations

from scaler.common.later_names import imported

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler.client import Future
    from scaler.client.callbacks import callback_of_task
    from scaler.client.client import shared_client
    from scaler.client.core.task_template import TaskTemplate
    from scaler.client.future import as_ended, take_result
    from scaler.client.surroundings import surrounding_address
    from scaler.client.waiting.map_job import MapJob
    from scaler.common.callback_thread import CallbackThread
    from scaler.common.gate import Gate
    from scaler.common.interrupts import Uninterrupted, has_ended_program, is_interrupt, wait_in_steps
    from scaler.common.item_note import kept_for_note, note_item
    from scaler.common.renewed_lock import RenewedLock
    from scaler.common.when_imported import when_imported
    from scaler.extension.clients import (
        FoundClient,
        find_client,
        host_for_tasks,
        is_inside_task,
        lifetime_of,
        serializer_of,
        surrounding_serializer,
        with_memmaps_shared,
    )
    from scaler.extension.clusters import begin_local_cluster
    from scaler.extension.in_worker import forget_run, run_once, task_root, worker_slot_lent
    from scaler.extension.interrupts import abandon
    from scaler.extension.prepared import PreparedFunctions
    from scaler.extension.submitting import (
        capture_function,
        durable_calls,
        fail_future,
        failed_call,
        issue_warnings,
        submit_call,
        submit_map,
        with_warnings_kept,
    )
    from scaler.extension.values import SCALAR_TYPES, fresh_function, pickled, pickled_if_small
    from scaler.serialize.function import name_of
    from scaler.serialize.module_globals import InSpace, SpaceBegins, begin_in_space

__all__ = [
    "SCALAR_TYPES",
    "CallbackThread",
    "FoundClient",
    "Future",
    "Gate",
    "InSpace",
    "MapJob",
    "PreparedFunctions",
    "RenewedLock",
    "SpaceBegins",
    "TaskTemplate",
    "Uninterrupted",
    "abandon",
    "as_ended",
    "begin_in_space",
    "begin_local_cluster",
    "callback_of_task",
    "capture_function",
    "durable_calls",
    "fail_future",
    "failed_call",
    "find_client",
    "forget_run",
    "fresh_function",
    "has_ended_program",
    "host_for_tasks",
    "is_inside_task",
    "is_interrupt",
    "issue_warnings",
    "kept_for_note",
    "lifetime_of",
    "name_of",
    "note_item",
    "pickled",
    "pickled_if_small",
    "run_once",
    "serializer_of",
    "shared_client",
    "submit_call",
    "submit_map",
    "surrounding_address",
    "surrounding_serializer",
    "take_result",
    "task_root",
    "wait_in_steps",
    "when_imported",
    "with_memmaps_shared",
    "with_warnings_kept",
    "worker_slot_lent",
]

#: which names a module has
_NAMES = {
    "scaler.client": "Future",
    "scaler.client.callbacks": "callback_of_task",
    "scaler.client.client": "shared_client",
    "scaler.client.core.task_template": "TaskTemplate",
    "scaler.client.future": "as_ended take_result",
    "scaler.client.surroundings": "surrounding_address",
    "scaler.client.waiting.map_job": "MapJob",
    "scaler.common.callback_thread": "CallbackThread",
    "scaler.common.gate": "Gate",
    "scaler.common.interrupts": "Uninterrupted has_ended_program is_interrupt wait_in_steps",
    "scaler.common.item_note": "kept_for_note note_item",
    "scaler.common.renewed_lock": "RenewedLock",
    "scaler.common.when_imported": "when_imported",
    "scaler.extension.clients": (
        "FoundClient find_client host_for_tasks is_inside_task lifetime_of serializer_of surrounding_serializer "
        "with_memmaps_shared"
    ),
    "scaler.extension.clusters": "begin_local_cluster",
    "scaler.extension.in_worker": "forget_run run_once task_root worker_slot_lent",
    "scaler.extension.interrupts": "abandon",
    "scaler.extension.prepared": "PreparedFunctions",
    "scaler.extension.submitting": (
        "capture_function durable_calls fail_future failed_call issue_warnings submit_call submit_map "
        "with_warnings_kept"
    ),
    "scaler.extension.values": "SCALAR_TYPES fresh_function pickled pickled_if_small",
    "scaler.serialize.function": "name_of",
    "scaler.serialize.module_globals": "InSpace SpaceBegins begin_in_space",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = imported(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
