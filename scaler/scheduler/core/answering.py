"""Questions of monitors: rows a page at a time, why one is where it is, and what has happened to it."""

from __future__ import annotations

import json

from scaler.protocol.messages import Query, QueryResult
from scaler.scheduler.core.explaining import explain
from scaler.scheduler.state.batch_records import Batch, place_name
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.views.story import Stories
from scaler.scheduler.views.task_pages import SCHEMA, page


def answer(state: ClusterState, stories: Stories, query: Query) -> QueryResult:
    """The answer to a question."""
    if query.kind == "tasks":
        found = page(state, query)
        return QueryResult(query.number, found.next_client, found.next_row, bodies=["\n".join(found.lines).encode()])
    rows = _rows_of(state, query)
    if not rows:
        return QueryResult(query.number, error=_unknown(state, query), bodies=[b""])
    return QueryResult(query.number, bodies=["\n".join(_about(state, stories, query, *row) for row in rows).encode()])


def _rows_of(state: ClusterState, query: Query) -> list[tuple[ClientRecord, Batch, int]]:
    """The rows of this id: of one client, or of all that have such."""
    found = []
    for client in state.clients.values():
        if query.client not in (0, client.number):
            continue
        for batch in (*client.batches.values(), *client.remembered.values()):
            if batch.id <= query.row < batch.id + batch.rows:
                found.append((client, batch, query.row - batch.id))
                break
    return found


def _unknown(state: ClusterState, query: Query) -> str:
    name = f"{query.client}:{query.row}" if query.client else str(query.row)
    if query.client and query.client not in state.clients:
        return f"task {name} is not known: client {query.client} is not there"
    return f"task {name} is not known: it has ended, or there never was one ('scaler tasks' lists those that are there)"


def _about(state: ClusterState, stories: Stories, query: Query, client: ClientRecord, batch: Batch, row: int) -> str:
    told = {
        "v": SCHEMA,
        "task": f"{client.number}:{batch.id + row}",
        "function": batch.function.name,
        "client": client.number,
        "state": place_name(batch.place[row]),
    }
    if query.kind == "explain":
        reason, lines = explain(state, client, batch, row)
        told |= {"reason": str(reason), "lines": lines}
    else:
        told["lines"] = stories.of(client.number, batch.id, row, lines=1_000)
    return json.dumps(told)
