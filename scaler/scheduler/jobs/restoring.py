"""What a journal holds becomes jobs again, record by record.

Records are mostly in the order in which they were written, but not always: those of segments that were given back were
copied behind others, and may be there twice if that was cut short. So each says what it needs to be put in its place: a
part its first row, a state its turn; what comes before what it belongs to is put aside until that is there. One that is
whole and not what it should be costs its job, and no other one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from scaler.common.records import record
from scaler.journal.layout import Place
from scaler.journal.records import Damaged, Record, size_of
from scaler.protocol.codes import MAX_NUMBER
from scaler.protocol.messages import Message
from scaler.results.reference import is_identity
from scaler.scheduler.jobs import at_core
from scaler.scheduler.jobs.job import Job, Written
from scaler.scheduler.jobs.job_records import MANY, Kind, Said
from scaler.scheduler.jobs.job_table import JobTable

#: what a record waits for of its job: that it is opened, so many rows, or a batch
_Awaited = tuple[str, int]
_OPENED: Final[_Awaited] = "opened", 0
#: what has waited and turned out to be wrong waits for this, for good
_NEVER: Final[_Awaited] = "never", 0
#: what shows that a record is not what it should be
_WRONG = (Damaged, KeyError, TypeError, ValueError, IndexError, AttributeError)
#: why a job can't go on that has records of which nobody knows where they belong, or what they say
MISSING = "a segment of the journal is missing that has parts of it"
WRONG = "the journal has a record of it that is not what it should be"


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
        #: job that is deleted -> the record that says so
        self._tombs: dict[int, Written] = {}
        #: job -> what came too early, by what that waits for
        self._early: dict[int, dict[_Awaited, list[_Early]]] = {}

    def take(self, record: Record, place: Place, inner: Sequence[Message] | None) -> None:
        """Take a record; `inner` has the `TaskResult` of results, or is None for one of which nothing is believed."""
        table, number = self._table, record.owner
        table.segments.reach(place, size_of(record.frames))
        if record.kind == Kind.GAP:
            return
        if number >= MANY or inner is None:
            if number not in self._tombs:
                self._put_aside(_Early(record, place, ()), _NEVER)
        elif record.kind == Kind.DELETED:
            self._delete(number, record, place)
            return
        elif number not in self._tombs:
            self._put_in_their_places(number, deque([_Early(record, place, inner)]))
        if number < MANY:
            table.next_number = max(table.next_number, number + 1)
        table.segments.of_jobs[number].add(place.segment)

    def _put_in_their_places(self, number: int, todo: deque[_Early]) -> None:
        """Take a record of a job, and what has waited for it; those that can't be stay where they are."""
        while todo:
            each = todo.popleft()
            try:
                todo.extend(self._put_in_its_place(number, each))
            except _WRONG:
                self._put_aside(each, _NEVER)

    def _put_aside(self, each: _Early, awaited: _Awaited) -> None:
        frames = tuple(bytes(frame) for frame in each.record.frames)
        kept = _Early(each.record._replace(frames=frames), each.place, each.inner)
        self._early.setdefault(each.record.owner, {}).setdefault(awaited, []).append(kept)

    def _put_in_its_place(self, number: int, each: _Early) -> list[_Early]:
        """Take a record of a job, or put it aside; what has waited for it."""
        record, job = each.record, self._table.jobs.get(number)
        if record.kind == Kind.OPENED:
            self._open(record, each.place)
            return self._take_early(number, [_OPENED])
        awaited = _OPENED if job is None else self._restore(job, record, each.place, each.inner)
        if awaited is not None:
            self._put_aside(each, awaited)
        elif record.kind == Kind.PART and number in self._early and job is not None:
            batches = Said(record.frames[0]).batches()
            return self._take_early(number, [("rows", job.index.rows), *(("batch", batch[0]) for batch in batches)])
        return []

    def _take_early(self, number: int, awaited: list[_Awaited]) -> list[_Early]:
        early = self._early.get(number, {})
        found = [each for what in awaited for each in early.pop(what, ())]
        if not early:
            self._early.pop(number, None)
        return found

    def _open(self, record: Record, place: Place) -> None:
        table, said = self._table, Said(record.frames[0])
        if record.owner in table.jobs:
            return  # a copy
        token, session = (said.number(name, 1 << 64) for name in ("token", "session"))
        job = Job(record.owner, said.text("name"), said.text("owner"), token, session, said.moment("created"))
        identity = said.text("results", "")
        job.identity = identity if is_identity(identity) else ""
        job.joins = said.flag("joins", True)  # journals of before do not say it
        table.jobs[job.number] = table.by_name[job.name] = job
        table.keep(job, record.kind, place, size_of(record.frames))

    def _delete(self, number: int, record: Record, place: Place) -> None:
        table = self._table
        self._early.pop(number, None)
        if number in self._tombs:
            return  # a copy
        if number in table.jobs:
            job = table.jobs[number]
            table.drop(job)
            table.disk.then(partial(table.remove_files, job))
        self._tombs[number] = Written(record.kind, place, size_of(record.frames))

    def finish(self, wall: float) -> set[int]:
        """All is read, at this time: see which records are needed, and which jobs go on.

        The segments that stay as they are: they have records that belong to what is missing.
        """
        for number, tomb in self._tombs.items():  # it is needed where there is something of that job
            self._table.segments.need(tomb)
            self._table.segments.bury(number, tomb)
        left_over = self._leave(wall)
        for job in self._table.jobs.values():
            if job.has_ended and not job.trouble and job.index.ended < job.index.rows:
                job.ended = None  # results of it are missing: these rows run again
        self._tombs.clear()
        return left_over

    def _leave(self, wall: float) -> set[int]:
        """What came too early and waits in vain stays where it is; nobody knows what is missing of its jobs."""
        left_over, wrong = self._table.left_over, 0
        for number, early in self._early.items():
            left_over[number] = [_written(each) for waiting in early.values() for each in waiting]
            wrong += len(early.get(_NEVER, ()))
            for written in left_over[number]:
                self._table.segments.need(written)
            job = self._table.jobs.get(number)
            if job is not None:
                job.ended, job.trouble = job.ended or wall, WRONG if _NEVER in early else MISSING
        self._early.clear()
        segments = {written.where.segment for records in left_over.values() for written in records}
        if segments:
            count = sum(map(len, left_over.values()))
            why = "segments are missing that they need"
            if wrong:
                others = ", and the others need what is not there" if count > wrong else ""
                why = f"{wrong:,} of them are not what they should be{others}"
            help_ = "delete these jobs" if wrong else "put back what was removed, and start the scheduler again"
            self._table.tell(
                "ERROR",
                f"Journal: {count:,} records of {len(left_over):,} jobs can't be used: {why}. They stay, in segments "
                f"{', '.join(map(str, sorted(segments)))}: {help_}",
            )
        return segments

    def _restore(self, job: Job, record: Record, place: Place, inner: Sequence[Message]) -> _Awaited | None:
        """Take a record of a job that is open; what it has to wait for, if that is missing."""
        kind, first_span = record.kind, job.index.spans
        is_news = True
        if kind == Kind.PART:
            said = Said(record.frames[0])
            key, first = said.text("key"), said.number("first")
            if key not in job.parts and first != job.index.rows:
                return "rows", first
            is_news = key not in job.parts and _add_part(job, key, said)
        elif kind == Kind.RESULTS:
            missing = at_core.restore_results(job, record, place, inner[0])
            if missing is not None:
                return "batch", missing
            is_news = job.index.spans > first_span
        elif kind == Kind.STATE:
            is_news = _take_state(job, Said(record.frames[0]))
        elif kind == Kind.AGENTS:
            is_news = _take_agents(job, Said(record.frames[0]))
        elif kind == Kind.NOTE:
            is_news = all(written.kind != Kind.NOTE for written in job.records)
        if is_news:
            written = self._table.keep(job, kind, place, size_of(record.frames))
            written.first_span, written.spans = first_span, job.index.spans - first_span
        return None


