"""Roots: clients that others submit tasks for, since those others are in tasks of theirs. See `core/roots.py`."""

import math
from dataclasses import field
from enum import IntEnum

from scaler.common.records import entity, record
from scaler.protocol.codes import NO_ROOT
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import Batch
from scaler.scheduler.state.client_records import ClientRecord

#: roots that are waited for, though nothing that is submitted for them is to run
MOST_AWAITED = 10_000


class Fate(IntEnum):
    """What is known of a root that is not here."""

    #: it has left: what is submitted for it is cancelled
    LEFT = 1
    #: it was waited for and did not come: the same for who is in a worker here
    GIVEN_UP = 2
    #: it is one of another cluster: who submits for it is the root itself
    FOREIGN = 3


@entity
class AwaitedRoot:
    """A root that somebody submits for and that is not here: it may come yet."""

    #: when it is given up, seconds
    deadline: float
    #: it is none of another cluster: it was here, or an agent has something of it
    is_ours: bool = False
    #: how often it was given more time
    times: int = 0
    #: numbers of clients that have named it from workers of agents that were not here
    strangers: dict[int, None] = field(default_factory=dict)


@record
class Roots:
    """What is known of roots: one may be away, or, after a restart, of another cluster."""

    #: root -> numbers of the clients that are here; several, if they have one session
    here: dict[int, dict[int, None]] = field(default_factory=dict)
    #: root -> number of another client -> what that has submitted for it and has not ended; dicts as ordered sets
    batches: dict[int, dict[int, dict[Batch, None]]] = field(default_factory=dict)
    #: share -> how many batches it has whose rows have not all ended; no zeros
    at_work: dict[int, int] = field(default_factory=dict)
    #: those that may come yet, by deadline, ascending
    awaited: dict[int, AwaitedRoot] = field(default_factory=dict)
    #: the last ones of those that don't come any more, in order
    past: dict[int, Fate] = field(default_factory=dict)
    #: boot id -> directory of a store -> the agents that are here and have theirs there; a dict as an ordered set
    stores: dict[str, dict[str, dict[AgentRecord, None]]] = field(default_factory=dict)

    @property
    def first_deadline(self) -> float:
        """When the first one is given up that may come yet, seconds; infinite if none may."""
        return next((root.deadline for root in self.awaited.values()), math.inf)

    # ---- batches -----------------------------------------------------------------------------------------------------
    def have_others(self, share: int) -> bool:
        """Others than this share have rows that have not ended."""
        return len(self.at_work) > (share in self.at_work)

    def enter(self, client: ClientRecord, batch: Batch) -> None:
        """Rows of a batch are to run."""
        self.at_work[batch.share] = self.at_work.get(batch.share, 0) + 1
        root = batch.task.root
        if root in (client.root, NO_ROOT):
            return
        if self.past.get(root) == Fate.FOREIGN:  # known since its rows have ended, which run again
            batch.task.root = client.root
            return
        self.batches.setdefault(root, {}).setdefault(client.number, {})[batch] = None

    def end(self, client: ClientRecord, batch: Batch) -> None:
        """All rows of a batch have ended, or are forgotten."""
        if self.at_work[batch.share] == 1:
            del self.at_work[batch.share]
        else:
            self.at_work[batch.share] -= 1
        self.disown(client, batch)

    def disown(self, client: ClientRecord, batch: Batch) -> None:
        """A batch is over, or from now on its client's own."""
        root = batch.task.root
        if root in (client.root, NO_ROOT):
            return
        by_client = self.batches[root]
        batches = by_client[client.number]
        del batches[batch]
        if not batches:
            del by_client[client.number]
            if not by_client:
                del self.batches[root]
                if len(self.awaited) > MOST_AWAITED:  # else more may be submitted for it, by what has just ended
                    self.awaited.pop(root, None)

    # ---- agents ------------------------------------------------------------------------------------------------------
    def add_store(self, agent: AgentRecord) -> None:
        """An agent is here; without a store it tells of nobody that he is in a worker of its own."""
        host = agent.host
        if host.store:
            self.stores.setdefault(host.boot_id, {}).setdefault(host.store, {})[agent] = None

    def remove_store(self, agent: AgentRecord) -> None:
        """An agent is gone."""
        host = agent.host
        if not host.store:
            return
        here = self.stores[host.boot_id]
        del here[host.store][agent]
        if not here[host.store]:
            del here[host.store]
        if not here:
            del self.stores[host.boot_id]

    def stores_on_host(self, boot_id: str) -> list[AgentRecord]:
        """The agents with a store on this host."""
        return [agent for agents in self.stores.get(boot_id, {}).values() for agent in agents]

    def has_agent_of(self, client: ClientRecord) -> bool:
        """A client is in a worker of an agent that is here."""
        return client.store in self.stores.get(client.boot_id, ())
