"""Local clusters: started by a program, and ended with it."""

from __future__ import annotations

from scaler.common.later_names import imported

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler.cluster.combo import SchedulerClusterCombo

__all__ = ["SchedulerClusterCombo"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return imported("scaler.cluster.combo", name)  # here, as the cluster's own process needs none of it
