"""What must hold of an agent's state between two steps: every row in one place, every count the sum of its rows.

`quick` costs a look at each worker and queue, `thorough` one at each row and object. Both only look.
"""

from collections import Counter
from collections.abc import Iterator

from scaler.agent.state.host import HostState
from scaler.agent.state.object_moves import PLACES
from scaler.agent.state.object_records import READABLE, ObjectRecord, ObjectState
from scaler.agent.state.rows import RowRange
from scaler.agent.state.worker_records import BUSY, GONE, IDLE, WorkerRecord
from scaler.common.findings import Finding
from scaler.protocol.codes import LARGEST_VALUE
from scaler.protocol.messages import FRESH
from scaler.store.layout import Key

#: in these states an object is on its way to become a file, since somebody wants it to
_COMING = (ObjectState.PUBLISHING, ObjectState.RESTORING, ObjectState.FETCHING, ObjectState.BACKING_OFF)
#: bytes of room for results from on which rows are not held back for lack of it
_PLENTY = 1 << 30


def validate(state: HostState) -> list[Finding]:
    """All that does not hold; nothing if all is well."""
    return [*quick(state), *thorough(state)]


def quick(state: HostState) -> Iterator[Finding]:
    """What does not hold of workers, of counters, and of ready rows while workers idle."""
    pool, index = state.workers, state.objects.index
    has_room = not state.memory.is_full and index.hard_limit - index.in_memory > _PLENTY
    ready, free = state.ready, pool.free
    for slot, worker in pool.records.items():
        if slot != worker.slot or worker.state is GONE:
            yield Finding(f"slot {slot} has worker {worker.slot}, which is {worker.state}")
        if (worker.state is BUSY) != bool(worker.dispatches) and worker.kill_reason is None:
            yield Finding(f"worker {slot} is {worker.state} and has {len(worker.dispatches)} dispatches")
        if worker.state is IDLE and worker.may_be_fed and has_room and not pool.ending:
            found = ready.within(slot, free, pool.target) if ready.wide.rows or pool.wide else (ready.general, None)
            if found is not None and found[1] is None and found[0].rows and _suits(worker, found[0].head):
                yield Finding(f"{found[0].rows} rows wait while worker {slot} idles and {free} slots are free")
    yield from _slots(state)
    for slot, queue in state.ready.local.items():
        if slot not in pool.records or not queue.rows:
            yield Finding(f"{queue.rows} rows are for worker {slot}, which may not be there")
    if pool.start_at.keys() & pool.records.keys():
        yield Finding(f"workers {pool.start_at.keys() & pool.records.keys()} are there, and to be started")
    if not pool.ending <= pool.records.keys():
        yield Finding(f"workers {pool.ending - pool.records.keys()} are still to end, and gone")
    if state.withdrawals.rows_to_return and not any(worker.recalling for worker in pool.records.values()):
        yield Finding(f"the scheduler waits for {state.withdrawals.rows_to_return} rows, and no worker was asked")
    left = state.follow_ups
    if left.workers or left.arrived or left.lost or left.disorder:
        yield Finding(f"something was left for after the step: {left}")


def _suits(worker: WorkerRecord, head: RowRange) -> bool:
    return worker.is_fresh or not head.task.flags & FRESH


def _slots(state: HostState) -> Iterator[Finding]:
    pool = state.workers
    dispatches = [dispatch for worker in pool.records.values() for dispatch in worker.dispatches.values()]
    if pool.open_dispatches != len(dispatches):
        yield Finding(f"counts {pool.open_dispatches} dispatches, and workers have {len(dispatches)}")
    if pool.wide != sum(dispatch.origin.slots > 1 for dispatch in dispatches):
        yield Finding(f"counts {pool.wide} dispatches that take several slots")
    if pool.wide:
        # what waited for others comes back to slots that may be taken
        taken = [pool.slots_of(w) for w in pool.records.values() if w.takes_slots and not w.has_waited]
        if sum(taken) > pool.target:
            yield Finding(f"rows take {taken} of {pool.target} slots")
    for worker in pool.records.values():
        if worker.slots > 1 and worker.is_crowded:
            yield Finding(f"worker {worker.slot} has rows behind one that takes {worker.slots} slots")


def thorough(state: HostState) -> Iterator[Finding]:
    """What does not hold of rows, pins and objects."""
    yield from _rows(state)
    yield from _pins(state)
    yield from _waiting(state)
    yield from _objects(state)


