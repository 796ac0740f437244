"""All jobs of a scheduler, and what is written of them: records go out here, and what they take is counted."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from scaler.journal.layout import Layout, Place
from scaler.journal.records import Frame, size_of
from scaler.protocol.messages import Message
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs.job import Job, Unsynced, Written
from scaler.scheduler.jobs.job_records import Kind

#: a message as frames
Encode = Callable[[Message], list[Frame]]


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
    #: the number of the next job
    next_number: int = 1
    #: records that were written, and those of them that are on disk
    written: int = 0
    synced: int = 0
    #: what keeps the disk from taking more; None: nothing does
    trouble: str | None = None
    #: segment -> bytes in it that somebody needs
    live: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    #: segment -> its length
    lengths: dict[int, int] = field(default_factory=dict)
    #: job that is deleted -> segments that still have something of it
    deleted: dict[int, set[int]] = field(default_factory=dict)
    #: job that is deleted -> the record that says so
    tombs: dict[int, Written] = field(default_factory=dict)
    #: what is done when so many records are on disk
    when_synced: deque[tuple[int, Callable[[], None]]] = field(default_factory=deque)

    def write(self, job: Job, kind: Kind, *frames: Frame, first_span: int = 0) -> Written:
        """Write a record of a job."""
        place = self.layout.take(frames)
        self.effects.append(ev.Write(place, kind, job.number, list(frames)))
        self.written += 1
        return self.keep(job, kind, place, size_of(frames), first_span)

    def keep(self, job: Job, kind: int, place: Place, size: int, first_span: int = 0) -> Written:
        """A record of a job is here."""
        written = Written(kind, place, size, first_span)
        job.records.append(written)
        self.live[place.segment] += size
        self.lengths[place.segment] = max(self.lengths.get(place.segment, 0), place.offset + size)
        return written

    def then(self, action: Callable[[], None]) -> None:
        """Do something as soon as all that was written is on disk."""
        self.when_synced.append((self.written, action))

    def mark(self, job: Job, heard: int, size: int) -> None:
        """Results of a job were written last: its spans may be shown once they are on disk."""
        job.unsynced.append(Unsynced(self.written, job.index.spans, heard, size))

    def forget(self, job: Job) -> None:
        """A job is deleted: the record that says so stays as long as there are others of it."""
        self.bury(job, self.write(job, Kind.DELETED))

    def bury(self, job: Job, tomb: Written) -> None:
        """A job is deleted, and its records count no more."""
        for written in job.records:
            self.live[written.place.segment] -= written.size
        segments = {written.place.segment for written in job.records if written is not tomb}
        del self.jobs[job.number]
        if self.by_name.get(job.name) is job:
            del self.by_name[job.name]
        self.deleted[job.number] = segments - {tomb.place.segment}
        self.tombs[job.number] = tomb
        self.live[tomb.place.segment] += tomb.size if self.deleted[job.number] else 0

    def tell(self, level: str, text: str) -> None:
        """Write a line to the log."""
        self.effects.append(ev.Log(level, text))
