"""Objects between agents: who has them, who wants them."""

from scaler.agent.core import bringing, releasing, worker_commands
from scaler.agent.core.events import Serve
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.object_records import READABLE
from scaler.protocol.messages import Neighbours, ObjectFetch, Task
from scaler.store.layout import Key


def learn_from_task(state: HostState, task: Task) -> None:
    """Rows came: the small objects with them, and where the others are."""
    if task.objects:
        payloads = task.bodies[len(task.bodies) - len(task.objects) :]
        for object_id, payload in zip(task.objects, payloads, strict=True):
            key = task.client, object_id
            state.objects.inline[key] = payload
            if key in state.objects.records:  # workers that have used its file count as having it, and do not
                worker_commands.forget_objects(state, {key})
    if not task.stored:
        return
    at = 0
    for object_id, size, count in zip(task.stored, task.stored_sizes, task.holder_counts, strict=True):
        _learn(state, (task.client, object_id), size, list(task.holders[at : at + count]))
        at += count


def learn_neighbours(state: HostState, message: Neighbours) -> None:
    """Where other agents are, and which can't be asked, as they are gone."""
    addresses = state.objects.addresses
    for number, address in zip(message.numbers, message.addresses, strict=True):
        if address:
            addresses[number] = address
        else:
            addresses.pop(number, None)


def answer_scheduler(state: HostState, out: Outgoing, message: ObjectFetch) -> None:
    """The scheduler wants these to be files here, for somebody to read."""
    at = 0
    for key, size, count in zip(
        zip(message.clients, message.ids, strict=True), message.sizes, message.holder_counts, strict=True
    ):
        _learn(state, key, size, list(message.holders[at : at + count]))
        at += count
        record = state.objects.record(key)
        if record.state in READABLE:
            state.objects.index.touch(key)
            out.respond(key, state.number, None)
        else:
            record.scheduler_waits = True
            bringing.bring(state, out, key)


def answer_peer(state: HostState, out: Outgoing, key: Key) -> None:
    """Another agent or a client wants to read it, and there is no file."""
    releasing.find_missing(state, out, key)
    if key in state.objects.index:
        state.objects.records[key].peers_wait = True
        bringing.bring(state, out, key)
    else:
        out.add(Serve(key, "it is not here"))


def _learn(state: HostState, key: Key, size: int, holders: list[int]) -> None:
    others = [number for number in holders if number != state.number]
    if others:
        record = state.objects.record(key)
        record.told_size, record.holders = size, others
