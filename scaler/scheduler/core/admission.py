"""What clients bring: batches of rows, and objects that they were asked for or send by themselves."""

from collections.abc import Iterator, Mapping
from itertools import accumulate

from scaler.errors import ProtocolError
from scaler.protocol.error_record import ErrorKind, kind_of
from scaler.protocol.failures import never_sent
from scaler.protocol.messages import KEEP, MOST_IDS, Frame, Task, u32, u64
from scaler.scheduler.core import dependencies, lifetimes, lineage, placement
from scaler.scheduler.core.moves import Fail, Move, Place, Remake, Reread, Route
from scaler.scheduler.state import accounts
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import AGENT, WAITING, Batch, is_apart, not_ended
from scaler.scheduler.state.client_records import ClientRecord, GraphBatches
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.cluster_facts import BatchAdmitted
from scaler.scheduler.state.function_records import FunctionRecord, Tally, fold
from scaler.scheduler.state.object_records import ObjectRecord
from scaler.scheduler.state.transitions import Cause


# ---- batches ---------------------------------------------------------------------------------------------------------
def admit(state: ClusterState, client: ClientRecord, task: Task) -> list[Move]:
    """Take a client's batch; one that is known already is ignored. Rows whose values are all there can go."""
    if task.batch in client.batches:
        return []
    if not task.objects:
        return _admit(state, client, task)
    moves = take_awaited(state, client, task)
    moves += _admit(state, client, task)
    drop_unneeded(state, client, task)
    return moves


def _admit(state: ClusterState, client: ClientRecord, task: Task) -> list[Move]:
    batch, failures = enter(state, client, task)
    if failures:
        return [*failures]
    if task.dependencies:
        moves, failures = dependencies.await_needs(state, client, batch)
        ready = (Route(batch, lo, hi, Cause.READY, front=False) for lo, hi in dependencies.ready(batch, failures))
        return [*moves, *ready, *failures]
    agent = None if client.values.lost or client.is_held else placement.choose_for_all(state, batch)
    if agent is not None:
        return [Place(batch, 0, batch.rows, agent, Cause.READY)]
    return [Route(batch, 0, batch.rows, Cause.READY, front=False)]


def enter(state: ClusterState, client: ClientRecord, task: Task) -> tuple[Batch, list[Fail]]:
    """A new batch with what came with it, all of its rows waiting; why they fail, if they can't run."""
    objects, price = client.values.objects, accounts.price_of_rows(task)
    if task.objects:
        for object_id, payload in _payloads(task):
            is_new = object_id not in objects
            if is_new:
                lifetimes.put(state, client, object_id, ObjectRecord(payload))
            if not is_new or (object_id != task.function and object_id != task.arguments):
                price += len(payload)  # the message has it, for as long as the batch is there
    batch = _new_batch(state, client, task)
    batch.price = price
    accounts.charge(state, client, price)
    if is_apart(task):
        client.values.rows_apart += task.rows
    missing = []
    for object_id in (task.function, task.arguments) if task.arguments else (task.function,):
        item = objects.get(object_id)
        if item is not None:
            item.references += 1
        else:
            missing.append(object_id)
    if missing:
        record = never_sent(task.name, missing[0]).encode()
        return batch, [Fail(batch, row, record) for row in range(batch.rows)]
    if batch.keeps:
        client.values.batch_of_row.update(dict.fromkeys(range(batch.id, batch.id + batch.rows), batch))
    return batch, []


def take_awaited(state: ClusterState, client: ClientRecord, task: Task) -> list[Move]:
    """Objects that come with a batch and that rows of others wait for are an answer to these."""
    moves: list[Move] = []
    if not client.values.awaited.keys().isdisjoint(task.objects):
        for object_id, payload in _payloads(task):
            if object_id in client.values.awaited:
                moves += take_object(state, client, object_id, payload)
    return moves


def _payloads(task: Task) -> Iterator[tuple[int, Frame]]:
    return zip(task.objects, task.bodies[1:] if task.sizes else task.bodies, strict=True)


def drop_unneeded(state: ClusterState, client: ClientRecord, task: Task) -> None:
    """Objects that came with a batch which does not need them would be there for nobody."""
    for object_id in task.objects:
        item = client.values.objects.get(object_id)
        if item is not None and not item.is_needed:
            lifetimes.drop(state, client, object_id, item)


def check_ids(client: ClientRecord, task: Task) -> None:
    """Raise `ProtocolError` for ids that no client can have made, or that it has made before for something else."""
    rows = range(task.batch, task.batch + task.rows)
    if rows.stop > MOST_IDS:
        raise ProtocolError("a Task with ids that are none")
    for object_id in task.objects:
        if object_id >= MOST_IDS:
            raise ProtocolError("a Task with ids that are none")
        if object_id in rows:
            raise ProtocolError("a Task with an object that has the id of a row")
        if dependencies.is_to_end(client, object_id):
            raise ProtocolError("a Task with an object that has the id of a row that has not ended")
        item = client.values.objects.get(object_id)
        if item is not None and item.is_stored:
            raise ProtocolError("a Task with an object that has the id of a stored one")
    if task.batch in client.batches:
        return
    if _has_id_of(client.values.objects, rows):
        raise ProtocolError("a Task with rows that have the ids of objects")
    kept = client.values.batch_of_row
    are_taken = (client.batches and _overlaps(client, rows)) or (task.flags & KEEP and _has_id_of(kept, rows))
    if are_taken or not kept.keys().isdisjoint(task.objects):
        raise ProtocolError("a Task with ids that rows have")


