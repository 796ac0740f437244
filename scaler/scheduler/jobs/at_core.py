"""What a job does as a client of the scheduler's core: joining, saying what it wants, and taking in how rows ended.

It comes to each scheduler as a client that returns: it says its batches again with the rows that have ended, and the
core waits for the agents that may have something of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from scaler.errors import ProtocolError
from scaler.journal.layout import Place
from scaler.journal.records import RECORD_HEADER, Record
from scaler.protocol.codes import NO_ROOT, Role
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.failures import results_damaged
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    FAILED,
    INLINE,
    PROTOCOL_VERSION,
    WANTED_ALONE,
    Ack,
    AgentsInUse,
    ClientReturn,
    DisconnectRequest,
    Encoding,
    Hello,
    Message,
    ObjectAnnounce,
    ObjectRequest,
    Spans,
    Task,
    TaskCancel,
    TaskResult,
    u8,
    u32,
    u64,
)
from scaler.protocol.results import ResultBuilder, SpanResult, cut, each_of, rows_of, spans_of
from scaler.results.reference import prefix_of
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs import filing
from scaler.scheduler.jobs.job import Batch, Job
from scaler.scheduler.jobs.job_records import Kind, to_json
from scaler.scheduler.jobs.job_table import JobTable

#: bytes of results that are written though the disk is still busy with others
GATHERED_BYTES = 1 << 20
#: the same in spans
GATHERED_SPANS = 20_000
#: bytes of results that wait for the disk, of one job, until no more of its rows are run; and when they are again
UNWRITTEN_BYTES = 64 << 20
FEW = 0.5


# ---- coming and going ------------------------------------------------------------------------------------------------
def join(table: JobTable, job: Job, number: int = 0) -> None:
    """Become a client of the core, the same as before if `number` is free."""
    hello = Hello(
        Role.CLIENT, f"job {job.name}", job.session, PROTOCOL_VERSION, "", "", "", 0, number=number,
        agents=u32(sorted(job.core.agents)), encodings=u8([Encoding.PICKLE]),
    )  # fmt: skip
    table.effects.append(ev.Join(job.number, hello))


def leave(table: JobTable, job: Job) -> None:
    """It is no client of the core any more, if it was one."""
    if job.core.number:
        say(table, job, DisconnectRequest())
        del table.by_client[job.core.number]
        job.core.number, job.core.is_told = 0, False


def welcome(table: JobTable, job: Job, number: int) -> None:
    """The core has taken the job in: it needs all that was submitted."""
    core = job.core
    if core.number:
        table.by_client.pop(core.number, None)
    core.number, core.heard, core.settled, core.told, core.is_held, core.is_told = number, 0, 0, 0, False, False
    core.gathered = None
    core.rows.clear()
    for each in job.unsynced:
        each.heard = 0  # of messages of another session
    table.by_client[number] = job
    write_agents(table, job)
    load(table, job)


def load(table: JobTable, job: Job) -> None:
    """Have the core told what was submitted, as soon as that is read from where it is now."""
    parts = [written.where for written in job.records if written.kind == Kind.PART]
    parts = parts[: len(parts) - len(job.unsaid)]
    if parts:
        table.effects.append(ev.Load(job.number, parts))
    else:
        say_all(table, job, ())


def say_all(table: JobTable, job: Job, parts: Iterable[Iterable[Message]]) -> None:
    """Say what was submitted, with the rows that have ended; then go on as a client that returned.

    `parts` are those that were written before the job became a client of this core.
    """
    unsaid, job.unsaid = job.unsaid, []
    job.core.is_told = True
    for messages in parts:
        say_part(table, job, messages)
    if not table.results:
        for messages in unsaid:
            say_part(table, job, messages)
        unsaid = []
    say(table, job, ClientReturn())
    if job.is_cancelled:
        say_cancel(table, job)
    for messages in unsaid:
        say_new_part(table, job, messages)


def is_of(job: Job, messages: Iterable[Message]) -> bool:
    """Whether these are messages of a part of this job, as the journal has told of it."""
    batches = job.batches
    return all(
        type(message) is ObjectAnnounce
        or (type(message) is Task and message.batch in batches and message.rows == batches[message.batch].rows)
        for message in messages
    )


def say_new_part(table: JobTable, job: Job, messages: Iterable[Message]) -> None:
    """Say a part that was written last: at once, or as soon as it is on disk if its rows may leave files.

    Otherwise another scheduler might find files of rows that its journal does not have, and take them for needless.
    """
    if table.results:
        table.disk.then(partial(_say_synced, table, job, messages))
    else:
        say_part(table, job, messages)


def _say_synced(table: JobTable, job: Job, messages: Iterable[Message]) -> None:
    if job.core.number and job.number in table.jobs:
        say_part(table, job, messages)
        if job.is_cancelled:
            say_cancel(table, job)


def say_part(table: JobTable, job: Job, messages: Iterable[Message]) -> None:
    """Say the messages of a part, without batches that are over."""
    for message in messages:
        if type(message) is Task:
            batch = job.batches[message.batch]
            ended = _ended_rows(job, batch)
            if batch.wanted is None and list(ended) == [0, batch.rows]:
                continue
            message = replace(message, client=0, ended=ended, root=NO_ROOT)
            if table.results and job.identity:
                message.results = prefix_of(table.results, job.identity, job.number)
                message.wanted = _alone(message)
        say(table, job, message)


def _alone(task: Task) -> array[int]:
    """The column `wanted` of a batch; it says too of which rows nobody else needs the value."""
    if len(task.wanted) != len(task.uses):
        return task.wanted
    return u8(
        WANTED_ALONE if wanted and not uses else wanted for wanted, uses in zip(task.wanted, task.uses, strict=True)
    )


def _ended_rows(job: Job, batch: Batch) -> array[int]:
    """Bounds of the rows of a batch that have ended."""
    ended = u32()
    if batch.wanted is None:
        at = 0
        for lo, hi in job.index.open_spans(batch.first, batch.first + batch.rows):
            if lo - batch.first > at:
                ended.extend((at, lo - batch.first))
            at = hi - batch.first
        if at < batch.rows:
            ended.extend((at, batch.rows))
        return ended
    for i, row in enumerate(batch.wanted):
        if job.index.is_ended(batch.first + i):
            ended.extend((row, row + 1))
    return ended


def say(table: JobTable, job: Job, message: Message) -> None:
    """Say something to the core."""
    core = job.core
    core.told = core.settled
    table.effects.append(ev.Say(core.number, message, core.settled))


def say_cancel(table: JobTable, job: Job) -> None:
    """Have all rows cancelled that have not ended."""
    if not job.core.is_told:
        return  # it is, then
    spans = Spans()
    for batch in job.batches.values():
        if batch.wanted is not None:
            spans.add(0, batch.id, 0, batch.rows)
            continue
        for lo, hi in job.index.open_spans(batch.first, batch.first + batch.rows):
            spans.add(0, batch.id, lo - batch.first, hi - batch.first)
    if spans:
        say(table, job, TaskCancel(spans, force=job.is_forced))


def write_agents(table: JobTable, job: Job) -> None:
    """Write who may have something of a job; nothing waits for that."""
    core = job.core
    core.turn += 1
    table.write(job, Kind.AGENTS, to_json(turn=core.turn, number=core.number, agents=sorted(core.agents)))


# ---- hearing ---------------------------------------------------------------------------------------------------------
def hear(table: JobTable, job: Job, message: Message, limit: int) -> None:
    """The core says something to a job. `limit`: bytes of a message."""
    job.core.heard += 1
    kind = type(message)
    if kind is TaskResult:
        gather(table, job, message)  # type: ignore[arg-type]
    elif kind is AgentsInUse:
        job.core.agents |= set(message.added)  # type: ignore[attr-defined]
        job.core.agents -= set(message.removed)  # type: ignore[attr-defined]
        write_agents(table, job)
    elif kind is ObjectRequest:
        for _, value in message:  # type: ignore[attr-defined]
            provide(table, job, value, limit)


def gather(table: JobTable, job: Job, message: TaskResult) -> None:
    """Rows have ended: they are written with the next record. What ended before is let go."""
    for span in spans_of(message):
        batch = job.batches.get(span.batch)
        if batch is None or span.hi > batch.rows:
            continue
        filing.discard(table, job, span)
        try:
            _gather_rows(job, batch, span)
        except ProtocolError as problem:
            record = results_damaged(str(problem)).encode()
            for row in range(span.lo, span.hi):
                _gather_rows(job, batch, SpanResult(span.batch, row, row + 1, ERROR, 0, 0, u32([len(record)]), record))
    core = job.core
    if core.gathered is None:
        return
    table.gathering[job] = None
    if core.gathered.size > GATHERED_BYTES or len(core.rows) > GATHERED_SPANS:
        write_results(table, job)


def _gather_rows(job: Job, batch: Batch, span: SpanResult) -> None:
    """Take those that are wanted and have not ended. ProtocolError for a list of values that is none; none is taken."""
    if batch.wanted is not None:
        for single in rows_of(span):
            lo, hi = batch.job_rows(single.lo, single.hi)
            if lo < hi:
                _gather_span(job, lo, single)
        return
    first = batch.first + span.lo
    if not job.index.has_ended(first, first + span.hi - span.lo):
        _gather_span(job, first, span)
        return
    runs = [(lo - batch.first, hi - batch.first) for lo, hi in job.index.open_spans(first, batch.first + span.hi)]
    for piece in cut(span, runs):
        _gather_span(job, batch.first + piece.lo, piece)


def _gather_span(job: Job, first: int, span: SpanResult) -> None:
    core = job.core
    if core.gathered is None:
        core.gathered = ResultBuilder(0)
    core.gathered.add(span)
    core.rows.append(first)


def write_results(table: JobTable, job: Job) -> None:
    """Write how rows ended that has been gathered, if the disk has room for it."""
    core = job.core
    if core.gathered is None or not table.disk.has_room(core.gathered.size):
        return
    message, core.gathered = core.gathered.build(), None
    table.gathering.pop(job, None)
    rows, core.rows = core.rows, []
    frames = table.encode(message)
    written = table.write(job, Kind.RESULTS, *frames)
    written.first_span = job.index.spans
    body = written.where.offset + RECORD_HEADER + 4 * (1 + len(frames)) + len(frames[0])
    for first, span in zip(rows, spans_of(message), strict=True):
        if not job.index.has_ended(first, first + span.hi - span.lo):  # said twice in one record
            job.index.add(first, span, written.where, body)
            filing.note(job, first, span)
        else:
            filing.discard(table, job, span)
        body += len(span.body)
    written.spans = job.index.spans - written.first_span
    table.mark(job, core.heard, written.size)


def restore_results(job: Job, record: Record, place: Place, message: Message) -> int | None:
    """Results that a journal holds; the id of a batch of theirs that is not there, None if all are.

    Raises ValueError for what are no results, IndexError for rows that a batch does not have.
    """
    if type(message) is not TaskResult:
        raise ValueError("no TaskResult")
    for batch_id in message.batches:
        if batch_id not in job.batches:
            return batch_id
    spans = list(spans_of(message))
    for span in spans:  # before anything counts of a record that can't be
        if span.hi > job.batches[span.batch].rows:
            raise IndexError(span.hi)
    frames = record.frames
    body = place.offset + RECORD_HEADER + 4 * (1 + len(frames)) + len(frames[0])
    for span in spans:
        batch = job.batches[span.batch]
        lo, hi = batch.job_rows(span.lo, span.hi)
        if hi - lo == span.hi - span.lo and not job.index.has_ended(lo, hi):
            job.index.add(lo, span, place, body)
            filing.note(job, lo, span)
        body += len(span.body)
    return None


def provide(table: JobTable, job: Job, value: int, limit: int) -> None:
    """The core needs the value of a row that has ended: it is in the journal, or in a file. `limit`: of a message."""
    write_results(table, job)
    batch = job.batch_of(value)
    if batch is not None:
        row = value - batch.id
        lo, hi = batch.job_rows(row, row + 1)
        if hi > lo and lo in job.files:
            filing.provide(table, job, lo, value, limit, partial(say_value, table, job, value))
            return
        if hi > lo and job.index.is_ended(lo):
            table.disk.then(partial(_fetch, table, job, value, lo))
            return
    _say_none(table, job, value)


def _fetch(table: JobTable, job: Job, value: int, row: int) -> None:
    span = job.index.span_at(job.index.number_of(row))  # not before: it may have been moved since it was asked for
    table.want(ev.Fetch(job.core.number, value, span, row - span.lo))


def say_value(table: JobTable, job: Job, value: int, kind: int, payload: bytes) -> None:
    """Say the value of a row that the core asked for, or the error record (FAILED) that it ended with."""
    say(table, job, ObjectAnnounce(u64([value]), u8([kind]), [payload]))


def _say_none(table: JobTable, job: Job, value: int) -> None:
    words = f"job {job.name!r} has no value {value}"
    say_value(table, job, value, FAILED, ErrorRecord(ErrorKind.OBJECT, words, "").encode())


def value_in(span: SpanResult, row: int) -> tuple[int, bytes]:
    """One row of a span as the core is told of it: INLINE and its value, or FAILED and an error record."""
    if span.outcome == ERROR:
        return FAILED, bytes(span.body)
    if span.outcome == CANCELLED:
        return FAILED, ErrorRecord(ErrorKind.CANCELLED, "it was cancelled", "").encode()
    try:
        single = next(each for each in rows_of(each_of(span)) if each.lo == row)
    except (StopIteration, ProtocolError):
        return FAILED, ErrorRecord(ErrorKind.OBJECT, "its value in the journal can't be read", "").encode()
    return INLINE, bytes(single.body)


# ---- what is on disk -------------------------------------------------------------------------------------------------
def settle(table: JobTable, job: Job) -> None:
    """Tell the core what it need not say again, and whether its results have to wait."""
    core = job.core
    while job.unsynced and job.unsynced[0].number <= table.disk.synced:
        done = job.unsynced.popleft()
        job.shown, job.counts, core.settled = done.spans, done.counts, max(core.settled, done.heard)
    if not job.unsynced and job.parted <= table.disk.synced:
        table.unsettled.pop(job, None)
    if not (job.unsynced or core.gathered is not None):
        core.settled = core.heard
    if not core.number:
        return
    if core.settled > core.told:
        say(table, job, Ack())
    waits = sum(each.size for each in job.unsynced) + (core.gathered.size if core.gathered else 0)
    if waits > UNWRITTEN_BYTES * (FEW if core.is_held else 1):
        core.is_held = True
        table.effects.append(ev.Hold(core.number, waits))
    elif core.is_held:
        core.is_held = False
        table.effects.append(ev.Hold(core.number, 0))
