"""Waiting for a condition, with a deadline, and what has to be over in some time."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

#: seconds that anything may take which is not measured
DEADLINE = 20.0


def until(condition: Callable[[], Any], what: str = "", deadline: float = DEADLINE) -> Any:
    """Block until the condition gives something true, and return that; fail at the deadline."""
    deadline = patience(deadline)
    end = time.monotonic() + deadline
    pause = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {deadline:g} s in vain {what and f'for {what}'}"
        pause.wait(0.005)
    return value


def patience(seconds: float) -> float:
    """So many seconds; more where there is more work than processors: the suite itself has two threads for each."""
    return seconds * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


@contextlib.contextmanager
def within(seconds: float, why: str = "") -> Iterator[None]:
    """Fail if the block takes longer."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < patience(seconds), f"took {took:.2f} s, not less than {seconds:g}{why and f': {why}'}"
