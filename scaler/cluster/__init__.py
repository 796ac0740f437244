"""Local clusters: started by a program, and ended with it."""

from scaler.cluster.combo import SchedulerClusterCombo

__all__ = ["SchedulerClusterCombo"]
