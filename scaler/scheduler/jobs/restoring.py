"""What a journal holds becomes jobs again, record by record.

Records are mostly in the order in which they were written, but not always: those of segments that were given back were
copied behind others, and may be there twice if that was cut short. So each says what it needs to be put in its place: a
part its first row, a state its turn; what comes before what it belongs to is put aside until that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from scaler.common.records import record
from scaler.journal.layout import Place
from scaler.journal.records import Damaged, Record, size_of
from scaler.protocol.messages import Message
from scaler.results.reference import is_identity
from scaler.scheduler.jobs import at_core
from scaler.scheduler.jobs.job import Job, Written
from scaler.scheduler.jobs.job_records import Kind, from_json
from scaler.scheduler.jobs.job_table import JobTable


@record
class _Early:
    """A record that came before what it belongs to."""

    record: Record
    place: Place
    inner: Sequence[Message]


class Restoring:
    """Fills one table."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._deleted: set[int] = set()
        #: job -> what came too early
        self._early: dict[int, list[_Early]] = {}
        #: job -> segments that have something of it, besides the record that says that it is deleted
        self._segments: dict[int, set[int]] = {}

    def take(self, record: Record, place: Place, inner: Sequence[Message]) -> None:
        """Take a record; `inner` has the `TaskResult` of results. Raises `Damaged` for one that can't be."""
        table, number = self._table, record.owner
        table.lengths[place.segment] = place.offset + size_of(record.frames)
        table.next_number = max(table.next_number, number + 1)
        try:
            if record.kind == Kind.DELETED:
                self._delete(number, record, place)
                return
            self._segments.setdefault(number, set()).add(place.segment)
            if number in self._deleted:
                return
            if record.kind == Kind.OPENED:
                self._open(record, place)
            elif number in table.jobs and self._restore(table.jobs[number], record, place, inner):
                if record.kind == Kind.PART:
                    self._retry(number)
            else:
                frames = tuple(bytes(frame) for frame in record.frames)
                early = _Early(record._replace(frames=frames), place, inner)
                self._early.setdefault(number, []).append(early)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise Damaged(f"a record of a job is not what it should be ({type(error).__name__})") from None

    def _open(self, record: Record, place: Place) -> None:
        table, said = self._table, from_json(record.frames[0])
        if record.owner in table.jobs:
            return  # a copy
        job = Job(record.owner, said["name"], said["owner"], said["token"], said["session"], said["created"])
        job.identity = said.get("results", "") if is_identity(said.get("results", "")) else ""
        table.jobs[job.number] = table.by_name[job.name] = job
        table.keep(job, record.kind, place, size_of(record.frames))
        self._retry(job.number)

    def _retry(self, number: int) -> None:
        """Something is there that others may have waited for."""
        for early in self._early.pop(number, ()):
            self.take(early.record, early.place, early.inner)

    def _delete(self, number: int, record: Record, place: Place) -> None:
        table = self._table
        self._early.pop(number, None)
        if number in self._deleted:
            return  # a copy
        self._deleted.add(number)
        if number in table.jobs:
            job = table.jobs[number]
            table.drop(job)
            table.then(partial(table.remove_files, job))
        table.tombs[number] = Written(record.kind, place, size_of(record.frames))

    def finish(self) -> None:
        """All is read: records that say that a job is deleted are needed where there is something of that job."""
        table = self._table
        for number, tomb in list(table.tombs.items()):
            table.live[tomb.where.segment] += tomb.size
            table.deleted[number] = self._segments.get(number, set()) - {tomb.where.segment}
            table.lay_to_rest(number)
        self._segments.clear()
        self._early.clear()

    def _restore(self, job: Job, record: Record, place: Place, inner: Sequence[Message]) -> bool:
        """Take a record of a job that is open; False if something that it belongs to is missing."""
        kind, first_span = record.kind, job.index.spans
        is_news = True
        if kind == Kind.PART:
            said = from_json(record.frames[0])
            if said["key"] not in job.parts and said["first"] != job.index.rows:
                return False
            is_news = said["key"] not in job.parts and _add_part(job, said)
        elif kind == Kind.RESULTS:
            if not at_core.restore_results(job, record, place, inner[0]):
                return False
            is_news = job.index.spans > first_span
        elif kind == Kind.STATE:
            is_news = _take_state(job, from_json(record.frames[0]))
        elif kind == Kind.AGENTS:
            is_news = _take_agents(job, from_json(record.frames[0]))
        elif kind == Kind.NOTE:
            is_news = all(written.kind != Kind.NOTE for written in job.records)
        if is_news:
            written = self._table.keep(job, kind, place, size_of(record.frames))
            written.first_span, written.spans = first_span, job.index.spans - first_span
        return True


def _add_part(job: Job, said: dict[str, Any]) -> bool:
    for number, rows, wanted in said["batches"]:
        job.add_batch(number, rows, wanted)
    job.parts[said["key"]] = said["first"], job.index.rows - said["first"]
    job.function = job.function or said["function"]
    return True


def _take_state(job: Job, said: dict[str, Any]) -> bool:
    if said["turn"] <= job.turn:
        return False
    job.turn = said["turn"]
    job.is_complete, job.is_cancelled, job.is_forced = said["complete"], said["cancelled"], said["forced"]
    job.ended, job.trouble = said["ended"], said["trouble"]
    return True


def _take_agents(job: Job, said: dict[str, Any]) -> bool:
    if said["turn"] <= job.core.turn:
        return False
    job.core.turn, job.core.number, job.core.agents = said["turn"], said["number"], set(said["agents"])
    return True
