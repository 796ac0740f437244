"""The message that gives rows to an agent: the client's, or columns cut from it, with what the agent lacks."""

from dataclasses import replace
from itertools import chain

from scaler.protocol.messages import APART, EACH, TOGETHER, Frame, Task, i32, u32, u64
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import Batch
from scaler.scheduler.state.client_records import ClientRecord


def task_for(agent: AgentRecord, client: ClientRecord, batch: Batch, spans: list[tuple[int, int]]) -> Task:
    """The message that gives these rows of a batch, and the objects they need and it lacks, to an agent."""
    source, flags = batch.task, batch.task.flags
    if batch.lineage is not None and any(batch.is_recomputing(lo, hi) for lo, hi in spans):
        flags |= APART  # the scheduler needs each value, and does not look into a list that a worker wrote
    lost = batch.lost_in(spans)
    if (
        source.form == EACH
        and batch.needs is None
        and (client.number, source.function) in agent.holdings.keys
        and not client.values.objects[source.function].is_stored
        and spans == [(0, batch.rows)]
        and flags == source.flags
        and lost == source.lost
    ):
        return source  # the client's message has all that the agent needs
    task = Task(
        client.number, batch.id, batch.rows, source.form, flags, source.function, source.arguments, source.name,
        source.priority, source.retries, source.timeout, source.capabilities, u32(chain.from_iterable(spans)),
        threads=source.threads, results=source.results,
        root=source.root, nesting=source.nesting, lost=lost,
    )  # fmt: skip
    if source.form == EACH:
        assert batch.offsets is not None
        offsets, body = batch.offsets, memoryview(source.bodies[0])
        if len(spans) == 1:
            lo, hi = spans[0]
            task.sizes = source.sizes if hi - lo == batch.rows else source.sizes[lo:hi]
            payload: Frame = source.bodies[0] if hi - lo == batch.rows else bytes(body[offsets[lo] : offsets[hi]])
        else:
            for lo, hi in spans:
                task.sizes.extend(source.sizes[lo:hi])
            payload = b"".join(body[offsets[lo] : offsets[hi]] for lo, hi in spans)
        task.bodies.append(payload)
    stored: dict[int, None] = {}
    _lend(agent, client, task, source.function, stored)
    if source.arguments:
        _lend(agent, client, task, source.arguments, stored)
    if batch.needs is not None:
        located, counts, ids, indexes = client.values.element_of, u32(), u64(), i32()
        for lo, hi in spans:
            for row in range(lo, hi):
                needs = batch.needs[row]
                counts.append(len(needs))
                for value in needs:
                    object_id, index = located.get(value) or (value, -1)
                    ids.append(object_id)
                    indexes.append(index)
                    _lend(agent, client, task, object_id, stored)
        task.dependency_counts, task.dependencies, task.indexes = counts, ids, indexes
    if source.wanted:
        task.wanted = source.wanted
    if stored:
        items = [client.values.objects[object_id] for object_id in stored]
        task.stored, task.stored_sizes = u64(stored), u64(item.size for item in items)
        task.holder_counts = u32(len(item.copies) for item in items)
        task.holders = u32(chain.from_iterable(item.copies for item in items))
    return task


def parted(task: Task, most: int) -> list[Task]:
    """A message for an agent, or if it has more bytes than that, messages with its objects, and then one without."""
    if not task.objects or sum(map(len, task.bodies)) <= most:
        return [task]
    first, size, parts = len(task.bodies) - len(task.objects), most, []
    for object_id, payload in zip(task.objects, task.bodies[first:], strict=True):
        if size + len(payload) > most:
            size = 0
            parts.append(Task(task.client, task.batch, task.rows, TOGETHER, 0, task.function, 0, task.name))
        size += len(payload)
        parts[-1].objects.append(object_id)
        parts[-1].bodies.append(payload)
    return [*parts, replace(task, objects=u64(), bodies=task.bodies[:first])]


def _lend(agent: AgentRecord, client: ClientRecord, task: Task, object_id: int, stored: dict[int, None]) -> None:
    """Put an object into the message if the agent doesn't have it; only note it if it is stored."""
    key = (client.number, object_id)
    if key in agent.holdings.keys:
        if client.values.objects[object_id].is_stored:
            stored[object_id] = None
        return
    item = client.values.objects[object_id]
    agent.holdings.keys.add(key)
    item.give_to(agent.number)
    if item.is_stored:
        stored[object_id] = None
        return
    task.objects.append(object_id)
    task.bodies.append(item.payload)
