"""Scaler: a distributed task engine that existing Python code runs on unchanged.

Names are imported when they are first used (PEP 562): `import scaler` by itself costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; importing it from typing would cost more than all the rest

if TYPE_CHECKING:
    from scaler.client import Client, ObjectRef
    from scaler.client.future import ScalerFuture
    from scaler.cluster import SchedulerClusterCombo
    from scaler.errors import (
        AddressError,
        AddressInUse,
        ClientClosed,
        ConnectionFailed,
        ConnectionTimeout,
        CycleError,
        ForkedClient,
        FunctionNotFound,
        HandshakeRefused,
        JobError,
        KeyFileError,
        ObjectLost,
        ObjectTooLarge,
        ProtocolError,
        RemoteTraceback,
        ScalerError,
        SchedulerStandsBy,
        SerializationError,
        ShutdownRefused,
        StoreFull,
        TaskError,
        TaskFailed,
        TaskTimeout,
        UnknownTask,
        WorkerLost,
        WorkerMemoryExceeded,
    )
    from scaler.executor import Executor
    from scaler.provisioning.cluster import Cluster
    from scaler.serialize import Serializer
    from scaler.version import __version__

__all__ = [
    "AddressError",
    "AddressInUse",
    "Client",
    "ClientClosed",
    "Cluster",
    "ConnectionFailed",
    "ConnectionTimeout",
    "CycleError",
    "Executor",
    "ForkedClient",
    "FunctionNotFound",
    "HandshakeRefused",
    "JobError",
    "KeyFileError",
    "ObjectLost",
    "ObjectRef",
    "ObjectTooLarge",
    "ProtocolError",
    "RemoteTraceback",
    "ScalerError",
    "ScalerFuture",
    "SchedulerClusterCombo",
    "SchedulerStandsBy",
    "SerializationError",
    "Serializer",
    "ShutdownRefused",
    "StoreFull",
    "TaskError",
    "TaskFailed",
    "TaskTimeout",
    "UnknownTask",
    "WorkerLost",
    "WorkerMemoryExceeded",
    "__version__",
]

#: where a name comes from; whatever else is in `__all__` is an exception of `scaler.errors`
_HOMES = {
    "Client": "scaler.client",
    "Cluster": "scaler.provisioning.cluster",
    "Executor": "scaler.executor",
    "ObjectRef": "scaler.client",
    "ScalerFuture": "scaler.client.future",
    "SchedulerClusterCombo": "scaler.cluster.combo",
    "Serializer": "scaler.serialize",
    "__version__": "scaler.version",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from scaler.common.later_names import imported  # here, as the package itself loads nothing

    value = imported(_HOMES.get(name, "scaler.errors"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
