"""Clients that have the scheduler keep more than its memory holds: the one that has most kept is given up.

All together may have so many bytes kept (`Limits.kept_bytes`). When that is not enough, the client goes for which most
is kept, whoever has spoken last: a flood ends its own sender. Nobody can harm who has less kept than he has, so of n
clients none ever loses its session for less than the nth part of the memory; one that is alone may use all of it.

What a message is about to take is looked at beforehand, if that may be much more than its bytes. Everything else is
looked at once it is there, after each step.
"""

from __future__ import annotations

from scaler.errors import ProtocolError
from scaler.protocol.messages import KEEP, ObjectAnnounce, Task
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.accounts import KEPT_ROW, NEED, NEEDING_ROW, OBJECT, ROW, SIZED_ROW, UNKNOWN, price_of_rows
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState

#: clients' tasks and objects may take this part of the memory that the scheduler may use: their prices are estimates,
#: and what is on its way, or is an agent's in the same process, takes memory, too
PART = 2
#: rows and needs of a message that is not looked at beforehand
FEW = 256
#: bytes that a row takes, at most
_MOST_OF_ROW = ROW + SIZED_ROW + KEPT_ROW + NEEDING_ROW
#: bytes that a need of a row takes, at most
_MOST_OF_NEED = NEED + UNKNOWN
#: part of what all may have kept at which the log tells who has most
WARNED = 0.5


class TooMuch(ProtocolError):
    """A client sent more than can be kept, and would again."""


def coming_with(state: ClusterState, client: ClientRecord, message: Task | ObjectAnnounce, limit: int) -> int:
    """Bytes that a message is about to take, without what it carries; at most so many if they fit into the limit."""
    if type(message) is ObjectAnnounce:
        return OBJECT * len(message.ids)
    assert type(message) is Task
    most = _MOST_OF_ROW * message.rows + _MOST_OF_NEED * len(message.dependencies)
    if state.kept + most <= limit:
        return most
    values, rows = client.values, range(message.batch, message.batch + message.rows)
    made, objects = values.batch_of_row if message.flags & KEEP else {}, values.objects
    unknown = sum(not (need in rows or need in made or need in objects) for need in message.dependencies)
    return price_of_rows(message) + UNKNOWN * unknown


def largest(state: ClusterState) -> ClientRecord | None:
    """The client that most is kept for; None if nothing is kept for any."""
    return max((c for c in state.clients.values() if c.kept and not c.is_resident), key=_kept, default=None)


def _kept(client: ClientRecord) -> int:
    return client.kept


def words(state: ClusterState, client: ClientRecord, limit: int, more: int = 0) -> str:
    """What a client has done that is given up, and what to do about it."""
    alone = len(state.clients) == 1
    return (
        f"more than the scheduler can keep: with {megabytes(client.kept + more)} of tasks and objects that have not "
        f"ended{'' if alone else ', most of all clients,'} it would keep {megabytes(state.kept + more)}, and it may "
        f"keep {megabytes(limit)}, half of its memory. Submit fewer tasks at a time (`buffersize` of `Executor.map`), "
        f"with smaller arguments, or more rows in one `map`"
    )


def warn(state: ClusterState, out: Outgoing, limit: int) -> None:
    """Say once in the log who has most kept, as that is half of what all may have."""
    client = largest(state)
    if client is None or client.is_told_to_keep:
        return
    client.is_told_to_keep = True
    out.log(
        "WARNING",
        f"{megabytes(state.kept)} of tasks and objects are kept here, {megabytes(client.kept)} of these for client "
        f"{client.number} ({client.name}); beyond {megabytes(limit)} the client that has most is given up",
    )


def megabytes(count: int) -> str:
    """
    >>> megabytes(1_234_567_890), megabytes(2_345)
    ('1,234.6 MB', '0.0 MB')
    """
    return f"{count / 1e6:,.1f} MB"
