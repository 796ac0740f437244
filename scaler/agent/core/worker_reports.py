"""What workers say of their rows: how they ended, which come back, what they print, what they have written."""

import os

from scaler.agent.core import releasing, silence, storing, withdrawing, worker_commands, worker_lifecycle
from scaler.agent.core.events import Looked, ShowOutput
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state import dispatch_moves, worker_moves
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import BUSY, IDLE, PARKED, Dispatch, WorkerRecord
from scaler.protocol.messages import (
    APART,
    DOUBTFUL,
    ERROR,
    FILED,
    KEEP,
    LACKING,
    LIVE,
    LONGEST_NAME,
    SIZE,
    STORED,
    STREAM,
    VALUES_LIST,
    WARN,
    WARNINGS,
    TaskOutput,
    u32,
)
from scaler.protocol.results import SpanResult, misplaced
from scaler.store.layout import Key
from scaler.worker_protocol import messages as worker_messages
from scaler.worker_protocol.messages import EndedSpan, Flush, Published, Results, Returned, Unfiled

#: directories to which results can't be written that the log names, at most
MOST_UNFILED = 16
#: seconds until it is said that it is over, at least: a disk that is nearly full takes some and refuses others
UNFILED_PAUSE = 60.0
#: their values are objects
_STORED = (STORED, LIVE)
#: their values are not in messages
_APART = (*_STORED, FILED)


def take_results(state: HostState, out: Outgoing, worker: WorkerRecord, message: Results) -> None:
    """Rows have ended, and dispatches are done with."""
    for ended in message.ended:
        _take_ended(state, out, worker, ended)
    for number in message.done:
        dispatch = worker.dispatches.get(number)
        if dispatch is not None and dispatch.left:
            worker_commands.reject(out, worker, "has done with rows of which it has told nothing")
            return
        dispatch_moves.close_dispatch(state, worker, number)
    for dispatch in worker.dispatches.values():
        dispatch.at = state.now
        if dispatch.expected is not None:
            dispatch.expected = state.estimates.durations.get(dispatch.origin.function, 0.0) * dispatch.rows
        break
    _note_heard(state, worker)


def _take_ended(state: HostState, out: Outgoing, worker: WorkerRecord, ended: EndedSpan) -> None:
    number, client, batch, lo, hi, outcome, duration, peak, sizes, body, processor_time = ended
    dispatch = worker.dispatches.get(number)
    ran, worker.ran = worker.ran, 0.0
    if outcome == LACKING:
        (lacking,) = SIZE.unpack_from(body)
        body = body[SIZE.size :]
        if dispatch is not None and lacking in dispatch.origin.stored:
            _take_lacking(state, out, worker, dispatch, ended, (client, lacking))
            return
        outcome, sizes = ERROR, u32([len(body)])
    elif outcome == DOUBTFUL:
        if dispatch is not None and _is_of_worker(state, worker, dispatch):
            _take_doubtful(state, out, worker, dispatch, ended)
            return
        outcome = ERROR
    is_its_own = dispatch is not None and dispatch.origin.key == (client, batch)
    if dispatch is not None and outcome == VALUES_LIST and dispatch.origin.task.flags & (KEEP | APART):
        worker_commands.reject(out, worker, "answers with a list where each value is to stand by itself")
        return
    if outcome in _APART and dispatch is not None and is_its_own:
        problem = misplaced(dispatch.origin.task, outcome, lo, hi)
        if problem:
            worker_commands.reject(out, worker, f"has {problem}")
            _drop_values(state, out, worker, ended)
            return
    if dispatch is None or not is_its_own or not dispatch_moves.end_rows(state, worker, dispatch, lo, hi, outcome):
        worker_commands.reject(out, worker, "tells of rows that it was not given")
        if dispatch is None or is_its_own:
            _drop_values(state, out, worker, ended)
        return
    if dispatch.unwanted:
        _drop_values(state, out, worker, ended)
        return
    if state.withdrawals.withdrawing:
        withdrawing.take_ended(state, out, client, batch, lo, hi)
    function, estimates = dispatch.origin.function, state.estimates
    if outcome in _STORED:
        _take_stored(state, out, worker, ended)
        estimates.note_size(function, sum(size for (size,) in SIZE.iter_unpack(body)) / (hi - lo))
        outcome = STORED
    elif outcome == FILED and state.unfiled:
        _end_unfiled(state, out)
    elif estimates.sizes:
        estimates.note_size(function, 0.0)
    took = min(duration, 0xFFFFFFFF)
    out.result(client, SpanResult(batch, lo, hi, outcome, took, peak, sizes, body, processor_time))
    estimates.note_duration(function, duration / (hi - lo))
    if ran:
        estimates.note_running(function, 1e6 * (ran + state.now - worker.went_on) / (hi - lo))
    elif function in estimates.running:
        estimates.note_running(function, duration / (hi - lo))


