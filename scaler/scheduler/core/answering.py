"""Questions of monitors: rows a page at a time, why one is where it is, and what has happened to it."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from scaler.protocol.messages import Query, QueryResult
from scaler.scheduler.core.explaining import Reason, explain
from scaler.scheduler.state.batch_records import Batch, is_called, row_name
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.views.story import Stories
from scaler.scheduler.views.task_pages import SCHEMA, page

#: what is said of a row
About: TypeAlias = dict[str, Any]


def answer(state: ClusterState, stories: Stories, query: Query) -> QueryResult:
    """The answer to a question."""
    if query.kind == "tasks":
        found = page(state, query)
        return QueryResult(query.number, found.next_client, found.next_row, bodies=["\n".join(found.lines).encode()])
    about = [_about(state, stories, query, *row) for row in _rows_of(state, query)] or _ended(stories, query)
    if not about:
        return QueryResult(query.number, error=_unknown(state, query), bodies=[b""])
    return QueryResult(query.number, bodies=["\n".join(map(json.dumps, about)).encode()])


def _rows_of(state: ClusterState, query: Query) -> list[tuple[ClientRecord, Batch, int]]:
    """The rows of this id: of one client, or of all that have such."""
    found = []
    for client in state.clients.values():
        if query.client not in (0, client.number):
            continue
        for batch in (*client.batches.values(), *client.remembered.values()):
            if batch.id <= query.row < batch.id + batch.rows and is_called(batch.function.name, query.name):
                found.append((client, batch, query.row - batch.id))
                break
    return found


def _unknown(state: ClusterState, query: Query) -> str:
    name = row_name(query.client, query.row, query.name)
    awaited = state.returning.words(state.now, query.client)
    if awaited:
        return f"task {name} is not known yet, if there is one: {awaited}"
    if query.client and query.client not in state.clients:
        return f"task {name} is not known: client {query.client} is not there"
    return f"task {name} is not known: it has ended, or there never was one ('scaler tasks' lists those that are there)"


def _about(state: ClusterState, stories: Stories, query: Query, client: ClientRecord, batch: Batch, row: int) -> About:
    told = _head(client.number, batch.id + row, batch.function.name, batch.state_of(row))
    if query.kind == "explain":
        reason, lines = explain(state, client, batch, row)
        told |= {"reason": str(reason), "lines": lines}
    else:
        told["lines"] = stories.of(client.number, batch.id, row, lines=1_000)
    return told


def _head(client: int, row: int, function: str, word: str) -> About:
    return {"v": SCHEMA, "task": f"{client}:{row}", "function": function, "client": client, "state": word}


def _ended(stories: Stories, query: Query) -> list[About]:
    """What is remembered of rows of this id whose batches are over."""
    about: list[About] = []
    for client, batch, function in stories.admitted(query.row):
        if query.client not in (0, client) or not is_called(function, query.name):
            continue
        lines = stories.of(client, batch, query.row - batch, lines=1_000)
        told = _head(client, query.row, function, stories.ended_as(client, batch, query.row - batch))
        if query.kind == "explain":
            told |= {"reason": str(Reason.ENDED), "lines": ["it has ended", f"the last of its story: {lines[-1]}"]}
        else:
            told["lines"] = lines
        about.append(told)
    return about
