"""Agents that are about to go, and how far they have come with that."""

from __future__ import annotations

from dataclasses import field

from scaler.common.records import entity, record
from scaler.protocol.codes import Leaving
from scaler.scheduler.state.agent_records import AgentRecord

#: (number of a client, id of an object)
ObjectKey = tuple[int, int]


@record
class Takers:
    """Agents that could take over what those have that are about to go."""

    #: as of the last look, and who has come since; who was asked last is the last; a dict serves as an ordered set
    agents: dict[AgentRecord, None] = field(default_factory=dict)
    #: when they are looked for again, if any is needed, seconds
    next_look: float = 0.0


@entity
class Departure:
    """An agent that is about to go: what only it has is copied to others meanwhile."""

    agent: AgentRecord
    reason: Leaving
    #: what it has that was to be looked at, those to be looked at next last
    to_do: list[ObjectKey] = field(default_factory=list)
    #: what is being copied -> number of the agent that fetches it
    moving: dict[ObjectKey, int] = field(default_factory=dict)
    #: what could not be copied -> numbers of the agents that could not fetch it
    failed: dict[ObjectKey, set[int]] = field(default_factory=dict)
    #: nobody could take over what is next: it is tried again when one has answered or come, and at the next look
    is_stuck: bool = False
    #: when all that it has is looked at again, seconds
    next_look: float = 0.0
    #: objects that only it has, as of the last look
    left: int = 0
    #: the log says that it stays because of them
    has_said: bool = False
    #: it was told that nothing is left for it to do
    is_over: bool = False
