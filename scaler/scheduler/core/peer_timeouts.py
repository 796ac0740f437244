"""Who has been silent for too long, and what is tidied up while looking."""

from collections.abc import Iterator, Mapping

from scaler.scheduler.core import placement, reachability
from scaler.scheduler.core.outgoing import RELEASE_BYTES
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.monitor_records import MonitorRecord

#: seconds by which a look may be late before this process must have been stopped meanwhile
STOPPED = 1.0


def forgive(state: ClusterState, late: float) -> None:
    """The look at the time comes late: a process that was stopped can't tell who was silent meanwhile."""
    if late > STOPPED:
        for returning in state.returning.clients.values():
            returning.heard += late
        for client in state.clients.values():
            client.seen += late
            if client.unread is not None:
                client.unread.since += late
        for agent in state.agents.values():
            agent.seen += late
        for monitor in state.monitors.values():
            monitor.seen += late


def stir(state: ClusterState, number: int) -> None:
    """A part of a message has come of a peer: on a narrow way a large one takes longer than the time-out."""
    peer = state.clients.get(number) or state.agents.get(number) or state.monitors.get(number)
    if peer is not None:
        peer.seen = state.now
    if number in state.returning.clients:
        state.returning.clients[number].stir(state.now)


def tidy(state: ClusterState) -> None:
    """What could not be reached a while ago is tried again, objects to be released are told to their agents, and what
    was kept for rows that are gone is let go.
    """
    placement.forget_unasked(state)
    for agent in state.agents.values():
        if agent.unreachable:
            reachability.forget_unreachable(state, agent)
        if agent.holdings.released:
            agent.holdings.released_bytes = RELEASE_BYTES + 1
            state.touched.setdefault(agent)


def silent(state: ClusterState, client_timeout: float, agent_timeout: float) -> Iterator[tuple[int, str]]:
    """The peers from whom nothing was heard for their time-out in seconds, and the words for that."""
    peers: tuple[tuple[Mapping[int, ClientRecord | AgentRecord | MonitorRecord], float], ...] = (
        (state.clients, client_timeout),
        (state.agents, agent_timeout),
        (state.monitors, agent_timeout),
    )
    for members, timeout in peers:
        for number in [n for n, peer in members.items() if state.now - peer.seen > timeout]:
            yield number, f"silent for {timeout:g} s"
