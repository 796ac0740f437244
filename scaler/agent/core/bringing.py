"""Making a file that can be read of an object, from wherever it is, and telling whoever waits what has become of it.

live in a worker ── publish ──►┐
on disk ── restore ───────────►├── a file in the store ──► arrived
   └────── no room in memory ──┼── the file on disk ─────► arrived
at other agents ── fetch ─────►┘                           lost, if that can't be done
"""

import math

from scaler.agent.core import spilling, worker_commands
from scaler.agent.core.events import DropObject, Fetch, Restore, Serve
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state import object_moves
from scaler.agent.state.host import HostState
from scaler.agent.state.object_records import READABLE, ObjectRecord, ObjectState
from scaler.agent.state.worker_records import WorkerRecord
from scaler.store.layout import Key

#: seconds until a value that could not be written or read is tried again (memory or disk may be full), and how often
RETRY_SECONDS = 0.1
MAX_TRIES = 20


def bring(state: HostState, out: Outgoing, key: Key) -> None:
    """Have a file of it that can be read; the follow-ups of this or a later step will have it as arrived or lost."""
    record = state.objects.record(key)
    record.wanted = True
    if record.state in READABLE:
        arrive(state, out, key, record)
    elif record.state is ObjectState.ABSENT:
        _fetch(state, out, key, record)
    elif record.state in (ObjectState.LIVE, ObjectState.ON_DISK):
        _make_file(state, out, key, record)
    # else it is under way; what goes to disk is brought back when it is there


def _fetch(state: HostState, out: Outgoing, key: Key, record: ObjectRecord) -> None:
    addresses = state.objects.addresses_of(key)
    if not addresses:
        do_without(state, out, key, record, "no agent that has it can be reached")
        return
    object_moves.move(state, key, record, ObjectState.FETCHING, size=record.told_size)
    out.add(Fetch(key, record.told_size, addresses))


def _make_file(state: HostState, out: Outgoing, key: Key, record: ObjectRecord) -> None:
    entry = state.objects.index[key]
    slot = entry.slot
    if entry.place == "moving":
        _fetch(state, out, key, record)
    elif slot is None and entry.size > spilling.room(state):
        open_on_disk(state, out, key, record)
    elif slot is None:
        object_moves.move(state, key, record, ObjectState.RESTORING)
        out.add(Restore(key))
    else:
        object_moves.move(state, key, record, ObjectState.PUBLISHING)
        out.publish(slot, key)


def open_on_disk(state: HostState, out: Outgoing, key: Key, record: ObjectRecord) -> None:
    """There is no room for it in memory: it is read where it is."""
    object_moves.move(state, key, record, ObjectState.OPEN)
    arrive(state, out, key, record)


def retry(state: HostState, out: Outgoing) -> None:
    """Try again what failed a while ago."""
    for key, record in [item for item in state.objects.backing_off.items() if item[1].retry_at <= state.now]:
        _make_file(state, out, key, record)


def next_retry(state: HostState) -> float:
    """When `retry` has something to do, seconds; infinite for never."""
    return min([record.retry_at for record in state.objects.backing_off.values()], default=math.inf)


def publish_all(state: HostState, out: Outgoing, worker: WorkerRecord) -> None:
    """Have a worker write all objects that it alone has."""
    for key in state.objects.index.live_in(worker.slot):
        bring(state, out, key)


# ---- what has become of it -------------------------------------------------------------------------------------------
def arrive(state: HostState, out: Outgoing, key: Key, record: ObjectRecord) -> None:
    """It is a file that can be read now: tell whoever waits, if anybody does."""
    if record.wanted:
        _answer(state, out, key, record, None)
        state.follow_ups.arrived.append(key)


def lose(state: HostState, out: Outgoing, key: Key, record: ObjectRecord, reason: str) -> None:
    """It can't be had, or is not needed any more: tell whoever waits."""
    _answer(state, out, key, record, reason)
    state.follow_ups.lost[key] = reason
    state.objects.forget_absent(key, record)
    worker_commands.forget_objects(state, {key})


def do_without(state: HostState, out: Outgoing, key: Key, record: ObjectRecord, reason: str) -> None:
    """It is not here, and can't be fetched from anybody that is known to have it."""
    if record.state is not ObjectState.ABSENT:
        object_moves.move(state, key, record, ObjectState.ABSENT)
    record.holders = []
    lose(state, out, key, record, reason)


def fail(state: HostState, out: Outgoing, key: Key, record: ObjectRecord, reason: str) -> None:
    """It is here, live or on disk, or there is no room to fetch it, and could not be made a file: perhaps later.

    What is to be fetched waits as long as rows run, or objects leave, that may make room.
    """
    is_fetched = record.state is ObjectState.FETCHING
    if not (is_fetched and (state.workers.is_working or state.objects.leaving)):
        record.tries += 1
    if record.tries < MAX_TRIES:
        record.retry_at = state.now + RETRY_SECONDS
        object_moves.move(state, key, record, ObjectState.BACKING_OFF)
        state.follow_ups.lacking += state.objects.size(key)
    elif is_fetched:
        state.follow_ups.no_room[key] = reason
        do_without(state, out, key, record, reason)
    else:
        give_up(state, out, key, record, reason)


def give_up(state: HostState, out: Outgoing, key: Key, record: ObjectRecord, reason: str) -> None:
    """It was here, live or on disk, and will never be a file."""
    remove(state, out, key, record)
    out.gone(key)
    lose(state, out, key, record, reason)


def try_earlier(state: HostState, freed: int) -> None:
    """There is more room: what may have failed for lack of it is tried again as soon as it would fit."""
    objects = state.objects
    objects.freed += freed
    for key, record in objects.backing_off.items():
        size = objects.size(key)
        if size <= objects.freed and record.retry_at > state.now:
            objects.freed -= size
            record.retry_at = state.now


def remove(state: HostState, out: Outgoing, key: Key, record: ObjectRecord) -> None:
    """Remove an object that is here, wherever it is; its record stays."""
    slot = state.objects.index[key].slot
    object_moves.move(state, key, record, ObjectState.ABSENT)
    if slot is not None:
        worker_commands.drop_objects(state, out, slot, [key])
    else:
        out.add(DropObject(key))


def _answer(state: HostState, out: Outgoing, key: Key, record: ObjectRecord, reason: str | None) -> None:
    record.wanted = False
    record.tries = 0
    if record.scheduler_waits:
        record.scheduler_waits = False
        out.respond(key, state.number, reason)
    if record.peers_wait:
        record.peers_wait = False
        out.add(Serve(key, reason))
