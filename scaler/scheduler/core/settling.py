"""Results that have reached their client with all that followed from them: their agents need not keep them any more.

What an agent says of a client's rows leads to messages to that client in the same step, if to any. When the client has
acknowledged the last of those, the agent's message is settled. All is counted in messages, nothing in rows.
"""

from scaler.protocol.messages import Settled, u32, u64
from scaler.scheduler.state import accounts
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import Batch
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState


def count_results(client: ClientRecord, number: int) -> None:
    """An agent sends results of a client's rows."""
    settling = client.settling
    settling.fresh[number] = settling.results[number] = settling.results.get(number, 0) + 1


def note_sent(state: ClusterState, client: ClientRecord, sent: int) -> None:
    """At the end of the step the client has been sent so many messages."""
    settling = client.settling
    for number, results in settling.fresh.items():
        settling.unsettled.append((sent, number, results))
    settling.fresh.clear()
    acknowledge(state, client, settling.received)


def acknowledge(state: ClusterState, client: ClientRecord, received: int) -> None:
    """The client has received so many messages."""
    settling = client.settling
    settling.received = received
    unsettled = settling.unsettled
    while unsettled and unsettled[0][0] <= received:
        _, number, results = unsettled.popleft()
        agent = state.agents.get(number)
        if agent is not None:
            agent.settled[client.number] = results


def forget_agent(client: ClientRecord, number: int) -> None:
    """An agent is gone; if it comes with this number again it counts anew."""
    client.settling.fresh.pop(number, None)
    client.settling.results.pop(number, None)


def end_batch(state: ClusterState, client: ClientRecord, batch: Batch) -> None:
    """A batch is over; those of a graph are over together, since each may need what another has made."""
    over = [(batch.id, batch.kept_at)] if batch.kept_at else []
    if batch.keeps:
        graph = client.graphs[batch.task.graph]
        graph.known -= 1
        graph.over += over
        accounts.charge(state, client, accounts.OVER * len(over))
        if graph.known:
            return
        del client.graphs[batch.task.graph]
        over = graph.over
        accounts.charge(state, client, -accounts.OVER * len(over))
    for batch_id, kept_at in over:
        for number in kept_at:
            agent = state.agents.get(number)
            if agent is not None:
                agent.over.append((client.number, batch_id))


def take_message(agent: AgentRecord) -> Settled | None:
    """What an agent is to be told; None if there is nothing."""
    if not (agent.settled or agent.over):
        return None
    over, agent.over = agent.over, []
    settled, agent.settled = agent.settled, {}
    return Settled(u32(settled), u64(settled.values()), u32([c for c, _ in over]), u64([b for _, b in over]))
