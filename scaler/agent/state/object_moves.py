"""What may happen to a stored object as a table, and the only place that changes its state and where it is."""

from scaler.agent.state.host import HostState
from scaler.agent.state.object_records import ObjectRecord, ObjectState
from scaler.store.index import Place
from scaler.store.layout import Key

ABSENT, STORED, LIVE = ObjectState.ABSENT, ObjectState.STORED, ObjectState.LIVE
PUBLISHING, SPILLING, ON_DISK = ObjectState.PUBLISHING, ObjectState.SPILLING, ObjectState.ON_DISK
OPEN, RESTORING = ObjectState.OPEN, ObjectState.RESTORING
FETCHING, BACKING_OFF = ObjectState.FETCHING, ObjectState.BACKING_OFF

#: which moves an object makes, with what causes them; anything else is a defect
OBJECT_TRANSITIONS: dict[tuple[ObjectState, ObjectState], str] = {
    (ABSENT, STORED): "a worker or a client wrote it",
    (ABSENT, LIVE): "a worker made it and keeps it",
    (ABSENT, FETCHING): "it is needed here, and other agents have it",
    (LIVE, STORED): "its worker wrote it unasked, or it was made again",
    (LIVE, PUBLISHING): "it is needed outside of its worker",
    (PUBLISHING, STORED): "its worker wrote it",
    (PUBLISHING, BACKING_OFF): "it could not be written",
    (STORED, SPILLING): "there is too little memory",
    (SPILLING, ON_DISK): "it was moved to disk",
    (SPILLING, STORED): "it could not be moved to disk",
    (ON_DISK, STORED): "it was made again",
    (ON_DISK, RESTORING): "it is needed",
    (ON_DISK, OPEN): "it is needed, and memory has no room for it",
    (RESTORING, STORED): "it was moved back, or made again",
    (RESTORING, OPEN): "memory has no room for it",
    (RESTORING, BACKING_OFF): "it could not be moved back",
    (FETCHING, STORED): "it came, or was made here",
    (FETCHING, BACKING_OFF): "there is no room for it",
    (BACKING_OFF, FETCHING): "it is tried again",
    (BACKING_OFF, PUBLISHING): "it is tried again",
    (BACKING_OFF, RESTORING): "it is tried again",
    (BACKING_OFF, OPEN): "memory has no room for it by now",
    (OPEN, STORED): "it was made again",
    (BACKING_OFF, STORED): "it was made again",
    (STORED, ABSENT): "nobody needs it, or its file is gone",
    (LIVE, ABSENT): "nobody needs it, or its worker has ended or does not have it",
    (PUBLISHING, ABSENT): "nobody needs it, its worker has ended, or it could not be written",
    (SPILLING, ABSENT): "nobody needs it",
    (ON_DISK, ABSENT): "nobody needs it",
    (OPEN, ABSENT): "nobody needs it, or its file is gone",
    (RESTORING, ABSENT): "nobody needs it, or it could not be moved back",
    (FETCHING, ABSENT): "nobody needs it, or it could not be had",
    (BACKING_OFF, ABSENT): "nobody needs it, its worker has ended, or it could not be had",
}

#: where an object is in each state; one that backs off is where it was
PLACES: dict[ObjectState, Place] = {
    STORED: "shm", LIVE: "live", PUBLISHING: "live", ON_DISK: "disk", OPEN: "open",
    SPILLING: "moving", RESTORING: "moving", FETCHING: "moving",
}  # fmt: skip


class IllegalObjectMove(Exception):
    """An object was about to make a move that is not in the table: a defect of the agent."""


def move(
    state: HostState,
    key: Key,
    record: ObjectRecord,
    after: ObjectState,
    slot: int | None = None,
    size: int | None = None,
) -> None:
    """Have an object make a move. One that was absent needs its size, one that becomes live the slot of its worker.

    A move that is not in the table is not made: it raises IllegalObjectMove if the state is strict; otherwise the
    object is let go at the end of the step.
    """
    before, objects = record.state, state.objects
    if (before, after) not in OBJECT_TRANSITIONS:
        error = IllegalObjectMove(f"object {key} was to go from {before} to {after}")
        if state.strict:
            raise error
        state.follow_ups.disorder[key] = str(error)
        return
    index = objects.index
    if before == SPILLING:
        objects.leaving -= index[key].size
    elif before == BACKING_OFF:
        del objects.backing_off[key]
    elif before == FETCHING:
        state.bandwidth.end(state.now, index[key].size if after == STORED else 0)
    place = PLACES.get(after)
    if before == ABSENT:
        assert place is not None
        assert size is not None
        index.add(key, size, place, slot)
    elif after == ABSENT:
        index.remove(key)
    elif after == BACKING_OFF:
        if before == RESTORING:
            index.move(key, "disk")
    elif place == "live":
        if slot is not None and slot != index[key].slot:
            index.move(key, "live", slot, size)
    else:
        assert place is not None
        index.move(key, place, None, size)
    if after == SPILLING:
        objects.leaving += index[key].size
    elif after == BACKING_OFF:
        if not objects.backing_off:
            objects.freed = 0
        objects.backing_off[key] = record
    elif after == FETCHING:
        state.bandwidth.begin(state.now)
    record.state = after
