"""Who needs which object, and who has it: references, copies, and what is released when nobody needs it any more.

An object lives as long as something refers to it: rows that need it, batches (their function and arguments), the client
that holds it. When its last reference goes, all agents that were given it are told, and the batch that made it is
remembered for one reason less (see `lineage.py`).
"""

from collections.abc import Iterable

from scaler.protocol.messages import Frame
from scaler.scheduler.core import settling
from scaler.scheduler.state import accounts
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import Batch, is_apart, lineage_of
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.cluster_facts import BatchEnded, CopyLost, ObjectStored
from scaler.scheduler.state.object_records import NOBODY, ObjectRecord


# ---- made and stored -------------------------------------------------------------------------------------------------
def put(state: ClusterState, client: ClientRecord, object_id: int, item: ObjectRecord) -> ObjectRecord:
    """A new object of a client. One that came with much else would have that stay, too, and is copied out of it."""
    payload = item.payload
    if type(payload) is memoryview and 2 * len(payload) < memoryview(payload.obj).nbytes:
        item.payload = bytes(payload)
    client.values.objects[object_id] = item
    accounts.charge(state, client, accounts.price_of_object(item))
    return item


def add_stored(
    state: ClusterState, agent: AgentRecord, batch: Batch, row: int, size: int, references: int, expected: int = 0
) -> ObjectRecord:
    """A row's value is in an agent's store: a new object that so many need or are expected to, at least one."""
    client = state.clients[batch.client]
    made = ObjectRecord(b"", references, expected=expected, size=size, source=(batch, row))
    item = put(state, client, batch.id + row, made)
    add_copy(state, client, agent, batch.id + row, item)
    lineage_of(batch).references += 1
    return item


def add_copy(state: ClusterState, client: ClientRecord, agent: AgentRecord, object_id: int, item: ObjectRecord) -> None:
    """An agent's store has an object."""
    client.values.has_stored = True
    item.copies |= {agent.number}
    item.give_to(agent.number)
    agent.holdings.keys.add((client.number, object_id))
    client.values.lost.discard(object_id)
    if state.facts.wanted:
        state.facts.tell(ObjectStored(client.number, object_id, item.size, agent.number))


def remove_copy(
    state: ClusterState, client: ClientRecord, number: int, object_id: int, with_worker: bool = False
) -> bool:
    """An agent's store, or a worker of it, does not have an object any more; True if that was the last copy."""
    item = client.values.objects.get(object_id)
    if item is None or number not in item.copies:
        return False
    item.copies -= {number}
    last = not item.copies
    if last:
        client.values.lost.add(object_id)
        item.ended_with_worker = with_worker
    if state.facts.wanted:
        state.facts.tell(CopyLost(client.number, object_id, number, last))
    return last


def make_inline(state: ClusterState, client: ClientRecord, object_id: int, item: ObjectRecord, payload: Frame) -> None:
    """An object that was stored travels inside messages from now on: agents that had it are sent it anew.

    It can't be lost any more, so what made it need not be remembered for it.
    """
    for number in item.holders:
        agent = state.agents.get(number)
        if agent is not None:
            release_at(state, agent, client.number, object_id, item.size)
    item.payload, item.size, item.copies, item.holders = payload, 0, NOBODY, NOBODY
    accounts.charge(state, client, len(payload))
    client.values.lost.discard(object_id)
    if item.source is not None:
        batch, _ = item.source
        item.source = None
        unreference_batch(state, client, batch)


# ---- let go ----------------------------------------------------------------------------------------------------------
def unreference(state: ClusterState, client: ClientRecord, object_id: int) -> None:
    """One reason less to keep an object."""
    item = client.values.objects.get(object_id)
    if item is None:
        return
    item.references -= 1
    if not item.is_needed:
        drop(state, client, object_id, item)


def expect_less(state: ClusterState, client: ClientRecord, value: int) -> None:
    """One row less of its graph will come and need a value, which may not be made yet."""
    object_id = client.values.object_id_of(value)
    item = client.values.objects.get(object_id)
    if item is None:
        source = client.values.batch_of_row.get(object_id)
        if source is not None and source.task.uses and source.task.uses[object_id - source.id]:
            source.task.uses[object_id - source.id] -= 1
    elif item.expected:
        item.expected -= 1
        if not item.is_needed:
            drop(state, client, object_id, item)


