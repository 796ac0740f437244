"""Handing rows to workers.

Rows go to workers by what they should take: one while a function is unknown, about `DISPATCH_US` worth once it is
known, and a second dispatch before the first is done, so that a worker never waits for its agent. A dispatch is a span
of rows; where those that are next come in short ones, as in graphs, several are handed out, about `SHORT_US` worth: the
parts of a group, taken out one by one, would cost more in messages than in their worker.
Rows handed out and not begun are taken back when another worker idles, and when more urgent ones wait (see
in_hand.py). A row that may have ended a worker before is handed to one that has nothing else, and nothing comes behind
it (see state/suspects.py). A worker takes those rows first that use what only it has; one with nothing to do gets rows
that are for a busy one, when moving what they use takes less time than waiting there.

A row that takes n slots is one worker's alone, and n - 1 others are left without rows while it runs. When it is next in
line and fewer are free, those that become free are kept for it.
"""

from collections.abc import Iterable
from itertools import islice

from scaler.agent.core import in_hand, spilling, staging, stealing
from scaler.agent.core.events import ToWorker
from scaler.agent.core.in_hand import DISPATCH_BYTES, DISPATCH_US, SHORT_DISPATCHES, SHORT_US
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state import dispatch_moves, worker_moves
from scaler.agent.state.host import HostState
from scaler.agent.state.ready_rows import RowQueue
from scaler.agent.state.rows import RowRange
from scaler.agent.state.worker_records import BUSY, IDLE, STARTING, Dispatch, WorkerRecord
from scaler.common.spans import UNKNOWN_US
from scaler.protocol.messages import FRESH, NESTINGS, Frame
from scaler.store.layout import Key
from scaler.worker_protocol.messages import Need, Run

#: rows handed to a worker at once, at most
DISPATCH_ROWS = 16_384


def feed(state: HostState, out: Outgoing) -> None:
    """Hand rows to workers that have none, then to those that will run out soon."""
    ready, now = state.ready, state.now
    fed = [worker for worker in state.workers.records.values() if worker.may_be_fed]
    if state.memory.is_full:
        if not spilling.defers_work(state):
            _feed_one(state, out, fed)
        return
    if ready.wide.rows or state.workers.wide:
        _feed_by_slots(state, out, fed)
        return
    idle = 0
    for worker in fed:
        if worker.state is IDLE:
            idle += not _dispatch(state, out, worker, len(fed))
            if not (ready.general.rows or ready.local):
                return
    if idle and ready.local:
        stealing.steal(state, out, idle - state.waiting.stolen)
    for worker in fed:
        if worker.state is BUSY and now < worker.due and not worker.gives_back:
            found = ready.of(worker.slot)
            if found is not None and in_hand.may_follow(state, worker, *found):
                _dispatch(state, out, worker, len(fed))
                if not (ready.general.rows or ready.local):
                    return
    if idle and ready.general.rows:  # that were to be for one worker
        _feed_idle(state, out, fed)
    in_hand.make_way(state, out, fed)


def _feed_idle(state: HostState, out: Outgoing, fed: list[WorkerRecord]) -> None:
    """Hand rows for any worker to those that have none."""
    general, given = state.ready.general, True
    while given and general.rows:
        given = False
        for worker in fed:
            given |= worker.state is IDLE and _dispatch(state, out, worker, len(fed))


def _feed_one(state: HostState, out: Outgoing, fed: list[WorkerRecord]) -> None:
    """There is no room, and nothing that runs or leaves will make some: a single row goes on."""
    free = state.workers.free
    for worker in fed:
        if worker.state is IDLE and _dispatch(state, out, worker, len(fed), 1, free):
            return


def _feed_by_slots(state: HostState, out: Outgoing, fed: list[WorkerRecord]) -> None:
    """As `feed`, where some rows take several slots: the next in line waits for them, and none overtakes it."""
    ready, pool = state.ready, state.workers
    idle, free = 0, pool.free
    for worker in fed:
        if worker.state is IDLE:
            if _dispatch(state, out, worker, len(fed), free=free):
                free -= pool.slots_of(worker)
            else:
                idle += 1
    if ready.local:
        stealing.steal(state, out, min(idle, free) - state.waiting.stolen)
    for worker in fed if free >= 0 else ():
        if worker.state is BUSY and state.now < worker.due and worker.slots == 1 and not worker.gives_back:
            found = ready.within(worker.slot, 1, pool.target)
            if found is not None and found[0] is not ready.wide and in_hand.may_follow(state, worker, *found):
                _dispatch(state, out, worker, len(fed), free=1)
    for worker in fed if idle and free > 0 else ():  # rows that were to be for one worker are for any now
        if worker.state is IDLE and _dispatch(state, out, worker, len(fed), free=free):
            free -= pool.slots_of(worker)
    in_hand.make_way(state, out, fed)


