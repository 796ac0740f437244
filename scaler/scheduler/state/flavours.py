"""Agents of the same capabilities, sorted by how much they can take; dicts serve as ordered sets."""

from __future__ import annotations

from dataclasses import dataclass, field

from scaler.scheduler.state.agent_records import AgentRecord


@dataclass(slots=True, eq=False, repr=False)
class Flavour:
    """The agents with these capabilities. An agent without room for more objects is in none of the sets."""

    capabilities: frozenset[str]
    #: fewer rows than workers
    idle: dict[AgentRecord, None] = field(default_factory=dict)
    #: fewer than two rows a worker
    shallow: dict[AgentRecord, None] = field(default_factory=dict)
    #: at least half of its window is free
    open: dict[AgentRecord, None] = field(default_factory=dict)
    #: rows that none of its workers runs yet
    surplus: dict[AgentRecord, None] = field(default_factory=dict)

    def sort(self, agent: AgentRecord) -> None:
        """Put an agent into the sets where it belongs now."""
        load = agent.load
        outstanding, workers = load.outstanding, load.workers
        if load.is_full:
            self.remove(agent)
            return
        if outstanding < workers:
            self.idle.setdefault(agent)
        else:
            self.idle.pop(agent, None)
        if outstanding < 2 * workers:
            self.shallow.setdefault(agent)
        else:
            self.shallow.pop(agent, None)
        if outstanding <= load.window // 2:
            self.open.setdefault(agent)
        else:
            self.open.pop(agent, None)
        if outstanding > workers:
            self.surplus.setdefault(agent)
        else:
            self.surplus.pop(agent, None)

    def remove(self, agent: AgentRecord) -> None:
        """Forget an agent."""
        for members in (self.idle, self.shallow, self.open, self.surplus):
            members.pop(agent, None)
