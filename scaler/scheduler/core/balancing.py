"""Rows that agents are asked to give back, since others of the same capabilities have nothing to do."""

from itertools import islice

from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.cluster import ClusterState

#: work that is worth taking back, microseconds a worker
WORTH_US = 2_000
#: what a row is taken to last at an agent that has reported none, microseconds
UNREPORTED_US = 1e6
#: agents that are looked at beyond those wanted, for one idle flavour and step
SPARE_LOOKS = 8


def begin_recalls(state: ClusterState) -> list[tuple[AgentRecord, int]]:
    """Agents to ask for rows, and how many: each once until it has answered."""
    asks: list[tuple[AgentRecord, int]] = []
    for flavour in state.flavours.values():
        if not flavour.idle or not flavour.surplus:
            continue
        wanted = len(flavour.idle)
        for agent in list(islice(flavour.surplus, wanted + SPARE_LOOKS)):
            load = agent.load
            spare = load.outstanding - load.workers
            worth = spare * (load.recent_us or UNREPORTED_US) >= WORTH_US * load.workers
            if load.is_recalling or load.is_unyielding or not worth:
                flavour.surplus[agent] = flavour.surplus.pop(agent)  # others have their turn next time
                continue
            load.is_recalling = True
            asks.append((agent, -(-spare // 2)))
            wanted -= 1
            if wanted <= 0:
                break
    return asks


def end_recall(agent: AgentRecord, gave_back: bool) -> None:
    """An agent has answered, and given back some rows or none."""
    agent.load.is_recalling = False
    agent.load.is_unyielding = not gave_back
