"""Workers that do not react, as a task keeps the interpreter to itself, or has stopped the process: nobody waits there.

A worker that does not give back what it was asked for is told to begin nothing more, by the progress page, which it
looks at before each dispatch. Some time later it is looked at: the dispatches behind the one that it is at are taken
back without its help, and what it says of them later does not count. The row that it runs goes on.

A worker that owes a sign that costs nothing is ended when it gives none for long: one that has had rows for that time
and has not even begun to load what the first one needs, or one without rows that does not answer.
"""

import math

from scaler.agent.core import withdrawing, worker_commands
from scaler.agent.core.events import KillWorker, LookAt, Looked, Revoke, Sampled
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state import dispatch_moves
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import BUSY, KillKind, Silence, WorkerRecord

#: seconds from when dispatches are revoked until it is looked which of them a worker had begun: much longer than memory
#: takes to tell other processors what was written
LOOK_SECONDS = 0.05
#: seconds for which a worker may owe a sign; and for which one may that is ending, as tasks have left it threads
MUTE_SECONDS, ENDING_SECONDS = 5.0, 20.0
#: seconds from one sample to the next that count, at most: if there are more, this agent did not run either
_MOST = 1.0


def attend(state: HostState, out: Outgoing, worker: WorkerRecord) -> float:
    """See to a busy worker that was asked for rows; when to do so next, infinite if nothing is left to be done."""
    if state.now < worker.answer_by:
        return worker.answer_by
    worker.answer_by = math.inf
    if worker.silence is Silence.SILENT:
        return math.inf
    if worker.silence is Silence.NONE and len(worker.dispatches) > 1:
        worker.silence, worker.revoked = Silence.REVOKED, next(reversed(worker.dispatches))
        out.add(Revoke(worker.slot, worker.revoked))
        worker.answer_by = state.now + LOOK_SECONDS
    elif worker.silence is Silence.REVOKED:
        worker.silence = Silence.LOOKED_AT
        out.add(LookAt(worker.slot))
    else:
        _settle(state, out, worker)
    return worker.answer_by


def end(state: HostState, worker: WorkerRecord, is_last: bool) -> None:
    """A worker answers; it may have been asked once more since."""
    worker.silence = Silence.NONE
    worker.answer_by = math.inf if is_last else state.now + worker_commands.ANSWER_SECONDS


def take_look(state: HostState, out: Outgoing, event: Looked) -> None:
    """What comes behind the dispatch that a worker is at is taken back, as it was revoked some time ago."""
    worker = state.workers.records.get(event.slot)
    if worker is None or worker.silence is not Silence.LOOKED_AT or worker.kill_reason is not None:
        return
    if worker.dispatches:
        _take_back(state, out, worker, event.begun[0])
        withdrawing.end_unwanted(state, out, worker, event.begun[0])
    _settle(state, out, worker)


def _take_back(state: HostState, out: Outgoing, worker: WorkerRecord, reached: int) -> None:
    kept = max(reached, next(iter(worker.dispatches)))
    for number in [number for number in reversed(worker.dispatches) if kept < number <= worker.revoked]:
        dispatch = worker.dispatches[number]
        for lo, hi in reversed(list(dispatch.left)):
            dispatch.take(lo, hi)
            if not dispatch.unwanted:
                withdrawing.take_returned(state, out, dispatch.origin, lo, hi)
        dispatch_moves.close_dispatch(state, worker, number)


def _settle(state: HostState, out: Outgoing, worker: WorkerRecord) -> None:
    """Nobody waits any longer for what a worker would say."""
    worker.silence = Silence.SILENT
    withdrawing.return_rows(state, out)


def take_sample(state: HostState, out: Outgoing, event: Sampled) -> None:
    """End workers that have owed a sign for long, by this agent's own time: it may have been stopped as they were."""
    elapsed, state.pulse.sampled_at = min(state.now - state.pulse.sampled_at, _MOST), state.now
    for slot, reached in event.reached.items():
        worker = state.workers.records.get(slot)
        if worker is None:
            continue
        owes = _owed_by(worker, reached)
        if owes != worker.owes:
            worker.owes, worker.owes_for = owes, 0.0
        elif owes:
            worker.owes_for += elapsed
            _end_mute(out, worker)


def _owed_by(worker: WorkerRecord, reached: int) -> int:
    """What a worker owes a sign of: see `WorkerRecord.owes`."""
    if worker.kill_reason is not None:
        return -1 if worker.kill_reason.kind is KillKind.SURPLUS else 0
    if worker.state is BUSY:
        first = next(iter(worker.dispatches))
        return first if reached < first else 0
    return -worker.recalling


def _end_mute(out: Outgoing, worker: WorkerRecord) -> None:
    if worker.kill_reason is not None:
        if worker.owes_for >= ENDING_SECONDS:
            worker.owes_for = 0.0
            out.log("WARNING", f"worker {worker.slot} was told to end, and does not: it is killed")
            out.add(KillWorker(worker.slot))
    elif worker.owes_for >= MUTE_SECONDS:
        out.log(
            "WARNING",
            f"worker {worker.slot} has not reacted for {MUTE_SECONDS:g} s, and runs no row: it is ended, and another "
            "one is started; an earlier task may have left a thread or a process that stops it",
        )
        worker_commands.kill(out, worker, KillKind.MUTE, "it did not react")
