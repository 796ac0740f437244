"""A worker has ended: its rows wait for another one; the one that it ran may end with it, as lost or with an error."""

import signal
from dataclasses import replace

from scaler.agent.core import preloads, releasing, staging, withdrawing
from scaler.agent.core.events import DropObject, WorkerExited
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state import dispatch_moves, worker_moves
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import GONE, STARTING, Dispatch, KillKind, WorkerRecord
from scaler.common.attempts import growing_pause
from scaler.common.exits import describe_exit
from scaler.protocol import failures
from scaler.protocol.messages import ERROR, LOST, u32
from scaler.protocol.results import SpanResult

#: seconds until a worker that died while starting is started again, at first and at most: doubled when as many in a row
#: have died as the host should have
RESTART_SECONDS, RESTART_SECONDS_MAX = 0.1, 60.0


def take_exit(state: HostState, out: Outgoing, event: WorkerExited) -> None:
    """A worker's process ended."""
    worker = state.workers.records.pop(event.slot, None)
    if worker is None:
        return
    state.follow_ups.workers = True
    state.workers.ending.discard(event.slot)
    was_starting = worker.state is STARTING
    worker_moves.move(state, worker, GONE, describe_exit(event.status))
    releasing.lose_worker(state, out, event.slot)
    suspect, row = _suspect(worker, event.begun)
    if (suspect, row) != event.begun:  # whatever it has claimed, another row had
        event = replace(event, claimed=-1)
    if _may_be_a_rows_doing(worker) or (event.claimed >= 0 and _took_too_much(worker)):
        _note_suspects(state, worker, suspect, row, event.claimed)
    for dispatch in list(worker.dispatches.values()):
        _end_dispatch(state, out, worker, dispatch, row if dispatch.number == suspect else -1, event)
    staging.evict(state, out, event.slot)
    if worker.recalling:
        withdrawing.return_rows(state, out)
    if was_starting:
        _start_again(state, out, worker, event)


def _suspect(worker: WorkerRecord, begun: tuple[int, int]) -> tuple[int, int]:
    """The dispatch and the row that the worker was at, or had just ended; row -1 for none."""
    number, row = begun
    if not worker.dispatches:
        return number, row
    if number in worker.dispatches:
        left = worker.dispatches[number].left
        if row < 0 and left:  # all of it had run, and it could not even tell: its last row is the one to suspect
            row = left[-1][1] - 1
        return number, row
    # It died between rows, or while it loaded the next function: that row is the one to suspect.
    number, dispatch = next(iter(worker.dispatches.items()))
    return number, dispatch.left[0][0] if dispatch.left else -1


def _may_be_a_rows_doing(worker: WorkerRecord) -> bool:
    """It has ended by itself, or said what can't be: nobody wanted it to end for another reason."""
    return worker.kill_reason is None or worker.kill_reason.kind in (KillKind.REJECTED, KillKind.GIVEN_UP)


def _took_too_much(worker: WorkerRecord) -> bool:
    return worker.kill_reason is not None and worker.kill_reason.kind is KillKind.MEMORY


def _note_suspects(state: HostState, worker: WorkerRecord, number: int, row: int, claimed: int) -> None:
    """Of the rows that had begun up to this one, and were not reported, any may have ended the worker.

    If this one has `claimed` what ran, submitted in so many tasks, it leaves rows as deep as that to others.
    """
    for dispatch in worker.dispatches.values():
        if dispatch.number > number or dispatch.unwanted:
            continue
        key = dispatch.origin.key
        for lo, hi in dispatch.left:
            if claimed >= 0 and dispatch.number == number and lo <= row < hi:
                state.suspects.add(key, row, row + 1, claimed)
                hi = row
            state.suspects.add(key, lo, hi if dispatch.number < number else min(hi, row + 1))


