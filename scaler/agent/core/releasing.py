"""Objects that are let go: nobody needs them, or what had them is gone."""

from scaler.agent.core import bringing, worker_commands
from scaler.agent.core.events import DropClient
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state import object_moves
from scaler.agent.state.host import HostState
from scaler.agent.state.object_records import READABLE, ObjectState
from scaler.store.layout import Key


def release(state: HostState, out: Outgoing, keys: list[Key]) -> None:
    """Nobody needs these any more."""
    objects = state.objects
    gone = set()
    for key in keys:
        if objects.inline.pop(key, None) is not None:
            gone.add(key)
        record = objects.records.get(key)
        if record is None:
            continue
        record.holders = []
        if record.state is not ObjectState.ABSENT:
            gone.add(key)
            bringing.remove(state, out, key, record)
        if record.wanted:
            bringing.lose(state, out, key, record, "nobody needs it any more")
        objects.forget_absent(key, record)
    worker_commands.forget_objects(state, gone)


def release_client(state: HostState, out: Outgoing, client: int, stays: bool) -> None:
    """Forget all objects of a client. If it stays it may have written others, and will tell of them."""
    objects = state.objects
    release(state, out, [key for key in objects.inline if key[0] == client] + objects.index.of_client(client))
    for key in [key for key in objects.records if key[0] == client]:
        del objects.records[key]  # absent: others have it
    if not stays:
        out.add(DropClient(client))


def release_everything(state: HostState, out: Outgoing) -> None:
    """Begin anew; what workers have is dropped by the caller."""
    objects = state.objects
    for key, record in objects.records.items():  # not one by one: clients may have written files by these names since
        if record.state is not ObjectState.ABSENT:
            object_moves.move(state, key, record, ObjectState.ABSENT)
    out.add(DropClient(0))
    objects.records.clear()
    objects.inline.clear()
    objects.addresses.clear()
    state.follow_ups.arrived.clear()
    state.follow_ups.lost.clear()
    state.follow_ups.no_room.clear()
    state.follow_ups.lacking = 0


def lose_worker(state: HostState, out: Outgoing, slot: int) -> None:
    """What a worker alone had is gone with it."""
    for key in state.objects.index.live_in(slot):
        record = state.objects.records[key]
        object_moves.move(state, key, record, ObjectState.ABSENT)
        out.gone(key, with_worker=True)
        bringing.lose(state, out, key, record, "the worker that had it has ended")


def find_not_live(state: HostState, out: Outgoing, slot: int, key: Key) -> None:
    """A worker looked for it and has it neither as an object of its own nor as a file: if it should, it is gone."""
    entry = state.objects.index.get(key)
    record = state.objects.records.get(key)
    if entry is None or record is None or entry.slot != slot or record.state is not ObjectState.LIVE:
        return
    object_moves.move(state, key, record, ObjectState.ABSENT)
    out.gone(key)
    bringing.lose(state, out, key, record, "the worker that made it does not have it any more")


def find_missing(state: HostState, out: Outgoing, key: Key) -> None:
    """There is no file of it; if there should be one somebody has removed it, and it is gone."""
    record = state.objects.records.get(key)
    if record is not None and record.state in READABLE:
        object_moves.move(state, key, record, ObjectState.ABSENT)
        out.gone(key)
        state.objects.forget_absent(key, record)
        worker_commands.forget_objects(state, {key})