def _is_of_worker(state: HostState, worker: WorkerRecord, dispatch: Dispatch) -> bool:
    """Whether a row of it has failed for what rows before it have done to its worker, see `Doubts`."""
    if not worker.ended:
        state.doubts.confirm(dispatch.origin.function, state.now)
        return False
    if not worker.is_doubted:
        worker.is_doubted = state.doubts.is_of_worker(dispatch.origin.function, state.now)
    return worker.is_doubted


def _take_lacking(
    state: HostState, out: Outgoing, worker: WorkerRecord, dispatch: Dispatch, ended: EndedSpan, key: Key
) -> None:
    """What a row needs is neither in the store nor in the worker, whoever took it: the row waits until it is there."""
    if not _take_back(state, out, worker, dispatch, ended):
        return
    releasing.find_missing(state, out, key)
    releasing.find_not_live(state, out, worker.slot, key)
    withdrawing.take_returned(state, out, dispatch.origin, ended.lo, ended.hi)


def _take_doubtful(state: HostState, out: Outgoing, worker: WorkerRecord, dispatch: Dispatch, ended: EndedSpan) -> None:
    """Its worker could not begin a row that another one can: the row goes there, and the worker gets no more."""
    if not _take_back(state, out, worker, dispatch, ended):
        return
    withdrawing.take_returned(state, out, dispatch.origin, ended.lo, ended.hi)
    worker_lifecycle.replace(state, out, worker, f"can't load what {dispatch.origin.task.name} needs")


def _take_back(state: HostState, out: Outgoing, worker: WorkerRecord, dispatch: Dispatch, ended: EndedSpan) -> bool:
    """Take a row from its worker that has not begun; False if there is nothing to be done about it any more."""
    is_its_own = dispatch.origin.key == (ended.client, ended.batch)
    if not is_its_own or not dispatch.take(ended.lo, ended.hi):
        worker_commands.reject(out, worker, "tells of rows that it was not given")
        return False
    return not dispatch.unwanted


def _take_stored(state: HostState, out: Outgoing, worker: WorkerRecord, ended: EndedSpan) -> None:
    for row, (size,) in enumerate(SIZE.iter_unpack(ended.body), ended.batch + ended.lo):
        if ended.outcome == LIVE:
            storing.take_live(state, out, (ended.client, row), size, worker)
        else:
            storing.take_file(state, out, (ended.client, row), size)


def _drop_values(state: HostState, out: Outgoing, worker: WorkerRecord, ended: EndedSpan) -> None:
    """Nobody is told of these rows: what they have left in the store or in the worker goes."""
    if ended.outcome in _STORED:
        for row in range(ended.lo, ended.hi):
            storing.take_unwanted(state, out, worker, (ended.client, ended.batch + row), ended.outcome == LIVE)


def take_returned(state: HostState, out: Outgoing, worker: WorkerRecord, message: Returned) -> None:
    """A worker gave back rows that had not begun, asked or not."""
    for number, client, batch, lo, hi in reversed(message.rows):
        dispatch = worker.dispatches.get(number)
        if dispatch is None and number <= worker.revoked:
            continue  # they were taken back without its help
        if dispatch is None or dispatch.origin.key != (client, batch) or not dispatch.take(lo, hi):
            worker_commands.reject(out, worker, "gives back rows that it was not given")
        elif not dispatch.unwanted:
            withdrawing.take_returned(state, out, dispatch.origin, lo, hi)
    for number in [number for number, dispatch in worker.dispatches.items() if not dispatch.left]:
        dispatch_moves.close_dispatch(state, worker, number)
    if not message.token and message.running is not None and worker.dispatches:
        worker.gives_back = True
        state.workers.nesting.setdefault(worker.slot, None)
    if message.token:
        silence.end(state, worker, message.token == worker.recalling)
    if message.token and message.token == worker.recalling:
        worker.recalling = 0
        begun = message.running[0] if message.running is not None else 0
        withdrawing.end_unwanted(state, out, worker, begun)
        withdrawing.refuse_running(state, out, worker, begun)
    _note_heard(state, worker)
    withdrawing.return_rows(state, out)


