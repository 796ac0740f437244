"""All jobs of a scheduler, and what is written of them: records go out here, and what they take is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from scaler.journal.layout import Layout, Place
from scaler.journal.records import Frame, size_of
from scaler.protocol.messages import Message
from scaler.results.reference import file_name
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs.disk import Disk
from scaler.scheduler.jobs.file_reads import FileReads
from scaler.scheduler.jobs.job import Job, Submitter, Unsynced, Written
from scaler.scheduler.jobs.job_records import LAST_ONLY, Kind, to_json
from scaler.scheduler.jobs.segments import Segments

#: a message as frames
Encode = Callable[[Message], list[Frame]]
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
    #: jobs of which more is to come, and from whom
    submitters: dict[Job, Submitter] = field(default_factory=dict)
    #: the number of the next job
    next_number: int = 1
    #: what is written, and where
    disk: Disk = field(default_factory=Disk)
    segments: Segments = field(default_factory=Segments)
    #: why another scheduler may lead meanwhile, and know of other jobs; empty: none does
    doubt: str = ""
    #: tokens of submissions whose job is deleted, the last ones: what they said may still be on its way over a
    #: connection that was given up
    gone: dict[int, None] = field(default_factory=dict)
    #: the directory for large results, and what this journal calls its part of it; empty: there is none
    results: str = ""
    identity: str = ""
    reads: FileReads = field(default_factory=FileReads)
    #: job, which may not be known otherwise -> records of it that can't be used; its files stay, too
    left_over: dict[int, list[Written]] = field(default_factory=dict)
    #: a job with files was deleted, of which more may come to light
    is_untidy: bool = False

    @property
    def file_bytes(self) -> int:
        """Bytes of large results in files, of all jobs."""
        return sum(job.file_bytes for job in self.jobs.values())

    def write(self, job: Job, kind: Kind, *frames: Frame) -> Written:
        """Write a record of a job."""
        place = self.layout.take(frames)
        self.effects.append(ev.Write(place, kind, job.number, list(frames)))
        size = size_of(frames)
        self.disk.count(size)
        return self.keep(job, kind, place, size)

    def write_state(self, job: Job) -> None:
        """Write how a job is: what was written of that before counts no more."""
        job.turn += 1
        state = to_json(
            turn=job.turn, complete=job.is_complete, cancelled=job.is_cancelled, forced=job.is_forced,
            joins=job.joins, ended=job.ended, trouble=job.trouble,
        )  # fmt: skip
        self.write(job, Kind.STATE, state)

    def keep(self, job: Job, kind: int, place: Place, size: int) -> Written:
        """A record of a job is here."""
        if kind in LAST_ONLY:
            for old in [written for written in job.records if written.kind == kind]:
                job.records.remove(old)
                job.bytes -= old.size
                self.segments.let_go(old)
        written = Written(kind, place, size)
        job.records.append(written)
        job.bytes += size
        self.segments.need(written)
        self.segments.of_jobs[job.number].add(place.segment)
        return written

    def want(self, effect: ev.Effect) -> None:
        """Have something done."""
        self.effects.append(effect)

    def mark(self, job: Job, heard: int, size: int) -> None:
        """Results of a job were written last: its spans may be shown once they are on disk."""
        job.unsynced.append(Unsynced(self.disk.written, job.index.spans, job.index.counts, heard, size))
        self.unsettled[job] = None

    def forget(self, job: Job) -> None:
        """A job is deleted: the record that says so stays as long as there are others of it elsewhere."""
        tomb = self.write(job, Kind.DELETED)
        job.records.remove(tomb)
        self.drop(job)
        self.disk.then(partial(self.remove_files, job))
        self.segments.bury(job.number, tomb)

    def remove_files(self, job: Job) -> None:
        """A job is deleted, and that is on disk."""
        if job.files:
            names = [file_name(job.number, file.row, file.tag) for file in job.files.values()]
            self.effects.append(ev.RemoveFiles(job.identity, names))
        self.is_untidy |= bool(job.identity)

    def drop(self, job: Job) -> None:
        """A job is not here any more, and nothing that was written of it counts."""
        for written in (*job.records, *self.left_over.pop(job.number, ())):
            self.segments.let_go(written)
        del self.jobs[job.number]
        self.submitters.pop(job, None)
        if self.by_name.get(job.name) is job:
            del self.by_name[job.name]
        self.gone.update(dict.fromkeys((job.token, *job.joined)))
        while len(self.gone) > MOST_DELETED:
            del self.gone[next(iter(self.gone))]

    def remove_segment(self, segment: int) -> None:
        """Nothing in a segment is needed any more."""
        self.effects.append(ev.Remove(segment))
        self.segments.remove(segment)

    def tell(self, level: str, text: str) -> None:
        """Write a line to the log."""
        self.effects.append(ev.Log(level, text))
