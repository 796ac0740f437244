"""Idle workers get rows that wait for busy ones, which have what these need."""

from itertools import islice

from scaler.agent.core import staging
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import BUSY, WorkerRecord

#: what a row takes of which nothing is known, microseconds
UNKNOWN_US = 1_000.0
#: spans of a queue that are looked at; those behind are taken to be like them
MOST_LOOKED = 64


def steal(state: HostState, out: Outgoing, wanted: int) -> None:
    """Have so many rows that are for busy workers run in idle ones, if that is faster."""
    if wanted <= 0:
        return
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
        rows, taken = 0, 0.0
        for origin, lo, hi in islice(queue, MOST_LOOKED):
            rows += hi - lo
            taken += (hi - lo) * state.estimates.durations.get(origin.function, UNKNOWN_US)
        total += taken * queue.rows / rows
    return total / 1e6
