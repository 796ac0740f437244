"""How the one of two schedulers that leads sends its journal along to the other, which has a directory of its own."""

from array import array
from dataclasses import field
from enum import StrEnum
from typing import ClassVar

from scaler.common.records import record
from scaler.protocol.codes import Frame
from scaler.protocol.messages.columns import column, u32, u64
from scaler.protocol.messages.message import Message, require

#: numbers that tell of a turn: its number, its lot, and segment and offset of its start
TURN_NUMBERS = 4
#: turns that are told of, at most
MAX_TURNS = 64
#: bytes of a journal in one message, at most
MAX_SLICE = 1 << 20
#: segments of a journal are numbered below this, and their bytes, and so are turns; so many are told of, at most
MAX_SEGMENT, MAX_OFFSET, MAX_TURN = 1 << 31, 1 << 62, 1 << 62
MAX_SEGMENTS = 1 << 18
#: characters of why there is no copy, at most
MAX_TROUBLE = 500


class Copying(StrEnum):
    """What one of a pair has of a journal."""

    #: it leads, and this is the journal
    LEADS = "leads"
    #: it stands by, and has a copy in a directory of its own, or would make one
    OWN = "own"
    #: its directory is that of the one that leads
    SHARED = "shared"
    #: it keeps no journal, or can't
    NONE = "none"


@record
class JournalState(Message):
    """Which copy of a journal this one of a pair has: said by the one that leads, and answered by the other."""

    #: a number that whoever leads draws each time that it says this; the answer and all that follows has it
    stream: int
    copying: str
    #: where what can be believed ends
    segment: int = 0
    offset: int = 0
    #: who has written it: `TURN_NUMBERS` each
    turns: "array[int]" = column(u64)
    #: something in it may have been acknowledged that no other copy has
    alone: bool = False
    #: segments that are there, ascending
    segments: "array[int]" = column(u64)
    #: why there is no copy
    trouble: str = ""

    def validate(self) -> None:
        require(self.copying in list(Copying), "a journal that is kept in no known way")
        _check_place(self.segment, self.offset)
        require(len(self.segments) <= MAX_SEGMENTS, f"a journal has at most {MAX_SEGMENTS:,} segments")
        _check_turns(self.turns)
        require(len(self.trouble) <= MAX_TROUBLE, "a reason is short")


@record
class JournalStart(Message):
    """What comes next of a stream: a whole copy, or what is behind a place up to which both are the same."""

    stream: int
    #: the copy that is there is to be replaced
    whole: bool
    #: where both part; nothing is believed that is there behind it
    segment: int = 0
    offset: int = 0
    turns: "array[int]" = column(u64)

    def validate(self) -> None:
        _check_place(self.segment, self.offset)
        _check_turns(self.turns)


@record
class JournalSlice(Message):
    """Bytes of a segment, which follow the last ones; none of them, to say how it is."""

    has_bodies: ClassVar[bool] = True

    stream: int
    segment: int
    offset: int
    #: the last number of a `JournalSynced` that was heard in time
    echo: int = 0
    #: whatever was acknowledged is in the copy
    in_step: bool = False
    #: with these bytes a whole copy is complete
    complete: bool = False
    #: segments that are not needed any more
    removed: "array[int]" = column(u32)
    bodies: list[Frame] = field(default_factory=list)

    def validate(self) -> None:
        _check_place(self.segment, self.offset)
        require(len(self.removed) <= MAX_SEGMENTS, f"a journal has at most {MAX_SEGMENTS:,} segments")
        require(len(self.bodies) == 1, "one frame of bytes")
        require(len(self.bodies[0]) <= MAX_SLICE, f"at most {MAX_SLICE} bytes of a journal")


@record
class JournalSynced(Message):
    """How far the copy is on disk: said when that changes, and twice a second."""

    stream: int
    segment: int
    offset: int
    #: counts these
    number: int = 0
    #: it takes the place of the old one
    complete: bool = False

    def validate(self) -> None:
        _check_place(self.segment, self.offset)


def _check_place(segment: int, offset: int) -> None:
    require(segment < MAX_SEGMENT and offset < MAX_OFFSET, "no journal reaches that far")


def _check_turns(turns: "array[int]") -> None:
    require(len(turns) % TURN_NUMBERS == 0 and len(turns) <= TURN_NUMBERS * MAX_TURNS, "turns of four numbers each")
    for number, _lot, segment, offset in zip(*[iter(turns)] * TURN_NUMBERS, strict=True):
        require(number < MAX_TURN, f"turns are below {MAX_TURN:,}")
        _check_place(segment, offset)
