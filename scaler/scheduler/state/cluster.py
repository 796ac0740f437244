"""The root of the scheduler's state: who is there, what is queued, what happened in the step that is under way."""

from __future__ import annotations

from dataclasses import field

from scaler.common.facts import Facts
from scaler.common.records import entity, record
from scaler.scheduler.state.agent_groups import AgentGroup, Standing
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import Batch, Demand
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster_facts import Fact
from scaler.scheduler.state.departures import Departure, Takers
from scaler.scheduler.state.fleet_records import FleetRecord
from scaler.scheduler.state.monitor_records import MonitorRecord, Watching
from scaler.scheduler.state.ready_queues import ReadyQueues
from scaler.scheduler.state.returning_records import ReturningPeers
from scaler.scheduler.state.root_records import Roots


@record
class StandaloneStore:
    """The store of a process beside the scheduler's, for clients that share memory with no agent."""

    #: number of the agent that it is; 0 while it has not joined
    number: int = 0
    #: it was started, or is about to be
    is_started: bool = False
    #: numbers of the clients that wait for it; a dict serves as an ordered set
    waiting: dict[int, None] = field(default_factory=dict)


@record
class EndedRows:
    """How many rows ended how."""

    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    claimed: int = 0
    #: named in a cancellation though they had ended, or never were; of all clients
    not_found: int = 0
    #: that had to run again: lost with their worker or host, or retried after an error; of all clients
    lost: int = 0
    retried: int = 0


#: what moving objects between hosts is taken to manage before any was moved, bytes a second
BANDWIDTH = 500e6


@entity
class ClusterState:
    """All that the scheduler knows."""

    #: time of the step that is under way, seconds
    now: float = 0.0
    clients: dict[int, ClientRecord] = field(default_factory=dict)
    agents: dict[int, AgentRecord] = field(default_factory=dict)
    monitors: dict[int, MonitorRecord] = field(default_factory=dict)
    #: rows that are ready and have no agent
    queues: ReadyQueues = field(default_factory=ReadyQueues)
    #: agents that are to be sent something at the end of this step; a dict serves as an ordered set
    touched: dict[AgentRecord, None] = field(default_factory=dict)
    #: agents whose load has changed since they were sorted into their group's sets; a dict serves as an ordered set
    unsorted: dict[AgentRecord, None] = field(default_factory=dict)
    #: of all batches that were ever admitted; nothing is more urgent than anything else unless it is above this
    lowest_urgency: int = 2**47
    #: bytes of memory that are kept here for all clients, but for residents; see `accounts.py`
    kept: int = 0
    #: rows may be handed out: this is the scheduler that leads, and hears the agents that count
    hands_out: bool = True
    #: why it may not, in words
    why_not: str = ""
    #: how many agents count, of a pair of schedulers; 0: it is none
    roster: int = 0
    #: of all agents; a sum would cost a look at each of them for each heartbeat
    workers: int = 0
    #: between hosts, bytes a second, an average that follows what agents say
    bandwidth: float = BANDWIDTH
    #: number of an agent that is about to go -> how far it has come with that
    leaving: dict[int, Departure] = field(default_factory=dict)
    #: who takes over what they have
    takers: Takers = field(default_factory=Takers)
    #: numbers of the agents that have a walltime
    limited: set[int] = field(default_factory=set)
    #: (number of a monitor, name of a provider) -> what it told last of the hosts that it asks for
    fleets: dict[tuple[int, str], FleetRecord] = field(default_factory=dict)
    standalone: StandaloneStore = field(default_factory=StandaloneStore)
    #: agents by their capabilities; written by placement alone
    groups: dict[frozenset[str], AgentGroup] = field(default_factory=dict)
    #: which of these have room, and which have rows to give back
    standing: Standing = field(default_factory=Standing)
    #: what rows ask for -> the groups that have it, as far as asked for since a group was added
    matching: dict[Demand, list[AgentGroup]] = field(default_factory=dict)
    #: steps in which agents of some capabilities idled while others had rows: whose turn it is to be looked at for them
    recall_turn: int = 0
    #: which of the groups for some rows are looked at next for one that has none of these rows' root
    group_turn: int = 0
    #: when to look next for agents that have more rows than they should, seconds
    excess_due: float = 0.0
    #: of another scheduler's, as long as their work is not put together
    returning: ReturningPeers = field(default_factory=ReturningPeers)
    roots: Roots = field(default_factory=Roots)
    #: of clients that are gone
    ended: EndedRows = field(default_factory=EndedRows)
    watching: Watching = field(default_factory=Watching)
    #: what is told of changes, to whoever subscribed
    facts: Facts[Fact] = field(default_factory=Facts)

    def batch_of(self, client: int, batch: int) -> Batch | None:
        """A batch that is known, with rows that have not ended or remembered; None if there is none."""
        record = self.clients.get(client)
        if record is None:
            return None
        return record.batches.get(batch) or record.remembered.get(batch)
