"""What was lost with a host: computed again by the row that made it, or asked of the client again.

A row that needs a lost object waits until the object is there again. To compute a value again its row moves from
*done* back to *waiting*; when it ends again, nothing is said to the client, but those who wait for the value go on.
"""

from scaler.protocol.failures import result_lost, runs_only_once
from scaler.protocol.messages import ERROR, STORED, VALUES_EACH, Frame
from scaler.protocol.results import SpanResult, stored_sizes
from scaler.scheduler.core import dependencies, lifetimes, lineage
from scaler.scheduler.core.moves import AskClient, Hold, Move, Remake, Reread, Route
from scaler.scheduler.state import transitions
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import DONE, QUEUED, WAITING, Batch, lineage_of, not_ended
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.object_records import ObjectRecord
from scaler.scheduler.state.transitions import Cause


# ---- lost ------------------------------------------------------------------------------------------------------------
def lose_copies(state: ClusterState, number: int, keys: list[tuple[int, int]], with_worker: bool = False) -> list[Move]:
    """An agent does not have these any more, perhaps as a worker has ended: queued rows that need what is lost wait."""
    affected: dict[ClientRecord, None] = {}
    for client_number, object_id in keys:
        client = state.clients.get(client_number)
        if client is not None and lifetimes.remove_copy(state, client, number, object_id, with_worker):
            affected[client] = None
    moves: list[Move] = []
    for client in affected:
        lost_values = client.values.lost
        for batch in client.batches.values():
            if batch.needs is None and lost_values.isdisjoint((batch.task.function, batch.task.arguments)):
                continue  # however many rows it has: they need nothing else
            for lo, hi in batch.spans_in(QUEUED):
                for row in range(lo, hi):
                    lost = lineage.lost_needs(client, batch, row)
                    if lost:
                        moves.append(Hold(batch, row, lost, Cause.INPUT_LOST))
    return moves


def hold(state: ClusterState, move: Hold) -> list[Move]:
    """Let a row that could run wait for lost objects."""
    batch, row, client = move.batch, move.row, state.clients[move.batch.client]
    if batch.place[row] != WAITING:
        transitions.hold(state, batch, row, row + 1, move.cause)
    moves: list[Move] = []
    for value in move.values:
        moves += dependencies.await_lost(client, batch, row, value)
    if client.values.refused and batch.needs is not None:
        again = client.values.refused.intersection(batch.needs[row])
        client.values.refused -= again
        moves += [AskClient(client, sorted(again))] if again else []
    return moves


def remake(state: ClusterState, move: Remake, may_rerun: bool) -> list[Move]:
    """See that a lost value is made again: by its row, or by the client. `remaking` has its entry already.

    If rows may not run twice, those that wait for what another row made fail.
    """
    client, value = move.client, move.value
    if value not in client.values.remaking:
        return []  # it was dropped, or came, since this was decided
    source = lineage.maker_of(client, value, move.needed_by)
    if source is None:
        return [AskClient(client, [value])]
    batch, row = source
    if batch.place[row] != DONE:
        return []  # it is being made already
    if not may_rerun:
        waiting = client.values.end_remaking(value)
        failures = dependencies.fail_all(waiting, runs_only_once(batch.function.name, value).encode())
        return [Reread(client, value), *failures]
    client.remembered.pop(batch.id, None)
    if batch.id not in client.batches:
        client.batches[batch.id] = batch
        client.batch_ids.add(batch.id)
        state.roots.enter(client, batch)
    record = lineage_of(batch)
    record.recomputing.add(row)
    if value in client.values.required_zones:
        record.required_zones[row] = client.values.required_zones.pop(value)
    dependencies.wait_anew(client, batch, row)
    transitions.hold(state, batch, row, row + 1, Cause.RECOMPUTED)
    moves: list[Move] = []
    if batch.needs is not None:
        for need in batch.needs[row]:
            item = client.values.objects.get(client.values.object_id_of(need))
            if item is not None:
                item.references += 1  # if it is lost, that is noticed when the row is routed
            else:
                moves += dependencies.await_lost(client, batch, row, need)
    if batch.missing is None or not batch.missing[row]:
        moves.append(Route(batch, row, row + 1, Cause.READY, front=False))
    return moves


# ---- made again ------------------------------------------------------------------------------------------------------
def end_row(state: ClusterState, agent: AgentRecord | None, batch: Batch, row: int, span: SpanResult) -> list[Move]:
    """A row that was computed again has ended, its value with a payload of its own: those who wait for it go on."""
    client, value = state.clients[batch.client], batch.id + row
    waiting = client.values.end_remaking(value)
    item = client.values.objects.get(value)
    late = not_ended(batch.waiters.pop(row, ()))
    if item is not None:
        item.references += len(late)
    waiting += late
    moves: list[Move]
    if span.outcome == STORED and agent is not None:
        (size,) = stored_sizes(span)
        _store_again(state, client, agent, batch, row, size, item, len(waiting))
        moves = dependencies.fulfil(waiting)
    elif span.outcome == VALUES_EACH:
        _become_inline(state, client, value, item, span.body, len(waiting))
        moves = dependencies.fulfil(waiting)
    else:
        record = span.body if span.outcome == ERROR else result_lost(batch.function.name, value).encode()
        moves = dependencies.fail_all(waiting, record)
    settle(state, client, batch, row)
    return [Reread(client, value), *moves]


def _store_again(
    state: ClusterState,
    client: ClientRecord,
    agent: AgentRecord,
    batch: Batch,
    row: int,
    size: int,
    item: ObjectRecord | None,
    waiting: int,
) -> None:
    value = batch.id + row
    if item is not None and not item.is_stored:  # its client has sent it since
        if agent.number not in item.holders:  # else it goes with that
            lifetimes.release_at(state, agent, client.number, value, size)
    elif item is not None:
        item.size = size
        lifetimes.add_copy(state, client, agent, value, item)
    elif waiting:
        lifetimes.add_stored(state, agent, batch, row, size, waiting)
    else:
        lifetimes.release_at(state, agent, client.number, value, size)


def _become_inline(
    state: ClusterState, client: ClientRecord, value: int, item: ObjectRecord | None, payload: Frame, waiting: int
) -> None:
    """This time the value is small: it travels inside messages."""
    if item is None:
        if waiting:
            lifetimes.put(state, client, value, ObjectRecord(bytes(payload), waiting))
        return
    if not item.is_stored:
        return  # its client has sent it since
    lifetimes.make_inline(state, client, value, item, bytes(payload))


def fail_row(state: ClusterState, batch: Batch, row: int, record: Frame) -> list[Move]:
    """A row that was to be computed again can't be, and is done; the rows that fail with it."""
    client, value = state.clients[batch.client], batch.id + row
    waiting = client.values.end_remaking(value) + not_ended(batch.waiters.pop(row, ()))
    settle(state, client, batch, row)
    return [Reread(client, value), *dependencies.fail_all(waiting, record)]


def settle(state: ClusterState, client: ClientRecord, batch: Batch, row: int) -> None:
    """A row that was computed again is done with: let go of what it needed for that."""
    record = lineage_of(batch)
    record.recomputing.discard(row)
    record.required_zones.pop(row, None)
    if batch.needs is not None:
        for need in batch.needs[row]:
            lifetimes.unreference(state, client, client.values.object_id_of(need))
    if not batch.left:
        lifetimes.end_batch(state, client, batch)
