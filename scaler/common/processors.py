"""How many processors this process may run on, and how many it may keep busy."""

from __future__ import annotations

import os
from collections.abc import Iterator

from scaler.common.control_groups import content_of, groups_of


def available_cores() -> int:
    """The number of cores that this process may run on; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def granted_cores(root: str = "/") -> int:
    """The number of cores that this process may keep busy: no more than its control groups pay for; at least 1.

    With less it may run on all that are available, but not for long. What the user says by `-X cpu_count` or
    PYTHON_CPU_COUNT (from Python 3.13 on) counts more. `root` stands for the root of the file system.
    """
    available = available_cores()
    said: int | None = os.process_cpu_count() if hasattr(os, "process_cpu_count") else None
    if said is not None and said != available:
        return said
    return max(1, min([available, *_quotas(root)]))


def _quotas(root: str) -> Iterator[int]:
    """How many cores the quotas of the control groups around this process come to, rounded up."""
    for group, is_unified in groups_of("cpu", root):
        if is_unified:
            said = content_of(group, "cpu.max").split()
        else:
            said = [content_of(group, name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        try:
            quota, period = map(int, said)
        except ValueError:  # "max", or there is none to see
            continue
        if quota > 0 and period > 0:
            yield -(-quota // period)