def _end_dispatch(
    state: HostState, out: Outgoing, worker: WorkerRecord, dispatch: Dispatch, running: int, event: WorkerExited
) -> None:
    dispatch_moves.close_dispatch(state, worker, dispatch.number)
    _drop_files(state, out, dispatch, running)
    if dispatch.unwanted:
        return

    def come_back(lo: int, hi: int) -> None:
        if lo < hi:
            dispatch.take(lo, hi)
            withdrawing.take_returned(state, out, dispatch.origin, lo, hi)

    # what it had done before is no fault of a row that it was handed and did not even load
    is_its_own = event.begun[0] >= dispatch.number or worker.kill_reason is None or worker.is_rejected
    for lo, hi in reversed(list(dispatch.left)):
        if lo <= running < hi:
            come_back(running + 1, hi)
            row_end = _end_of_running(worker, dispatch, running, event) if is_its_own else None
            if row_end is None or withdrawing.is_cancelled(state, *dispatch.origin.key, running):
                come_back(running, running + 1)
            else:
                dispatch_moves.end_rows(state, worker, dispatch, running, running + 1, row_end.outcome)
                withdrawing.take_ended(state, out, *dispatch.origin.key, running, running + 1)
                out.result(dispatch.origin.client, row_end)
            come_back(lo, running)
        else:
            come_back(lo, hi)


def _drop_files(state: HostState, out: Outgoing, dispatch: Dispatch, running: int) -> None:
    """Rows that had begun may have written a result that nobody was told of."""
    origin, estimates = dispatch.origin, state.estimates
    never_stores = origin.function in estimates.durations and not estimates.sizes.get(origin.function)
    for lo, hi in dispatch.left:
        for row in range(max(lo, running) if never_stores else lo, min(hi, running + 1)):
            key = origin.client, origin.task.batch + row
            if key not in state.objects.index:
                out.add(DropObject(key))


def _end_of_running(worker: WorkerRecord, dispatch: Dispatch, row: int, event: WorkerExited) -> SpanResult | None:
    """How the row ended that a worker ran, or that it is most likely to have died of; None: it can run again."""
    task, peak = dispatch.origin.task, 0
    kind, words = worker.kill_reason or (None, "")
    if kind is None or (kind is KillKind.GIVEN_UP and event.status != signal.SIGKILL):  # it has ended by itself
        outcome, body = LOST, failures.worker_ended(event.pid, event.status, event.claimed >= 0).encode()
    elif kind in (KillKind.REJECTED, KillKind.GIVEN_UP):
        outcome, body = LOST, failures.worker_rejected(event.pid, words).encode()
    elif kind is KillKind.MEMORY and event.claimed >= 0:  # the other row has, and does in a worker of its own
        outcome, body = LOST, failures.worker_crowded(event.pid, words).encode()
    elif kind is KillKind.TIMEOUT:
        outcome, body = ERROR, failures.task_timeout(task.name, task.batch + row, task.timeout).encode()
        peak = worker.peak
    elif kind is KillKind.MEMORY:
        outcome, body = ERROR, failures.worker_memory_exceeded(task.name, task.batch + row, words).encode()
        peak = worker.peak
    else:  # its worker had to end for another row's sake
        return None
    return SpanResult(task.batch, row, row + 1, outcome, 0, peak, u32([len(body)]), body)


def _start_again(state: HostState, out: Outgoing, worker: WorkerRecord, event: WorkerExited) -> None:
    rounds = state.workers.failed_starts // max(1, state.workers.target)
    state.workers.failed_starts += 1
    delay = growing_pause(rounds + 1, RESTART_SECONDS, RESTART_SECONDS_MAX)
    state.workers.start_at[event.slot] = state.now + delay
    if worker.preloading is not None:
        preloads.take_failed_start(state, out, worker, event)
        return
    why = event.trouble or f"it {describe_exit(event.status)}"
    out.log("ERROR", f"worker {event.slot} could not start: {why}; another try in {delay:.1f} s")
    if event.trouble:
        preloads.take_shortage(state, out, event.trouble, delay)
