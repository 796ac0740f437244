"""Child processes that hear of their parent's end, whatever ends it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import cache

_PR_SET_PDEATHSIG = 1


@cache
def _prctl() -> Callable[..., int] | None:
    """The C function, or None where there is none; found once, also for children that are forked afterwards."""
    if sys.platform != "linux":
        return None
    import ctypes

    prctl: Callable[..., int] = ctypes.CDLL(None).prctl
    return prctl


def signal_at_parents_end(number: int) -> None:
    """Have this process sent a signal when the thread that has made it has ended. Only on Linux."""
    prctl = _prctl()
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Have this process, a child of the one with this pid, killed when that has ended. Only on Linux."""
    signal_at_parents_end(signal.SIGKILL)
    if _prctl() is not None and os.getppid() != parent:  # it had ended before
        os.kill(os.getpid(), signal.SIGKILL)
