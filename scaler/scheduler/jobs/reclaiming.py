"""Giving back what deleted jobs took: segments that are mostly waste have the rest of them copied, and are removed.

One at a time, a little in each step, those first of which least has to be copied; only while the disk is not busy with
anything else, and only if it has room for that. A record that says that a job is deleted stays for as long as another
segment has something of that job. A segment of which something can't be read stays, until that can be or nothing of it
is needed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from scaler.journal.layout import Place
from scaler.journal.records import SEGMENT_HEADER
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs.job import Job, Written
from scaler.scheduler.jobs.job_records import LAST_ONLY
from scaler.scheduler.jobs.job_table import JobTable

#: bytes copied in one step, about
STEP = 1 << 20
#: bytes of waste that nobody minds in the segment that is written, and for which there is always room
LITTLE = 1 << 16
#: bytes of room that copying leaves for what is written meanwhile
SPARE = 1 << 20


@dataclass
class Reclaiming:
    """The segment that is being given back."""

    segment: int = 0
    #: what is still to be copied of it, with whose it is; None: a job that is deleted
    left: deque[tuple[Job | None, Written]] = field(default_factory=deque)
    #: what was copied in the last step, and where to
    copied: list[tuple[Job | None, Written, Place]] = field(default_factory=list)
    #: segments that have something which can't be read, or belongs to what is missing
    unreadable: set[int] = field(default_factory=set)

    def step(self, table: JobTable) -> None:
        """All that was written is on disk: go on, if there is anything to be given back."""
        for job, written, place in self.copied:
            _settle(table, job, written, place)
        self.copied.clear()
        if not self.segment and not self._choose(table):
            return
        size = 0
        while self.left and size < STEP:
            job, written = self.left.popleft()
            if not _is_needed(table, job, written):
                continue
            place = table.layout.take_bytes(written.size)
            table.effects.append(ev.Copy(written.where, place, written.size))
            table.disk.count(written.size)
            if job is not None:
                table.segments.of_jobs[job.number].add(place.segment)
            self.copied.append((job, written, place))
            size += written.size
        if not self.left and not self.copied:
            table.remove_segment(self.segment)
            self.unreadable.discard(self.segment)
            self.segment = 0

    def not_copied(self, table: JobTable, place: Place) -> None:
        """A record of the last step could not be read: it stays, with all that is left of its segment."""
        for each in [each for each in self.copied if each[2] == place]:
            _, written, _ = each
            self.copied.remove(each)
            table.segments.reach(place, written.size)
            self.unreadable.add(written.where.segment)
            self.left.clear()
            self.segment = 0

    def _choose(self, table: JobTable) -> bool:
        live = table.segments.live
        wasteful = [
            segment
            for segment, length in table.segments.lengths.items()
            if _is_wasteful(table, segment, length) and not (segment in self.unreadable and live[segment])
        ]
        segment = min(wasteful, key=live.__getitem__, default=0)
        if not segment or (live[segment] > LITTLE and live[segment] + SPARE > table.disk.room):
            return False
        if segment == table.layout.segment:
            table.layout.turn_over()
        self.segment = segment
        self.left.extend(
            (job, written) for job in table.jobs.values() for written in job.records if written.where.segment == segment
        )
        self.left.extend((None, tomb) for tomb in table.segments.tombs.values() if tomb.where.segment == segment)
        return True


def _is_wasteful(table: JobTable, segment: int, length: int) -> bool:
    """Most of a segment is waste, and somebody minds it."""
    taken = length - SEGMENT_HEADER
    needed = table.segments.live[segment]
    waste = taken - needed
    is_minded = segment != table.layout.segment or waste >= LITTLE or not needed
    return 2 * waste > taken and is_minded


def _settle(table: JobTable, job: Job | None, written: Written, place: Place) -> None:
    """A record is at its new place, and can be read there."""
    table.segments.let_go(written)
    if job is not None:
        job.index.move(written.first_span, written.spans, place.segment, place.offset - written.where.offset)
    written.where = place
    if _is_needed(table, job, written):
        table.segments.need(written)
    else:
        table.segments.reach(place, written.size)


def _is_needed(table: JobTable, job: Job | None, written: Written) -> bool:
    """Nothing has happened since that makes a record superfluous."""
    if job is None:
        return any(tomb is written for tomb in table.segments.tombs.values())
    if job.number not in table.jobs:
        return False
    return written.kind not in LAST_ONLY or any(each is written for each in job.records)
