"""Workers whose tasks wait for tasks of their own let others' rows begin.

What such a task waits for it runs itself, in its own stack: a whole tree of tasks is one long row to its agent. When
rows wait that are more urgent, or of a root for which too few workers are at work, those workers are asked to *yield*:
at its next wait the task leaves what it waits for to the queues, which are fair, and its worker counts as blocked, so
that another one takes its place. Whoever is first is enough: the others are told to go on.
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


def attend(state: HostState, out: Outgoing) -> None:
    """Say to each worker whose task waits for tasks of its own whether it is to yield, if that has changed."""
    nesting, records, local = state.workers.nesting, state.workers.records, state.ready.local
    free = _free(state)
    heads = _kept_waiting(state, free)
    if not (heads or local) and all(since is None for since in nesting.values()):
        return
    at_work = Counter(
        worker.first.origin.share for worker in records.values() if worker.dispatches and not worker.blocked
    )
    for slot, since in [*nesting.items()]:
        worker = records.get(slot)
        if worker is None or not worker.dispatches:
            del nesting[slot]
            continue
        own = local[slot].heads(MOST_LOOKED) if slot in local and not free else []
        is_to_yield = not worker.blocked and any(
            _goes_first(head, worker.first.origin, at_work) for head in (*heads, *own)
        )
        if is_to_yield != (since is not None):
            nesting[slot] = state.now if is_to_yield else None
            worker_commands.tell(out, worker, Yield(is_to_yield), control=True)


def note_blocked(state: HostState, worker: WorkerRecord) -> None:
    """A worker's task waits: what it has run since it was to yield counts, or its root might go first again."""
    since = state.workers.nesting.get(worker.slot)
    if since is not None and worker.dispatches:
        state.ready.general.charge(worker.first.origin, max(1.0, 1e6 * (state.now - since)))


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


def _goes_first(head: RowRange, running: RowRange, at_work: Counter[int]) -> bool:
    """Rows are to begin before what a row that runs waits for: they are more urgent, or too few workers are at work for
    their root.
    """
    if head.task.priority != running.task.priority or head.share == running.share:
        return head.task.priority > running.task.priority
    workers = at_work[head.share]
    return not workers or workers + 1 < at_work[running.share]
