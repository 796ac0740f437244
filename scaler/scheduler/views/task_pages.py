"""Rows, a page at a time: those that meet a question, as lines of JSON. A page costs a look at as many rows as it has.

Pages go by client and row id, so that rows which come and end between two of them disturb nobody's order: each row that
is there all the time is seen once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from scaler.protocol.messages import MOST_IDS, Query
from scaler.scheduler.state.batch_records import AGENT, DONE, QUEUED, WAITING, Batch, Ending
from scaler.scheduler.state.cluster import ClusterState

#: of the lines
SCHEMA = 1
#: rows, spans of them, and batches without any of these rows that are looked at for one page, at most: it may have
#: fewer rows than it could, or none, and not be the last
LOOKED_AT = 20_000
_PLACES = {"waiting": WAITING, "queued": QUEUED}
_ENDINGS = {ending.name.lower(): ending for ending in Ending}


class Page(NamedTuple):
    """Lines of JSON, and where the next page begins: a client's number and a row id, 0 and 0 if there is none."""

    lines: list[str]
    next_client: int
    next_row: int


def page(state: ClusterState, query: Query) -> Page:
    """The rows that meet a question, from where it says."""
    lines: list[str] = []
    looks = LOOKED_AT
    for number in sorted(n for n in state.clients if n >= query.from_client and query.client in (0, n)):
        first = query.from_row if number == query.from_client else 0
        client = state.clients[number]
        before = client.batch_ids.below(first)
        if before is not None and first < before + client.batches[before].rows:
            first_batch = before
        else:
            first_batch = first
        for batch_id in client.batch_ids.between(first_batch, MOST_IDS):
            batch = client.batches[batch_id]
            lo = max(0, first - batch_id)
            if lo < batch.rows and query.name in ("", batch.function.name):
                head = ""
                for a, b in _spans(batch, query.state, lo):
                    head = head or _head(batch)
                    end = min(b, a + min(looks, query.limit - len(lines)))
                    lines += _lines(state, batch, head, a, end)
                    looks -= end - a
                    if end < b or len(lines) >= query.limit:
                        return Page(lines, number, batch_id + end)
            looks -= 1
            if looks <= 0:
                return Page(lines, number, batch_id + batch.rows)
        looks -= 1
    return Page(lines, 0, 0)


def _spans(batch: Batch, state: str, lo: int) -> Iterator[tuple[int, int]]:
    """Rows in this state from `lo`, in spans of one place, and of rows that ended in one way."""
    if state in _PLACES:
        yield from batch.each_in(_PLACES[state], lo)
        return
    if state in _ENDINGS:
        yield from batch.ended_as(_ENDINGS[state], lo)
        return
    for place, a, b in batch.runs(lo):
        if place == DONE and not state:
            yield from batch.ends(a, b)
        elif not state or place >= AGENT:
            yield a, b


def _head(batch: Batch) -> str:
    """What all rows of a batch have in common."""
    common = {"client": batch.client, "function": batch.function.name, "priority": batch.task.priority}
    if batch.task.capabilities:
        common["capabilities"] = list(batch.task.capabilities)
    if batch.slots > 1:
        common["threads"] = batch.slots
    return json.dumps({"v": SCHEMA, **common})[:-1]


def _lines(state: ClusterState, batch: Batch, head: str, lo: int, hi: int) -> list[str]:
    place = batch.place[lo]
    where = ""
    if place >= AGENT:
        agent = state.agents[place - AGENT]
        where = f', "agent": {agent.number}, "host": {json.dumps(agent.name)}'
    tail = f', "state": "{batch.state_of(lo)}"{where}}}'
    client = batch.client
    return [f'{head}, "task": "{client}:{row_id}"{tail}' for row_id in range(batch.id + lo, batch.id + hi)]
