"""Columns: what a message has of many things at once, as packed arrays.

"Q" is u64, "I" u32, "i" i32 and "B" u8; all are little-endian on the wire.
"""

from array import array
from collections.abc import Callable
from dataclasses import field


def u64(values: object = ()) -> "array[int]":
    """A u64 column."""
    return array("Q", values)  # type: ignore[call-overload, no-any-return]


def u32(values: object = ()) -> "array[int]":
    """A u32 column."""
    return array("I", values)  # type: ignore[call-overload, no-any-return]


def i32(values: object = ()) -> "array[int]":
    """An i32 column."""
    return array("i", values)  # type: ignore[call-overload, no-any-return]


def u8(values: object = ()) -> "array[int]":
    """A u8 column."""
    return array("B", values)  # type: ignore[call-overload, no-any-return]


def column(make: Callable[[], "array[int]"]) -> "array[int]":
    """A dataclass field that is an empty column."""
    return field(default_factory=make)