def _overlaps(client: ClientRecord, rows: range) -> bool:
    """Some of these rows have ids of rows that have not ended."""
    before = client.batch_ids.below(rows.stop)
    return before is not None and before + client.batches[before].rows > rows.start


def _has_id_of(known: Mapping[int, object], rows: range) -> bool:
    """One of these rows has an id that is known; looks at as many ids as there are of the fewer."""
    if len(rows) <= len(known):
        return not known.keys().isdisjoint(rows)
    return any(known_id in rows for known_id in known)


def _new_batch(state: ClusterState, client: ClientRecord, task: Task) -> Batch:
    rows, name, slots = task.rows, task.name, task.threads or 1
    function = client.functions.get(name)
    if function is None:
        if len(client.functions) >= client.most_functions:
            client.most_functions = fold(client.functions, {batch.function for batch in client.remembered.values()})
        function = client.functions.setdefault(name, FunctionRecord(client.number, name))
    function.admitted += rows
    function.newest = task.batch
    demand = task.capabilities, slots
    tally = function.tallies.get(demand)
    if tally is None:
        if len(function.tallies) >= function.most_tallies:
            function.forget_tallies()
        tally = function.tallies[demand] = Tally()
    tally.batches += 1
    share, nesting, urgency = task.share_of(client.number), task.nesting, task.urgency
    is_shared = state.roots.have_others(share)
    batch = Batch(
        client=client.number,
        id=task.batch,
        rows=rows,
        task=task,
        function=function,
        tally=tally,
        queue_class=(-task.priority, demand),
        share=share,
        nesting=nesting,
        urgency=urgency,
        place=u32([WAITING]) * rows,
        left=rows,
        slots=slots,
        is_shared=is_shared,
        is_special=slots > 1 or urgency != 0 or is_shared,
        keeps=bool(task.flags & KEEP),
    )
    if urgency < state.lowest_urgency:
        state.lowest_urgency = urgency
    if task.sizes:
        batch.offsets = u64(accumulate(task.sizes, initial=0))
    client.batches[batch.id] = batch
    client.batch_ids.add(batch.id)
    state.roots.enter(client, batch)
    if batch.keeps:
        client.graphs.setdefault(task.graph, GraphBatches()).known += 1
    client.outstanding += rows
    if state.facts.wanted:
        state.facts.tell(BatchAdmitted(client.number, batch.id, rows, name))
    return batch


# ---- objects ---------------------------------------------------------------------------------------------------------
def take_object(
    state: ClusterState,
    client: ClientRecord,
    value: int,
    payload: Frame,
    size: int = 0,
    agent: AgentRecord | None = None,
) -> list[Move]:
    """The client sent an object, or the value of a row that was asked of it; of a stored one its size and place."""
    values = client.values
    asked = value in values.asked
    values.asked.discard(value)
    awaiting = values.awaited.pop(value, None)
    item = values.objects.get(value)
    if item is None:
        again = values.remaking.get(value, ())
        if asked and not awaiting and not again:  # nobody needs it any more
            values.end_remaking(value)
            if agent is not None:
                lifetimes.release_at(state, agent, client.number, value, size)
            return []
        if again:
            again = values.remaking[value] = not_ended(again)
        item = lifetimes.put(state, client, value, ObjectRecord(payload, len(again), size=size))
    elif item.is_lost and size:
        item.size = size
    elif item.is_lost:
        lifetimes.make_inline(state, client, value, item, payload)
    if item.is_stored and agent is not None:
        lifetimes.add_copy(state, client, agent, value, item)
    elif item.is_lost:
        values.lost.add(value)
    else:
        values.lost.discard(value)
    moves: list[Move] = []
    if value in values.remaking:
        moves.append(Reread(client, value))
        moves += dependencies.fulfil(values.end_remaking(value))
    elif not (asked or item.held_by_client):
        item.held_by_client = True
        item.references += 1
    waiting = not_ended(awaiting or ())
    item.references += len(waiting)
    moves += dependencies.fulfil(waiting)
    if not item.is_needed and value in values.objects:
        lifetimes.drop(state, client, value, item)
    return moves


def take_refusal(client: ClientRecord, value: int, record: Frame) -> list[Move]:
    """The client can't send what it was asked for: the rows that wait for it fail, or its row runs again if it is lost.

    Not those that agents have since before this scheduler: it is asked for again if they come back.
    """
    values = client.values
    values.asked.discard(value)
    waiting, waits_again = not_ended(values.awaited.pop(value, ())), values.end_remaking(value)
    there = [(batch, row) for batch, row in waiting if batch.place[row] >= AGENT]
    if there:
        values.awaited[value] = there
        values.refused.add(value)
    waiting = waits_again + [(batch, row) for batch, row in waiting if batch.place[row] < AGENT]
    is_lost = waiting and kind_of(record) == ErrorKind.OBJECT
    if is_lost and lineage.maker_of(client, value, waiting[0][0]) is not None:
        values.remaking[value] = waiting
        return [Remake(client, value, waiting[0][0])]
    return [*dependencies.fail_all(waiting, record), Reread(client, value)]
