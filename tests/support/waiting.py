"""Waiting for a condition, with a deadline."""

import threading
import time
from collections.abc import Callable
from typing import Any

#: seconds that anything may take which is not measured
DEADLINE = 20.0


def until(condition: Callable[[], Any], what: str = "", deadline: float = DEADLINE) -> Any:
    """Block until the condition gives something true, and return that; fail at the deadline."""
    end = time.monotonic() + deadline
    pause = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {deadline:g} s in vain {what and f'for {what}'}"
        pause.wait(0.005)
    return value
