"""Peak memory of this process since a moment, as the kernel counts it."""

from __future__ import annotations

import resource
import sys

_UNIT = 1 if sys.platform == "darwin" else 1024


def reset() -> None:
    """Begin a new measurement, where the kernel can."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def read() -> int:
    """Return the largest resident set since `reset`, in bytes; since the process began where there is no reset."""
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
