"""What decides about durable jobs: `handle(events, now) -> effects`. Pure: disks and the clock are its shell's.

    monitors ── submit, ask ──► JobsCore ── records ──► journal
                                 │    ▲                    │ on disk
                        as a     ▼    │ how rows ended ◄───┘
                        client  scheduler's core

A part is acknowledged when it is on disk. A result counts for whoever reads, and for the core, when it is on disk;
until then its agent keeps it. Records are written while the last ones are on their way to the disk, together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scaler.common.records import record
from scaler.journal.layout import ONLY_ANEW, Layout, Place
from scaler.journal.records import Record
from scaler.protocol.messages import Heartbeat, JobQuestion, JobSubmit, Message, Task
from scaler.scheduler.jobs import accepting, at_core, changing, filing, reading, submitters
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs.job import Job
from scaler.scheduler.jobs.job_records import Kind, to_json
from scaler.scheduler.jobs.job_table import Encode, JobTable
from scaler.scheduler.jobs.reclaiming import Reclaiming
from scaler.scheduler.jobs.restoring import Restoring

#: why a job can't go on of which the journal tells two things
NOT_ITS_PARTS = "what was submitted of it is not what the journal says that there is"
#: seconds between two times that results are written, which wait for each other: each time costs as much as running
#: some rows. Jobs, and what becomes of them, are written at once.
GATHER = 0.02
#: seconds between two looks whether there is room
LOOK = 0.5
#: bytes of room on the disk below which what is waste is given back before more is written
SCARCE = 64 << 20
#: seconds for which an answer waits that is not certain as long as another scheduler may lead: by then one that led has
#: heard of that. Of jobs that are here, where more may be known at the other one, they count from when it may lead.
UNCERTAIN = 5.0


@record
class Waiting:
    """What somebody wants that waits: for what it asks for, or until it is known what another scheduler has of jobs."""

    event: ev.Asked | ev.Submitted
    #: seconds
    deadline: float


@dataclass(frozen=True)
class JobTerms:
    """What a scheduler's jobs are told once."""

    #: seconds between the heartbeats of its clients
    heartbeat: float
    #: what time it is, in seconds since 1970, when `now` is 0
    wall: float
    #: bytes that they may take before no more are accepted; None: as many as fit
    quota: int | None = None
    #: seconds after its end when a job is deleted; None: somebody has to
    age: float | None = None
    #: bytes that large results may take in files before no more jobs are accepted; None: as many as fit
    results_quota: int | None = None
    #: bytes of a message
    limit: int = 1 << 30
    #: seconds for which the submitter of a job is waited for that has left before all of it was here
    patience: float = math.inf
    #: bytes of memory that rows may take before no more are accepted; None: as many as fit
    memory: int | None = None


