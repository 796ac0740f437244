"""Which store a client writes to and reads from: that of an agent on its host, or the standalone one.

The standalone store is a process beside the scheduler's, without workers; it is started when the first client needs it.
"""

from scaler.protocol.messages import StoreOffers, u32
from scaler.scheduler.core.events import StartStore
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState


def request(state: ClusterState, out: Outgoing, client: ClientRecord, standalone: bool) -> None:
    """A client looks for a store: directories on its own host, or the standalone store."""
    found = state.roots.stores_on_host(client.boot_id)
    client.reads.wants_local = all(agent.is_standalone for agent in found)
    client.reads.uses_standalone = standalone or not found
    if not client.reads.uses_standalone:
        _offer(out, client, sorted(found, key=lambda agent: agent.is_standalone))
        return
    store = state.agents.get(state.standalone.number)
    if store is not None:
        _offer(out, client, [store])
        return
    state.standalone.waiting[client.number] = None
    if not state.standalone.is_started:
        state.standalone.is_started = True
        out.effects.append(StartStore())


def take_agent(state: ClusterState, out: Outgoing, agent: AgentRecord) -> list[ClientRecord]:
    """An agent joined: clients that waited for its store are offered it. Those that may read now what they wanted."""
    if not agent.is_standalone:
        for client in state.clients.values():
            if client.reads.wants_local and agent.host.store and agent.host.boot_id == client.boot_id:
                client.reads.wants_local = False
                _offer(out, client, [agent])
        return []
    state.standalone.number = agent.number
    waiting, state.standalone.waiting = state.standalone.waiting, {}
    served = [state.clients[number] for number in waiting if number in state.clients]
    for client in served:
        _offer(out, client, [agent])
    return served


def lose_agent(state: ClusterState, agent: AgentRecord) -> None:
    """An agent is gone; if it was the standalone store, it is started again when somebody needs it."""
    if agent.number == state.standalone.number:
        state.standalone.number, state.standalone.is_started = 0, False


def _offer(out: Outgoing, client: ClientRecord, agents: list[AgentRecord]) -> None:
    offers = StoreOffers(
        u32([agent.number for agent in agents]),
        tuple(agent.host.store for agent in agents),
        tuple(agent.host.token for agent in agents),
        tuple(agent.host.data for agent in agents),
    )
    for agent in agents:  # it may write there, and be gone before it says so
        out.meet(client, agent)
    out.send(client.number, offers)
