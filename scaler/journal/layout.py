"""Where the next record goes: which segment, and how far into it. Pure: whoever decides can name the place at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scaler.journal.records import SEGMENT_HEADER, Frame, size_of

#: bytes after which a segment is followed by another
SEGMENT_BYTES = 64 << 20
#: how it ends what is said of a journal that nobody can write any more who has it open
ONLY_ANEW = "start the scheduler again"


class Place(NamedTuple):
    """Where a record begins."""

    segment: int
    offset: int


@dataclass
class Layout:
    """Hands out places, one behind the other."""

    #: the segment that is written, counted from 1
    segment: int = 1
    #: how long it is, bytes
    offset: int = SEGMENT_HEADER
    #: bytes after which another one begins
    most: int = SEGMENT_BYTES

    def take(self, frames: Sequence[Frame]) -> Place:
        """The place of a record of these frames; a record is never divided, so a segment may be longer than asked."""
        return self.take_bytes(size_of(frames))

    def take_bytes(self, size: int) -> Place:
        """The place of a record of so many bytes."""
        if self.offset > SEGMENT_HEADER and self.offset + size > self.most:
            self.turn_over()
        place = Place(self.segment, self.offset)
        self.offset += size
        return place

    def turn_over(self) -> None:
        """What comes next goes into another segment."""
        self.segment, self.offset = self.segment + 1, SEGMENT_HEADER
