"""The story of a row: what happened to it, when, where and why, in at most ten lines.

The latest facts of the core are kept, as many as `KEPT`, in the order in which they happened; a story is what of them
concerns one row. So a row of yesterday has none, and one that waits for hours may lack its beginning: it says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from scaler.scheduler.state.batch_records import AGENT, DONE, QUEUED, WAITING, Ending
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.cluster_facts import (
    BatchAdmitted,
    CopyLost,
    Fact,
    ObjectStored,
    PeerLeft,
    RowsMoved,
    WorkerDied,
)
from scaler.scheduler.state.transitions import ENDINGS, Cause

#: facts that are kept
KEPT = 20_000
#: lines of a story, at most, and how many of them are the first ones if there are more steps
LINES, FIRST = 10, 3


class Stories:
    """Keeps the latest facts, and tells of one row what they say."""

    def __init__(self, state: ClusterState, kept: int = KEPT) -> None:
        self._state = state
        self._kept = kept
        #: time and facts of each step, oldest first
        self._steps: deque[tuple[float, Sequence[Fact]]] = deque()
        #: facts in all steps
        self._count = 0
        state.facts.subscribe(self._note)

    def _note(self, now: float, facts: Sequence[Fact]) -> None:
        steps = self._steps
        steps.append((now, facts))
        self._count += len(facts)
        while self._count > self._kept and len(steps) > 1:
            self._count -= len(steps.popleft()[1])

    def admitted(self, row: int) -> list[tuple[int, int, str]]:
        """Of batches with a row of this id whose beginning is remembered: client, id of the batch, and its function."""
        told = [fact for _, facts in self._steps for fact in facts if isinstance(fact, BatchAdmitted)]
        known = {(f.client, f.batch): f.name for f in told if f.batch <= row < f.batch + f.rows}
        return [(*key, name) for key, name in known.items()]

    def _found(self, client: int, batch: int, row: int) -> tuple[list[tuple[float, Fact]], dict[int, str]]:
        """The facts that concern a row, oldest first, and when they were told; and the names of agents."""
        found: list[tuple[float, Fact]] = []
        agents = {number: agent.name for number, agent in self._state.agents.items()}
        for when, facts in (*self._steps, (self._state.now, self._state.facts.told)):
            for fact in facts:
                if type(fact) is tuple:
                    moved: Any = fact  # by number, as there are thousands to look at
                    if moved[1] == batch and moved[0] == client and moved[2] <= row < moved[3]:
                        found.append((when, fact))
                elif isinstance(fact, PeerLeft):
                    agents[fact.number] = fact.name
                elif _is_of(fact, client, batch, row):
                    found.append((when, fact))
        return found, agents

    def ended_as(self, client: int, batch: int, row: int) -> str:
        """How a row ended whose batch is over: as its last move says; without a move to an end, with its client.

        Costs a look at all facts that are kept, as `of` does.
        """
        found, _ = self._found(client, batch, row)
        moves: list[Any] = [fact for _, fact in found if type(fact) is tuple]
        if not moves or moves[-1][5] != DONE:
            return Ending.CANCELLED.name.lower()
        return ENDINGS.get(moves[-1][6], Ending.DONE).name.lower()

    def of(self, client: int, batch: int, row: int, lines: int = LINES) -> list[str]:
        """What happened to a row, a line each, oldest first, the middle left out if there are more than `lines`.

        Costs a look at all facts that are kept.
        """
        found, agents = self._found(client, batch, row)
        if not found:
            return ["nothing is known of it any more"]
        began = found[0][0]
        story = []
        how = ""
        for (when, fact), (_, following) in pairwise([*found, found[0]]):
            if isinstance(fact, WorkerDied) and _is_loss(following):
                how = fact.how  # is said with where the row went then
                continue
            words = _words(fact, row, agents)
            if how:
                words, how = f"{words.partition(':')[0]}: {how}", ""
            story.append(f"{when - began:+.3f} s  {words}")
        if not isinstance(found[0][1], BatchAdmitted):
            story.insert(0, "(what happened before is not known any more)")
        if len(story) > lines:
            left_out = len(story) - lines + 1
            story[FIRST : FIRST + left_out] = [f"... {left_out} more steps ..."]
        return story


def _is_loss(fact: Fact) -> bool:
    return type(fact) is tuple and fact[-1] == Cause.WORKER_LOST


def _is_of(fact: Fact, client: int, batch: int, row: int) -> bool:
    """A fact other than a move concerns a row."""
    if isinstance(fact, BatchAdmitted):
        return fact.batch == batch and fact.client == client
    if isinstance(fact, WorkerDied):
        return fact.batch == batch and fact.client == client and fact.row == row
    return isinstance(fact, (ObjectStored, CopyLost)) and fact.id == batch + row and fact.client == client


def _words(fact: Fact, row: int, agents: dict[int, str]) -> str:
    """A line about a fact that concerns a row."""
    if isinstance(fact, BatchAdmitted):
        return f"came from client {fact.client}: row {row} of {fact.rows} of {fact.name}"
    if isinstance(fact, WorkerDied):
        return f"at {_at(AGENT + fact.agent, agents)}: {fact.how}"
    if isinstance(fact, ObjectStored):
        return f"its value, {fact.size:,} bytes, is in the store of {_at(AGENT + fact.agent, agents)}"
    if isinstance(fact, CopyLost):
        rest = ", and nowhere else" if fact.last else ""
        return f"its value is no more in the store of {_at(AGENT + fact.agent, agents)}{rest}"
    if type(fact) is tuple:
        moved = RowsMoved._make(fact)
        return f"{_at(moved.before, agents)} → {_at(moved.after, agents)}: {Cause(moved.cause).words}"
    return str(fact)


_PLACES = {WAITING: "waiting", QUEUED: "queued", DONE: "done"}


def _at(place: int, agents: dict[int, str]) -> str:
    if place < AGENT:
        return _PLACES[place]
    number = place - AGENT
    return f"agent {number} ({agents[number]})" if number in agents else f"agent {number}"
