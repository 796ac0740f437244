"""What agents say with each heartbeat: how many workers they have, and whether there is room for objects."""

from scaler.protocol.messages import Heartbeat, HeartbeatEcho
from scaler.scheduler.core import draining, placement, returning, settling
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.cluster import ClusterState


def take(state: ClusterState, out: Outgoing, agent: AgentRecord, message: Heartbeat) -> None:
    """Note what it says, and answer; what it may let go of is told on this occasion."""
    agent.holdings.stored_bytes = message.stored
    placement.learn_bandwidth(state, agent, message.bandwidth)
    is_full = message.full or agent.number in state.returning.late
    if message.workers != agent.load.workers or is_full != agent.load.is_full:
        placement.resize(state, agent, message.workers, is_full)
    if message.leaving:
        draining.take_word(state, out, agent, message.leaving)
    if agent.leftovers:
        returning.release_leftovers(state, agent)
    settled = settling.take_message(agent)
    if settled is not None:
        out.send(agent.number, settled)
    out.send(agent.number, HeartbeatEcho(message.clock, state.workers, state.roster))
