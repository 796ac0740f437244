"""What an agent knows of its workers and of the rows they have.

A row at an agent is in exactly one place: ready for any worker or for a certain one, waiting for objects, or in `left`
of one dispatch of one worker.
"""

import math
from bisect import bisect_left
from collections import deque
from dataclasses import field
from enum import IntEnum, StrEnum
from itertools import islice
from typing import NamedTuple

from scaler.agent.state.rows import RowRange
from scaler.common.records import entity
from scaler.store.layout import Key
from scaler.worker_protocol.messages import Preloading

#: seconds after which a worker that has told nothing is looked at: it sends results with those of the next rows if
#: these begin within 4 ms, and one of them may take long
QUIET_SECONDS = 0.02
#: moves of a worker that are remembered
HISTORY = 8


class WorkerState(StrEnum):
    """Where a worker is in its life."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    PARKED = "parked"
    GONE = "gone"


#: as names of their own: looking one up in its class costs more than the rest of a comparison
STARTING, IDLE, BUSY, PARKED, GONE = WorkerState


class KillKind(StrEnum):
    """Why a worker is ended."""

    #: its row ran longer than it may
    TIMEOUT = "timeout"
    #: it takes more memory than it may
    MEMORY = "memory"
    #: its row was cancelled, even if it runs
    CANCELLED = "cancelled"
    #: the client of its row is gone
    UNWANTED = "unwanted"
    #: the scheduler has lost sight of this agent
    DROPPED = "dropped"
    #: there are more workers than are needed; it ends by itself
    SURPLUS = "surplus"
    #: it makes room for one that has loaded what its rows need
    LEAVING = "leaving"
    #: it said what can't be, or made a move that can't be
    REJECTED = "rejected"
    #: nothing more comes of it, though its process is there
    GIVEN_UP = "given up"
    #: it has had rows for long and begun none, or does not answer though it has none
    MUTE = "mute"


class Silence(IntEnum):
    """How far it has come with a worker that does not give back rows it was asked for."""

    #: it has answered, or has time left to do so
    NONE = 0
    #: it was told by the progress page to begin nothing more
    REVOKED = 1
    #: it was looked at, some time after that
    LOOKED_AT = 2
    #: all dispatches that it had not begun are the agent's again: nobody waits for its answer
    SILENT = 3


SILENT = Silence.SILENT


class KillReason(NamedTuple):
    """Why a worker is ended, for the row that it runs."""

    kind: KillKind
    words: str


#: a move of a worker, as it is remembered: when (seconds), from which state, to which, and why
WorkerMove = tuple[float, WorkerState, WorkerState, str]


@entity
class Dispatch:
    """Rows that were handed to a worker."""

    #: of all that this agent hands out, ascending
    number: int
    origin: RowRange
    #: spans that have not been reported, ascending; empty until the worker has said that it has done with it
    left: list[tuple[int, int]]
    #: how many rows these are
    rows: int
    #: what all of it should take, microseconds; None while the function is unknown
    expected: float | None
    #: when it was handed out, or when what was before it was reported; seconds
    at: float
    #: its client is gone: nobody wants what comes of it
    unwanted: bool = False
    #: it is one row that may have ended a worker before: nothing comes behind it, see `Suspects`
    is_alone: bool = False
    #: it is for this worker, for what only that has: nobody else runs it before that is moved
    is_local: bool = False
    #: what came behind it was taken back for what is more urgent
    has_made_way: bool = False
    #: stored objects that it uses, pinned in the index
    pins: list[Key] = field(default_factory=list)

    def take(self, lo: int, hi: int) -> bool:
        """Rows [lo, hi) are reported; False if they are not here."""
        at = self._find(lo)
        if at < 0 or hi > self.left[at][1]:
            return False
        a, b = self.left[at]
        self.rows -= hi - lo
        self.left[at : at + 1] = [span for span in ((a, lo), (hi, b)) if span[0] < span[1]]
        return True

    def has(self, row: int) -> bool:
        """Say whether a row has not been reported."""
        return self._find(row) >= 0

    def _find(self, row: int) -> int:
        """Which of the spans has a row, -1 if none; a worker may report every other row of thousands."""
        at = bisect_left(self.left, (row + 1, 0)) - 1
        return at if at >= 0 and row < self.left[at][1] else -1


@entity
class WorkerRecord:
    """A worker process."""

    slot: int
    #: changed by `worker_moves.move` alone
    state: WorkerState = STARTING
    #: its last moves, oldest first
    history: "deque[WorkerMove]" = field(default_factory=lambda: deque(maxlen=HISTORY))
    #: by number, in order; empty unless it is busy
    dispatches: dict[int, Dispatch] = field(default_factory=dict)
    #: rows that it was ever handed
    handed: int = 0
    #: objects that it was sent, or made and keeps
    objects: set[Key] = field(default_factory=set)
    #: objects it has and need not keep, to be told with the next rows
    stale: list[Key] = field(default_factory=list)
    #: its task waits for other tasks: another worker takes its place
    blocked: bool = False
    #: its task has waited for other tasks, and others may have been begun in its slots meanwhile
    has_waited: bool = False
    #: what comes behind its row would be taken back: its task waits for others now and then, or others go first
    gives_back: bool = False
    #: when its row last went on after it had waited, and for how long it had run before that, seconds
    went_on: float = 0.0
    ran: float = 0.0
    #: for how long its row's root has had its turn for it, microseconds
    charged: float = 0.0
    #: token of the last `Recall` that it was sent and has not answered; 0: of none
    recalling: int = 0
    #: rows that it was allowed to keep then
    may_keep: int = 0
    #: when to do something about the answer that is missing, seconds; infinite: never
    answer_by: float = math.inf
    silence: Silence = Silence.NONE
    #: the last dispatch that was revoked; 0: none. Those up to it may be the agent's again, whatever it says of them
    revoked: int = 0
    #: what it owed a sign of when it was last sampled: the dispatch to begin, or the recall (below 0); 0: nothing
    owes: int = 0
    #: for how long it has owed that, seconds
    owes_for: float = 0.0
    #: when to see whether it keeps results back; infinite: that has been done since it last said something
    look_at: float = math.inf
    #: rows that it has been given and that have ended
    ended: int = 0
    #: it takes no more rows: a fresh worker takes its place when it has done those that it has
    is_worn: bool = False
    #: it is worn since a row has left its process in a state in which others fail
    is_unfit: bool = False
    #: the failure of a row was put down to it, see `Doubts`: so are those of others
    is_doubted: bool = False
    #: why it is being ended; None: it isn't
    kill_reason: KillReason | None = None
    #: what it has last said of the call that it makes before it takes rows; None: nothing
    preloading: Preloading | None = None
    #: (dispatch, row) that it had begun when it was last sampled, and that the scheduler was told of as begun
    sampled: tuple[int, int] | None = None
    told_begun: tuple[int, int] | None = None
    #: bytes of memory that are its alone, as last sampled, and the most since it was started
    memory: int = 0
    peak: int = 0
    #: its main thread had ended when it was last sampled
    halted: bool = False

    def note_heard(self, now: float) -> None:
        """It has told all that it has finished, or begins with nothing to tell."""
        self.look_at = now + QUIET_SECONDS

    @property
    def is_rejected(self) -> bool:
        """It said what can't be: nothing that it says is believed."""
        return self.kill_reason is not None and self.kill_reason.kind == KillKind.REJECTED

    @property
    def is_without_task(self) -> bool:
        """It is there, and runs nothing."""
        return self.state in (IDLE, PARKED)

    @property
    def is_fresh(self) -> bool:
        """It has run no row, and has none."""
        return not (self.ended or self.dispatches)

    @property
    def takes_rows(self) -> bool:
        """It will take rows now or when it has done those it has."""
        return self.kill_reason is None and not (self.blocked or self.is_worn) and self.state in (IDLE, BUSY)

    @property
    def may_be_fed(self) -> bool:
        """Nothing is in the way of rows for it, if it is idle or busy. One that idles and may not is about to end."""
        return self.kill_reason is None and not (self.blocked or self.recalling or self.is_worn)

    @property
    def first(self) -> Dispatch:
        """The oldest of its dispatches. Raises StopIteration if there are none."""
        return next(iter(self.dispatches.values()))

    @property
    def takes_slots(self) -> bool:
        """A row of it runs, or may begin before it has given it back."""
        return bool(self.dispatches) and (not self.blocked or self.is_crowded)

    @property
    def slots(self) -> int:
        """Slots that its rows take, or that it is one itself."""
        slots = 1
        for dispatch in self.dispatches.values():
            if dispatch.origin.slots > slots:
                slots = dispatch.origin.slots
        return slots

    @property
    def expected(self) -> float | None:
        """Microseconds of work handed to it; None if any of it is unknown."""
        total = 0.0
        for dispatch in self.dispatches.values():
            if dispatch.expected is None:
                return None
            total += dispatch.expected
        return total

    @property
    def due(self) -> float:
        """When all that it has but the last dispatch should be done, generously; what is behind the row that runs is
        taken back then. It must be busy.

        So what comes behind makes that neither sooner, where its function is unknown, nor later, where it is long.
        """
        dispatches = self.dispatches
        first = next(iter(dispatches.values()))
        known = first.expected
        if known is None:
            return first.at + 0.005
        if len(dispatches) > 2:
            for dispatch in islice(dispatches.values(), 1, len(dispatches) - 1):
                if dispatch.expected is None:
                    break
                known += dispatch.expected
        return first.at + 0.005 + 2e-6 * known

    @property
    def is_crowded(self) -> bool:
        """It has more rows than the one it runs."""
        if len(self.dispatches) != 1:
            return len(self.dispatches) > 1
        (dispatch,) = self.dispatches.values()
        left = dispatch.left
        return len(left) > 1 or (len(left) == 1 and left[0][1] - left[0][0] > 1)

    @property
    def rows(self) -> int:
        """Rows handed to it and not reported."""
        return sum(dispatch.rows for dispatch in self.dispatches.values())


