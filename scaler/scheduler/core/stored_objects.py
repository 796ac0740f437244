"""What clients and agents say of stored objects: written, copied, gone, out of reach. The bytes never come here."""

from collections.abc import Iterator

from scaler.errors import ProtocolError
from scaler.protocol.failures import sent_nowhere
from scaler.protocol.messages import (
    FAILED,
    MOST_IDS,
    PLACE,
    STORED_OBJECT,
    ObjectAnnounce,
    ObjectMissing,
    ObjectRelease,
    u32,
    u64,
)
from scaler.scheduler.core import admission, dependencies, lifetimes, reachability, recomputing, retrying, withdrawing
from scaler.scheduler.core.moves import Move
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState


def take_from_client(
    state: ClusterState, out: Outgoing, client: ClientRecord, message: ObjectAnnounce, tries: int
) -> list[Move]:
    """A client sends objects, or says that it can't; of stored ones it says where they are: their agents are told."""
    moves: list[Move] = []
    adopted: dict[AgentRecord, ObjectAnnounce] = {}
    _check_ids(client, message)
    for object_id, kind, body in zip(message.ids, message.kinds, message.bodies, strict=True):
        if kind == STORED_OBJECT:
            moves += _take_place(state, out, client, object_id, bytes(body), adopted, tries)
        elif kind == FAILED:
            moves += admission.take_refusal(client, object_id, body)
        else:
            moves += admission.take_object(state, client, object_id, body)
    for agent, adoption in adopted.items():
        out.send(agent.number, adoption)
    return moves


def _check_ids(client: ClientRecord, message: ObjectAnnounce) -> None:
    """Raise `ProtocolError` for what can't be an object of a client: a value of a row that is still to end."""
    for object_id in message.ids:
        if object_id >= MOST_IDS:
            raise ProtocolError("an object with an id that is none")
        if dependencies.is_to_end(client, object_id):
            raise ProtocolError("an object with the id of a row that has not ended")


def _take_place(
    state: ClusterState,
    out: Outgoing,
    client: ClientRecord,
    object_id: int,
    place: bytes,
    adopted: dict[AgentRecord, ObjectAnnounce],
    tries: int,
) -> list[Move]:
    size, number = PLACE.unpack(place)
    agent = state.agents.get(number)
    if agent is None and object_id in client.values.asked:
        failures = client.reads.failures
        failures[object_id] = failures.get(object_id, 0) + 1
        if failures[object_id] > tries:
            del failures[object_id]
            return admission.take_refusal(client, object_id, sent_nowhere(object_id).encode())
    if agent is not None:
        out.meet(client, agent)
        adoption = adopted.setdefault(agent, ObjectAnnounce(client=client.number))
        adoption.ids.append(object_id)
        adoption.kinds.append(STORED_OBJECT)
        adoption.bodies.append(place)
    return admission.take_object(state, client, object_id, b"", size, agent)


def take_copies(state: ClusterState, out: Outgoing, agent: AgentRecord, message: ObjectAnnounce) -> None:
    """An agent has copies of objects; those that nobody needs any more it need not keep."""
    client = state.clients.get(message.client)
    unknown = []
    for object_id in message.ids:
        item = client.values.objects.get(object_id) if client is not None else None
        if client is None or item is None:
            unknown.append(object_id)
        elif item.is_stored:
            lifetimes.add_copy(state, client, agent, object_id, item)
    if unknown:
        release_unknown(out, agent, message.client, unknown)


def take_missing(
    state: ClusterState, out: Outgoing, agent: AgentRecord, message: ObjectMissing
) -> Iterator[list[Move]]:
    """An agent could not get objects, and gives back the rows that need them.

    That is not held against rows whose inputs ended with a worker: they may be beside one that kills its workers.

    The moves of each span, to be made before the next is asked for.
    """
    if message.refusal:
        for _, batch, lo, hi in withdrawing.spans_at(state, agent, message.rows):
            yield retrying.return_refused(state, out, agent, batch, lo, hi, message.refusal, message.unfit)
        return
    news = False
    for number, object_id in message.objects:
        client = state.clients.get(number)
        item = client.values.objects.get(object_id) if client is not None else None
        if item is not None:
            news |= reachability.note_unreachable(state, agent, item.copies)
            news |= item.is_lost and item.ended_with_worker
    yield recomputing.lose_copies(state, agent.number, list(message.objects))
    for _, batch, lo, hi in withdrawing.spans_at(state, agent, message.rows):
        yield [move for row in range(lo, hi) for move in retrying.return_for_want(state, out, agent, batch, row, news)]


def release_unknown(out: Outgoing, agent: AgentRecord, client: int, ids: list[int]) -> None:
    """Have an agent drop objects that nobody here knows."""
    out.send(agent.number, ObjectRelease(u32([client]) * len(ids), u64(ids)))
