"""A snapshot of a cluster as readers use it: the columns as they came, and what follows from several of them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, repeat

from scaler.protocol.codes import WorkerFlag
from scaler.protocol.messages import WorkerColumns, u32
from scaler.protocol.messages.cluster_view import (
    AgentColumns,
    ClientColumns,
    ClusterView,
    FunctionColumns,
    ObjectColumns,
    RowCounts,
    SchedulerView,
)
from scaler.protocol.messages.message import require

#: flags of a worker that can't begin a row at once
_NOT_FREE = WorkerFlag.HAS_TASK | WorkerFlag.SUSPENDED | WorkerFlag.ENDING | WorkerFlag.STOPPED


@dataclass(frozen=True)
class Snapshot:
    """A cluster at one moment. Never changes: do not write to its columns.

    Shares of processors are thousandths of one processor (1000: one processor all the time), memory and sizes are
    bytes, `elapsed`, `silent` and `report_ages` milliseconds, `lags` and durations of rows microseconds.
    """

    #: counts from 1 in each scheduler
    number: int
    view: ClusterView
    #: workers, a column for each figure: those of the first agent first
    workers: WorkerColumns
    #: the scheduler's process, and the messages that it has sent and received
    scheduler: SchedulerView = field(init=False)
    #: how many rows are where, and how many ended how
    rows: RowCounts = field(init=False)
    #: a column for each figure; the last function may be "other", of client 0, and objects are the largest
    agents: AgentColumns = field(init=False)
    clients: ClientColumns = field(init=False)
    functions: FunctionColumns = field(init=False)
    objects: ObjectColumns = field(init=False)

    def __post_init__(self) -> None:
        for name in ("scheduler", "rows", "agents", "clients", "functions", "objects"):
            object.__setattr__(self, name, getattr(self.view, name))

    def validate(self) -> None:
        """Raise `Malformed` unless each function that a worker runs has a name."""
        functions, at = self.workers.functions, 0
        for count, names in zip(self.agents.worker_counts, self.agents.name_counts, strict=True):
            require(max(functions[at : at + count], default=0) <= names, "a worker runs a function without a name")
            at += count

    @cached_property
    def sent(self) -> dict[str, int]:
        """Messages that the scheduler has sent, by type."""
        return dict(zip(self.scheduler.sent_types, self.scheduler.sent_counts, strict=True))

    @cached_property
    def received(self) -> dict[str, int]:
        """Messages that the scheduler has received, by type."""
        return dict(zip(self.scheduler.received_types, self.scheduler.received_counts, strict=True))

    @cached_property
    def agent_of_worker(self) -> array[int]:
        """Of each worker the index of its agent in `agents`."""
        counts = self.agents.worker_counts
        return u32(chain.from_iterable(repeat(index, count) for index, count in enumerate(counts)))

    @cached_property
    def _first_name(self) -> list[int]:
        """Of each agent the index in `view.worker_names` where its own begin."""
        first, at = [], 0
        for count in self.agents.name_counts:
            first.append(at)
            at += count
        return first

    def worker_id(self, worker: int) -> str:
        """What a worker is called, by its index: agent and slot, "3.12"; the same for as long as its agent lives."""
        return f"{self.agents.numbers[self.agent_of_worker[worker]]}.{self.workers.slots[worker]}"

    def host_of(self, worker: int) -> str:
        """What the host of a worker is called."""
        return self.agents.names[self.agent_of_worker[worker]]

    def function_of(self, worker: int) -> str:
        """The function that a worker runs; empty if it runs none."""
        function = self.workers.functions[worker]
        if not function:
            return ""
        return self.view.worker_names[self._first_name[self.agent_of_worker[worker]] + function - 1]

    def task_of(self, worker: int) -> str:
        """The task that a worker runs, CLIENT:TASK if its client is known, as lists call it; empty if it runs none."""
        function, client = self.function_of(worker), self.workers.clients[worker]
        if not function:
            return ""
        return f"{client}:{self.workers.ids[worker]}" if client else f"{function} ({self.workers.ids[worker]})"

    def is_free(self, worker: int) -> bool:
        """A row could begin there at once."""
        flags = self.workers.flags[worker]
        return bool(flags & WorkerFlag.INITIALISED) and not flags & _NOT_FREE

    def itl_of(self, worker: int) -> str:
        """Initialised, has a task, holds the task lock, as the documents' column shows them: 1 or 0 each."""
        flags = self.workers.flags[worker]
        three = (WorkerFlag.INITIALISED, WorkerFlag.HAS_TASK, WorkerFlag.HOLDS_LOCK)
        return "".join("1" if flags & flag else "0" for flag in three)
