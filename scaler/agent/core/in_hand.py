"""What a worker has in hand besides the row that runs: what it may have, and when it gives that back.

Here both are said by the same terms, as nothing may be true of both: what is handed out and taken back by the same
state goes to and fro as fast as messages do, for as long as the row runs. What is behind a row that takes longer than
expected comes back as well, see `WorkerRecord.due`; until then, and no longer, more is handed out behind it.
"""

from math import inf

from scaler.agent.core import staging, stealing, worker_commands
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.ready_rows import RowQueue
from scaler.agent.state.rows import RowRange
from scaler.agent.state.worker_records import BUSY, WorkerRecord

#: work handed to a worker at once, microseconds
DISPATCH_US = 8_000.0
#: a worker that has less than so many microseconds of work, in at most so many dispatches, is given more
SHORT_US, SHORT_DISPATCHES = 2_000.0, 16
#: nothing is handed out behind rows that take longer than so many microseconds: to ask for more when they have ended
#: costs less than a hundredth of that, and the next row is free until then for whichever worker is free first
ALONE_US = 100_000.0
#: bytes that the results of one dispatch should take, at most
DISPATCH_BYTES = 64 << 20
#: and those of each short row, so that all that a worker is given in advance take no more
SHORT_BYTES = DISPATCH_BYTES // SHORT_DISPATCHES
#: rows behind a running one are taken back when that would save an idle worker this much, microseconds
WORTH_RECALLING_US = 1_000.0


# ---- handed out ------------------------------------------------------------------------------------------------------
def may_follow(state: HostState, worker: WorkerRecord, queue: RowQueue, whose: int | None) -> bool:
    """A busy worker is to have rows of this queue, too: it has one dispatch that ends soon, or so little in some that
    it runs out.
    """
    dispatches = len(worker.dispatches)
    first, head = worker.first, queue.head
    if dispatches >= SHORT_DISPATCHES or head.task.timeout or first.origin.task.timeout or first.is_alone:
        return False
    if dispatches == 1:
        if whose is not None:
            return True
        if head is not first.origin and (head.goes_before(first.origin) or _is_owed(state, head, first.origin, worker)):
            return False  # it is for whoever is free first
        return first.expected is None or first.expected <= ALONE_US
    if first.origin.goes_before(head) or not is_short(state, head, whose):
        return False  # more urgent ones may be on their way
    expected = worker.expected
    return expected is not None and expected < SHORT_US


def is_short(state: HostState, head: RowRange, whose: int | None) -> bool:
    """Rows of this range take little time and no room: it does not matter which worker has them in advance.

    Of those that are for one worker, for what it has, the results may take some room: no other one is to have them.
    """
    function, estimates = head.function, state.estimates
    if head.is_alone or estimates.durations.get(function, inf) >= SHORT_US:
        return False
    if whose is None:
        return not head.stored and function not in estimates.sizes
    return estimates.sizes.get(function, 0.0) < SHORT_BYTES


def _is_owed(state: HostState, head: RowRange, other: RowRange, worker: WorkerRecord) -> bool:
    """Its root, whose turn it is, has nothing in hand anywhere, and this worker runs something long of another root.

    Then it begins before what the worker has of that `other` one, wherever one is free first.
    """
    expected = worker.first.expected
    if head.share == other.share or expected is None or expected <= DISPATCH_US:
        return False
    if head.task.priority < other.task.priority:
        return False
    workers = state.workers.records.values()
    return not any(each.origin.share == head.share for one in workers for each in one.dispatches.values())


# ---- taken back ------------------------------------------------------------------------------------------------------
def make_way(state: HostState, out: Outgoing, fed: list[WorkerRecord]) -> None:
    """Take back what workers have in hand and is less urgent than what waits, which begins next wherever one is free.

    What takes no longer than a dispatch stays: it is done as soon as it would be back.
    """
    ready = state.ready
    if not (ready.general.rows or ready.local or ready.wide.rows):
        return
    for_any = [queue.head for queue in (ready.general, ready.wide) if queue.rows]
    most = max([head.urgency for head in for_any], default=-inf)
    shares = {head.share for head in for_any}
    for worker in fed:
        if worker.state is not BUSY or worker.recalling:
            continue
        own = ready.local.get(worker.slot)
        last = worker.dispatches[next(reversed(worker.dispatches))].origin
        if own is None and last.urgency >= most and last.share in shares and len(shares) == 1:
            continue
        if not worker.is_crowded:
            continue
        waiting = for_any if own is None else [*for_any, own.head]
        is_less_urgent = any(head.goes_before(last) for head in waiting)
        if not is_less_urgent:
            found = ready.of(worker.slot)
            if found is None or not _is_owed(state, found[0].head, last, worker):
                continue
            worker.gives_back = True  # or what comes behind its row would be taken back for each row of that root
        expected = worker.expected
        if expected is None or expected > DISPATCH_US:
            worker.gives_back |= worker.first.has_made_way  # or that would be so for all that comes while its row runs
            worker.first.has_made_way = True
            worker_commands.recall(state, out, worker)


def help_idle(state: HostState, out: Outgoing, crowded: list[WorkerRecord]) -> None:
    """Take back what waits behind long rows, where other workers have nothing to do and would run it sooner."""
    for worker in crowded:
        expected = worker.expected
        if expected is not None:
            left = expected - 1e6 * (state.now - worker.first.at)
            if left > 2 * WORTH_RECALLING_US and _is_of_use(state, worker, left):
                worker_commands.recall(state, out, worker)


def _is_of_use(state: HostState, worker: WorkerRecord, left: float) -> bool:
    """Of what a worker has not begun, of `left` microseconds with the row that runs, an idle one would run some sooner.

    What is for this one, for what it has, is taken to another one only if that has what it needs before it would begin
    here (`staging.steal`, which is asked once it is back).
    """
    last = None
    for dispatch in worker.dispatches.values():
        if dispatch.rows > (dispatch is worker.first):
            if not dispatch.is_local:
                return True
            last = dispatch
    if last is None:
        return False
    row, function = last.left[-1][1] - 1, last.origin.function
    before = left - state.estimates.durations.get(function, stealing.UNKNOWN_US)
    return staging.pays(state, last.origin, row, worker.slot, before / 1e6)