def drop(state: ClusterState, client: ClientRecord, object_id: int, item: ObjectRecord) -> None:
    """Nobody needs an object: forget it, here and at the agents."""
    values, size = client.values, item.size or len(item.payload)
    del values.objects[object_id]
    accounts.charge(state, client, -accounts.price_of_object(item))
    for number in item.holders:
        agent = state.agents.get(number)
        if agent is not None:
            release_at(state, agent, client.number, object_id, size)
    if item.elements:
        for row_id in item.elements:
            values.element_of.pop(row_id, None)
    if values.remaking:
        values.end_remaking(object_id)
    if item.is_stored:
        values.lost.discard(object_id)
        if item.source is not None:
            unreference_batch(state, client, item.source[0])


def release_at(state: ClusterState, agent: AgentRecord, client: int, object_id: int, size: int) -> None:
    """Have an agent drop an object, soon."""
    holdings = agent.holdings
    holdings.keys.discard((client, object_id))
    holdings.released.append((client, object_id))
    holdings.released_bytes += size
    state.touched.setdefault(agent)


def forget_holders(state: ClusterState, client: ClientRecord) -> None:
    """All agents drop what they have of a client, as they are told: none counts as having any of its objects."""
    for object_id, item in client.values.objects.items():
        for number in item.holders:
            agent = state.agents.get(number)
            if agent is not None:
                agent.holdings.keys.discard((client.number, object_id))


def release_held(state: ClusterState, client: ClientRecord, object_id: int) -> None:
    """The client doesn't hold an object any more."""
    item = client.values.objects.get(object_id)
    if item is not None and item.held_by_client:
        item.held_by_client = False
        unreference(state, client, object_id)


def release_needs(state: ClusterState, client: ClientRecord, batch: Batch, rows: Iterable[int]) -> None:
    """Rows that have ended let go of the values they needed."""
    if batch.needs is None:
        return
    element_of, objects, needs = client.values.element_of, client.values.objects, batch.needs
    for row in rows:
        for value in needs[row]:
            place = element_of.get(value) if element_of else None
            object_id = place[0] if place else value
            item = objects.get(object_id)
            if item is None:
                if batch.reserves(value):  # it came, and the value is not made yet, or never
                    expect_less(state, client, value)
                continue
            item.references -= 1
            if item.references <= 0 and not item.expected:
                drop(state, client, object_id, item)


# ---- batches ---------------------------------------------------------------------------------------------------------
def end_batch(state: ClusterState, client: ClientRecord, batch: Batch) -> None:
    """All rows of a batch have ended: it is forgotten, or remembered while its values may be needed again."""
    if client.batches.pop(batch.id, None) is None:
        return  # it ended with rows that depended on one of its own
    client.batch_ids.remove(batch.id)
    state.roots.end(client, batch)
    if batch.asked_of is not None:
        for number in batch.asked_of:
            if number in state.agents:
                state.agents[number].end_withdrawals(client.number, batch.id)
        batch.asked_of = None
    remembered = batch.lineage is not None and batch.lineage.references > 0
    if state.facts.wanted:
        state.facts.tell(BatchEnded(client.number, batch.id, remembered))
    if remembered:
        client.remembered[batch.id] = batch
        return
    for parent in _forget(state, client, batch):
        unreference_batch(state, client, parent)


def unreference_batch(state: ClusterState, client: ClientRecord, batch: Batch) -> None:
    """One reason less to remember a batch; with it those may go that made what it needed."""
    unreferenced = [batch]
    while unreferenced:
        batch = unreferenced.pop()
        lineage = lineage_of(batch)
        lineage.references -= 1
        if not lineage.references and client.remembered.pop(batch.id, None) is not None:
            unreferenced += _forget(state, client, batch)


def _forget(state: ClusterState, client: ClientRecord, batch: Batch) -> list[Batch]:
    """Let go of what a batch needed; the batches that it does not need remembered any more."""
    task, values = batch.task, client.values
    batch.tally.batches -= 1
    accounts.charge(state, client, -batch.price)
    unreference(state, client, task.function)
    if task.arguments:
        unreference(state, client, task.arguments)
        if is_apart(task):
            values.rows_apart -= batch.rows
    if batch.keeps:
        for row_id in range(batch.id, batch.id + batch.rows):
            values.batch_of_row.pop(row_id, None)
    settling.end_batch(state, client, batch)
    lineage = batch.lineage
    if lineage is None:
        return []
    for small in lineage.retained.values():
        for object_id in small:
            unreference(state, client, object_id)
    parents, lineage.parents = list(lineage.parents), {}
    return parents