class JobsCore:
    """The durable jobs of one scheduler. `restore` what a journal holds, then `begin`, then `handle`."""

    def __init__(self, encode: Encode, terms: JobTerms) -> None:
        """`encode` makes frames of a message."""
        self._table = JobTable(Layout(), encode)
        self._terms = terms
        self._quotas = accepting.Quotas(terms.quota, terms.results_quota, terms.memory)
        self._next_beat: float | None = None
        #: when results that have been gathered may be written, seconds
        self._next_write = 0.0
        #: when it is looked for files that nobody needs, seconds
        self._next_sweep = 0.0
        self._now = 0.0
        self._restoring = Restoring(self._table)
        #: questions whose answers are waited for
        self._waiting: list[Waiting] = []
        #: what is wanted of jobs that are not here, or where others are, and may be so no more at the scheduler that
        #: leads meanwhile
        self._uncertain: list[Waiting] = []
        #: since when another scheduler may lead, seconds
        self._doubted_since = 0.0
        self._reclaiming = Reclaiming()
        #: when it is looked for room again, while there is none, seconds
        self._next_look = 0.0
        #: what was said last of what is the matter with the disk
        self._told_trouble: str | None = None
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            ev.Submitted: self._submitted,
            ev.Asked: self._asked,
            ev.Gone: self._gone,
            ev.Welcomed: self._welcomed,
            ev.Heard: self._heard,
            ev.Forgotten: self._forgotten,
            ev.Doubted: self._doubted,
            ev.OnDisk: self._on_disk,
            ev.MayBeRead: self._may_be_read,
            ev.NotCopied: lambda event: self._reclaiming.not_copied(self._table, event.place),
            ev.MayBeCopied: lambda event: self._reclaiming.unreadable.discard(event.segment),
            ev.Loaded: self._loaded,
            ev.Fetched: self._fetched,
            ev.FileRead: lambda event: self._table.reads.end(event.number, event.data, event.trouble),
            ev.Listed: lambda event: filing.sweep(self._table, event.identity, event.names),
        }

    @property
    def jobs(self) -> int:
        """How many there are."""
        return len(self._table.jobs)

    def name_of(self, job: int) -> str:
        """What a job is called; empty if it was deleted."""
        found = self._table.jobs.get(job)
        return "" if found is None else found.name

    # ---- what was written before -----------------------------------------------------------------------------------
    def restore(self, record: Record, place: Place, inner: Sequence[Message] | None) -> None:
        """Take a record of the journal, in their order; `inner` has the `TaskResult` of results.

        None: nothing of it is believed.
        """
        self._restoring.take(record, place, inner)

    def lay_out(self, layout: Layout) -> None:
        """All is restored; where the next record goes."""
        self._table.layout = layout
        self._reclaiming.unreadable |= self._restoring.finish(self._terms.wall)

    def keep_files(self, directory: str, identity: str) -> None:
        """There is a directory for large results, and this is what the journal calls its part of it."""
        self._table.results, self._table.identity = directory, identity

    @property
    def identity(self) -> str:
        """What the journal calls its part of the directory for results; its youngest job with files says it, too."""
        table = self._table
        return table.identity or next((job.identity for job in reversed(table.jobs.values()) if job.identity), "")

    def begin(self) -> list[ev.Effect]:
        """All is restored: jobs that have not ended go on."""
        for job in self._table.jobs.values():
            job.shown, job.counts = job.index.spans, job.index.counts
            number, job.core.number = job.core.number, 0
            if not job.has_ended and not job.is_over:
                at_core.join(self._table, job, number)
            submitters.note(self._table, job)
            self._table.touched[job] = None
        return self._take_effects()

    # ---- the entry point -------------------------------------------------------------------------------------------
    def handle(self, events: Iterable[ev.Event], now: float) -> list[ev.Effect]:
        """Take what happened, in order; what is to be done about it."""
        self._now = now
        for event in events:
            self._handlers[type(event)](event)
        table = self._table
        if self._next_beat is None or now >= self._next_beat:
            self._next_beat = now + self._terms.heartbeat
            for job in table.by_client.values():
                at_core.say(table, job, Heartbeat(now))
                self._table.touched[job] = None
            self._give_up_left()
            if self._terms.age is not None:
                changing.delete_old(table, self._terms.wall + now, self._terms.age)
        if table.disk.room < SCARCE:
            self._reclaim()  # before more is written
        if table.disk.has_all and now >= self._next_write:
            self._write_results()
        for job in list(table.touched):
            if job.number in table.jobs:
                at_core.settle(table, job)
                self._end_if_over(job)
        table.touched.clear()
        table.disk.run_synced()
        self._reclaim()
        if table.identity:
            self._sweep()
        if self._uncertain:
            self._decide_uncertain()
        self._answer_waiting()
        self._see_to_the_disk()
        return self._take_effects()

    @property
    def wake(self) -> float | None:
        """When something is due though nothing happened, seconds; after the last step."""
        table = self._table
        due = [each.deadline for each in (*self._waiting, *self._uncertain)]
        if table.disk.is_short or table.disk.wants_room:
            due.append(self._next_look)
        if not table.disk.is_short and table.disk.has_all and table.gathering:
            due.append(self._next_write)
        if table.identity:
            due.append(self._next_sweep)
        if (table.by_client or self._terms.age is not None) and self._next_beat is not None:
            due.append(self._next_beat)
        return min(due, default=None)

    def _write_results(self) -> None:
        table = self._table
        before, left = table.disk.written, 0
        for job in list(table.gathering):
            if job.core.number:
                at_core.write_results(table, job)
            if job.core.number and job.core.gathered is not None:
                left = max(left, job.core.gathered.size)
            else:  # or it has left the core
                table.gathering.pop(job, None)
        if table.disk.written > before:
            self._next_write = self._now + GATHER
        table.disk.is_short = left > table.disk.room

    def _reclaim(self) -> None:
        if self._table.disk.has_all:
            self._reclaiming.step(self._table)

    def _take_effects(self) -> list[ev.Effect]:
        effects, self._table.effects = self._table.effects, []
        return effects

    # ---- submitting ------------------------------------------------------------------------------------------------
    def _submitted(self, event: ev.Submitted) -> None:
        if self._table.doubt and self._is_uncertain(event.message):
            self._put_off(event, since=self._now)
            return
        self._submit(event)

    def _is_uncertain(self, message: JobSubmit) -> bool:
        """A part does not go with the job of its name, which may be gone elsewhere; or it comes after such a part."""
        if accepting.clash(self._table.by_name.get(message.name), message):
            return True
        before = (each.event.message for each in self._uncertain)
        return any(isinstance(each, JobSubmit) and each.token == message.token for each in before)

    def _submit(self, event: ev.Submitted) -> None:
        table, message = self._table, event.message
        refusal = event.trouble or accepting.refusal(table, self._quotas, message, event.inner)
        if refusal:
            reading.refuse(table, event.monitor, message.number, refusal)
            return
        if message.token in table.gone:  # there is nothing to complete
            table.disk.then(
                partial(reading.accept, table, event.monitor, message.number, 0, message.token),
                partial(self._turn_down, event.monitor, message.number, None),
            )
            return
        there = table.by_name.get(message.name)
        job = there or self._open(message)
        if message.token != job.token:
            job.joined.add(message.token)
        elif submitters.has_left(job):
            self._reopen(job)
        if message.key and message.key not in job.parts:
            if job.is_complete:
                job.joins = True
                self._reopen(job)
            self._add_part(job, message, event.inner)
        if message.is_last and not job.is_complete:
            job.is_complete = True
            table.write_state(job)
        submitters.note(table, job, event.monitor)
        table.touched[job] = None
        first, _ = job.parts.get(message.key, (0, 0))
        table.disk.then(
            partial(reading.accept, table, event.monitor, message.number, first, job.token),
            partial(self._turn_down, event.monitor, message.number, job if there is None else None),
        )

    def _turn_down(self, monitor: int, number: int, opened: Job | None, trouble: str) -> None:
        """What was submitted does not come to the disk: a job that was `opened` for it is none."""
        reading.refuse(self._table, monitor, number, accepting.unwritten(trouble))
        if opened is not None and opened.number in self._table.jobs:
            at_core.leave(self._table, opened)
            self._table.forget(opened)

    def _open(self, message: JobSubmit) -> Job:
        table = self._table
        number, table.next_number = table.next_number, table.next_number + 1
        created = round(self._terms.wall + self._now, 3)
        job = Job(number, message.name, message.owner, message.token, message.token | 1, created, table.identity)
        job.joins = message.joins
        table.jobs[number] = table.by_name[job.name] = job
        table.write(
            job, Kind.OPENED,
            to_json(
                name=job.name, owner=job.owner, token=job.token, session=job.session, created=created,
                results=job.identity, joins=job.joins,
            ),
        )  # fmt: skip
        if len(message.bodies[0]):
            table.write(job, Kind.NOTE, message.bodies[0])
        at_core.join(table, job)
        return job

    def _reopen(self, job: Job) -> None:
        """More is added to a job of which all was there, or whose submitter was given up."""
        job.is_complete, job.ended, job.trouble = False, None, ""
        self._table.write_state(job)
        if not job.core.number:
            at_core.join(self._table, job)

    def _add_part(self, job: Job, message: JobSubmit, inner: Sequence[Message]) -> None:
        first = job.index.rows
        batches = []
        for task in inner:
            if type(task) is Task:
                wanted = [row for row in range(task.rows) if task.wanted[row]] if task.wanted else None
                batches.append(job.add_batch(task.batch, task.rows, wanted))
                job.function = job.function or task.name.partition("\n")[0]
        job.parts[message.key] = first, job.index.rows - first
        about = to_json(
            key=message.key,
            first=first,
            function=job.function,
            batches=[(batch.id, batch.rows, batch.wanted) for batch in batches],
        )
        counts = to_json(counts=list(message.counts))
        self._table.write(job, Kind.PART, about, counts, *message.bodies[1:])
        job.parted = self._table.disk.written
        self._table.unsettled[job] = None
        if job.core.is_told:
            at_core.say_new_part(self._table, job, inner)
        else:
            job.unsaid.append(inner)

    # ---- asking ----------------------------------------------------------------------------------------------------
    def _asked(self, event: ev.Asked) -> None:
        since = self._doubted_since if reading.is_known(self._table, event.message) else self._now
        if self._table.doubt and self._now < since + UNCERTAIN:
            self._put_off(event, since)
        else:
            self._answer(event)

    def _doubted(self, event: ev.Doubted) -> None:
        if event.reason and not self._table.doubt:
            self._doubted_since = self._now
        self._table.doubt = event.reason
        if not event.reason:
            self._decide_uncertain()

    def _put_off(self, event: ev.Asked | ev.Submitted, since: float) -> None:
        if self._may_wait(event.monitor, event.message.number):
            self._uncertain.append(Waiting(event, since + UNCERTAIN))

    def _decide_uncertain(self) -> None:
        """What waits for the end of a doubt is dealt with. If that takes too long, what hangs on it is refused."""
        wanted, self._uncertain = self._uncertain, []
        for each in wanted:
            event, is_late = each.event, self._now >= each.deadline
            if self._table.doubt and not is_late:
                self._uncertain.append(each)
            elif isinstance(event, ev.Submitted) and not self._table.doubt:
                self._submit(event)
            elif isinstance(event, ev.Asked) and (not self._table.doubt or self._is_told_anyway(event.message)):
                self._answer(event)
            else:
                reading.refuse_in_doubt(self._table, event.monitor, event.message)

    def _is_told_anyway(self, question: JobQuestion) -> bool:
        """It is about what is here, whatever there is elsewhere."""
        return question.kind == "list" or reading.is_known(self._table, question)

    def _may_wait(self, monitor: int, number: int) -> bool:
        """Whether one more question of a monitor may wait for its answer; otherwise that is said."""
        waiting = sum(each.event.monitor == monitor for each in (*self._waiting, *self._uncertain))
        if waiting >= reading.MOST_WAITING:
            reading.refuse(self._table, monitor, number, "too many questions wait for answers")
        return waiting < reading.MOST_WAITING

    def _answer(self, event: ev.Asked) -> None:
        question = event.message
        if question.kind in ("cancel", "delete"):
            changing.change(self._table, event.monitor, question)
        elif question.kind == "file":
            filing.answer(self._table, event.monitor, question)
        elif question.kind == "note":
            self._table.disk.then(
                partial(reading.note, self._table, event.monitor, question),
                partial(reading.refuse_unwritten, self._table, event.monitor, question.number),
            )
        elif not reading.answer(self._table, event.monitor, question, is_late=False) and self._may_wait(
            event.monitor, question.number
        ):
            self._waiting.append(Waiting(event, self._now + question.wait))

    def _gone(self, event: ev.Gone) -> None:
        for waiting in (self._waiting, self._uncertain):
            waiting[:] = [each for each in waiting if each.event.monitor != event.monitor]
        submitters.lose(self._table, event.monitor)

    def _answer_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            event, is_late = each.event, self._now >= each.deadline
            assert isinstance(event, ev.Asked)
            if not reading.answer(self._table, event.monitor, event.message, is_late):
                self._waiting.append(each)

    # ---- the core --------------------------------------------------------------------------------------------------
    def _welcomed(self, event: ev.Welcomed) -> None:
        job = self._table.jobs.get(event.job)
        if job is not None:
            at_core.welcome(self._table, job, event.number)

    def _may_be_read(self, event: ev.MayBeRead) -> None:
        job = self._table.jobs.get(event.job)
        if job is not None and job.core.number and not job.core.is_told:
            at_core.load(self._table, job)

    def _loaded(self, event: ev.Loaded) -> None:
        job = self._table.jobs.get(event.job)
        if job is None or not job.core.number:
            return
        if all(at_core.is_of(job, messages) for messages in event.parts):
            at_core.say_all(self._table, job, event.parts)
        else:
            at_core.leave(self._table, job)
            self._give_up(job, NOT_ITS_PARTS)

    def _heard(self, event: ev.Heard) -> None:
        job = self._table.by_client.get(event.number)
        if job is not None:
            self._table.touched[job] = None
            at_core.hear(self._table, job, event.message, self._terms.limit)

    def _fetched(self, event: ev.Fetched) -> None:
        job = self._table.by_client.get(event.number)
        if job is not None:
            at_core.say_value(self._table, job, event.row, event.kind, event.payload)

    def _forgotten(self, event: ev.Forgotten) -> None:
        """The core has given a job up: what was submitted makes no sense to it."""
        job = self._table.by_client.pop(event.number, None)
        if job is None:
            return
        job.core.number = 0
        self._give_up(job, f"the scheduler could not run it: {event.reason}")

    def _end_if_over(self, job: Job) -> None:
        is_on_disk = job.shown == job.index.spans and job.parted <= self._table.disk.synced
        if is_on_disk and job.is_over and not job.has_ended:
            at_core.leave(self._table, job)
            self._end(job, "")

    def _give_up(self, job: Job, trouble: str) -> None:
        self._table.tell("ERROR", f"durable job {job.name!r} can't go on: {trouble}")
        self._end(job, trouble)

    def _end(self, job: Job, trouble: str) -> None:
        job.ended, job.trouble = round(self._terms.wall + self._now, 3), trouble
        self._table.write_state(job)

    def _give_up_left(self) -> None:
        if self._table.disk.trouble is None and not self._table.doubt:  # else it may have submitted more since
            for job in submitters.take_left(self._table, self._now, self._terms.patience):
                at_core.leave(self._table, job)
                self._give_up(job, submitters.LEFT)

    # ---- the disk --------------------------------------------------------------------------------------------------
    def _on_disk(self, event: ev.OnDisk) -> None:
        table = self._table
        table.disk.note_synced(event.records)
        table.disk.refusal, table.disk.room = event.trouble, event.room
        if event.trouble is not None and event.trouble.endswith(ONLY_ANEW):
            table.disk.give_up(event.trouble)
        for job in list(table.unsettled):
            if job.number in table.jobs:
                table.touched[job] = None
            else:
                del table.unsettled[job]

    def _see_to_the_disk(self) -> None:
        """Say what is the matter with it, once, and look again whether it has room."""
        table, disk = self._table, self._table.disk
        if disk.trouble != self._told_trouble:
            self._told_trouble = disk.trouble
            if disk.trouble is None:
                table.tell("INFO", "Journal: it is written again")
            else:
                table.tell("ERROR", f"Journal: it can't be written: {disk.trouble}; durable jobs wait until it can")
        if (disk.is_short or disk.wants_room) and self._now >= self._next_look:
            self._next_look, disk.wants_room = self._now + LOOK, False
            table.want(ev.MeasureRoom())

    def _sweep(self) -> None:
        """Look now and then whether there are files that nobody needs, and soon after a job was deleted."""
        table = self._table
        if table.is_untidy:
            table.is_untidy = False
            self._next_sweep = min(self._next_sweep, self._now + filing.SOON)
        if self._now >= self._next_sweep:
            self._next_sweep = self._now + filing.SWEEP
            for identity in sorted({table.identity, *(job.identity for job in table.jobs.values())} - {""}):
                table.want(ev.ListFiles(identity))
