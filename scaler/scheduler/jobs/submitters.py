"""Who submits the jobs of which more is to come. One who stays away leaves a job that has failed, and can be deleted.

A part that comes after all from the same submission has it go on: a program may have been still for longer.
"""

from __future__ import annotations

from typing import Final

from scaler.scheduler.jobs.job import Job, Submitter
from scaler.scheduler.jobs.job_table import JobTable

#: why a job can't go on that ends in the midst
LEFT: Final = "not all of it is here, and its submitter is gone: delete it, and submit it again"


def note(table: JobTable, job: Job, monitor: int = 0) -> None:
    """A monitor has submitted a part of a job; 0: another scheduler's has."""
    if job.is_partial:
        table.submitters[job] = Submitter(monitor)
    else:
        table.submitters.pop(job, None)


def lose(table: JobTable, monitor: int) -> None:
    """A monitor is gone."""
    for submitter in table.submitters.values():
        if submitter.monitor == monitor:
            submitter.monitor = 0


def take_left(table: JobTable, now: float, patience: float) -> list[Job]:
    """The jobs whose submitters have been away for so many seconds; nobody is waited for any more."""
    left = []
    for job, submitter in list(table.submitters.items()):
        if not job.is_partial:
            del table.submitters[job]
        elif not submitter.monitor:
            submitter.until = now + patience if submitter.until is None else submitter.until
            if now >= submitter.until:
                left.append(job)
                del table.submitters[job]
    return left


def has_left(job: Job) -> bool:
    """It ended for that."""
    return job.trouble == LEFT
