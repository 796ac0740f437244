"""All jobs of a scheduler, and what is written of them: records go out here, and what they take is counted."""

from __future__ import annotations

import errno
import math
import os
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from scaler.journal.layout import Layout, Place
from scaler.journal.records import Frame, size_of
from scaler.protocol.messages import Message
from scaler.results.reference import file_name
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs.job import Job, Unsynced, Written
from scaler.scheduler.jobs.job_records import LAST_ONLY, Kind, to_json

#: a message as frames
Encode = Callable[[Message], list[Frame]]
#: what the system says of a disk that is full
NO_ROOM = os.strerror(errno.ENOSPC)
#: submissions of deleted jobs that are remembered
MOST_DELETED = 10_000


@dataclass
class JobTable:
    """The state of `JobsCore`."""

    layout: Layout
    encode: Encode
    #: number -> job
    jobs: dict[int, Job] = field(default_factory=dict)
    by_name: dict[str, Job] = field(default_factory=dict)
    #: number at the core -> job
    by_client: dict[int, Job] = field(default_factory=dict)
    effects: list[ev.Effect] = field(default_factory=list)
    #: jobs of which something was heard in this step
    touched: dict[Job, None] = field(default_factory=dict)
    #: jobs that may have gathered results which are not written, and those with parts or results that are not on disk;
    #: there may be many others. Dicts serve as ordered sets
    gathering: dict[Job, None] = field(default_factory=dict)
    unsettled: dict[Job, None] = field(default_factory=dict)
    #: the number of the next job
    next_number: int = 1
    #: records that were written, and those of them that are on disk
    written: int = 0
    synced: int = 0
    #: why the disk takes nothing; None: it does
    refusal: str | None = None
    #: bytes that it took when it was last looked at, but for a reserve, which is for what makes room
    room: float = math.inf
    #: results wait for room
    is_short: bool = False
    #: there may be room by now for what was refused
    wants_room: bool = False
    #: bytes of each of the records that are not on disk, and of all of them
    unsynced: deque[int] = field(default_factory=deque)
    unsynced_bytes: int = 0
    #: why another scheduler may lead meanwhile, and know of other jobs; empty: none does
    doubt: str = ""
    #: tokens of submissions whose job is deleted, the last ones: what they said may still be on its way over a
    #: connection that was given up
    gone: dict[int, None] = field(default_factory=dict)
    #: segment -> bytes in it that somebody needs
    live: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    #: segment -> its length
    lengths: dict[int, int] = field(default_factory=dict)
    #: job that is deleted -> segments that still have something of it
    deleted: dict[int, set[int]] = field(default_factory=dict)
    #: job that is deleted -> the record that says so
    tombs: dict[int, Written] = field(default_factory=dict)
    #: the directory for large results, and what this journal calls its part of it; empty: there is none
    results: str = ""
    identity: str = ""
    #: number of a file that is read -> what is done with its bytes, or with what is the matter
    reads: dict[int, Callable[[bytes, str], None]] = field(default_factory=dict)
    next_read: int = 0
    #: monitor -> files that are read for it
    reads_of: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    #: a job with files was deleted, of which more may come to light
    is_untidy: bool = False
    #: what is done when so many records are on disk
    when_synced: deque[tuple[int, Callable[[], None]]] = field(default_factory=deque)

    @property
    def file_bytes(self) -> int:
        """Bytes of large results in files, of all jobs."""
        return sum(job.file_bytes for job in self.jobs.values())

    @property
    def trouble(self) -> str | None:
        """What keeps the disk from taking more than the little that makes room; None: nothing does."""
        return self.refusal or (NO_ROOM if self.is_short else None)

    def has_room(self, size: int) -> bool:
        """The disk takes so many bytes beside what is on its way there, and has its reserve then."""
        return size + self.unsynced_bytes <= self.room

    def note_synced(self, records: int) -> None:
        """So many of the records that were written are on disk."""
        for _ in range(records - self.synced):
            self.unsynced_bytes -= self.unsynced.popleft()
        self.synced = records

    def count(self, size: int) -> None:
        """A record of so many bytes is written."""
        self.written += 1
        self.unsynced.append(size)
        self.unsynced_bytes += size

    def write(self, job: Job, kind: Kind, *frames: Frame) -> Written:
        """Write a record of a job."""
        place = self.layout.take(frames)
        self.effects.append(ev.Write(place, kind, job.number, list(frames)))
        size = size_of(frames)
        self.count(size)
        return self.keep(job, kind, place, size)

    def write_state(self, job: Job) -> None:
        """Write how a job is: what was written of that before counts no more."""
        job.turn += 1
        state = to_json(
            turn=job.turn, complete=job.is_complete, cancelled=job.is_cancelled, forced=job.is_forced,
            ended=job.ended, trouble=job.trouble,
        )  # fmt: skip
        self.write(job, Kind.STATE, state)

    def keep(self, job: Job, kind: int, place: Place, size: int) -> Written:
        """A record of a job is here."""
        if kind in LAST_ONLY:
            for old in [written for written in job.records if written.kind == kind]:
                job.records.remove(old)
                job.bytes -= old.size
                self.live[old.where.segment] -= old.size
        written = Written(kind, place, size)
        job.records.append(written)
        job.bytes += size
        self.live[place.segment] += size
        self.lengths[place.segment] = max(self.lengths.get(place.segment, 0), place.offset + size)
        return written

    def want(self, effect: ev.Effect) -> None:
        """Have something done."""
        self.effects.append(effect)

    def then(self, action: Callable[[], None]) -> None:
        """Do something as soon as all that was written is on disk."""
        self.when_synced.append((self.written, action))

    def mark(self, job: Job, heard: int, size: int) -> None:
        """Results of a job were written last: its spans may be shown once they are on disk."""
        job.unsynced.append(Unsynced(self.written, job.index.spans, job.index.counts, heard, size))
        self.unsettled[job] = None

    def forget(self, job: Job) -> None:
        """A job is deleted: the record that says so stays as long as there are others of it elsewhere."""
        tomb = self.write(job, Kind.DELETED)
        job.records.remove(tomb)
        self.drop(job)
        self.then(partial(self.remove_files, job))
        self.tombs[job.number] = tomb
        self.deleted[job.number] = {written.where.segment for written in job.records} - {tomb.where.segment}
        self.lay_to_rest(job.number)

    def remove_files(self, job: Job) -> None:
        """A job is deleted, and that is on disk."""
        if job.files:
            names = [file_name(job.number, file.row, file.tag) for file in job.files.values()]
            self.effects.append(ev.RemoveFiles(job.identity, names))
        self.is_untidy |= bool(job.identity)

    def drop(self, job: Job) -> None:
        """A job is not here any more, and nothing that was written of it counts."""
        for written in job.records:
            self.live[written.where.segment] -= written.size
        del self.jobs[job.number]
        if self.by_name.get(job.name) is job:
            del self.by_name[job.name]
        self.gone.update(dict.fromkeys((job.token, *job.joined)))
        while len(self.gone) > MOST_DELETED:
            del self.gone[next(iter(self.gone))]

    def lay_to_rest(self, number: int) -> None:
        """If no other segment has anything of a job that is deleted, what says so is not needed either."""
        if not self.deleted[number]:
            tomb = self.tombs.pop(number)
            del self.deleted[number]
            if tomb.where.segment in self.lengths:
                self.live[tomb.where.segment] -= tomb.size

    def remove_segment(self, segment: int) -> None:
        """Nothing in a segment is needed any more."""
        self.effects.append(ev.Remove(segment))
        self.live.pop(segment, None)
        del self.lengths[segment]
        for number, segments in list(self.deleted.items()):
            segments.discard(segment)
            self.lay_to_rest(number)

    def tell(self, level: str, text: str) -> None:
        """Write a line to the log."""
        self.effects.append(ev.Log(level, text))
