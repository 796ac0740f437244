"""How many processors this process may run on."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The number of cores that this process may run on; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
