"""What all messages have in common, and what a well-formed one is."""

from array import array
from collections.abc import Iterable
from dataclasses import fields
from typing import ClassVar

from scaler.common.records import record
from scaler.protocol.codes import LARGEST_VALUE, MOST_CAPABILITIES


class Malformed(Exception):
    """A message contradicts itself; the codec turns it into a ProtocolError."""


#: about what a message takes in memory besides its columns, frames and long texts, bytes
MESSAGE_BYTES = 512


@record
class Part:
    """What is a struct on the wire: a message, or a part of one."""

    #: struct on the wire -> the fields of this class that are in it
    groups: ClassVar[dict[str, tuple[str, ...]]] = {}

    def validate(self) -> None:
        """Raise `Malformed` when the columns contradict each other."""


@record
class Message(Part):
    """Base of all messages."""

    #: a message with payload frames has a field `bodies`
    has_bodies: ClassVar[bool] = False
    #: it answers a peer at once, however often that asks
    is_answer: ClassVar[bool] = False

    @property
    def weight(self) -> int:
        """About how many bytes of memory it takes while it waits to be sent, acknowledged or dealt with."""
        return MESSAGE_BYTES if _LONG.get(type(self)) == () else MESSAGE_BYTES + _long_fields(self)


#: fields of each class that may be long: columns, frames, texts, and other parts that have such
_LONG: dict[type[Part], tuple[str, ...]] = {}
_SHORT = ("int", "float", "bool", "str", int, float, bool, str)


def _long_fields(part: Part) -> int:
    """About how many bytes these fields take."""
    names = _LONG.get(type(part))
    if names is None:
        names = _LONG[type(part)] = tuple(each.name for each in fields(part) if each.type not in _SHORT)
    total = 0
    for name in names:
        value = getattr(part, name)
        if type(value) is array:
            total += len(value) * value.itemsize
        elif type(value) is list or type(value) is tuple:  # of frames or texts
            total += sum(map(len, value))
        elif isinstance(value, Part):
            total += _long_fields(value)
    return total


def require(condition: bool, what: str) -> None:
    """Raise `Malformed` unless a condition holds that all messages meet.

    What each task, result and heartbeat is looked at for, they test by themselves: the call costs more than the test.
    """
    if not condition:
        raise Malformed(what)


def rows_in(pairs: "array[int]", rows: int | None = None) -> int:
    """How many rows these spans have; raises `Malformed` for bounds that are none, or beyond so many rows."""
    if len(pairs) == 2:
        lo, hi = pairs
        if lo >= hi or (rows is not None and hi > rows):
            raise Malformed("a span is empty or outside its batch")
        return hi - lo
    require(len(pairs) % 2 == 0, "span bounds come in pairs")
    total = 0
    for lo, hi in zip(pairs[::2], pairs[1::2], strict=True):
        require(lo < hi and (rows is None or hi <= rows), "a span is empty or outside its batch")
        total += hi - lo
    return total


def check_capabilities(capabilities: Iterable[str]) -> None:
    """Raise `Malformed` for more of them than people read."""
    total = sum(map(len, capabilities))
    require(total <= MOST_CAPABILITIES, f"capabilities have at most {MOST_CAPABILITIES:,} characters together")


def check_stored(sizes: Iterable[int]) -> None:
    """Raise `Malformed` unless stored objects can have these sizes: what has none would pass for one that is lost."""
    require(all(0 < size <= LARGEST_VALUE for size in sizes), f"a stored object has 1 to {LARGEST_VALUE:,} bytes")


def check_holders(ids: "array[int]", sizes: "array[int]", holder_counts: "array[int]", holders: "array[int]") -> None:
    """Raise `Malformed` unless there are a size and holders for each object."""
    require(len(ids) == len(sizes) == len(holder_counts), "a size and a number of holders for each stored object")
    check_stored(sizes)
    require(sum(holder_counts) == len(holders), "the holder counts add up")
