"""Columns: what a message has of many things at once, as packed arrays.

"Q" is u64, "I" u32, "i" i32 and "B" u8; all are little-endian on the wire. Each message has a dozen columns, most of
them empty: what makes them is not a function of Python's, which would be called forty times for each lone task.
"""

from array import array
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import NoReturn

#: make a column of these values (numbers, or bytes as they are on the wire), or an empty one
u64: Callable[..., "array[int]"] = partial(array, "Q")
u32: Callable[..., "array[int]"] = partial(array, "I")
i32: Callable[..., "array[int]"] = partial(array, "i")
u8: Callable[..., "array[int]"] = partial(array, "B")


def column(make: Callable[[], "array[int]"]) -> "array[int]":
    """A dataclass field that is an empty column."""
    return field(default_factory=make)


class _None(array):  # type: ignore[type-arg]
    """An empty column that stays empty."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # which dataclasses ask of a default

    def __repr__(self) -> str:
        return f"array({self.typecode!r})"

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("this column is shared by all messages that have none: give the message one of its own")

    append = extend = insert = frombytes = fromlist = fromfile = fromunicode = __iadd__ = __imul__ = _refuse


def seldom(make: Callable[[], "array[int]"]) -> "array[int]":
    """A column that most messages have not: what is there then is shared, and can't be added to.

    A message has a dozen, of 80 bytes each, and is made four times on the way of a lone task.
    """
    return field(default=_None(make().typecode))