def _dispatch(
    state: HostState,
    out: Outgoing,
    worker: WorkerRecord,
    sharers: int,
    limit: int = DISPATCH_ROWS,
    free: int | None = None,
) -> bool:
    """Hand the next rows to a worker; False if there are none for it, or too few `free` slots (None: never mind)."""
    ready, slot = state.ready, worker.slot
    first, latest, left, most_us = None, None, 0, DISPATCH_US
    while not worker.is_worn and len(worker.dispatches) < SHORT_DISPATCHES:
        found = ready.of(slot) if free is None else ready.within(slot, free, state.workers.target)
        if found is None:
            break
        queue, whose = found
        head = queue.head
        each = state.estimates.durations.get(head.function)
        if latest is None:
            left = min(limit, queue.rows if whose is not None else -(-queue.rows // sharers))
        elif queue is not first or not _goes_along(state, latest, head, whose, each, most_us):
            break
        rows = _rows_at_once(state, worker, queue, head, whose, each, left, most_us)
        given = _hand_over(state, out, worker, queue, whose, rows, each) if rows else None
        if given is not None:
            first, latest = queue, given.origin
            left -= given.rows
            if left <= 0 or given.is_alone or not in_hand.is_short(state, latest, whose):
                break
            most_us = min(most_us, SHORT_US) - (each or 0.0) * given.rows
        elif not rows or worker.state is not IDLE:  # the next row may be none that may follow another one
            break
    return latest is not None


def _goes_along(
    state: HostState, latest: RowRange, head: RowRange, whose: int | None, each: float | None, most_us: float
) -> bool:
    """The next rows are handed out together with the latest ones: equally urgent, short, and not too long in all."""
    if each is None or each > most_us or latest.goes_before(head):
        return False
    return in_hand.is_short(state, head, whose)


def _rows_at_once(
    state: HostState,
    worker: WorkerRecord,
    queue: RowQueue,
    head: RowRange,
    whose: int | None,
    each: float | None,
    left: int,
    most_us: float,
) -> int:
    """How many of the next rows, of `head`, go into one dispatch; 0: none for this worker now."""
    if head.task.flags & FRESH and not worker.is_fresh:
        if worker.state is IDLE and (whose is not None or _lacks_fresh(state, queue)):
            wear_out(state, worker)
        return 0
    rows = 1 if each is None or head.is_alone else max(1, min(int(most_us / each), left))
    if head.function in state.estimates.sizes:
        rows = _fitting(state, rows, state.estimates.sizes[head.function])
    if state.limits.tasks:
        rows = min(rows, state.limits.tasks - worker.ended - worker.rows)
    return rows


def _hand_over(
    state: HostState,
    out: Outgoing,
    worker: WorkerRecord,
    queue: RowQueue,
    whose: int | None,
    rows: int,
    each: float | None,
) -> Dispatch | None:
    """Hand over so many rows of a queue, or as many of them as may begin here; None: none may."""
    ready = state.ready
    runs_for = state.estimates.running.get(queue.head.function, each)
    origin, lo, hi = queue.take(rows, runs_for)
    charged = UNKNOWN_US if runs_for is None else runs_for
    if queue is not ready.general:
        ready.note_taken(origin, (hi - lo) * charged)
    if whose is not None:
        ready.settle(whose)
    is_alone = False
    if origin.stored or state.suspects.count:
        hi, is_alone = _beginning(state, out, worker, origin, lo, hi, whose)
        if hi == lo:
            return None
    dispatch = dispatch_moves.open_dispatch(state, worker, origin, lo, hi, None if each is None else each * (hi - lo))
    dispatch.is_alone, dispatch.is_local = is_alone, whose is not None
    if origin.task.flags & FRESH or (state.limits.tasks and worker.ended + worker.rows >= state.limits.tasks):
        wear_out(state, worker)
    if worker.state is IDLE:
        worker.note_heard(state.now)
        worker.has_waited = worker.gives_back = False
        worker.ran = 0.0
        state.workers.nesting.pop(worker.slot, None)
        worker_moves.move(state, worker, BUSY)
    worker.charged = charged
    out.add(ToWorker(worker.slot, _run_message(state, out, worker, dispatch)))
    return dispatch


def _beginning(
    state: HostState, out: Outgoing, worker: WorkerRecord, origin: RowRange, lo: int, hi: int, whose: int | None
) -> tuple[int, bool]:
    """Where those of these rows end that may begin here, and whether it is a suspect; the others go back."""
    end, is_alone = hi, False
    if origin.stored:
        end = staging.usable(state, origin, lo, hi, worker.slot)
        if end == lo:  # what it needs was moved to disk meanwhile, or is gone
            staging.admit(state, out, origin, lo, hi, front=True)
            return lo, False
    if state.suspects.count:
        first = state.suspects.first(origin.key, lo, end)
        is_alone = first == lo
        end = lo + (worker.state is IDLE) if is_alone else first  # not if the worker has other rows
    if end < hi:
        state.ready.put(origin, end, hi, whose, front=True)
    return end, is_alone


def wear_out(state: HostState, worker: WorkerRecord) -> None:
    """A worker gets no more rows than it has; another one takes its place after them."""
    worker.is_worn = state.follow_ups.workers = True


def _lacks_fresh(state: HostState, queue: RowQueue) -> bool:
    """Of workers that have run nothing there are fewer, with those that come for worn ones, than rows that want one."""
    pool = state.workers
    wanted = sum(hi - lo for origin, lo, hi in islice(queue, pool.target) if origin.task.flags & FRESH)
    there = sum(
        worker.is_worn or worker.is_fresh
        for worker in pool.records.values()
        if worker.state in (STARTING, IDLE) and not worker.blocked
    )
    return there + len(pool.start_at) < wanted


def _fitting(state: HostState, rows: int, size: float) -> int:
    """As many of these rows as there is room for results of such a size, bytes; 0 if there will be more room."""
    promised, ending, sizes = 0.0, 0.0, state.estimates.sizes
    for worker in state.workers.records.values():
        bytes_ = 0.0
        for each in worker.dispatches.values():
            if each.origin.function in sizes:
                bytes_ += each.rows * sizes[each.origin.function]
        promised += bytes_
        if not worker.blocked:  # a task that waits for others may wait for these rows
            ending += bytes_
    room = spilling.room(state) - promised
    if room < size:
        return 0 if ending else 1
    return max(1, min(rows, int(min(DISPATCH_BYTES, room / 2) / max(size, 1.0))))


def _run_message(state: HostState, out: Outgoing, worker: WorkerRecord, dispatch: Dispatch) -> Run:
    """What a worker is told to run; objects that it doesn't have go along and count as known from now on."""
    origin, ((lo, hi),) = dispatch.origin, dispatch.left
    stale, worker.stale = worker.stale, []
    task, client = origin.task, origin.client
    function = client, task.function
    arguments = (client, task.arguments) if task.arguments else None
    needed: dict[Key, None] = {function: None}
    if arguments is not None:
        needed[arguments] = None
    needs: list[list[Need]] | None = None
    if origin.needs is not None:
        needs = []
        for row in origin.needs[lo - origin.lo : hi - origin.lo]:
            for object_id, _ in row:
                needed[client, object_id] = None
            needs.append([((client, object_id), index) for object_id, index in row])
    sizes = body = None
    if origin.offsets is not None and origin.sizes is not None:
        a, b = lo - origin.lo, hi - origin.lo
        sizes = origin.sizes[a:b].tobytes()
        body = bytes(memoryview(origin.body)[origin.offsets[a] : origin.offsets[b]])
    objects = [] if worker.objects.issuperset(needed) else _objects_for(state, out, worker, origin, needed)
    claims_below = state.suspects.claims_below(origin.key, lo) if dispatch.is_alone else NESTINGS
    fields = (
        dispatch.number, client, task.batch, lo, hi, task.form, function, arguments, task.flags, task.priority,
        task.name, sizes, body, needs, objects, stale, origin.wanted(lo, hi),
        1 if origin.slots == 1 else min(origin.slots, state.workers.target), task.results,
        task.root, task.nesting, claims_below,
    )  # fmt: skip
    return tuple.__new__(Run, fields)  # a call of the class costs five times as much


def _objects_for(
    state: HostState, out: Outgoing, worker: WorkerRecord, origin: RowRange, needed: Iterable[Key]
) -> list[tuple[Key, Frame]]:
    """Those of the objects that a worker does not have and that are in no store; it has them from now on."""
    known, inline, stored = worker.objects, state.objects.inline, origin.stored
    wanted = [key for key in needed if key not in known and key[1] not in stored]
    known.update(needed)
    lacking = [key for key in wanted if key not in inline]
    if lacking:
        if state.strict:
            raise KeyError(lacking[0])
        name = origin.task.name
        out.log("ERROR", f"a defect of the cluster: rows of {name} came without object {lacking[0]}: they fail")
    return [(key, inline[key]) for key in wanted if key in inline]
