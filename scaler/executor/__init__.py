"""`Executor`: a `concurrent.futures.Executor` on a cluster.

    Executor ──holds──► Runner: client, its own cluster, calls under way
                           ▲
    the runners of this process that are not closed; the end of the interpreter waits for them

Without an address it starts a local cluster of its own, which ends with it. An executor that is forgotten without
`shutdown` lets what is under way end, as the standard ones do: therefore what works is apart from what users hold.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from scaler.executor.executor import Executor
    from scaler.executor.initializer_failed import InitializerFailed

__all__ = ["Executor", "InitializerFailed"]


def __getattr__(name: str) -> object:
    # imported here, as workers come to `worker_calls` through this module
    if name == "Executor":
        from scaler.executor.executor import Executor

        return Executor
    if name == "InitializerFailed":
        from scaler.executor.initializer_failed import InitializerFailed

        return InitializerFailed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
