"""How rows come to a worker and leave it: the only place that changes what a worker has."""

from scaler.agent.state.host import HostState
from scaler.agent.state.rows import RowRange
from scaler.agent.state.worker_records import Dispatch, WorkerRecord
from scaler.protocol.codes import LOST


def open_dispatch(
    state: HostState, worker: WorkerRecord, origin: RowRange, lo: int, hi: int, expected: float | None
) -> Dispatch:
    """Give rows to a worker, and pin what they use."""
    dispatch = Dispatch(state.workers.next_dispatch, origin, [(lo, hi)], hi - lo, expected, state.now)
    if origin.stored:
        last = hi if origin.needs is not None else lo + 1
        dispatch.pins = list(dict.fromkeys(key for row in range(lo, last) for key in origin.stored_for(row)))
        for key in dispatch.pins:
            state.objects.index.pin(key)
    state.workers.next_dispatch += 1
    state.workers.open_dispatches += 1
    if origin.slots > 1:
        state.workers.wide += 1
    worker.dispatches[dispatch.number] = dispatch
    worker.handed += hi - lo
    return dispatch


def end_rows(state: HostState, worker: WorkerRecord, dispatch: Dispatch, lo: int, hi: int, outcome: int) -> bool:
    """Rows of a dispatch have ended; False, and nothing is changed, if it does not have them."""
    if not dispatch.take(lo, hi):
        return False
    worker.ended += hi - lo
    if dispatch.is_alone and outcome != LOST:
        state.suspects.clear_row(dispatch.origin.key, lo)
    return True


def close_dispatch(state: HostState, worker: WorkerRecord, number: int) -> None:
    """A worker has nothing of a dispatch any more: all its rows have left it, or nobody wants what comes of them."""
    dispatch = worker.dispatches.pop(number, None)
    if dispatch is None:
        return
    state.workers.open_dispatches -= 1
    if dispatch.origin.slots > 1:
        state.workers.wide -= 1
    if dispatch.pins:
        state.objects.release_pins(dispatch.pins)
