"""Workers whose tasks wait for tasks of their own let others' rows begin.

What such a task waits for it runs itself, in its own stack: a whole tree of tasks is one long row to its agent. When
rows wait that are more urgent, or of a root for which too few workers are at work, those workers are asked to *yield*:
at its next wait the task leaves what it waits for to the queues, which are fair, and its worker counts as blocked, so
that another one takes its place. Whoever is first is enough: the others are told to go on.

Each that yields has another process run what it would have run itself, and trees of several roots yield to each other.
So a task has a slice of time before it does so for rows that are not more urgent, and its root is charged for it.
"""

import math
from collections import Counter

from scaler.agent.core import worker_commands
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.rows import RowRange
from scaler.agent.state.worker_records import BUSY, PARKED, WorkerRecord
from scaler.worker_protocol.messages import Yield

#: workers for those that wait, beyond which none is asked: each takes memory until what it waits for has ended
MOST_EXTRA = 16
#: roots whose rows wait that are looked at
MOST_LOOKED = 8
#: seconds that a task runs before it yields to rows that are not more urgent: a few times what it costs to yield
SLICE = 0.01


def attend(state: HostState, out: Outgoing) -> None:
    """Say to each worker whose task waits for tasks of its own whether it is to yield, if that has changed."""
    pool, local = state.workers, state.ready.local
    nesting, records = pool.nesting, pool.records
    pool.yield_at = math.inf
    free = _free(state)
    heads = _kept_waiting(state, free)
    if not (heads or local) and all(since is None for since in nesting.values()):
        return
    at_work = Counter(
        worker.first.origin.share for worker in records.values() if worker.dispatches and not worker.blocked
    )
    known: dict[tuple[int, int], float] = {}
    for slot, since in [*nesting.items()]:
        worker = records.get(slot)
        if worker is None or not worker.dispatches:
            del nesting[slot]
            continue
        due, first = math.inf, worker.first
        if not worker.blocked:
            running = first.origin
            kind = running.share, running.task.priority
            slices = known.get(kind)
            if slices is None:
                slices = known[kind] = _slices(heads, running, at_work)
            if slices and slot in local and not free:
                slices = min(slices, _slices(local[slot].heads(MOST_LOOKED), running, at_work))
            due = max(worker.went_on, first.at) + SLICE * slices
        is_to_yield = due <= state.now
        if not is_to_yield and due < pool.yield_at:
            pool.yield_at = due
        if is_to_yield != (since is not None):
            nesting[slot] = state.now if is_to_yield else None
            worker_commands.tell(out, worker, Yield(is_to_yield), control=True)


def note_blocked(state: HostState, worker: WorkerRecord) -> None:
    """A worker's task waits. What it has run while others waited counts, or its root might go first again."""
    if worker.blocked or not worker.dispatches:
        return
    goes_since = max(worker.went_on, worker.first.at)
    worker.ran += max(1e-9, state.now - goes_since)
    since = state.workers.nesting.get(worker.slot)
    if since is not None:
        us = 1e6 * (state.now - max(goes_since, since - SLICE))
        state.ready.general.charge(worker.first.origin, max(1.0, min(us, 1e6 * worker.ran - worker.charged)))
    worker.charged = max(worker.charged, 1e6 * worker.ran)


def _free(state: HostState) -> float:
    """Workers that are there or come for more rows; infinite if no more can be started, or nothing has room to run."""
    pool = state.workers
    if state.memory.is_full or len(pool.records) >= pool.target + MOST_EXTRA:
        return math.inf
    free = sum(not worker.blocked and worker.state not in (BUSY, PARKED) for worker in pool.records.values())
    return len(pool.start_at) + free


def _kept_waiting(state: HostState, free: float) -> list[RowRange]:
    """Of each root the rows for any worker that are next, if so few workers are free that they can't begin."""
    ready, target = state.ready, state.workers.target
    heads = [*ready.general.heads(MOST_LOOKED), *ready.wide.heads(MOST_LOOKED)]
    return [head for head in heads if min(head.slots, target) > free]


def _slices(heads: list[RowRange], running: RowRange, at_work: Counter[int]) -> float:
    """How many slices a row that runs has before it is to yield to one of these; infinite: it need not."""
    slices, share, priority = math.inf, running.share, running.task.priority
    for head in heads:
        if head.task.priority > priority:
            return 0.0
        if head.task.priority == priority and head.share != share:
            workers = at_work[head.share]
            if not workers or workers + 1 < at_work[share]:
                slices = 1.0
    return slices
