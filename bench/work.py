"""The functions that workers run. A module of its own: workers import it, and nothing else with it."""

from __future__ import annotations

import os
import time
from typing import Any


def noop(value: int) -> int:
    return value


def increment(value: int) -> int:
    return value + 1


def total(values: list[int]) -> int:
    return sum(values)


def first(values: Any) -> float:
    """The first item, of an array or of bytes."""
    return float(values[0])


def first_after(values: Any, _: Any) -> float:
    return first(values)


def nbytes(values: Any) -> int:
    """Of an array."""
    return int(values.nbytes)


def block(number: int) -> Any:
    """An array of 100 MB that begins with `number`."""
    import numpy

    array = numpy.full(12_500_000, 1.0)
    array[0] = number
    return array


def pid(_: int) -> int:
    return os.getpid()


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


# One function for each duration: engines learn how long a function takes, and one that takes always the same is usual.
def spin_100us(_: int) -> None:
    _spin(0.0001)


def spin_1ms(_: int) -> None:
    _spin(0.001)


def spin_10ms(_: int) -> None:
    _spin(0.01)
