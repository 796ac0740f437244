"""A durable job as its scheduler knows it: what was submitted, how far it is, what it is to the core,
and what users hear of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from scaler.common.records import entity, record
from scaler.journal.layout import Place
from scaler.protocol.messages import Message
from scaler.protocol.results import ResultBuilder
from scaler.results.reference import Reference, prefix_of
from scaler.scheduler.jobs.result_index import ResultIndex, part_of


class State(StrEnum):
    """What users hear of a job."""

    #: more of it may be submitted
    OPEN = "open"
    #: all of it is here, and not all has ended
    RUNNING = "running"
    #: each row has a value
    DONE = "done"
    #: each row has ended, some with errors
    FAILED = "failed"
    #: it was cancelled, and each row has ended
    CANCELLED = "cancelled"


@record
class Written:
    """A record of a job."""

    kind: int
    where: Place
    #: bytes
    size: int
    #: of results: the number of its first span, and how many it has
    first_span: int = 0
    spans: int = 0


@entity
class Batch:
    """Rows of a job that were submitted together."""

    id: int
    rows: int
    #: number of the first row in the job, of those that are wanted
    first: int
    #: of a graph: the rows that are wanted, ascending; None: all
    wanted: list[int] | None = None

    def job_rows(self, lo: int, hi: int) -> tuple[int, int]:
        """The rows of the job that rows [lo, hi) of the batch are; of a graph those that are wanted."""
        if self.wanted is None:
            return self.first + lo, self.first + hi
        return self.first + part_of(self.wanted, lo - 1) + 1, self.first + part_of(self.wanted, hi - 1) + 1


@record
class Unsynced:
    """What holds once a record is on disk."""

    #: records of the journal, counted from its opening, with this one
    number: int
    #: spans of results that may be shown then, and how many rows ended how: with a value, an error, cancelled
    spans: int
    counts: tuple[int, int, int]
    #: messages of the core that are dealt with then
    heard: int
    #: bytes
    size: int


@record
class Submitter:
    """Who submits a job of which more is to come."""

    #: that has submitted last; 0: it is gone
    monitor: int = 0
    #: until when it may come back, seconds; None: it is there, or has just gone
    until: float | None = None


@entity
class AtCore:
    """What passed between a job and the scheduler's core, where it is a client."""

    #: its number there; 0 while it is none
    number: int = 0
    #: numbers of the agents that may have something of it
    agents: set[int] = field(default_factory=set)
    #: counts how often those were written
    turn: int = 0
    #: messages that it was sent
    heard: int = 0
    #: those of them that need not be said again, and what the core was told of that
    settled: int = 0
    told: int = 0
    #: how rows ended, to be written
    gathered: ResultBuilder | None = None
    #: the rows of these spans: first row in the job, and the span of the batch
    rows: list[int] = field(default_factory=list)
    #: the core was told what was submitted
    is_told: bool = False
    #: it was told that its results wait
    is_held: bool = False


@entity
class Job:
    """A durable job. `number` is its own for ever; other numbers hold for one scheduler."""

    number: int
    name: str
    owner: str
    #: of the submission
    token: int
    #: of its client at the core
    session: int
    #: seconds since 1970
    created: float
    #: of the part of the directory for large results that has its files; empty: it has none
    identity: str = ""
    #: what its first part was: for people
    function: str = ""
    ended: float | None = None
    #: why it could not go on; empty: it could
    trouble: str = ""
    #: counts its states that were written
    turn: int = 0
    is_complete: bool = False
    is_cancelled: bool = False
    #: other submissions may add to it, at any time
    joins: bool = False
    #: rows that run were to be ended
    is_forced: bool = False
    #: of other submissions that have added to it, as far as this scheduler has heard them
    joined: set[int] = field(default_factory=set)
    #: key of a part -> the number of its first row, and how many it has
    parts: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: id -> batch; and the ids, ascending
    batches: dict[int, Batch] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    #: that it takes in the journal
    bytes: int = 0
    index: ResultIndex = field(default_factory=ResultIndex)
    #: row -> its result, if that is a file; and bytes of all of them
    files: dict[int, Reference] = field(default_factory=dict)
    file_bytes: int = 0
    #: spans of results that are on disk, and how many rows ended how, as in `Unsynced`
    shown: int = 0
    counts: tuple[int, int, int] = (0, 0, 0)
    records: list[Written] = field(default_factory=list)
    unsynced: deque[Unsynced] = field(default_factory=deque)
    #: records of the journal up to that of its last part, counted from its opening
    parted: int = 0
    #: parts that came last and were not said to the core yet
    unsaid: list[Sequence[Message]] = field(default_factory=list)
    core: AtCore = field(default_factory=AtCore)

    @property
    def has_ended(self) -> bool:
        """Nothing of it is going to change, but that it is deleted."""
        return self.ended is not None

    @property
    def is_over(self) -> bool:
        """All of its rows have ended, and no more come."""
        index = self.index
        return (self.is_complete or self.is_cancelled) and index.ended == index.rows

    @property
    def is_partial(self) -> bool:
        """More of it comes, and only from whoever has begun to submit it."""
        return not (self.has_ended or self.is_complete or self.is_cancelled or self.joins)

    @property
    def state(self) -> State:
        """What users hear of it."""
        index = self.index
        if not self.has_ended:
            return State.RUNNING if self.is_complete or self.is_cancelled else State.OPEN
        if self.trouble or index.failed:
            return State.FAILED
        is_whole = self.is_complete and index.done == index.rows
        return State.CANCELLED if self.is_cancelled and not is_whole else State.DONE

    def add_batch(self, number: int, rows: int, wanted: list[int] | None) -> Batch:
        """Rows that were submitted; of a graph those that are wanted."""
        first = self.index.add_rows(rows if wanted is None else len(wanted))
        batch = self.batches[number] = Batch(number, rows, first, wanted)
        insort(self.starts, number)
        return batch

    def batch_of(self, row: int) -> Batch | None:
        """The batch that a row is of, by its id; None: it is of none."""
        at = bisect_right(self.starts, row)
        batch = self.batches[self.starts[at - 1]] if at else None
        return batch if batch is not None and row < batch.id + batch.rows else None

    def is_free(self, lo: int, hi: int) -> bool:
        """No batch has rows with ids in [lo, hi)."""
        at = bisect_left(self.starts, hi)
        return not at or self.starts[at - 1] + self.batches[self.starts[at - 1]].rows <= lo

    def described(self, directory: str, waits: str) -> dict[str, Any]:
        """What users hear of it, for JSON; `directory`: where large results are; `waits`: what it waits for."""
        done, failed, cancelled = self.counts
        return {
            "v": 1, "job": self.name, "owner": self.owner, "state": self.state.value, "function": self.function,
            "rows": self.index.rows, "done": done, "failed": failed, "cancelled": cancelled,
            "created": self.created, "ended": self.ended, "bytes": self.bytes, "spans": self.shown,
            "trouble": self.trouble, "waits": waits, "file_bytes": self.file_bytes,
            "files": prefix_of(directory, self.identity, self.number) if directory and self.identity else "",
        }  # fmt: skip
