"""Rows that agents are asked to give back, since others of the same capabilities have nothing to do.

They are asked for rows that take as many slots as those others have free, since only such are of use there.
"""

from itertools import islice

from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.flavours import Flavour

#: work that is worth taking back, microseconds a worker
WORTH_US = 2_000
#: what a row is taken to last at an agent that has reported none, microseconds
UNREPORTED_US = 1e6
#: agents that are looked at beyond those wanted, for one idle flavour and step
SPARE_LOOKS = 8


def begin_recalls(state: ClusterState) -> list[tuple[AgentRecord, int, int]]:
    """Agents to ask for rows, how many, and how many slots each is to take: each agent once until it has answered."""
    asks: list[tuple[AgentRecord, int, int]] = []
    for flavour in state.flavours.values():
        if not flavour.idle:
            continue  # nor is any of the wider ones
        if flavour.surplus:
            _begin(flavour, asks)
        if flavour.wider:
            for wider in flavour.wider.values():
                if wider.idle and wider.surplus:
                    _begin(wider, asks)
    return asks


def _begin(flavour: Flavour, asks: list[tuple[AgentRecord, int, int]]) -> None:
    wanted, slots = len(flavour.idle), flavour.slots
    for agent in list(islice(flavour.surplus, wanted + SPARE_LOOKS)):
        load = agent.load
        spare = load.outstanding - load.workers
        worth = spare * (load.recent_us or UNREPORTED_US) >= WORTH_US * load.workers
        if load.recalling or slots in load.unyielding or not worth:
            flavour.surplus[agent] = flavour.surplus.pop(agent)  # others have their turn next time
            continue
        load.recalling = slots
        asks.append((agent, -(-spare // (2 * slots)), slots))
        wanted -= 1
        if wanted <= 0:
            break


def end_recall(agent: AgentRecord, gave_back: bool) -> None:
    """An agent has answered, and given back some rows or none."""
    load = agent.load
    if load.recalling and not gave_back:
        load.unyielding.add(load.recalling)
    load.recalling = 0
