"""The root of an agent's state: workers, rows, objects and memory of one host, and what is left to do in this step."""

import math
from dataclasses import field

from scaler.agent.state.bandwidth import Bandwidth
from scaler.agent.state.departure import DepartureState
from scaler.agent.state.doubts import Doubts
from scaler.agent.state.estimates import Estimates
from scaler.agent.state.memory import AgentLimits, MemoryState
from scaler.agent.state.object_records import ObjectTable
from scaler.agent.state.ready_rows import ReadyRows
from scaler.agent.state.suspects import Suspects
from scaler.agent.state.unsettled import UnsettledResults
from scaler.agent.state.waiting_rows import WaitingRows
from scaler.agent.state.withdrawals import WithdrawalTable
from scaler.agent.state.worker_records import WorkerPool
from scaler.common.records import entity
from scaler.store.layout import Key


@entity
class FollowUps:
    """What events of this step have left for its phases to do. Empty between two steps."""

    #: the number of workers at work may not be what it should be
    workers: bool = False
    #: objects that have become files since somebody wanted that
    arrived: list[Key] = field(default_factory=list)
    #: objects that could not be had, and why
    lost: dict[Key, str] = field(default_factory=dict)
    #: those of them for which there is no room here
    no_room: dict[Key, str] = field(default_factory=dict)
    #: bytes of objects that could not be made files, perhaps for lack of room
    lacking: int = 0
    #: slots of workers that made a move which is none, and objects that would have made one; and which
    disorder: dict[int | Key, str] = field(default_factory=dict)


@entity
class Pulse:
    """What the scheduler hears now and then, and when."""

    #: seconds between two heartbeats; None while the scheduler has not said
    interval: float | None = None
    #: when the next one is due, seconds; infinite while the scheduler has not said how often
    next: float = math.inf
    #: the last one said that there is no room
    said_full: bool = False
    #: share of the host's processors in use, 0 to 1
    cpu: float = 0.0
    #: when the workers were last sampled, seconds
    sampled_at: float = 0.0
    #: from the last heartbeat to its echo, seconds
    lag: float = 0.0
    #: the scheduler wants to be told what host and workers are busy with
    is_watched: bool = False

    def hurry(self, now: float) -> None:
        """The scheduler should hear at once."""
        if self.interval is not None:
            self.next = now


@entity
class HostState:
    """All that an agent knows."""

    workers: WorkerPool
    limits: AgentLimits
    objects: ObjectTable
    #: moves that no table has are raised, for tests; otherwise the agent mends what it can
    strict: bool = False
    #: time of the step that is under way, seconds
    now: float = 0.0
    #: it may end before its scheduler does; False in a local cluster, whose program would wait for ever
    may_end: bool = True
    #: this agent's number at the scheduler
    number: int = 1
    #: messages of rows that have come
    arrivals: int = 0
    #: rows that could run now and that no worker has
    ready: ReadyRows = field(default_factory=ReadyRows)
    #: rows that can't run yet
    waiting: WaitingRows = field(default_factory=WaitingRows)
    withdrawals: WithdrawalTable = field(default_factory=WithdrawalTable)
    estimates: Estimates = field(default_factory=Estimates)
    doubts: Doubts = field(default_factory=Doubts)
    suspects: Suspects = field(default_factory=Suspects)
    memory: MemoryState = field(default_factory=MemoryState)
    bandwidth: Bandwidth = field(default_factory=Bandwidth)
    pulse: Pulse = field(default_factory=Pulse)
    #: bytes of objects that ever came from other hosts
    fetched_bytes: int = 0
    #: when the workers should be looked after again, seconds
    attend_at: float = math.inf
    #: what was said of rows that ended and may have to be said again
    unsettled: UnsettledResults = field(default_factory=UnsettledResults)
    #: directories for results of durable jobs to which workers could not write -> when the log has said so, seconds
    unfiled: dict[str, float] = field(default_factory=dict)
    departure: DepartureState = field(default_factory=DepartureState)
    follow_ups: FollowUps = field(default_factory=FollowUps)

    @property
    def queued(self) -> int:
        """Rows that no worker has."""
        return self.ready.rows + self.waiting.rows

    @property
    def running(self) -> int:
        """Rows that workers have."""
        pool = self.workers
        return sum(worker.rows for worker in pool.records.values()) if pool.open_dispatches else 0


def new_host(workers: int, limits: AgentLimits, strict: bool = False) -> HostState:
    """The state of an agent that is to have so many workers, and has none yet."""
    pool = WorkerPool(workers, start_at=dict.fromkeys(range(workers), -math.inf))
    return HostState(pool, limits, ObjectTable(limits.index()), strict)
