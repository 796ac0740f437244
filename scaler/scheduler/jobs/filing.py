"""Results of jobs that are files: which of them the journal names, and which files nobody needs.

A file counts once a record of the journal names it. One that none names is kept while its row has not ended, since an
agent may yet tell of it, however late; otherwise it goes: an agent was killed before it could tell, or the row ran
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from scaler.protocol import failures
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import FAILED, FILED, INLINE, JobAnswer, JobQuestion
from scaler.protocol.results import SpanResult, values_of
from scaler.results.reference import Reference, file_name, named_by
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs import reading
from scaler.scheduler.jobs.job import Job
from scaler.scheduler.jobs.job_table import JobTable

#: seconds between two looks for files that nobody needs, and from a deleted job to the next
SWEEP = 600.0
SOON = 5.0
#: files that are read for one monitor at a time
MOST_READ = 64


def note(job: Job, lo: int, span: SpanResult) -> None:
    """Rows from `lo` on of a job have ended, and a record says so."""
    if span.outcome == FILED:
        for row, file in enumerate(map(Reference.unpack, values_of(span)), lo):
            job.files[row] = file
            job.file_bytes += file.size


def discard(table: JobTable, job: Job, span: SpanResult) -> None:
    """Rows have ended that had ended before: what they have left goes, unless it is what was left before."""
    if span.outcome != FILED:
        return
    files = [Reference.unpack(value) for value in values_of(span)]
    names = [file_name(job.number, file.row, file.tag) for file in files if _is_needless(job, file.row, file.tag)]
    if names:
        table.want(ev.RemoveFiles(job.identity, names))


def sweep(table: JobTable, identity: str, names: Iterable[str]) -> None:
    """These files are there: those go that nobody needs. Others than of results are left alone.

    So are those of unknown jobs in a part that was another journal's, or this one's before it was damaged, and those of
    jobs of which the journal has records that can't be used.
    """
    needless = []
    for name in names:
        named = named_by(name)
        if named is None or named.job in table.left_over:
            continue
        job = table.jobs.get(named.job)
        if job is None or job.identity != identity:
            is_needless = identity == table.identity
        else:
            is_needless = _is_needless(job, named.row, named.tag)
        if is_needless:
            needless.append(name)
    if needless:
        table.want(ev.RemoveFiles(identity, needless))


def _is_needless(job: Job, row: int, tag: int) -> bool:
    """No record names a file of a row, and none is going to."""
    batch = job.batch_of(row)
    if batch is None:
        return True
    lo, hi = batch.job_rows(row - batch.id, row - batch.id + 1)
    if lo == hi:
        return True
    file = job.files.get(lo)
    return job.index.is_ended(lo) and (file is None or file.tag != tag)


# ---- reading ---------------------------------------------------------------------------------------------------------
def answer(table: JobTable, monitor: int, question: JobQuestion) -> None:
    """Answer with bytes of a file, as soon as they are read."""
    job = reading.meant(table, monitor, question)
    if job is None:
        return
    row, number = question.position, question.number
    file = job.files.get(row)
    if file is None or job.index.number_of(row) >= job.shown:
        reading.refuse(table, monitor, number, f"row {row:,} of job {job.name!r} has no result in a file")
        return
    if table.reads.of[monitor] >= MOST_READ:
        reading.refuse(table, monitor, number, "too many files are read: ask again")
        return
    table.reads.of[monitor] += 1
    size = max(0, min(question.limit, file.size - question.offset))

    def done(data: bytes, trouble: str) -> None:
        table.reads.of[monitor] -= 1
        if not table.reads.of[monitor]:
            del table.reads.of[monitor]
        if trouble:
            reading.refuse(table, monitor, number, f"job {job.name!r}, row {row:,}: {trouble}")
        else:
            answer = JobAnswer(number, next=question.offset + len(data), token=job.token, bodies=[data])
            table.want(ev.Answer(monitor, answer))

    _read(table, job, file, question.offset, size, False, done)


def provide(table: JobTable, job: Job, row: int, value: int, limit: int, say: Callable[[int, bytes], None]) -> None:
    """Read the value of a row of a job, which the core needs, and `say` it as `value_in` has it."""
    file = job.files[row]
    if file.size > limit:
        say(FAILED, failures.value_too_large(value, job.name, file.size).encode())
        return

    def done(data: bytes, trouble: str) -> None:
        if trouble:
            words = f"job {job.name!r}, row {row:,}: {trouble}"
            say(FAILED, ErrorRecord(ErrorKind.OBJECT, words, "").encode())
        else:
            say(INLINE, data)

    table.disk.then(partial(_read, table, job, file, 0, file.size, True, done))


def _read(
    table: JobTable,
    job: Job,
    file: Reference,
    offset: int,
    size: int,
    is_whole: bool,
    done: Callable[[bytes, str], None],
) -> None:
    table.want(ev.ReadFile(table.reads.begin(done), job.identity, job.number, file, offset, size, is_whole))
