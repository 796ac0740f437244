"""Objects that come to be here: written by clients, workers or the store, kept by the worker that made them."""

from scaler.agent.core import bringing, spilling, worker_commands
from scaler.agent.core.events import DropObject, Fetched, Restored, Spilled
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state import object_moves
from scaler.agent.state.host import HostState
from scaler.agent.state.object_records import ObjectRecord, ObjectState
from scaler.agent.state.worker_records import WorkerRecord
from scaler.protocol.messages import PLACE, STORED_OBJECT, ObjectAnnounce
from scaler.store.layout import Key

#: states in which nothing is to be done about a file that was written: it is there, or was not removed yet
_THERE = (ObjectState.STORED, ObjectState.SPILLING)


def take_file(state: HostState, out: Outgoing, key: Key, size: int) -> None:
    """There is a file of it in the store."""
    record = state.objects.record(key)
    if record.state in _THERE:
        return
    entry = state.objects.index.get(key)
    if entry is not None and entry.slot is not None:
        worker_commands.drop_objects(state, out, entry.slot, [key])
    object_moves.move(state, key, record, ObjectState.STORED, size=size)
    bringing.arrive(state, out, key, record)


def take_live(state: HostState, out: Outgoing, key: Key, size: int, worker: WorkerRecord) -> None:
    """A worker has it as an object of its own."""
    record = state.objects.record(key)
    entry = state.objects.index.get(key)
    worker.objects.add(key)
    if entry is None:
        object_moves.move(state, key, record, ObjectState.LIVE, worker.slot, size)
    elif entry.slot is None:
        worker_commands.drop_objects(state, out, worker.slot, [key])
    elif entry.slot != worker.slot:
        worker_commands.drop_objects(state, out, entry.slot, [key])
        state.objects.index.move(key, "live", worker.slot, size)
        if record.state is ObjectState.PUBLISHING:
            out.publish(worker.slot, key)


def take_published(
    state: HostState, out: Outgoing, worker: WorkerRecord, key: Key, size: int, error: str | None
) -> None:
    """A worker wrote a live object into a file, asked or not; or could not."""
    entry = state.objects.index.get(key)
    if entry is None:
        if error is None:
            out.add(DropObject(key))
        return
    if entry.slot != worker.slot:
        return
    record = state.objects.records[key]
    if error is None:
        object_moves.move(state, key, record, ObjectState.STORED, size=size)
        bringing.arrive(state, out, key, record)
    elif record.state is ObjectState.PUBLISHING:
        bringing.fail(state, out, key, record, error)


def take_unwanted(state: HostState, out: Outgoing, worker: WorkerRecord, key: Key, is_live: bool) -> None:
    """A worker made an object for a row that was taken from it."""
    entry = state.objects.index.get(key)
    if is_live:
        if entry is None or entry.slot != worker.slot:
            worker_commands.drop_objects(state, out, worker.slot, [key])
    elif entry is None:
        out.add(DropObject(key))


def take_announced(state: HostState, out: Outgoing, message: ObjectAnnounce) -> None:
    """A client wrote these into the store; it may say so again to another scheduler."""
    for object_id, kind, body in zip(message.ids, message.kinds, message.bodies, strict=True):
        if kind == STORED_OBJECT:
            size, _ = PLACE.unpack(body)
            key = message.client, object_id
            if key not in state.objects.index:
                take_file(state, out, key, size)


# ---- what the store says ---------------------------------------------------------------------------------------------
def take_spilled(state: HostState, out: Outgoing, event: Spilled) -> None:
    """An object was moved to disk, or could not be."""
    spilling.note_end(state, out, event.error)
    key = event.key
    record = state.objects.records.get(key)
    if record is None or record.state is not ObjectState.SPILLING:
        return
    if event.error is not None:
        _take_whole(state, out, key, record)
        return
    size = state.objects.index[key].size
    object_moves.move(state, key, record, ObjectState.ON_DISK)
    for worker in state.workers.records.values():
        if key in worker.objects:  # its memory is free when nobody maps it any more
            worker_commands.drop_objects(state, out, worker.slot, [key])
    if record.wanted:
        bringing.bring(state, out, key)
    if state.objects.backing_off:
        bringing.try_earlier(state, size)


def take_restored(state: HostState, out: Outgoing, event: Restored) -> None:
    """An object was moved back from disk, or could not be, as it is not there any more or memory has no room."""
    key, error = event.key, event.error
    if error is not None and not event.is_lost:
        spilling.note_no_room(state, state.objects.size(key))
    record = state.objects.records.get(key)
    if record is None or record.state is not ObjectState.RESTORING:
        return
    if error is None:
        _take_whole(state, out, key, record)
    elif event.is_lost:
        bringing.give_up(state, out, key, record, error)
    elif event.lacks_room:
        bringing.open_on_disk(state, out, key, record)
    else:
        bringing.fail(state, out, key, record, error)


def take_fetched(state: HostState, out: Outgoing, event: Fetched) -> None:
    """An object came from another agent, or could not be had from any, or not for lack of room here."""
    key, error = event.key, event.error
    if event.lacks_room:
        spilling.note_no_room(state, state.objects.size(key))
    record = state.objects.records.get(key)
    if record is None or record.state is not ObjectState.FETCHING:
        return
    if error is None:
        size = state.objects.index[key].size
        state.fetched_bytes += size
        out.announce(key, size, state.number)
        _take_whole(state, out, key, record)
    elif event.lacks_room:
        bringing.fail(state, out, key, record, error)
    else:
        bringing.do_without(state, out, key, record, error)


def _take_whole(state: HostState, out: Outgoing, key: Key, record: ObjectRecord) -> None:
    """Its file is in the store, with the bytes that it was to have."""
    object_moves.move(state, key, record, ObjectState.STORED)
    bringing.arrive(state, out, key, record)
