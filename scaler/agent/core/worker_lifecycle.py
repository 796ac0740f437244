"""Workers come and go: as many at work as the host should have, besides those whose tasks wait for other tasks.

A worker whose task waits is *blocked*: another one takes its place until it goes on. A few that are not needed are
parked for the next time; the others end.
"""

import math

from scaler.agent.core import bringing, dispatching, preloads, staging, worker_commands, yielding
from scaler.agent.core.events import Sampled, StartWorker
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state import worker_moves
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import BUSY, IDLE, PARKED, STARTING, KillKind, KillReason, WorkerRecord
from scaler.protocol import failures
from scaler.protocol.messages import TaskBegun
from scaler.worker_protocol.messages import Quit

#: workers kept for the next time a worker blocks
SPARE = 4
#: workers for blocked ones, at most
MAX_EXTRA = 512


def start(state: HostState, out: Outgoing, slot: int) -> None:
    """Start a worker."""
    state.workers.records[slot] = WorkerRecord(slot)
    out.add(StartWorker(slot, any(worker.blocked for worker in state.workers.records.values())))


def start_due(state: HostState, out: Outgoing) -> None:
    """Start the workers whose time has come."""
    for slot in [slot for slot, at in state.workers.start_at.items() if at <= state.now]:
        del state.workers.start_at[slot]
        start(state, out, slot)


def next_start(state: HostState) -> float:
    """When `start_due` has something to do, seconds; infinite for never."""
    return min(state.workers.start_at.values(), default=math.inf)


def settle(state: HostState, out: Outgoing) -> None:
    """Keep as many workers at work as the host should have, not counting blocked ones."""
    state.follow_ups.workers = False
    pool = state.workers
    for worker in [worker for worker in pool.records.values() if worker.is_worn and worker.is_without_task]:
        staging.evict(state, out, worker.slot)
        _end(state, out, worker)
    active = [worker for worker in pool.records.values() if not worker.blocked and worker.state is not PARKED]
    missing = pool.target - len(active) - len(pool.start_at)
    if missing > 0:
        parked = [w for w in pool.records.values() if w.state is PARKED and w.kill_reason is None]
        for worker in parked[:missing]:
            worker_moves.move(state, worker, IDLE)
            missing -= 1
        while missing > 0 and len(pool.records) < pool.target + MAX_EXTRA:
            start(state, out, pool.free_slot)
            missing -= 1
    elif missing < 0:
        for worker in [worker for worker in active if worker.state is IDLE][:-missing]:
            worker_moves.move(state, worker, PARKED)
            staging.evict(state, out, worker.slot)
    for worker in [worker for worker in pool.records.values() if worker.state is PARKED][SPARE:]:
        _end(state, out, worker)


def _end(state: HostState, out: Outgoing, worker: WorkerRecord) -> None:
    """Have a worker without a task end as a program does, when what it alone has is written."""
    if worker.kill_reason is None and not _publish_all(state, out, worker):
        worker.kill_reason = KillReason(KillKind.SURPLUS, "")
        worker_commands.tell(out, worker, Quit())


def _publish_all(state: HostState, out: Outgoing, worker: WorkerRecord) -> bool:
    """Have a worker write what it alone has, before it ends; False if that is nothing."""
    if not state.objects.index.live_bytes(worker.slot):
        return False
    bringing.publish_all(state, out, worker)
    return True


# ---- what workers say ------------------------------------------------------------------------------------------------
def take_ready(state: HostState, out: Outgoing, worker: WorkerRecord) -> None:
    """A worker can be given rows."""
    if worker.state is not STARTING:
        worker_commands.reject(out, worker, "says for the second time that it is ready")
        return
    state.workers.failed_starts, state.workers.failing_since = 0, None
    state.follow_ups.workers = True
    worker_moves.move(state, worker, IDLE)
    preloads.take_start(state, out)


def take_blocked(state: HostState, out: Outgoing, worker: WorkerRecord) -> None:
    """The task of a worker waits for other tasks."""
    yielding.note_blocked(state, worker)
    worker.blocked = state.follow_ups.workers = True
    if worker.is_crowded:  # handed out when it was about to wait
        worker_commands.recall(state, out, worker, keep=0)
    staging.evict(state, out, worker.slot)
    state.pulse.hurry(state.now)  # the scheduler may send rows for the worker that takes its place


def take_unblocked(state: HostState, worker: WorkerRecord) -> None:
    """The task of a worker goes on."""
    worker.blocked, worker.has_waited, worker.went_on = False, True, state.now
    state.follow_ups.workers = True
    state.pulse.hurry(state.now)


def take_leaving(out: Outgoing, worker: WorkerRecord) -> None:
    """A worker makes room for one that has loaded what its rows need; they come back when it has ended."""
    worker_commands.kill(out, worker, KillKind.LEAVING, "")


def replace(state: HostState, out: Outgoing, worker: WorkerRecord, why: str) -> None:
    """A worker is as some task has left it, unfit for others: it ends after the row that it runs, and another comes."""
    if worker.is_unfit:
        return
    worker.is_unfit = True
    out.log("WARNING", f"worker {worker.slot} {why}, as tasks have left it: another one takes its place")
    dispatching.wear_out(state, worker)
    if worker.dispatches:
        worker_commands.recall(state, out, worker, keep=0)


# ---- memory ----------------------------------------------------------------------------------------------------------
def take_sample(state: HostState, out: Outgoing, event: Sampled) -> None:
    """Workers take so much memory, and run these rows: end those that take more than they may.

    A row that ran when its worker was sampled last, and still does, is one that takes long: the scheduler is told once.
    A worker without its main thread runs nothing, unless it is about to end: then it isn't there when sampled again.
    """
    limit = state.limits.worker
    begun = TaskBegun()
    for slot, memory in event.workers.items():
        worker = state.workers.records.get(slot)
        if worker is None:
            continue
        worker.memory = memory
        worker.peak = max(worker.peak, memory)
        seen = event.begun.get(slot)
        if seen is not None and seen == worker.sampled != worker.told_begun:
            _note_begun(worker, seen, begun)
        worker.sampled = seen
        if limit and memory > limit and worker.kill_reason is None:
            _end_large(state, out, worker, limit)
        was_halted, worker.halted = worker.halted, slot in event.halted
        if was_halted and worker.halted:
            worker_commands.give_up(out, worker, "ended its main thread")
    if begun:
        out.say(begun)


def _note_begun(worker: WorkerRecord, seen: tuple[int, int], begun: TaskBegun) -> None:
    number, row = seen
    dispatch = worker.dispatches.get(number)
    if dispatch is not None and not dispatch.unwanted and dispatch.has(row):
        worker.told_begun = seen
        begun.add(*dispatch.origin.key, row, row + 1)


def _end_large(state: HostState, out: Outgoing, worker: WorkerRecord, limit: int) -> None:
    much = failures.memory_taken(worker.memory, limit)
    if worker.state is BUSY:
        worker_commands.kill(out, worker, KillKind.MEMORY, much)
    elif not _publish_all(state, out, worker) and worker.state in (IDLE, PARKED):
        out.log("WARNING", f"worker {worker.slot} has no task and takes {much}: it is started anew")
        worker_commands.kill(out, worker, KillKind.MEMORY, "")
