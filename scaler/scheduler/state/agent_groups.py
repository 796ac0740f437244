"""Agents of the same capabilities, sorted by how much they can take; ordered dicts serve as sets with turns.

The first is taken out and comes back as the last. A plain dict passes all that were taken out to find its first one:
with 10,000 idle agents that costs a task 6 to 12 microseconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from dataclasses import field
from typing import TypeVar

from scaler.common.records import entity
from scaler.scheduler.state.agent_records import AgentRecord, Purpose

T = TypeVar("T")

#: busy agents that are looked at in a step to find one whose rows are less urgent than those that are queued
LOOKS = 8
#: those whose turn is next come first
AgentSet = OrderedDict[AgentRecord, None]


def _toggle(members: OrderedDict[T, None], member: T) -> None:
    """Take it out if it is there, or put it in as the last."""
    if member in members:
        del members[member]
    else:
        members[member] = None


@entity
class Standing:
    """Where among all groups something is to be had: there may be one for each host."""

    #: those with idle agents
    idle: OrderedDict[AgentGroup, None] = field(default_factory=OrderedDict)
    #: those with shallow or open agents, and so all with idle ones
    roomy: OrderedDict[AgentGroup, None] = field(default_factory=OrderedDict)
    #: those with surplus
    rich: OrderedDict[AgentGroup, None] = field(default_factory=OrderedDict)


@entity
class AgentGroup:
    """The agents with these capabilities. An agent without room for more objects is in none of the sets."""

    capabilities: frozenset[str]
    #: it is kept where it belongs in this; a wider one is for its own
    standing: Standing = field(default_factory=Standing)
    #: its agents have so many slots at least: it is for rows that take so many
    slots: int = 1
    #: how many agents it has
    agents: int = 0
    #: free slots for one of its rows
    idle: AgentSet = field(default_factory=OrderedDict)
    #: fewer than two rows a worker
    shallow: AgentSet = field(default_factory=OrderedDict)
    #: at least half of its window is free
    open: AgentSet = field(default_factory=OrderedDict)
    #: more outstanding than workers
    busy: AgentSet = field(default_factory=OrderedDict)
    #: rows that none of its workers runs yet, perhaps of those that this group is for
    surplus: AgentSet = field(default_factory=OrderedDict)
    #: slots -> how many of its agents have just as many; no zeros, and nothing in a wider one
    widths: dict[int, int] = field(default_factory=dict)
    #: for rows that take several slots, by how many, ascending: those of its agents that have as many, one at least;
    #: made when such rows come, and let go some time after the last ones
    wider: dict[int, AgentGroup] = field(default_factory=dict)

    @property
    def purpose(self) -> Purpose:
        """What rows are taken back for, if they are for its agents."""
        return self.slots, self.capabilities

    @property
    def widest(self) -> int:
        """Slots that one of its agents has, at most."""
        return max(self.widths, default=0)

    def wider_for(self, slots: int) -> AgentGroup | None:
        """Those of its agents that have so many slots, for rows that take as many; None if none has."""
        wider = self.wider.get(slots)
        if wider is None and slots <= self.widest:
            agents = sum(agents for width, agents in self.widths.items() if width >= slots)
            wider = AgentGroup(self.capabilities, slots=slots, agents=agents)
            for agent in (*self.idle, *self.busy):  # others have no room, and are sorted when they have
                if agent.load.slots >= slots:
                    wider.sort(agent)
            self.wider = dict(sorted([*self.wider.items(), (slots, wider)]))
        return wider

    def forget_wider(self, needed: Container[int]) -> None:
        """Let go of the wider groups but for rows that take so many slots."""
        for width in [width for width in self.wider if width not in needed]:
            self.wider.pop(width).standing = Standing()  # it refers to the group, which would wait for the collector

    def add(self, agent: AgentRecord) -> None:
        """An agent with these capabilities is there."""
        self.agents += 1
        slots = agent.load.slots
        self.widths[slots] = self.widths.get(slots, 0) + 1
        for width, group in self.wider.items():
            group.agents += width <= slots
        self.sort(agent)

    def sort(self, agent: AgentRecord) -> None:
        """Put an agent into the sets where it belongs now."""
        load = agent.load
        if load.is_full or load.is_leaving:
            self.remove(agent)
            return
        outstanding, workers, slots = load.outstanding, load.workers, self.slots
        if outstanding + slots <= workers:
            if agent not in self.idle:
                self.idle[agent] = None
                self.busy.pop(agent, None)
        elif agent not in self.busy:
            self.busy[agent] = None
            self.idle.pop(agent, None)
        # written out, as it is done for each result; `pop` of what isn't there takes an ordered dict four times as long
        if (agent in self.shallow) != (outstanding < 2 * workers):
            _toggle(self.shallow, agent)
        if (agent in self.open) != (outstanding <= load.window // 2):
            _toggle(self.open, agent)
        if (agent in self.surplus) != (outstanding > workers and (slots == 1 or slots in load.wide)):
            _toggle(self.surplus, agent)
        self._stand()
        if self.wider:
            for width, group in self.wider.items():
                if width > load.slots:
                    break
                group.sort(agent)

    def _stand(self) -> None:
        standing = self.standing
        if bool(self.idle) != (self in standing.idle):
            _toggle(standing.idle, self)
        if bool(self.shallow or self.open) != (self in standing.roomy):
            _toggle(standing.roomy, self)
        if bool(self.surplus) != (self in standing.rich):
            _toggle(standing.rich, self)

    def remove(self, agent: AgentRecord) -> None:
        """Take an agent out of all sets."""
        self.idle.pop(agent, None)
        self.shallow.pop(agent, None)
        self.open.pop(agent, None)
        self.busy.pop(agent, None)
        self.surplus.pop(agent, None)
        self._stand()
        if self.wider:
            for width, group in self.wider.items():
                if width > agent.load.slots:
                    break
                group.remove(agent)

    def rotate(self, agent: AgentRecord) -> None:
        """Sort an agent that was given rows: others have their turn before it."""
        self.sort(agent)
        if self.agents > 1:
            self._put_last(agent)

    def _put_last(self, agent: AgentRecord) -> None:
        for members in (self.idle, self.shallow, self.open, self.busy, self.surplus):
            if agent in members:
                members.move_to_end(agent)
        for width, group in self.wider.items():
            if width > agent.load.slots:
                break
            group._put_last(agent)

    def forget(self, agent: AgentRecord) -> None:
        """An agent is gone, and with it wider groups that it was the last one of."""
        self.agents -= 1
        self.remove(agent)
        slots = agent.load.slots
        self.widths[slots] -= 1
        if not self.widths[slots]:
            del self.widths[slots]
        for width, group in list(self.wider.items()):
            group.agents -= width <= slots
            if not group.agents:
                del self.wider[width]
