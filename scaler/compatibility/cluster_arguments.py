"""What the original's arguments of `SchedulerClusterCombo` mean here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from scaler.compatibility.log_levels import level_name
from scaler.compatibility.signatures import refuse_unknown


class ClusterArguments(TypedDict, total=False):
    """Arguments of the original's `SchedulerClusterCombo`, beside ours."""

    #: `heartbeat_interval`
    heartbeat_interval_seconds: float | None
    #: `client_timeout`
    client_timeout_seconds: float | None
    #: `agent_timeout`
    worker_timeout_seconds: float | None
    #: `log_level`, also as a number of `logging`; CRITICAL is ERROR, NOTSET is DEBUG
    logging_level: str | int | None
    #: files that the log goes to, "/dev/stdout" among them; by default it goes to standard error
    logging_paths: Sequence[str] | None
    #: a file in the format of `logging.config.fileConfig`, instead of the two
    logging_config_file: str | None
    #: where monitors will connect
    monitor_address: str | None
    #: the keys are `capabilities`; amounts have no meaning
    per_worker_capabilities: Mapping[str, int] | None
    #: seconds that each task may run; 0 for no limit. With a DeprecationWarning: `Client.with_options(timeout=)`
    #: limits the tasks that are to be limited
    task_timeout_seconds: float | None
    #: a local cluster ends with its program: no effect
    death_timeout_seconds: float | None
    #: how much an agent has in advance follows from how long tasks take: no effect
    per_worker_queue_size: int | None
    per_worker_task_queue_size: int | None
    #: so does when rows move to another host: no effect
    load_balance_seconds: float | None
    load_balance_trigger_times: int | None
    #: any number of tasks may wait: no effect
    max_number_of_tasks_waiting: int | None
    #: objects are kept for as long as somebody refers to them: no effect
    object_retention_seconds: float | None
    #: there is no such server: no effect
    object_storage_address: str | None
    #: a task that waits for others gives its place to another worker, and is not suspended: no effect
    hard_processor_suspend: bool | None
    #: of what is not there: no effect
    worker_io_threads: int | None
    scheduler_io_threads: int | None
    garbage_collect_interval_seconds: float | None
    trim_memory_threshold_bytes: int | None


#: names of ours that the original calls otherwise
_RENAMED = {
    "heartbeat_interval_seconds": "heartbeat_interval",
    "client_timeout_seconds": "client_timeout",
    "worker_timeout_seconds": "agent_timeout",
    "monitor_address": "monitor_address",
}


def translated(
    who: Callable[..., Any], originals: ClusterArguments
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Options of the scheduler, of the agent, and of the log, as these arguments of `who` have them.

    Raises TypeError for an argument that the original does not have either.
    """
    given: dict[str, Any] = {name: value for name, value in originals.items() if value is not None}
    refuse_unknown(who, dict(originals), ClusterArguments)
    of_scheduler = {ours: given[name] for name, ours in _RENAMED.items() if name in given}
    of_agent: dict[str, Any] = {}
    of_log: dict[str, Any] = {}
    if "logging_level" in given:
        of_scheduler["log_level"] = level_name(given["logging_level"])
    if "per_worker_capabilities" in given:
        of_agent["capabilities"] = tuple(given["per_worker_capabilities"])
    if given.get("task_timeout_seconds"):
        warnings.warn(
            "task_timeout_seconds has no effect: Client.with_options(timeout=seconds) limits what its tasks may take",
            DeprecationWarning,
            stacklevel=4,
        )
    if "logging_paths" in given:
        paths = given["logging_paths"]
        of_log["paths"] = [paths] if isinstance(paths, str) else [str(path) for path in paths]
    if "logging_config_file" in given:
        of_log["config_file"] = str(given["logging_config_file"])
    return of_scheduler, of_agent, of_log
