"""Idle workers get rows that wait for busy ones: those that need what a busy one has, and those behind a long row."""

from scaler.agent.core import staging, worker_commands
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import BUSY, WorkerRecord

#: rows behind a running one are taken back when that would save an idle worker this much, microseconds
WORTH_RECALLING_US = 1_000.0
#: what a row takes of which nothing is known, microseconds
UNKNOWN_US = 1_000.0
#: a worker that is occupied for so many microseconds is, for every decision, occupied for long
LONG_US = 1e6


def steal(state: HostState, out: Outgoing, wanted: int) -> None:
    """Have so many rows that are for busy workers run in idle ones, if that is faster."""
    local, workers = state.ready.local, state.workers.records
    waits = {slot: waiting_seconds(state, workers[slot]) for slot in local if workers[slot].state is BUSY}
    for slot in sorted(waits, key=waits.__getitem__, reverse=True):
        while wanted > 0 and slot in local and staging.steal(state, out, slot, waiting_seconds(state, workers[slot])):
            wanted -= 1


def waiting_seconds(state: HostState, worker: WorkerRecord) -> float:
    """How long a row that is for a worker waits there behind all others, as far as known."""
    total = 0.0
    for i, dispatch in enumerate(worker.dispatches.values()):
        elapsed = 1e6 * (state.now - dispatch.at) if i == 0 else 0.0
        if dispatch.expected is None:
            total += max(elapsed, UNKNOWN_US)  # what has taken long will take long
        else:
            total += max(dispatch.expected - elapsed, 0.0)
    queue = state.ready.local.get(worker.slot)
    if queue is not None:
        for origin, lo, hi in queue:
            if total > LONG_US:
                break
            total += (hi - lo) * state.estimates.durations.get(origin.function, UNKNOWN_US)
    return total / 1e6


def recall_for_idle(state: HostState, out: Outgoing, crowded: list[WorkerRecord]) -> None:
    """Take back what waits behind long rows: other workers have nothing to do."""
    for worker in crowded:
        expected = worker.expected
        if expected is not None and expected - 1e6 * (state.now - worker.first.at) > 2 * WORTH_RECALLING_US:
            worker_commands.recall(state, out, worker)
