"""Where the objects that a row needs are within reach: hosts can't always fetch from each other.

An agent that could not get an object from others gives back the rows that need it, and the ways are noted as cut. A row
that came back goes where all it needs is within reach, its *home*; if there is no such place, what is beyond reach of
its home is made again within that reach while the row waits. It never goes back into the common queue as long as an
agent has something of what it needs, since any idle one takes rows from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from scaler.protocol.failures import out_of_reach
from scaler.protocol.messages import ERROR, u32
from scaler.protocol.results import SpanResult
from scaler.scheduler.core.placement import Placement
from scaler.scheduler.core.state import Agent, Batch, Client

if TYPE_CHECKING:
    from scaler.scheduler.core.rows import Rows

#: how often a row comes back since what it needs is out of reach, before it is given up
MAX_RETURNS = 8
#: seconds for which it is remembered that an agent could not fetch from another one
CUT_SECONDS = 60.0


class Reach:
    """See the module's text."""

    def __init__(self, rows: Rows, placement: Placement) -> None:
        self._rows = rows
        self._agents = placement.agents
        self._placement = placement

    def note_cut(self, agent: Agent, holders: Iterable[int], now: float) -> bool:
        """An agent could not fetch from these; True if that is news."""
        failed = set(holders) - {agent.number}
        news = not failed <= agent.cut.keys()
        agent.cut.update(dict.fromkeys(failed, now))
        return news

    @staticmethod
    def forget_cuts(agent: Agent, now: float) -> None:
        """A way that was cut a while ago may be open again."""
        agent.cut = {number: at for number, at in agent.cut.items() if now - at < CUT_SECONDS}

    def has(self, agent: Agent, copies: Iterable[int]) -> bool:
        """An agent has an object, or can fetch it from one of these, as far as is known."""
        return agent.number in copies or any(
            number not in agent.cut and agent.number not in self._agents[number].cut
            for number in copies
            if number in self._agents
        )

    def came_back(self, client: Client, batch: Batch, row: int, agent: Agent, news: bool) -> None:
        """A row has come back from an agent that could not get objects it needs.

        It is given up when that happens again and again; with `news` nobody could have known, and it does not count.
        """
        returns = batch.returns[row] = batch.returns.get(row, 0) + (not news)
        if returns <= MAX_RETURNS:
            self.settle(client, batch, row, agent)
            return
        record = out_of_reach(batch.task.name, batch.id + row, returns).encode()
        self._rows.finish(client, batch, SpanResult(batch.id, row, row + 1, ERROR, 0, 0, u32([len(record)]), record))

    def settle(self, client: Client, batch: Batch, row: int, agent: Agent | None = None) -> None:
        """Put a row, that is nowhere, where it can have what it needs, or have that made there; an `agent` is near."""
        values = self._stored_needs(client, batch, row)
        homes = self._homes(client, batch, row, values)
        reach = [number for number in homes if not self._beyond(client, self._agents[number], values)]
        if self._placement.place_at(batch, row, reach, nowhere_else=True):
            return
        home = self._agents[homes[0]] if homes else agent
        self._rows.await_or_queue(client, batch, row, [] if home is None else self._beyond(client, home, values), home)

    def place_near(self, batch: Batch, row: int, number: int) -> bool:
        """Give a row that is computed again to an agent within reach of another one; False if there is none."""
        target = self._agents.get(number)
        if target is None:
            return False
        others = [other for other in self._agents if other not in target.cut and number not in self._agents[other].cut]
        return self._placement.place_at(batch, row, [number, *(other for other in others if other != number)])

    def _homes(self, client: Client, batch: Batch, row: int, values: list[int]) -> list[int]:
        """The agents that have something of what a row needs and may run it, the one that has most first.

        By what the row needs alone, so that rows with the same needs go to the same place.
        """
        if row in batch.near:
            homes = [batch.near[row]]
        else:
            sizes: dict[int, int] = {}
            for value in values:
                for number in client.objects[value].copies:
                    sizes[number] = sizes.get(number, 0) + client.objects[value].size
            homes = sorted(sizes, key=lambda number: (-sizes[number], number))
        return [number for number in homes if self._placement.may_run(batch, number)]

    def _beyond(self, client: Client, agent: Agent, values: list[int]) -> list[int]:
        """Those of these objects that an agent neither has nor can fetch, as far as is known."""
        return [value for value in values if not self.has(agent, client.objects[value].copies)]

    @staticmethod
    def _stored_needs(client: Client, batch: Batch, row: int) -> list[int]:
        """The stored objects that a row needs."""
        task = batch.task
        values = {task.function, task.arguments, *(batch.needs[row] if batch.needs is not None else ())}
        return sorted(value for value in values if value in client.objects and client.objects[value].size)
