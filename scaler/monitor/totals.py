"""What follows from all workers of a snapshot together: their load, and how many of them do what."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from scaler.monitor.snapshot import Snapshot
from scaler.protocol.codes import WorkerFlag

#: what a worker does, the first that holds of its flags
STATES = ("ending", "stopped", "suspended", "busy", "free", "starting")


@lru_cache(maxsize=256)
def state_of(flags: int) -> str:
    """What a worker with these flags does.

    >>> state_of(WorkerFlag.INITIALISED | WorkerFlag.HAS_TASK), state_of(0)
    ('busy', 'starting')
    """
    if flags & WorkerFlag.ENDING:
        return "ending"
    if flags & WorkerFlag.STOPPED:
        return "stopped"
    if flags & WorkerFlag.SUSPENDED:
        return "suspended"
    if flags & WorkerFlag.HAS_TASK:
        return "busy"
    return "free" if flags & WorkerFlag.INITIALISED else "starting"


#: of each value of flags whether its worker is busy: 1 or 0
_IS_BUSY = bytes(state_of(flags) == "busy" for flags in range(256))


@dataclass(frozen=True)
class AgentTotals:
    """An agent's process and its workers together."""

    #: thousandths of a processor, and bytes
    cpu: int
    memory: int
    #: workers that have a row
    busy: int


@dataclass(frozen=True)
class Totals:
    """All workers of a snapshot."""

    #: how many do what
    states: dict[str, int]
    #: thousandths of a processor, and bytes
    cpu: int
    memory: int
    #: in the order of `snapshot.agents`
    agents: tuple[AgentTotals, ...]

    @property
    def workers(self) -> int:
        """How many there are."""
        return sum(self.states.values())

    @property
    def occupancy(self) -> float:
        """Which share of them is busy, from 0 to 1."""
        return self.states["busy"] / self.workers if self.workers else 0.0


def totals_of(snapshot: Snapshot) -> Totals:
    """Adds up a snapshot; takes a few milliseconds for 64,000 workers."""
    workers, agents = snapshot.workers, snapshot.agents
    states = dict.fromkeys(STATES, 0)
    for flags, count in Counter(workers.flags).items():
        states[state_of(flags)] += count
    marks = workers.flags.tobytes().translate(_IS_BUSY)
    of_agents, first = [], 0
    for index, count in enumerate(agents.worker_counts):
        end = first + count
        busy = sum(marks[first:end])
        cpu, memory = sum(workers.cpus[first:end]), sum(workers.memory[first:end])
        of_agents.append(AgentTotals(agents.cpus[index] + cpu, agents.memory[index] + memory, busy))
        first = end
    return Totals(states, sum(workers.cpus), sum(workers.memory), tuple(of_agents))
