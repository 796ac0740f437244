"""What placement is about to do, found by having it do it on copies: nothing of the cluster's state is changed.

The placement itself is asked, with all its queues, as what it does with one row follows from those before it. Where it
has nothing to give, which is so most of the time a row waits, that costs copies of the sets of agents; else also of
agents, some microseconds for each.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from copy import copy
from dataclasses import fields
from operator import attrgetter

from scaler.scheduler.core import placement
from scaler.scheduler.state import transitions
from scaler.scheduler.state.agent_groups import AgentGroup, Standing
from scaler.scheduler.state.agent_records import AgentRecord, Load
from scaler.scheduler.state.batch_records import Batch
from scaler.scheduler.state.cluster import ClusterState

#: all fields, as their classes take them: `copy` takes three times as long
_OF_AGENT = attrgetter(*[item.name for item in fields(AgentRecord)])
_OF_LOAD = attrgetter(*[item.name for item in fields(Load)])


def agent_for(state: ClusterState, batch: Batch, row: int) -> AgentRecord | None:
    """The agent that a queued row is given at the end of this step, if nothing else happens; None if it waits on."""
    with _copies(state, state.agents) as tried:
        if next(iter(placement.share_out(tried)), None) is None:
            return None
    with _copies(state, {number: _with_own_load(agent) for number, agent in state.agents.items()}) as tried:
        for queue, rows, agent, of in placement.share_out(tried):
            given, lo, hi = transitions.take_next(queue, rows, of)
            agent.load.outstanding += (hi - lo) * given.slots
            if given.is_special:
                transitions.count_special(agent.load, given, hi - lo)
            if given is batch and lo <= row < hi:
                return state.agents[agent.number]
    return None


@contextlib.contextmanager
def _copies(state: ClusterState, agents: dict[int, AgentRecord]) -> Iterator[ClusterState]:
    """`_copied`, taken apart at the end: it refers to itself, and would wait for the collector with what it holds."""
    copied = _copied(state, agents)
    try:
        yield copied
    finally:
        copied.queues.let_go()
        for group in copied.groups.values():
            for one in (group, *group.wider.values()):
                one.standing = Standing()


def _with_own_load(agent: AgentRecord) -> AgentRecord:
    """An agent that can be given rows without anybody's knowledge."""
    made = AgentRecord(*_OF_AGENT(agent))
    load = made.load = Load(*_OF_LOAD(agent.load))
    load.wide, load.by_urgency, load.by_share = load.wide.copy(), load.by_urgency.copy(), load.by_share.copy()
    return made


def _copied(state: ClusterState, agents: dict[int, AgentRecord]) -> ClusterState:
    """As much of the state as placement reads and changes, with these agents; all sorted where they belong."""
    made = copy(state)
    made.agents, made.queues, made.matching = agents, state.queues.copy(), {}
    made.standing = Standing()
    made.groups = {key: _copied_group(group, agents, made.standing) for key, group in state.groups.items()}
    made.standing.roomy = OrderedDict.fromkeys(made.groups[group.capabilities] for group in state.standing.roomy)
    made.unsorted = {agents[agent.number]: None for agent in state.unsorted}
    placement.sort_agents(made)
    return made


def _copied_group(group: AgentGroup, agents: dict[int, AgentRecord], standing: Standing) -> AgentGroup:
    made = copy(group)
    made.standing = standing
    for item in fields(AgentGroup):
        value = getattr(group, item.name)
        if item.name == "wider":
            made.wider = {slots: _copied_group(wider, agents, Standing()) for slots, wider in value.items()}
        elif item.name == "widths":
            made.widths = value.copy()
        elif isinstance(value, OrderedDict):
            setattr(made, item.name, OrderedDict.fromkeys(agents[agent.number] for agent in value))
    return made
