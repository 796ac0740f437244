"""What a row uses: memory at its peak, and time of the processor. For rows that are profiled."""

from __future__ import annotations

import resource
import sys
import time
from typing import TypeAlias

#: bytes of memory at the peak, and microseconds of processor
Used: TypeAlias = tuple[int, int]

NOT_PROFILED: Used = (0, 0)

_UNIT = 1 if sys.platform == "darwin" else 1024

_began = 0


def begin() -> None:
    """Begin a new measurement; of memory, where the kernel can."""
    global _began
    try:
        with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
            file.write("5")
    except OSError:
        pass
    _began = time.process_time_ns()


def read() -> Used:
    """What this process has used since `begin`: its largest resident set, and all its threads' processor time.

    Where the peak can't be reset it is that since the process began.
    """
    return _peak(), (time.process_time_ns() - _began) // 1000


def _peak() -> int:
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
