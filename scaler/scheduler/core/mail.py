"""What agents say of clients whose work is not together yet waits for these; what they say of others does not.

An agent says in one message what it has to say of several clients. Of each client it is dealt with in the order in
which it was said.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scaler.protocol.messages import (
    BalanceResponse,
    Message,
    ObjectAnnounce,
    ObjectGone,
    ObjectMissing,
    ObjectResponse,
    Objects,
    Spans,
    TaskBegun,
    TaskClaimResponse,
    TaskResult,
    TaskRunning,
)
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.cluster import ClusterState

#: in the place of a client's number: all those whose work goes on
_OTHERS = 0
#: what names clients, and is not just to be passed on
_NAMING = frozenset({
    TaskResult, ObjectAnnounce, TaskBegun, TaskRunning, BalanceResponse, ObjectGone, ObjectResponse, TaskClaimResponse,
    ObjectMissing,
})  # fmt: skip


def put_aside(state: ClusterState, agent: AgentRecord, message: Message) -> Message | None:
    """Put aside what an agent says of clients whose work is not together yet; what is to be dealt with at once."""
    returning = state.returning
    if type(message) not in _NAMING:
        return message
    awaited = returning.clients.keys() | returning.absent.keys()
    parts = _parts(message, lambda number: number if number in awaited else _OTHERS)
    if parts.keys() <= {_OTHERS}:
        return message
    others: Message | None = parts.pop(_OTHERS, None)
    for number, part in parts.items():
        returning.mail.setdefault(number, []).append((agent.number, part))
    return others


def _parts(message: Any, whose: Callable[[int], int]) -> dict[int, Any]:
    """A message that names clients, taken apart by what each of them counts as."""
    kind = type(message)
    if kind in (TaskResult, ObjectAnnounce):
        return {whose(message.client): message}
    if kind is TaskClaimResponse:
        granted, refused = _parts(message.granted, whose), _parts(message.refused, whose)
        return {n: TaskClaimResponse(granted.get(n, Spans()), refused.get(n, Spans())) for n in granted | refused}
    if kind is ObjectMissing:
        objects, rows = _parts(message.objects, whose), _parts(message.rows, whose)
        return {
            n: replace(message, objects=objects.get(n, Objects()), rows=rows.get(n, Spans())) for n in objects | rows
        }
    parts: dict[int, Any] = {}
    for number, *rest in message:
        part = parts.get(whose(number))
        if part is None:
            part = parts[whose(number)] = _without_names(message)
        part.add(number, *rest)
    return parts


def _without_names(message: Any) -> Any:
    kind = type(message)
    if kind is ObjectGone:
        return ObjectGone(with_worker=message.with_worker)
    if kind is ObjectResponse:
        return ObjectResponse(agent=message.agent, reason=message.reason)
    return kind()
