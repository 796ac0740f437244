"""Which parts of jobs are taken, and why others are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scaler.errors import ProtocolError
from scaler.protocol.messages import INLINE, INLINE_VALUES, MOST_IDS, JobSubmit, Message, ObjectAnnounce, Task
from scaler.scheduler.core import batch_cost
from scaler.scheduler.jobs import submitters
from scaler.scheduler.jobs.disk import NO_ROOM
from scaler.scheduler.jobs.job import Job
from scaler.scheduler.jobs.job_table import JobTable

#: jobs at a time
MOST_JOBS = 100_000
#: bytes of memory that a row takes, besides what it came with: a place here and at the core
ROW = 10


class Quotas(NamedTuple):
    """Bytes that jobs may take before no more are accepted; None: as many as fit."""

    #: in the journal
    journal: int | None
    #: in files, their large results
    results: int | None
    #: in memory, their rows
    memory: int | None = None


def refusal(table: JobTable, quotas: Quotas, message: JobSubmit, inner: Sequence[Message]) -> str:
    """Why a part of a job is not taken; empty if it is. If for lack of room, that is noted."""
    trouble = table.disk.trouble
    if trouble is None and not table.disk.has_room(sum(map(len, message.bodies))):
        table.disk.wants_room = True
        trouble = NO_ROOM
    if trouble is not None:
        return unwritten(trouble)
    if message.key and message.token in table.gone:
        return f"job {message.name!r} was deleted: submit it anew"
    if quotas.journal is not None and message.key and table.segments.needed > quotas.journal:
        return f"durable jobs take more than the {quotas.journal:,} bytes that they may (journal_quota): delete some"
    if quotas.results is not None and message.key and table.file_bytes > quotas.results:
        return f"large results take more than the {quotas.results:,} bytes that they may (results_quota): delete jobs"
    job = table.by_name.get(message.name)
    if job is None and len(table.jobs) >= MOST_JOBS:
        return f"there are {MOST_JOBS:,} jobs: delete some"
    is_repeated = job is not None and _is_there(job, message)
    return clash(job, message) or ("" if is_repeated else _misfit(job, inner) or _surplus(table, quotas, inner))


def unwritten(trouble: str) -> str:
    """Why a part is not taken that is not on disk, and won't be."""
    return f"the journal can't be written: {trouble}; nothing is accepted until it can"


def clash(job: Job | None, message: JobSubmit) -> str:
    """Why a part does not go with the job that has its name; empty: it does, or none has it."""
    if job is None:
        return ""
    is_same = job.token == message.token
    if not message.joins and not is_same:
        return f"there is a job {message.name!r} already ({job.state.value}): {_advice(job)}, or take another name"
    trouble = "" if is_same and submitters.has_left(job) else job.trouble
    if _is_there(job, message) or not (job.is_cancelled or trouble or (job.is_complete and not message.joins)):
        return ""
    return f"job {message.name!r} takes no more rows: {trouble or f'it is {job.state.value}'}"


def _surplus(table: JobTable, quotas: Quotas, inner: Sequence[Message]) -> str:
    """Why a part has more rows than there is memory for: they may take more than they came with; empty: not."""
    rows = sum(message.rows for message in inner if type(message) is Task)
    rows += sum(job.index.rows for job in table.jobs.values())
    if quotas.memory is None or rows * ROW <= quotas.memory:
        return ""
    return (
        f"durable jobs would have {rows:,} rows, for which {quotas.memory:,} bytes of memory are too few: delete some"
    )


def _advice(job: Job) -> str:
    """What may be done with a job by who wants its name."""
    if submitters.has_left(job):
        return "not all of it is here, and its submitter is gone; delete it"
    if job.is_partial:
        return "not all of it is here yet; delete it if nobody submits it any more"
    return "attach to it, delete it"


def _is_there(job: Job, message: JobSubmit) -> bool:
    return message.key in job.parts or not message.key


def _misfit(job: Job | None, inner: Sequence[Message]) -> str:
    """What is wrong with the messages of a part, of a new job or of this one; empty: nothing."""
    taken: list[tuple[int, int]] = []
    for message in inner:
        if type(message) is ObjectAnnounce:
            if any(kind != INLINE for kind in message.kinds):
                return "a part of a job has an object that is not in it"
        elif type(message) is Task:
            if message.ended or message.stored or message.results or message.spans.tolist() != [0, message.rows]:
                return "a part of a job says of rows what only schedulers and agents say"
            if not message.flags & INLINE_VALUES:
                return "a part of a job has rows whose values may be left in stores, which do not last"
            if message.batch + message.rows >= MOST_IDS:
                return "a part of a job has rows with ids that are none"
            try:
                batch_cost.check({}, message)
            except ProtocolError as problem:
                return f"a part of a job has {problem}"
            start, end = message.batch, message.batch + message.rows
            is_free = job is None or job.is_free(start, end)
            if not is_free or any(lo < end and start < hi for lo, hi in taken):
                return "a part of a job has rows that are there already"
            taken.append((start, end))
        else:
            return f"a {type(message).__name__} is no part of a job"
    return ""
