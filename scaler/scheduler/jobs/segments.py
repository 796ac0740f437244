"""What the segments of a journal have that somebody needs; the rest of them is waste (`reclaiming.py`)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from scaler.journal.layout import Place
from scaler.scheduler.jobs.job import Written


@dataclass
class Segments:
    """Of one journal."""

    #: segment -> bytes in it that somebody needs
    live: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    #: segment -> its length
    lengths: dict[int, int] = field(default_factory=dict)
    #: job -> segments that have something of it, needed or not, or on its way there; of one that is deleted besides the
    #: record that says so
    of_jobs: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    #: job that is deleted -> the record that says so
    tombs: dict[int, Written] = field(default_factory=dict)

    @property
    def needed(self) -> int:
        """Bytes that somebody needs, in all of them."""
        return sum(self.live.values())

    def reach(self, place: Place, size: int) -> None:
        """There is a record of so many bytes."""
        self.lengths[place.segment] = max(self.lengths.get(place.segment, 0), place.offset + size)

    def need(self, written: Written) -> None:
        """A record is needed, and there."""
        self.live[written.where.segment] += written.size
        self.reach(written.where, written.size)

    def let_go(self, written: Written) -> None:
        """A record is not needed any more."""
        self.live[written.where.segment] -= written.size

    def bury(self, number: int, tomb: Written) -> None:
        """A job is deleted; the record that says so is needed until no other segment has anything of it."""
        self.tombs[number] = tomb
        self.of_jobs[number].discard(tomb.where.segment)
        self._lay_to_rest(number)

    def remove(self, segment: int) -> None:
        """Nothing in one is needed, and it goes."""
        self.live.pop(segment, None)
        del self.lengths[segment]
        for segments in self.of_jobs.values():
            segments.discard(segment)
        for number in [*self.tombs]:
            self._lay_to_rest(number)

    def _lay_to_rest(self, number: int) -> None:
        """If no other segment has anything of a job that is deleted, what says so is not needed either."""
        if not self.of_jobs[number]:
            tomb = self.tombs.pop(number)
            del self.of_jobs[number]
            if tomb.where.segment in self.lengths:
                self.let_go(tomb)