def _rows(state: HostState) -> Iterator[Finding]:
    places = [(origin, lo, hi) for origin, lo, hi in state.ready]
    places += [(wait.origin, wait.lo, wait.hi) for wait in state.waiting]
    queued = sum(hi - lo for _, lo, hi in places)
    if queued != state.queued:
        yield Finding(f"counts {state.queued} rows queued, and has {queued}")
    dispatches = [dispatch for worker in state.workers.records.values() for dispatch in worker.dispatches.values()]
    dispatched = [(dispatch.origin, lo, hi) for dispatch in dispatches for lo, hi in dispatch.left]
    for dispatch in dispatches:
        if dispatch.rows != sum(hi - lo for lo, hi in dispatch.left):
            yield Finding(f"counts {dispatch.rows} rows of dispatch {dispatch.number}, and has {dispatch.left}")
    seen: set[tuple[int, int, int]] = set()
    for origin, lo, hi in places + dispatched:
        if not origin.lo <= lo < hi <= origin.hi:
            yield Finding(f"rows [{lo}, {hi}) are not among [{origin.lo}, {origin.hi})", origin.task.batch)
        for row in range(lo, hi):
            if (*origin.key, row) in seen:
                yield Finding(f"row {row} of {origin.key} is in two places", origin.task.batch)
            seen.add((*origin.key, row))
    at_workers = {(*origin.key, row) for origin, lo, hi in dispatched for row in range(lo, hi)}
    for client, batch, row in state.withdrawals.withdrawing:
        if (client, batch, row) not in at_workers:
            yield Finding(f"row {row} of {(client, batch)} is wanted back from a worker, and none has it", batch)


def _pins(state: HostState) -> Iterator[Finding]:
    pins: Counter[Key] = Counter()
    for worker in state.workers.records.values():
        for dispatch in worker.dispatches.values():
            pins.update(dispatch.pins)
    for wait in state.waiting:
        pins.update(wait.pins)
    index = state.objects.index
    for key in list(index.keys()):
        if index[key].pins > pins[key]:  # fewer: it was lost and is here again
            yield Finding(f"object {key} has {index[key].pins} pins, and {pins[key]} use it", key[1])


def _waiting(state: HostState) -> Iterator[Finding]:
    waiting = state.waiting
    begun = list(waiting.begun)
    if waiting.coming != sum(wait.cost for wait in begun):
        yield Finding(f"counts {waiting.coming} bytes that come for waiting rows")
    if waiting.stolen != sum(wait.anywhere for wait in begun):
        yield Finding(f"counts {waiting.stolen} stolen rows that wait")
    for wait in waiting:
        if wait not in waiting.in_rows(*wait.origin.key, wait.lo, wait.hi):
            yield Finding(f"rows of {wait.origin.key} wait, and are not found", wait.origin.task.batch)
    for wait in begun:
        for key in wait.missing:
            record = state.objects.records.get(key)
            if record is None or not record.wanted:
                yield Finding(f"rows of {wait.origin.key} wait for {key}, which nobody brings", key[1])
        if not wait.missing and wait not in waiting.complete:
            yield Finding(f"rows of {wait.origin.key} wait for nothing", wait.origin.task.batch)
    for wait in waiting.complete:
        if wait.missing or wait not in waiting.begun:
            yield Finding(f"rows of {wait.origin.key} are said to miss nothing", wait.origin.task.batch)


def _objects(state: HostState) -> Iterator[Finding]:
    objects, index = state.objects, state.objects.index
    for key in list(index.keys()):
        if key not in objects.records:
            yield Finding(f"object {key} is here and has no record", key[1])
    for key, record in objects.records.items():
        yield from _object(state, key, record)
    backing_off = {key for key, record in objects.records.items() if record.state is ObjectState.BACKING_OFF}
    if backing_off != objects.backing_off.keys():
        yield Finding(f"objects {backing_off ^ objects.backing_off.keys()} back off, or are listed so, and not both")
    spilling = [key for key, record in objects.records.items() if record.state is ObjectState.SPILLING]
    if objects.leaving != sum(index[key].size for key in spilling):
        yield Finding(f"counts {objects.leaving} bytes on their way to disk")


def _object(state: HostState, key: Key, record: ObjectRecord) -> Iterator[Finding]:
    entry = state.objects.index.get(key)
    name = f"object {key} ({record.state})"
    if (entry is None) != (record.state is ObjectState.ABSENT):
        yield Finding(f"{name} is in the index, or should be, and not both", key[1])
    elif entry is None:
        if not record.holders or record.wanted:
            yield Finding(f"{name} is remembered for nothing, or nobody brings it", key[1])
    elif PLACES.get(record.state, entry.place) != entry.place:
        yield Finding(f"{name} is at {entry.place}", key[1])
    elif entry.slot is not None:
        worker = state.workers.records.get(entry.slot)
        if worker is None or key not in worker.objects:
            yield Finding(f"{name} is in worker {entry.slot}, which has not got it", key[1])
    if entry is not None and not 0 < entry.size <= LARGEST_VALUE:
        yield Finding(f"{name} cannot have {entry.size:,} bytes: the scheduler would not believe it", key[1])
    if record.state in _COMING and not record.wanted:
        yield Finding(f"{name} is brought for nobody", key[1])
    if record.state in READABLE and record.wanted:
        yield Finding(f"{name} is a file, and somebody waits for that", key[1])
    if (record.scheduler_waits or record.peers_wait) and not record.wanted:
        yield Finding(f"{name}: somebody waits, and nobody brings it", key[1])