def _written(early: _Early) -> Written:
    return Written(early.record.kind, early.place, size_of(early.record.frames))


def _add_part(job: Job, key: str, said: Said) -> bool:
    first, function, batches = job.index.rows, said.text("function"), said.batches()
    if not all(job.is_free(number, number + rows) for number, rows, _ in batches):
        raise Damaged("a record of a job has rows of another one")
    for number, rows, wanted in batches:
        job.add_batch(number, rows, wanted)
    job.parts[key] = first, job.index.rows - first
    job.function = job.function or function
    return True


def _take_state(job: Job, said: Said) -> bool:
    turn = said.number("turn")
    if turn <= job.turn:
        return False
    flags = [said.flag(name) for name in ("complete", "cancelled", "forced")]
    job.ended, job.trouble = said.moment_or_none("ended"), said.text("trouble")
    job.joins = said.flag("joins", job.joins)
    job.turn, (job.is_complete, job.is_cancelled, job.is_forced) = turn, flags
    return True


def _take_agents(job: Job, said: Said) -> bool:
    turn = said.number("turn")
    if turn <= job.core.turn:
        return False
    number, agents = said.number("number", MAX_NUMBER), set(said.numbers("agents", MAX_NUMBER))
    job.core.turn, job.core.number, job.core.agents = turn, number, agents
    return True
