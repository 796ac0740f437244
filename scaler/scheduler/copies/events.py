"""What those who send a journal along, or take it, want of their shell; and the figures that both go by."""

from __future__ import annotations

from array import array

from scaler.common.effects import Log
from scaler.common.records import record
from scaler.journal.history import Copy, Turn
from scaler.journal.layout import Place
from scaler.protocol.messages import (
    TURN_NUMBERS,
    JournalSlice,
    JournalStart,
    JournalState,
    JournalSynced,
    u64,
)

#: bytes of a slice, and of those that are on their way to the other disk, at most
SLICE, WINDOW = 256 << 10, 1 << 20
#: seconds between two signs of life
BEAT = 0.5
#: seconds of silence after which the one that leads goes on alone: the other one knows that it does not before
ALONE = 6.0
#: seconds for which too few agents may be heard to go on alone before that is said: they are about to come
COMING = 2.0
#: seconds for which bytes may be on their way until the other one counts as behind
STALLED = 2.0
#: seconds without a word about a stream until it is over: longer than a connection lives that nobody is heard over
SILENT = 4.0

#: what one of the two says to the other
Said = JournalState | JournalStart | JournalSlice | JournalSynced


@record
class Say:
    """Say this to the other one."""

    message: JournalState | JournalStart | JournalSynced


@record
class Send:
    """Send bytes of a segment that are on disk: read them, so many from the place in this message on."""

    message: JournalSlice
    size: int


@record
class Mark:
    """Mark the directory with this number before anything else is said."""

    number: int


@record
class Keep:
    """Have it on disk before anything else is done: where another copy is, and whether it may lack something.

    Or that both schedulers were given this one.
    """

    partner: str
    alone: bool
    is_shared: bool = False


@record
class Unlink:
    """Remove a segment."""

    segment: int


@record
class Yield:
    """The other one has the newer copy: it is to lead."""


@record
class Open:
    """The journal that was held back is to be opened: no newer copy is known."""


@record
class Reject:
    """What the other one said makes no sense: this session is over."""

    reason: str


@record
class Look:
    """Look at what is in the directory."""

    stream: int


@record
class BeginWhole:
    """Make a copy that is to replace what is there."""

    turns: tuple[Turn, ...]


@record
class BeginBehind:
    """Go on behind this place."""

    place: Place
    turns: tuple[Turn, ...]


@record
class Append:
    """Write these bytes and sync them; then the copy is complete, or segments are not needed any more."""

    place: Place
    data: bytes
    complete: bool
    removed: tuple[int, ...]


#: of the one that leads, and of the one that stands by
SenderWish = Say | Send | Mark | Keep | Unlink | Yield | Open | Reject | Log
TakerWish = Say | Look | BeginWhole | BeginBehind | Append | Reject | Log


def turns_of(numbers: array[int]) -> tuple[Turn, ...]:
    """Turns as messages tell of them.

    >>> turns_of(said_of((Turn(1, 7, Place(2, 24)),)))
    (Turn(number=1, lot=7, start=Place(segment=2, offset=24)),)
    """
    said = list(numbers)
    return tuple(
        Turn(said[at], said[at + 1], Place(said[at + 2], said[at + 3])) for at in range(0, len(said), TURN_NUMBERS)
    )


def said_of(turns: tuple[Turn, ...]) -> array[int]:
    """Turns for a message."""
    return u64([number for turn in turns for number in (turn.number, turn.lot, *turn.start)])


def copy_of(state: JournalState) -> Copy:
    """The copy that somebody has."""
    return Copy(turns_of(state.turns), Place(state.segment, state.offset))
