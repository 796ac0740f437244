"""Cancelling and deleting jobs. That takes little room, which the disk reserves for it: it is what makes room."""

from __future__ import annotations

from functools import partial

from scaler.protocol.messages import JobQuestion
from scaler.scheduler.jobs import at_core, reading
from scaler.scheduler.jobs.job import Job
from scaler.scheduler.jobs.job_table import JobTable


def change(table: JobTable, monitor: int, question: JobQuestion) -> None:
    """Somebody wants a job cancelled or deleted; it is said once that is on disk."""
    is_gone = question.kind == "delete" and question.token and not reading.is_known(table, question)
    job = None if is_gone else reading.meant(table, monitor, question)
    if job is None and not is_gone:
        return
    if table.disk.refusal is not None:
        if job is not None and question.kind == "delete" and question.token == job.token and not job.has_ended:
            _drop(table, job)  # who submitted it may have been told that it is not accepted: nothing of it is to run
        reading.refuse_unwritten(table, monitor, question.number, table.disk.refusal)
        return
    refuse = partial(reading.refuse_unwritten, table, monitor, question.number)
    if job is None:  # asked again, maybe of another scheduler, as it could not be said that it is deleted
        table.disk.then(partial(reading.accept, table, monitor, question.number, 0, question.token), refuse)
        return
    table.touched[job] = None
    if question.kind == "delete":
        _drop(table, job)
    elif not job.has_ended and (not job.is_cancelled or question.force > job.is_forced):
        job.is_cancelled, job.is_forced = True, question.force
        table.write_state(job)
        if job.core.number:
            at_core.say_cancel(table, job)
    table.disk.then(partial(reading.state_of, table, monitor, question.number, job), refuse)


def _drop(table: JobTable, job: Job) -> None:
    at_core.leave(table, job)
    table.forget(job)


def delete_old(table: JobTable, wall: float, age: float) -> None:
    """Delete the jobs that ended more than `age` seconds before `wall`."""
    if table.disk.refusal is not None:
        return
    for job in [job for job in table.jobs.values() if job.ended is not None and job.ended < wall - age]:
        table.tell("INFO", f"job {job.name!r} ended {age:g} s ago, and is deleted")
        table.forget(job)
