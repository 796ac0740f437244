"""A batch at the scheduler: what its rows are, where each of them is, what they need, and what became of them before.

A row's place is one number in its batch's `place` column, so every accepted row is in exactly one place by
construction: waiting for what it needs, queued, done, or at the agent with that number. Only `transitions.py` writes
that column and what is counted along with it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import field
from enum import IntEnum
from itertools import chain
from sys import byteorder

from scaler.common.records import entity, record
from scaler.common.span_lists import runs_of
from scaler.protocol.messages import Task, u32
from scaler.scheduler.state.function_records import FunctionRecord, Tally

#: rows in one place that are looked at one by one
FEW_ROWS = 16


class Place(IntEnum):
    """Where a row is; an agent's place is AGENT plus the agent's number."""

    WAITING = 0
    QUEUED = 1
    DONE = 2
    AGENT = 16


WAITING, QUEUED, DONE, AGENT = (int(place) for place in Place)


class Ending(IntEnum):
    """How a row ended. One that its client has claimed ended there: it is done as well."""

    DONE = 0
    FAILED = 1
    CANCELLED = 2


#: rows in a column of endings that ended in one way: in any, and in each
_RUNS = re.compile(rb"(.)\1*", re.DOTALL)
_RUNS_OF = {ending: re.compile(re.escape(bytes((ending,))) + b"+") for ending in Ending}

#: what a row asks of an agent: required capabilities, and how many slots it takes
Demand = tuple[tuple[str, ...], int]
#: what any agent has that has workers
ANYTHING: Demand = ((), 1)
#: (-priority, demand): rows of one class share a queue
QueueClass = tuple[int, Demand]


def demand_words(demand: Demand) -> str:
    """What rows ask for, in words.

    >>> demand_words((("gpu", "ssd"), 8)), demand_words((("gpu",), 1))
    ('gpu, ssd, 8 workers of one host (threads=8)', 'gpu')
    """
    capabilities, slots = demand
    return ", ".join([*capabilities, *([f"{slots} workers of one host (threads={slots})"] if slots > 1 else [])])


def is_called(function: str, name: str) -> bool:
    """Somebody may mean a function: by its name, or the end of that behind a dot; any if there is no name.

    >>> is_called("tests.work", "work"), is_called("tests.homework", "work"), is_called("work", "")
    (True, False, True)
    """
    return not name or f".{function}".endswith(f".{name}")


def row_name(client: int, row: int, function: str) -> str:
    """A row as somebody has named it: by its number, and its client and function if they were said."""
    number = f"{client}:{row}" if client else str(row)
    return f"{number} of {function}" if function else number


def place_name(place: int) -> str:
    """The word for a place: "waiting", "queued", "done" or "agent"."""
    return Place(min(place, AGENT)).name.lower()


@record
class Attempts:
    """What went wrong with rows before."""

    #: row -> how often it was lost with its worker
    losses: dict[int, int] = field(default_factory=dict)
    #: rows that are known to have begun where they are
    begun: set[int] = field(default_factory=set)
    #: rows that their client has claimed while agents had them
    claimed: set[int] = field(default_factory=set)
    #: row -> how often it raised and was run again
    retries: dict[int, int] = field(default_factory=dict)
    #: row -> how often it came back since its agent could not get what it needs
    returns: dict[int, int] = field(default_factory=dict)
    #: row -> when it first did, seconds
    first_returns: dict[int, float] = field(default_factory=dict)
    #: row -> how often what it needs was made again, and was beyond its reach all the same
    in_vain: dict[int, int] = field(default_factory=dict)
    #: row -> the numbers of agents that never run it
    refused: dict[int, set[int]] = field(default_factory=dict)


@record
class Lineage:
    """What it takes to compute values of a batch again, and which rows are being computed again."""

    #: why the batch is remembered after its rows have ended: stored values of its rows, batches that need some of them
    references: int = 0
    #: the batches that made stored values which rows of this needed; a dict serves as an ordered set
    parents: dict[Batch, None] = field(default_factory=dict)
    #: row whose value was stored -> ids of the small objects it needed, each with a reference for this
    retained: dict[int, tuple[int, ...]] = field(default_factory=dict)
    #: rows that have ended before and are computed again, since their values were lost
    recomputing: set[int] = field(default_factory=set)
    #: row that is computed again -> number of the agent that has to be able to fetch its value
    required_zones: dict[int, int] = field(default_factory=dict)


def is_apart(task: Task) -> bool:
    """The arguments of its rows are not in the message."""
    return task.arguments != 0 and task.arguments not in task.objects


@entity
class Batch:
    """The rows of one `Task` message, until all of them have ended, and longer if their values may be lost."""

    #: number of the client
    client: int
    #: id of row 0; row i has id + i
    id: int
    rows: int
    #: the client's message: options, payloads, columns
    task: Task
    function: FunctionRecord
    #: of those rows of its function that ask for the same
    tally: Tally
    queue_class: QueueClass
    #: whose it is among those that share the workers: a root, or its client if there is none
    share: int
    #: of its share and class those with more go first
    nesting: int
    #: larger ones go to agents beyond their windows: by priority, then by nesting
    urgency: int
    #: place of each row; written by `transitions.py` alone
    place: array[int]
    #: rows that have not ended
    left: int
    #: bytes that are on its client's account for it
    price: int = 0
    #: slots that each row takes at an agent while it runs
    slots: int = 1
    #: others had work when it came, or kept it waiting: an agent without rows of its share gets some beyond its window
    is_shared: bool = False
    #: its rows take several slots, have another urgency than 0, or are shared: they are counted by these at agents, too
    is_special: bool = False
    #: values of its rows may be needed by other rows
    keeps: bool = False
    #: agent's number -> rows that are there; no zeros
    at: dict[int, int] = field(default_factory=dict)
    #: start of each row's payload in the body (form EACH), one more for the end
    offsets: array[int] | None = None
    #: per row: ids of the values it needs; None: no row needs any
    needs: list[tuple[int, ...]] | None = None
    #: per row: in how many lists of rows that wait it is, one that has ended perhaps still; None: no row ever waited
    missing: array[int] | None = None
    #: row -> rows, of this and other batches, that wait for its value
    waiters: dict[int, list[Row]] = field(default_factory=dict)
    #: numbers of the agents that keep how its rows ended until it is over; None: none does
    kept_at: set[int] | None = None
    #: numbers of the agents that were asked for rows of it by their client; None: none was
    asked_of: set[int] | None = None
    #: it was admitted by another scheduler before: its rows may be at agents though they wait for something here
    has_come_back: bool = False
    #: an `Ending` for each row, of those that have not ended `DONE`; None while none failed or was cancelled
    endings: bytearray | None = None
    #: None while nothing went wrong
    attempts: Attempts | None = None
    #: None while no value of its rows was stored
    lineage: Lineage | None = None

    def reserves(self, value: int) -> bool:
        """That its rows need this value is counted beforehand, in the `uses` of their graph."""
        return self.keeps and value >= self.task.graph

    def is_recomputing(self, lo: int, hi: int) -> bool:
        """Some of the rows [lo, hi) have ended before, and are computed again."""
        lineage = self.lineage
        return lineage is not None and bool(lineage.recomputing) and not lineage.recomputing.isdisjoint(range(lo, hi))

    def lacks(self, row: int) -> bool:
        """A row that came from another scheduler with its agent knew something there that is not known here yet."""
        return self.has_come_back and self.missing is not None and bool(self.missing[row])

    def keep_at(self, agent: int) -> None:
        """An agent keeps how rows ended until the batch is over."""
        if self.kept_at is None:
            self.kept_at = set()
        self.kept_at.add(agent)

    def has_returned(self, row: int) -> bool:
        """A row came back from an agent that could not get what it needs."""
        return self.attempts is not None and row in self.attempts.returns

    def lost_in(self, spans: list[tuple[int, int]]) -> array[int]:
        """The rows of these spans that were lost with a worker before: first, end, first, end and so on."""
        found = u32()
        if self.attempts is None or not self.attempts.losses:
            return found
        losses = self.attempts.losses
        for lo, hi in spans:
            few = hi - lo <= len(losses)
            rows = [row for row in range(lo, hi) if row in losses] if few else [row for row in losses if lo <= row < hi]
            found.extend(chain.from_iterable(runs_of(sorted(rows))))
        return found

    def are_in(self, lo: int, hi: int, place: int) -> bool:
        """All rows [lo, hi) are in this place."""
        if hi - lo == 1:
            return self.place[lo] == place
        return self.place[lo:hi].tobytes() == place.to_bytes(4, byteorder) * (hi - lo)  # a third of what arrays take

    def _end_of_run(self, lo: int, stop: int) -> int:
        """Where the rows before `stop` end that are in the same place as `lo` and follow it.

        Row by row as long as they are few; then more and more of them are looked at together, and fewer at the end.
        """
        column, place, end = self.place, self.place[lo], lo + 1
        few = min(stop, lo + FEW_ROWS)
        while end < few and column[end] == place:
            end += 1
        together = FEW_ROWS
        while end < stop and column[end] == place:
            upto = min(stop, end + together)
            if self.are_in(end, upto, place):
                end, together = upto, together * 2
            else:
                together = max(1, together // 4)
        return end

    def runs(self, lo: int = 0, hi: int | None = None) -> Iterator[tuple[int, int, int]]:
        """The rows of [lo, hi), of all if not given, as spans whose rows are in one place: that place, and the span."""
        column, stop = self.place, self.rows if hi is None else hi
        while lo < stop:
            place, end = column[lo], self._end_of_run(lo, stop)
            yield place, lo, end
            lo = end

    def spans_in(self, place: int, lo: int = 0, hi: int | None = None) -> list[tuple[int, int]]:
        """The rows of [lo, hi), of all if not given, that are in this place, as spans."""
        return [*self.each_in(place, lo, hi)]

    def each_in(self, place: int, lo: int = 0, hi: int | None = None) -> Iterator[tuple[int, int]]:
        """The same, one by one: no row may move meanwhile."""
        column, stop = self.place, self.rows if hi is None else hi
        while True:
            try:
                lo = column.index(place, lo, stop)
            except ValueError:
                return
            end = self._end_of_run(lo, stop)
            yield lo, end
            lo = end

    def has_in(self, place: int, lo: int, hi: int) -> bool:
        """Some of the rows [lo, hi) are in this place. Looks at them until one is."""
        try:
            self.place.index(place, lo, hi)
        except ValueError:
            return False
        return True

    def end_as(self, lo: int, hi: int, ending: Ending) -> None:
        """The rows [lo, hi) have ended, and not done; `transitions.py` alone says so."""
        if self.endings is None:
            self.endings = bytearray(self.rows)
        self.endings[lo:hi] = bytes((ending,)) * (hi - lo)

    def state_of(self, row: int) -> str:
        """The word for where a row is, or for how it ended, as users read it."""
        place = self.place[row]
        if place == DONE and self.endings is not None:
            return Ending(self.endings[row]).name.lower()
        return place_name(place)

    def ended_as(self, ending: Ending, lo: int) -> Iterator[tuple[int, int]]:
        """The rows from `lo` on that ended in this way, as spans."""
        for a, b in self.each_in(DONE, lo):
            if self.endings is not None:
                yield from (run.span() for run in _RUNS_OF[ending].finditer(self.endings, a, b))
            elif ending == Ending.DONE:
                yield a, b

    def ends(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """The rows [lo, hi), which have ended, as spans whose rows ended in one way."""
        if self.endings is None:
            yield lo, hi
            return
        for run in _RUNS.finditer(self.endings, lo, hi):
            yield run.span()


#: one row of a batch
Row = tuple[Batch, int]


def attempts_of(batch: Batch) -> Attempts:
    """The record of what went wrong with rows of a batch, made when the first thing does."""
    if batch.attempts is None:
        batch.attempts = Attempts()
    return batch.attempts


def lineage_of(batch: Batch) -> Lineage:
    """The record of how to compute values of a batch again, made when the first one is stored."""
    if batch.lineage is None:
        batch.lineage = Lineage()
    return batch.lineage


def not_ended(rows: list[Row] | tuple[Row, ...]) -> list[Row]:
    """Those of these rows, which waited for something, that have not ended meanwhile; the others wait no more for it.

    They still wait; or agents have them since before this scheduler, and know already what they need.
    """
    if not rows:
        return []
    left = [(batch, row) for batch, row in rows if batch.place[row] != DONE]
    if len(left) < len(rows):
        for batch, row in rows:
            if batch.place[row] == DONE:
                assert batch.missing is not None
                batch.missing[row] -= 1
    return left
