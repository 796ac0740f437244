"""Rows that an agent has which came too late: the work of their client goes on without it, and it was told to end them.

Each of them still comes to an end there, and is told of: as it had ended before, with its value, or as cancelled; or it
was given back, for want of an input or for others, before the agent heard that. Until then the agent is given nothing.
Of a row that it had twice nobody could tell which of both has ended: one that was cancelled as a leftover would end for
its client, and what it needs would be let go while it is yet to run there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from scaler.scheduler.core import placement
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.cluster import ClusterState


def await_ends(state: ClusterState, agent: AgentRecord, client: int, rows: Iterable[tuple[int, int, int]]) -> None:
    """An agent that has just come is to end these rows, (batch, lo, hi), and is given none before it has."""
    owed = state.returning.late.setdefault(agent.number, {})
    for batch, lo, hi in sorted(rows):
        spans = owed.setdefault((client, batch), [(lo, hi)])
        if lo <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(hi, spans[-1][1])
        else:
            spans.append((lo, hi))
    _settle(state, agent)


def take_back(state: ClusterState, agent: AgentRecord, rows: Iterable[tuple[int, int, int, int]]) -> None:
    """An agent gives back rows, (client, batch, lo, hi), of which it may have had some late."""
    for row in rows:
        if agent.number in state.returning.late:
            take_ended(state, agent, *row)


def take_ended(
    state: ClusterState, agent: AgentRecord, client: int, batch: int, start: int, end: int
) -> list[tuple[int, int]] | None:
    """Rows have ended that an agent may have had late; the others of them, ascending. None: all are others."""
    owed = state.returning.late[agent.number]
    spans = owed.get((client, batch))
    if spans is None:
        return None
    first = bisect_right(spans, start, key=lambda span: span[1])
    last, at = first, start
    left: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    while last < len(spans) and spans[last][0] < end:
        lo, hi = spans[last]
        left += [each for each in ((lo, min(hi, start)), (max(lo, end), hi)) if each[0] < each[1]]
        if at < lo:
            others.append((at, lo))
        at, last = min(hi, end), last + 1
    if first == last:
        return None
    spans[first:last] = left
    if at < end:
        others.append((at, end))
    if not spans:
        del owed[client, batch]
    _settle(state, agent)
    return others


def _settle(state: ClusterState, agent: AgentRecord) -> None:
    is_waited_for = bool(state.returning.late[agent.number])
    if not is_waited_for:
        del state.returning.late[agent.number]
    if is_waited_for != agent.load.is_full:
        placement.resize(state, agent, agent.load.workers, is_waited_for)


def forget_client(state: ClusterState, client: int) -> None:
    """Nothing is told any more of what agents had of a client."""
    for number, owed in list(state.returning.late.items()):
        for key in [key for key in owed if key[0] == client]:
            del owed[key]
        _settle(state, state.agents[number])
