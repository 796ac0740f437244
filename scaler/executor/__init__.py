"""`Executor`: a `concurrent.futures.Executor` on a cluster.

    Executor ──holds──► Runner: client, its own cluster, calls under way
                           ▲
    the runners of this process that are not closed; the end of the interpreter waits for them

Without an address it starts a local cluster of its own, which ends with it. An executor that is forgotten without
`shutdown` lets what is under way end, as the standard ones do: therefore what works is apart from what users hold.
"""

from __future__ import annotations

from scaler.executor.worker_calls import InitializerFailed

TYPE_CHECKING = False

if TYPE_CHECKING:
    from scaler.executor.executor import Executor

__all__ = ["Executor", "InitializerFailed"]


def __getattr__(name: str) -> object:
    if name != "Executor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from scaler.executor.executor import Executor  # here, as workers come to `worker_calls` through this module

    return Executor
