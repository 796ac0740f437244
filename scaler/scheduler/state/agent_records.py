"""An agent at the scheduler: its host and its walltime, how busy it is, what it has, and what it was asked."""

from __future__ import annotations

import math
from dataclasses import field
from typing import NamedTuple

from scaler.common.records import entity, record
from scaler.protocol.messages import HostReport
from scaler.scheduler.state.asked_rows import AskedRows
from scaler.scheduler.state.batch_records import Batch

#: seconds of walltime that are left when a row whose duration is not known may be given to an agent, at least
LEAST_LEFT = 2.0
#: the number of the agent in the scheduler's own process; it ends with its scheduler, and so keeps nothing for another
LOCAL_AGENT = 1
#: rows of an agent may have so many urgencies, and it still gets more, beyond its window, for being more urgent: they
#: are counted each time, and who submits each task with a higher one than the last would have no window at all
MOST_URGENCIES = 32
#: what rows are taken back for: agents with so many free slots, and with these capabilities
Purpose = tuple[int, frozenset[str]]


class Host(NamedTuple):
    """Where an agent runs, and how others get at its store."""

    #: the same for all processes of one machine since it was started
    boot_id: str
    #: the directory of its store; empty: it has none that others can use
    store: str
    #: proof of being on that host, to be found in the directory
    token: str
    #: the address at which other hosts fetch objects
    data: str
    #: of the agent's process
    pid: int = 0

    @property
    def whereabouts(self) -> str:
        """Where its process listens for as long as it lives, for a scheduler that comes after; empty if it does not."""
        return f"{self.data} {self.boot_id}" if self.data else ""


@record
class Load:
    """How busy an agent is. `outstanding`, `wide`, `by_urgency`, `by_share` are written by `transitions.py` alone."""

    #: including those for workers whose tasks wait for other tasks
    workers: int
    #: slots of the host: workers at work, which is what a row can have at most; never changes
    slots: int = 0
    #: slots that the rows take that were sent to it and have not come back: one for most rows
    outstanding: int = 0
    #: how many such rows there are that take more than one slot, by how many they take; no zeros
    wide: dict[int, int] = field(default_factory=dict)
    #: slots that the rows take among them that have another urgency than 0, by that; no zeros
    by_urgency: dict[int, int] = field(default_factory=dict)
    #: slots that the rows take of batches that came while others had work, by their share; no zeros
    by_share: dict[int, int] = field(default_factory=dict)
    #: slots it may have outstanding, by what its last results took
    window: int = 0
    #: what its rows took lately, microseconds; None before the first result
    recent_us: float | None = None
    #: since when nothing has come of the rows that it has, seconds: they take so long at least
    quiet_since: float = 0.0
    #: it has no room for more objects: it gets no new work
    is_full: bool = False
    #: it is about to go: it gets no new work
    is_leaving: bool = False
    #: since when it has no rows, if it has none, seconds
    idle_since: float = 0.0
    #: a BalanceRequest is under way, for this; None: none is
    recalling: Purpose | None = None
    #: for these it had no rows to give back when it was last asked or looked at, and was given no rows since
    exhausted: set[Purpose] = field(default_factory=set)

    @property
    def rows(self) -> int:
        """Rows sent to it that have not come back."""
        return self.outstanding - sum((slots - 1) * rows for slots, rows in self.wide.items())

    def as_urgent(self, urgency: int) -> int:
        """Slots of its rows that are at least as urgent as this; of all, if there are too many."""
        if len(self.by_urgency) > MOST_URGENCIES:
            return self.outstanding
        if urgency > 0:
            return sum(slots for other, slots in self.by_urgency.items() if other >= urgency)
        return self.outstanding - sum(slots for other, slots in self.by_urgency.items() if other < urgency)


@record
class Holdings:
    """What an agent has of objects."""

    #: (client, id) of the objects that it was given or has stored
    keys: set[tuple[int, int]] = field(default_factory=set)
    #: objects to be released, told with the next tasks or at the next look at the time
    released: list[tuple[int, int]] = field(default_factory=list)
    #: and their size together
    released_bytes: int = 0
    #: bytes that its store has, as last heard
    stored_bytes: int = 0
    #: bytes a second by which objects came to it from other hosts, as last heard
    bandwidth: float = 0.0


@entity
class AgentRecord:
    """A host's agent as the scheduler sees it."""

    number: int
    name: str
    capabilities: frozenset[str]
    host: Host
    #: it is the standalone store: no workers, for clients that share memory with no other agent
    is_standalone: bool
    #: time of its last message, seconds
    seen: float
    load: Load
    holdings: Holdings = field(default_factory=Holdings)
    #: batches with rows at it; a dict serves as an ordered set; written by `transitions.py` alone
    batches: dict[Batch, None] = field(default_factory=dict)
    #: spans given to it in this step, to be sent at its end; filled by `transitions.py`
    unsent: dict[Batch, list[tuple[int, int]]] = field(default_factory=dict)
    #: by client, none empty: what one has asked for is no matter of the others'
    withdrawals: dict[int, AskedRows] = field(default_factory=dict)
    #: numbers of the clients that it may have something of, or has told of; a dict serves as an ordered set
    clients: dict[int, None] = field(default_factory=dict)
    #: number of a client -> how many messages of results have reached it; to be told to the agent
    settled: dict[int, int] = field(default_factory=dict)
    #: (client, batch) of batches that are over, to be told to it
    over: list[tuple[int, int]] = field(default_factory=list)
    #: number of a client -> (id, bytes) of what it has since another scheduler, and only rows may need that it has, too
    leftovers: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    #: agents whose data addresses it was told
    introduced: set[int] = field(default_factory=set)
    #: what it told of its host last, while somebody watches, and when, seconds
    report: HostReport | None = None
    reported: float = 0.0
    #: what its batch system calls the job that it runs in; empty for none
    job: str = ""
    #: when its batch system ends it, seconds; infinite: it does not
    ends: float = math.inf
    #: number of an agent that it could not fetch objects from -> when, seconds
    unreachable: dict[int, float] = field(default_factory=dict)

    def has_time_for(self, duration_us: float | None, now: float) -> bool:
        """A row that takes so long, None if that is not known, can end before the agent does."""
        return self.ends - now >= (LEAST_LEFT if duration_us is None else duration_us / 1e6)

    def end_withdrawals(self, client: int, batch: int) -> None:
        """All rows of a batch have ended: none of them is asked for any more."""
        asked = self.withdrawals.get(client)
        if asked is not None:
            asked.end_batch(batch)
            if not asked:
                del self.withdrawals[client]
