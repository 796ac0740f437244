"""Local clusters: started by a program, and ended with it."""

from __future__ import annotations

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler.cluster.combo import SchedulerClusterCombo

__all__ = ["SchedulerClusterCombo"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from scaler.cluster.combo import SchedulerClusterCombo  # here, as the cluster's own process needs none of it

    return SchedulerClusterCombo