def _note_heard(state: HostState, worker: WorkerRecord) -> None:
    """A worker has told all that it has finished; it may have no rows any more."""
    worker.note_heard(state.now)
    if not worker.dispatches and worker.state is BUSY:
        worker_moves.move(state, worker, IDLE)
        state.follow_ups.workers |= worker.is_worn or len(state.workers.records) > state.workers.target


def take_published(state: HostState, out: Outgoing, worker: WorkerRecord, message: Published) -> None:
    """A worker wrote live values into files, asked or not."""
    for key, size, error in message.values:
        if error is None and key not in state.objects.index and _is_running(worker, key):
            storing.take_file(state, out, key, size)  # of a row whose result is yet to be heard of
        else:
            storing.take_published(state, out, worker, key, size, error)
    if worker.state is PARKED or worker.is_worn:
        state.follow_ups.workers = True  # it may end now


def _is_running(worker: WorkerRecord, key: Key) -> bool:
    client, number = key
    for dispatch in worker.dispatches.values():
        is_wanted = dispatch.origin.client == client and not dispatch.unwanted
        if is_wanted and dispatch.has(number - dispatch.origin.task.batch):
            return True
    return False


def take_output(out: Outgoing, worker: WorkerRecord, message: worker_messages.Output) -> None:
    """A task has printed or warned: it goes to the log, and to its client if that wants it."""
    client, row, stream, name, text = message
    name = name[:LONGEST_NAME]  # as long as that of any task: what a worker says is in each line
    wanted = WARN if stream == WARNINGS else STREAM
    is_told = any(_shows(dispatch, client, wanted) for dispatch in worker.dispatches.values())
    if stream != WARNINGS:
        out.add(ShowOutput(name, row, stream, text, is_told))
    if is_told:
        out.say(TaskOutput(client, row, name, stream, text))


def _shows(dispatch: Dispatch, client: int, wanted: int) -> bool:
    return dispatch.origin.client == client and bool(dispatch.origin.task.flags & wanted)


def take_look(state: HostState, out: Outgoing, event: Looked) -> None:
    """A worker that runs another row than the first it has not told of keeps results: it is asked for them."""
    worker = state.workers.records.get(event.slot)
    number, row = event.begun
    if worker is None or number not in worker.dispatches or worker.kill_reason is not None:
        return
    first, dispatch = next(iter(worker.dispatches.items()))
    if number != first or not dispatch.left or dispatch.left[0][0] != row:
        worker_commands.tell(out, worker, Flush(), control=True)


# ---- large results of durable jobs that can't be written to files: they come as others do --------------------------
def take_unfiled(state: HostState, out: Outgoing, worker: WorkerRecord, message: Unfiled) -> None:
    """A worker could not write a file: the log says so, once for each directory."""
    dispatch = worker.dispatches.get(message.dispatch)
    if dispatch is None or len(state.unfiled) >= MOST_UNFILED:
        return
    directory = dispatch.origin.task.results.rpartition("/")[0]
    if directory and directory not in state.unfiled:
        state.unfiled[directory] = state.now
        why = os.strerror(message.error)
        out.log("WARNING", f"large results of durable jobs go through the scheduler: {directory} on this host: {why}")


def _end_unfiled(state: HostState, out: Outgoing) -> None:
    """A worker has written one, of which the log says otherwise."""
    if state.now > max(state.unfiled.values()) + UNFILED_PAUSE:
        state.unfiled.clear()
        out.log("INFO", "large results of durable jobs are written to files again")
