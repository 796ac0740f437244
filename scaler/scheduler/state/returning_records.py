"""Clients and agents that come from a scheduler that is gone, until their work is put together again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from scaler.protocol.messages import Message


@dataclass(slots=True, eq=False, repr=False)
class ReturningClient:
    """A client that says again what it said to another scheduler: nothing of it is done until all is known."""

    #: numbers of the agents that may have something of it and have not said what
    expected: set[int]
    #: when those are waited for no longer, seconds
    deadline: float
    #: numbers of all agents that it has named
    named: set[int] = field(default_factory=set)
    #: what it has said, in order
    messages: list[Message] = field(default_factory=list)
    #: it has said all that it said to the last scheduler
    has_repeated: bool = False


class Holding(NamedTuple):
    """What an agent brought of a client."""

    #: the client's
    session: int
    #: (batch, lo, hi)
    rows: list[tuple[int, int, int]]
    #: (id, bytes; 0 for what travels inside messages)
    objects: list[tuple[int, int]]


@dataclass(slots=True, eq=False, repr=False)
class ReturningPeers:
    """All that came from another scheduler and is not settled."""

    clients: dict[int, ReturningClient] = field(default_factory=dict)
    #: numbers of the agents that have not said yet what they have
    agents: set[int] = field(default_factory=set)
    #: number of a client -> number of an agent -> what that has of it
    holdings: dict[int, dict[int, Holding]] = field(default_factory=dict)
    #: clients of which agents have something and that did not come yet -> when they are given up, seconds
    absent: dict[int, float] = field(default_factory=dict)
    #: root that did not come yet -> when it is given up, seconds
    roots: dict[int, float] = field(default_factory=dict)
    #: number of an agent that came too late -> (client, batch) -> rows [lo, hi) that it had, is to end, and has not
    #: told of, ascending
    late: dict[int, dict[tuple[int, int], list[tuple[int, int]]]] = field(default_factory=dict)
    #: number of a client -> what agents said since of it, in order, with their numbers
    mail: dict[int, list[tuple[int, Message]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.clients or self.agents or self.absent)

    @property
    def next_deadline(self) -> float | None:
        """When somebody is waited for no longer, seconds; None if nobody is waited for."""
        deadlines = [client.deadline for client in self.clients.values() if client.expected]
        deadlines += [*self.absent.values(), *self.roots.values()]
        return min(deadlines, default=None)
