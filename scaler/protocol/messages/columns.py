"""Columns: what a message has of many things at once, as packed arrays.

"Q" is u64, "I" u32, "i" i32 and "B" u8; all are little-endian on the wire. Each message has a dozen columns, most of
them empty: what makes them is not a function of Python's, which would be called forty times for each lone task.
"""

from array import array
from collections.abc import Callable
from dataclasses import field
from functools import partial

#: make a column of these values (numbers, or bytes as they are on the wire), or an empty one
u64: Callable[..., "array[int]"] = partial(array, "Q")
u32: Callable[..., "array[int]"] = partial(array, "I")
i32: Callable[..., "array[int]"] = partial(array, "i")
u8: Callable[..., "array[int]"] = partial(array, "B")


def column(make: Callable[[], "array[int]"]) -> "array[int]":
    """A dataclass field that is an empty column."""
    return field(default_factory=make)
