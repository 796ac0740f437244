"""Answers about jobs: their states, and their results as they are on disk. What is not there yet may be waited for."""

from __future__ import annotations

import json
from collections.abc import Iterator

from scaler.journal.records import ONLY_FRAME
from scaler.protocol.messages import JobAnswer, JobQuestion, JobSubmit
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs.job import Job
from scaler.scheduler.jobs.job_records import Kind
from scaler.scheduler.jobs.job_table import JobTable
from scaler.scheduler.jobs.result_index import SpanPlace

#: spans in one answer, at most: each is read by itself
MOST_SPANS = 1_000
#: answers that one monitor may wait for
MOST_WAITING = 64


def unknown(name: str) -> str:
    """Why there is no answer about a job."""
    return f"there is no job {name!r} here: 'scaler jobs' lists those that are"


def meant(table: JobTable, monitor: int, question: JobQuestion) -> Job | None:
    """The job that a question is about; None, and that is said, if it is not here, or another one has its name."""
    job = table.by_name.get(question.name)
    if job is None:
        refuse(table, monitor, question.number, unknown(question.name))
    elif question.token not in (0, job.token):
        words = f"job {question.name!r} was deleted, and another one has its name: attach to that"
        refuse(table, monitor, question.number, words)
        return None
    return job


def is_known(table: JobTable, question: JobQuestion) -> bool:
    """The job that a question is about is here; of all jobs it is not known whether there are others elsewhere."""
    job = table.by_name.get(question.name)
    return question.kind != "list" and job is not None and question.token in (0, job.token)


def refuse_in_doubt(table: JobTable, monitor: int, about: JobQuestion | JobSubmit) -> None:
    """Say that it is not known whether there is such a job."""
    words = f"whether there is a job {about.name!r} can't be said for now: this scheduler may not lead any more"
    refuse(table, monitor, about.number, f"{words}: {table.doubt}")


def refuse(table: JobTable, monitor: int, number: int, error: str) -> None:
    """Say why there is no answer."""
    table.effects.append(ev.Answer(monitor, JobAnswer(number, error, bodies=[b""])))


def refuse_unwritten(table: JobTable, monitor: int, number: int, trouble: str) -> None:
    """Say why it is not done, as it would have to be on disk."""
    refuse(table, monitor, number, _unwritten(trouble))


def _unwritten(trouble: str) -> str:
    return f"the journal can't be written: {trouble}"


def _described(table: JobTable, job: Job) -> str:
    """How a job is, as JSON; also what keeps rows from counting that have ended."""
    trouble = table.disk.refusal
    if trouble is None and job.core.gathered is not None:
        trouble = table.disk.trouble
    waits = "" if trouble is None or job.has_ended else _unwritten(trouble)
    return json.dumps(job.described(table.results, waits))


def accept(table: JobTable, monitor: int, number: int, first: int, token: int) -> None:
    """What was wanted of a job is on disk: say so; of a part, which is the first of its rows."""
    table.effects.append(ev.Answer(monitor, JobAnswer(number, next=first, token=token, bodies=[b""])))


def state_of(table: JobTable, monitor: int, number: int, job: Job) -> None:
    """Tell how a job is."""
    text = _described(table, job)
    table.effects.append(ev.Answer(monitor, JobAnswer(number, text=text, token=job.token, bodies=[b""])))


def states_of(table: JobTable, monitor: int, number: int) -> None:
    """Tell how all jobs are."""
    lines = "\n".join(_described(table, job) for job in table.jobs.values())
    table.effects.append(ev.Answer(monitor, JobAnswer(number, text=lines, bodies=[b""])))


def answer(table: JobTable, monitor: int, question: JobQuestion, is_late: bool) -> bool:
    """Answer a question; False if it is worth waiting for more, which it no longer is when `is_late`."""
    if question.kind == "list":
        states_of(table, monitor, question.number)
        return True
    job = meant(table, monitor, question)
    if job is None:
        return True
    may_wait = question.wait > 0 and not is_late
    if question.kind == "state":
        if may_wait and not job.has_ended:
            return False
        state_of(table, monitor, question.number, job)
        return True
    rows = _ordered(job, question) if question.kind == "ordered" else _finished(job, question)
    spans = list(rows)
    if not spans and may_wait and not job.has_ended:
        return False
    _results(table, monitor, question, job, spans)
    return True


def note(table: JobTable, monitor: int, question: JobQuestion) -> None:
    """Tell what the one who submitted left for those who attach; all that was written is on disk."""
    job = meant(table, monitor, question)
    if job is None:
        return
    notes = [written for written in job.records if written.kind == Kind.NOTE]
    text = _described(table, job)
    message = JobAnswer(question.number, text=text, token=job.token, bodies=[b""])
    pieces = [(w.where.segment, w.where.offset + ONLY_FRAME, w.size - ONLY_FRAME) for w in notes[:1]]
    table.effects.append(ev.Answer(monitor, message, pieces))


def _ordered(job: Job, question: JobQuestion) -> Iterator[SpanPlace]:
    """Spans from the one with a row on, in the order of rows, as far as they are on disk without a gap."""
    index, row, size = job.index, question.position, 0
    for _ in range(MOST_SPANS):
        if row >= index.rows or size > question.limit:
            return
        number = index.number_of(row)
        if not 0 <= number < job.shown:
            return
        span = index.span_at(number)
        yield span
        row, size = span.hi, size + span.size


def _finished(job: Job, question: JobQuestion) -> Iterator[SpanPlace]:
    """Spans in the order of their ends."""
    size = 0
    for number in range(question.position, min(job.shown, question.position + MOST_SPANS)):
        if size > question.limit:
            return
        span = job.index.span_at(number)
        yield span
        size += span.size


def _results(table: JobTable, monitor: int, question: JobQuestion, job: Job, spans: list[SpanPlace]) -> None:
    text = _described(table, job)
    message = JobAnswer(question.number, text=text, next=question.position, token=job.token, bodies=[b""])
    for span in spans:
        message.rows.extend((span.lo, span.hi))
        message.outcomes.append(span.outcome)
        message.durations.append(span.duration)
        message.sizes.extend(span.sizes)
    if spans:
        message.next = spans[-1].hi if question.kind == "ordered" else question.position + len(spans)
    elif question.kind == "ordered":
        message.next = job.index.next_ended(question.position, MOST_SPANS)
    pieces = [(span.segment, span.offset, span.size) for span in spans]
    table.effects.append(ev.Answer(monitor, message, pieces))