@entity
class WorkerPool:
    """The workers of an agent, those that are to be started, and those that are still to end."""

    #: never changes: workers that the host should have at work
    target: int
    #: by slot
    records: dict[int, WorkerRecord] = field(default_factory=dict)
    #: slots to start at a time: at first all, later those whose workers died while starting
    start_at: dict[int, float] = field(default_factory=dict)
    #: workers that died while starting, since one was ready
    failed_starts: int = 0
    #: why the call failed that workers make before they take rows, when it last did; and what the log has of that
    #: (or what keeps all of them from starting)
    failed_preload: str = ""
    told_preload: str = ""
    #: since when no worker was there while they failed to start for want of processes, seconds; None: some have started
    failing_since: float | None = None
    #: no worker is there, and as many as the host should have have failed to start, the last one by that call; or none
    #: could start for long
    is_unfit: bool = False
    #: slots of workers whose task waits for tasks of its own now and then; since when it is to yield, seconds, or None
    nesting: dict[int, float | None] = field(default_factory=dict)
    #: when the next of them is to yield if it does not wait before, seconds; infinite: never
    yield_at: float = math.inf
    #: slots of workers that ran rows when the agent began anew, and have not ended: until then nothing is handed out,
    #: so that what they write is never taken for something else
    ending: set[int] = field(default_factory=set)
    #: dispatches that workers have; and those of them whose rows take several slots
    open_dispatches: int = 0
    wide: int = 0
    #: number of the next dispatch, and of the next recall
    next_dispatch: int = 1
    next_token: int = 1

    @property
    def is_working(self) -> bool:
        """Some worker runs a row that does not wait for other rows."""
        return any(record.state is BUSY and not record.blocked for record in self.records.values())

    @property
    def free(self) -> int:
        """Slots in which a row could begin; below 0 if tasks that had waited went on and found theirs taken."""
        free = self.target
        for record in self.records.values():
            if record.takes_slots:
                free -= self.slots_of(record)
        return free

    def slots_of(self, worker: WorkerRecord) -> int:
        """Slots that a worker's rows take; at most all there are, so that every row can run."""
        return min(worker.slots, self.target) if self.wide else 1

    @property
    def free_slot(self) -> int:
        """The first slot without a worker."""
        slot = 0
        while slot in self.records or slot in self.start_at:
            slot += 1
        return slot
