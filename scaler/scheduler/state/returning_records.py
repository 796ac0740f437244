"""Clients and agents that come from a scheduler that is gone, until their work is put together again."""

import math
from collections.abc import Collection
from dataclasses import field
from typing import NamedTuple

from scaler.common.records import entity
from scaler.protocol.messages import Message

#: clients or agents that are named in one line, at most
NAMED = 5


@entity
class ReturningClient:
    """A client that says again what it said to another scheduler: nothing of it is done until all is known."""

    #: numbers of the agents that may have something of it and have not said what
    expected: set[int]
    #: when those are waited for no longer, seconds
    deadline: float
    #: when the log says so, seconds; infinite once it has
    told: float = math.inf
    #: the agents that it has named, by number, and where each has listened
    named: dict[int, str] = field(default_factory=dict)
    #: when it is looked whether those that have not come still listen there, seconds
    look: float = math.inf
    #: when something of what it says again has come last, seconds; infinite: nobody asks how long it takes
    heard: float = math.inf
    #: what it has said, in order, and bytes that are on its account for that
    messages: list[Message] = field(default_factory=list)
    kept: int = 0
    #: it has said all that it said to the last scheduler
    has_repeated: bool = False

    def stir(self, now: float) -> None:
        """Something of what it says again has come."""
        self.heard = max(self.heard, now)


class Holding(NamedTuple):
    """What an agent brought of a client."""

    #: the client's
    session: int
    #: (batch, lo, hi)
    rows: list[tuple[int, int, int]]
    #: (id, bytes; 0 for what travels inside messages)
    objects: list[tuple[int, int]]


@entity
class ReturningPeers:
    """All that came from another scheduler and is not settled."""

    clients: dict[int, ReturningClient] = field(default_factory=dict)
    #: numbers of the agents that have not said yet what they have
    agents: set[int] = field(default_factory=set)
    #: number of a client -> number of an agent -> what that has of it
    holdings: dict[int, dict[int, Holding]] = field(default_factory=dict)
    #: clients of which agents have something and that did not come yet -> when they are given up, seconds
    absent: dict[int, float] = field(default_factory=dict)
    #: when all agents are here that come from another scheduler, seconds; infinite before anybody has come
    settled: float = math.inf
    #: until when those may come that look for a scheduler since the first who came back does, seconds
    coming_until: float = -math.inf
    #: how many the cluster had at the last scheduler, as clients say
    workers: int = 0
    #: durable jobs can't come yet, and any client that did not may be one of them
    residents_due: bool = False
    #: number of an agent that came too late -> (client, batch) -> rows [lo, hi) that it had, is to end, and has not
    #: told of, ascending
    late: dict[int, dict[tuple[int, int], list[tuple[int, int]]]] = field(default_factory=dict)
    #: number of a client -> what agents said since of it, in order, with their numbers
    mail: dict[int, list[tuple[int, Message]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.clients or self.agents or self.absent)

    def may_have_more(self, agent: int) -> bool:
        """An agent has something of clients whose work is not together yet, or has not said what it has."""
        return agent in self.agents or any(agent in held for held in self.holdings.values())

    def words(self, now: float, client: int = 0) -> str:
        """Who is waited for, and for how long, of one client or of all; empty: nobody is."""
        clients = {n: each for n, each in self.clients.items() if client in (0, n)}
        waiting = {n: each for n, each in clients.items() if each.expected}
        if waiting:
            agents = set[int]().union(*(each.expected for each in waiting.values()))
            left = max(each.deadline for each in waiting.values()) - now
            whose, whom = _named("client", waiting), _named("agent", agents)
            return f"work of {whose} waits for {whom}, which may have some of it: {left:.0f} s more at most"
        if clients:
            return f"{_named('client', clients)} of the last scheduler has not told all yet that it has said there"
        if client in self.absent:
            left = self.absent[client] - now
            return f"{_named('client', [client])} of the last scheduler has not come yet: {left:.0f} s more at most"
        return ""


def _named(what: str, numbers: Collection[int]) -> str:
    """
    >>> _named("agent", [3]), _named("agent", [9, 3, 5, 7, 6, 8])
    ('agent 3', 'agents 3, 5, 6, 7, 8 and 1 more')
    """
    names = ", ".join(map(str, sorted(numbers)[:NAMED]))
    more = f" and {len(numbers) - NAMED:,} more" if len(numbers) > NAMED else ""
    return f"{what}{'s' if len(numbers) > 1 else ''} {names}{more}"
