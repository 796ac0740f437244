"""What dask.distributed has and Scaler has not, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

#: arguments of distributed's client, and of the local cluster it starts, that mean nothing here
ARGUMENTS = frozenset(
    {
        "connection_limit", "dashboard_address", "deserializers", "direct_to_workers", "extensions",
        "heartbeat_interval", "host", "interface", "ip", "lifetime", "local_directory", "loop", "memory_limit",
        "preload", "processes", "protocol", "scheduler_port", "serializers",
        "silence_logs", "threads_per_worker", "worker_dashboard_address",
    }
)  # fmt: skip

#: methods and attributes of distributed's client -> what to do instead
OF_CLIENT = {
    "publish_dataset": "keep the persisted collection in your program; datasets outlive no client here",
    "get_dataset": "keep the persisted collection in your program; datasets outlive no client here",
    "list_datasets": "keep the persisted collection in your program; datasets outlive no client here",
    "unpublish_dataset": "keep the persisted collection in your program; datasets outlive no client here",
    "log_event": "use the logging module: what tasks log is in their host's log",
    "get_events": "use the logging module: what tasks log is in their host's log",
    "subscribe_topic": "use as_completed, or add_done_callback of futures",
    "forward_logging": "use scaler.Client(stream_output=True), which prints what tasks print",
    "retire_workers": "use the command scaler drain, which names hosts, or end scaler_cluster there by SIGTERM",
    "profile": "run a task with submit(profiling=True) of scaler.Client",
    "call_stack": "look at the worker with a debugger such as py-spy",
    "story": "use the commands scaler story and scaler explain, which take the number of a task",
    "dump_cluster_state": "use the commands scaler tasks, objects, workers, clients and functions: --json prints all",
    "get_metadata": "keep it in your program",
    "set_metadata": "keep it in your program",
    "run_on_scheduler": "the scheduler runs no code of users: use `run`, or submit a task",
    "start": "the constructor connects",
    "benchmark_hardware": "see bench/ in Scaler's repository",
    "datasets": "keep the persisted collection in your program; datasets outlive no client here",
    "extensions": "there are none",
    "preloads": "give scaler_cluster --preload, or use register_plugin",
    "refcount": "`futures` has the keys whose futures are held",
    "rpc": "use the methods of the client, or the commands scaler workers, tasks and such",
    "scheduler_comm": "use the methods of the client; `scheduler.address` is where its scheduler is",
    "scheduler_file": "give the address, or set SCALER_ADDRESS",
    "amm": "values are copied to where they are used, and spilled where they do not fit",
    "as_current": "`with Client(...)`, or `set_as_default`: the client that was made last is the default",
    "get_scheduler_logs": "read the scheduler's log",
    "get_worker_logs": "read the log of their host's agent",
    "loop": "there is no event loop of the client's own: any loop may await its methods",
    "nbytes": "use the command scaler objects",
    "normalize_collection": "give the collection itself: keys that the client has are not computed again",
    "processing": "use the command scaler workers, or scaler tasks",
    "restart_workers": "use `restart`, or end the agent of the host",
    "sync": "methods block, or are awaited with `asynchronous=True`",
    "unforward_logging": "there is no forward_logging",
    "unregister_scheduler_plugin": "the scheduler runs no code of users",
    "unsubscribe_topic": "there is no subscribe_topic",
    "write_scheduler_file": "give the address, or set SCALER_ADDRESS",
}

_AS_MANY = "a local cluster keeps the workers it was started with: give Client(n_workers=...) as many as are needed"
_ON_HOSTS = "use scaler.Cluster(provider, ...), whose hosts come and go as the work needs them"
#: methods and attributes of dask's clusters -> what to do instead
OF_CLUSTER = {
    "adapt": _ON_HOSTS,
    "called_from_running_loop": "methods block",
    "from_name": "give Client the address",
    "get_client": "use Client(cluster)",
    "get_logs": "what it logs is on the program's standard error",
    "loop": "it runs in processes of its own",
    "new_worker_spec": _ON_HOSTS,
    "observed": "`n_workers` says how many workers it has",
    "plan": "`n_workers` says how many workers it has",
    "requested": "`n_workers` says how many workers it has",
    "scale": _AS_MANY,
    "scale_down": _AS_MANY,
    "scale_up": _AS_MANY,
    "scheduler_info": "use Client.scheduler_info",
    "start_worker": _AS_MANY,
    "sync": "methods block",
    "wait_for_workers": "use Client.wait_for_workers",
    "worker_spec": _ON_HOSTS,
    "workers": "`n_workers` says how many there are, Client.scheduler_info names them, the command scaler workers more",
}
#: what to do instead of asking the scheduler itself
OF_SCHEDULER = "it is another process: use the methods of the client, or the commands scaler workers, tasks and such"

_COMMAND = "use the command scaler_cluster, whose workers are replaced when they end"
_HOSTS = "use the command scaler_provision, which starts hosts as they are needed"
_PACKAGES = "install packages in the environment of scaler_cluster before it is started"
_SERVICE = "keep the state in your program, or in a service of its own"
_STATE = "there is no state that tasks share: pass values as arguments, and collect results in the client"
#: names of the package dask.distributed -> what to do instead
NAMES = {
    "Actor": _SERVICE,
    "ActorFuture": _SERVICE,
    "Adaptive": _HOSTS,
    "BaseActorFuture": _SERVICE,
    "CompatibleExecutor": "use Client.get_executor, or scaler.Executor",
    "CondaInstall": _PACKAGES,
    "Environ": "set the environment of the command scaler_cluster, or give Client.register_plugin what sets os.environ",
    "Event": _STATE,
    "InstallPlugin": _PACKAGES,
    "KilledWorker": "catch scaler.WorkerLost",
    "LocalCluster": "use scaler.SchedulerClusterCombo(n_workers=...), or Client(n_workers=...)",
    "Lock": _STATE,
    "MultiLock": _STATE,
    "Nanny": _COMMAND,
    "NannyPlugin": "subclass WorkerPlugin: agents run no code of users",
    "PipInstall": _PACKAGES,
    "Pub": _STATE,
    "Queue": _STATE,
    "Reschedule": "raise an error of your own, and submit the task with retries=",
    "SSHCluster": "use scaler.Cluster('ssh', hosts=[...])",
    "Scheduler": "use the command scaler_scheduler",
    "SchedulerPlugin": "the scheduler runs no code of users",
    "Security": "programs of one user trust each other by a key file: copy it to other hosts, see SCALER_KEY_FILE",
    "Semaphore": _STATE,
    "SpecCluster": _HOSTS,
    "Status": "compare with texts: Client.status and Future.status are such",
    "Sub": _STATE,
    "SubprocessCluster": "use scaler.SchedulerClusterCombo(n_workers=...), or Client(n_workers=...)",
    "UploadDirectory": "use Client.upload_file with an archive (.zip) of it",
    "UploadFile": "use Client.upload_file",
    "Variable": _STATE,
    "Worker": _COMMAND,
    "connect": "use Client",
    "get_task_metadata": "use get_task_stream, or performance_report",
    "get_worker": "a task knows no worker: keep what it needs in a global of its module, or use register_plugin",
    "print": "the builtin prints where the worker's output goes",
    "rpc": "use Client",
    "span": "use get_task_stream, or performance_report, around what is to be told apart",
    "sync": "methods of Client block, or are awaited with `asynchronous=True`",
    "warn": "use the module warnings: what tasks of collections issue reaches the caller",
}


def refuse(asked: object, whose: str, name: str, instead: Mapping[str, str]) -> NoReturn:
    """Raise the AttributeError of an object that has no such name: with what to do instead, if distributed has it."""
    if name in instead:
        raise AttributeError(f"Scaler has no counterpart to distributed's {whose}.{name}: {instead[name]}")
    raise AttributeError(f"{type(asked).__name__!r} object has no attribute {name!r}", name=name, obj=asked)
