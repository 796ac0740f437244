"""Taking rows back: cancelled, claimed by their client, or wanted elsewhere by the scheduler.

Rows that no worker has are taken at once. For the others their workers are asked for all that has not begun; the table
of withdrawals says what to do with a row when it comes back. What does not come back is running, or in a dispatch that
the worker has not read yet: what is behind the dispatch that runs is asked for again. A worker can't answer while a row
keeps the interpreter to itself, as a long call in C may; if rows are to be cancelled even if they run, it is looked at
from outside.
"""

import math

from scaler.agent.core import staging, worker_commands
from scaler.agent.core.events import LookAt, Looked
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.rows import RowRange
from scaler.agent.state.worker_records import IDLE, SILENT, Dispatch, KillKind, WorkerRecord
from scaler.protocol.codes import WithdrawalKind
from scaler.protocol.messages import BalanceRequest, BalanceResponse, Spans, TaskClaimResponse, TaskRunning
from scaler.store.layout import Key

#: seconds for which a worker's answer is waited for before it is looked at from outside
FORCE_PATIENCE = 0.1


def withdraw(state: HostState, out: Outgoing, spans: Spans, what: WithdrawalKind) -> None:
    """Take these rows back; those that are claimed and not here are refused."""
    gone = Spans()
    #: all dispatches, by the batch that they are of
    dispatched: dict[Key, list[tuple[WorkerRecord, Dispatch]]] = {}
    for worker in state.workers.records.values():
        for dispatch in worker.dispatches.values():
            dispatched.setdefault(dispatch.origin.key, []).append((worker, dispatch))
    for client, batch, lo, hi in spans:
        taken = staging.remove_rows(state, out, client, batch, lo, hi)
        if taken:
            _tell_withdrawn(out, what, client, batch, taken)
        found = sum(b - a for a, b in taken)
        if found == hi - lo:
            continue
        for worker, dispatch in dispatched.get((client, batch), ()):
            for a, b in dispatch.left:
                rows = range(max(a, lo), min(b, hi))
                found += len(rows)
                for row in _withdraw_from(state, out, worker, client, batch, rows, what):
                    gone.add(client, batch, row, row + 1)
        if found < hi - lo and what is WithdrawalKind.CLAIM:
            gone.add(client, batch, lo, hi)
    if gone:
        out.say(TaskClaimResponse(Spans(), gone))


def _withdraw_from(
    state: HostState, out: Outgoing, worker: WorkerRecord, client: int, batch: int, rows: range, what: WithdrawalKind
) -> list[int]:
    """Have rows back from a worker; those that are claimed and are to end even if they run, so are not to be had."""
    taken: list[int] = []
    if not rows:
        return taken
    withdrawing = state.withdrawals.withdrawing
    for row in rows:
        if withdrawing.get((client, batch, row)) is not WithdrawalKind.FORCE:
            withdrawing[client, batch, row] = what
        elif what is WithdrawalKind.CLAIM:
            taken.append(row)
    first = worker.first
    worker_commands.recall(state, out, worker, keep=0)
    if what is WithdrawalKind.FORCE:
        state.withdrawals.look_at[worker.slot] = state.now + FORCE_PATIENCE
        if first.origin.key == (client, batch) and first.left and first.left[0][0] in rows:
            out.add(LookAt(worker.slot))  # it may have begun other rows since it told of any
    return taken


def look_at_silent(state: HostState, out: Outgoing) -> float:
    """Look at workers that don't answer though rows of theirs are to end; when to do so next, infinite: never."""
    look_at = state.withdrawals.look_at
    for slot, due in list(look_at.items()):
        worker = state.workers.records.get(slot)
        if worker is None or not worker.recalling or worker.kill_reason is not None:
            del look_at[slot]
        elif due <= state.now:
            look_at[slot] = state.now + FORCE_PATIENCE
            out.add(LookAt(slot))
    return min(look_at.values(), default=math.inf)


def take_look(state: HostState, out: Outgoing, event: Looked) -> None:
    """End a worker that runs a row that is to end even if it runs, or that nobody wants."""
    worker = state.workers.records.get(event.slot)
    number, row = event.begun
    if worker is None or number not in worker.dispatches:
        return
    dispatch = worker.dispatches[number]
    if dispatch.unwanted and dispatch is worker.first:
        worker_commands.kill(out, worker, KillKind.UNWANTED, "its client is gone")
    if state.withdrawals.withdrawing.get((*dispatch.origin.key, row)) is WithdrawalKind.FORCE:
        worker_commands.kill(out, worker, KillKind.CANCELLED, "cancelled by its client")


def _tell_withdrawn(out: Outgoing, what: WithdrawalKind, client: int, batch: int, spans: list[tuple[int, int]]) -> None:
    if what is not WithdrawalKind.CLAIM:
        out.cancelled(client, batch, spans)
        return
    granted = Spans()
    for lo, hi in spans:
        granted.add(client, batch, lo, hi)
    for part in granted.parts():
        out.say(TaskClaimResponse(part, Spans()))


# ---- what becomes of rows that workers have --------------------------------------------------------------------------
def take_returned(state: HostState, out: Outgoing, origin: RowRange, lo: int, hi: int) -> None:
    """Rows come back from a worker: they are withdrawn if that was wanted, or wait for another worker."""
    if lo >= hi:
        return
    withdrawing = state.withdrawals.withdrawing
    if not withdrawing:
        staging.admit(state, out, origin, lo, hi, front=True)
        return
    client, batch = origin.key
    for row in range(hi - 1, lo - 1, -1):
        what = withdrawing.pop((client, batch, row), None)
        if what is None:
            staging.admit(state, out, origin, row, row + 1, front=True)
        else:
            _tell_withdrawn(out, what, client, batch, [(row, row + 1)])


def take_ended(state: HostState, out: Outgoing, client: int, batch: int, lo: int, hi: int) -> None:
    """Rows have ended: those that were to be withdrawn are not."""
    withdrawing = state.withdrawals.withdrawing
    for row in range(lo, hi):
        if withdrawing.pop((client, batch, row), None) is WithdrawalKind.CLAIM:
            refused = Spans()
            refused.add(client, batch, row, row + 1)
            out.say(TaskClaimResponse(Spans(), refused))


def refuse_running(state: HostState, out: Outgoing, worker: WorkerRecord, begun: int) -> None:
    """What a worker still has after it gave back all that had not begun is running: it can't be withdrawn.

    It has not read the dispatches after `begun`, the one that runs: what is to come back of them is asked for again.
    """
    withdrawing = state.withdrawals.withdrawing
    if not withdrawing:
        return
    running = TaskRunning()
    refused = Spans()
    for number, dispatch in worker.dispatches.items():
        client, batch = dispatch.origin.key
        if number > begun:
            if any((client, batch, row) in withdrawing for lo, hi in dispatch.left for row in range(lo, hi)):
                worker_commands.recall(state, out, worker, keep=0)
            continue
        for lo, hi in dispatch.left:
            for row in range(lo, hi):
                what = withdrawing.get((client, batch, row))
                if what is WithdrawalKind.FORCE:
                    worker_commands.kill(out, worker, KillKind.CANCELLED, "cancelled by its client")
                elif what is not None:
                    del withdrawing[client, batch, row]
                    (refused if what is WithdrawalKind.CLAIM else running).add(client, batch, row, row + 1)
    if running:
        out.say(running)
    if refused:
        out.say(TaskClaimResponse(Spans(), refused))


def end_unwanted(state: HostState, out: Outgoing, worker: WorkerRecord, begun: int) -> None:
    """Rows that nobody wants have not come back: they run, are next, or have not been read by their worker yet."""
    unwanted = [number for number, dispatch in worker.dispatches.items() if dispatch.unwanted]
    if not unwanted:
        return
    if unwanted[0] <= begun or worker.dispatches[unwanted[0]] is worker.first:
        worker_commands.kill(out, worker, KillKind.UNWANTED, "its client is gone")
    else:
        worker_commands.recall(state, out, worker)


def is_cancelled(state: HostState, client: int, batch: int, row: int) -> bool:
    """The row is to be cancelled when it comes back."""
    return state.withdrawals.withdrawing.get((client, batch, row), WithdrawalKind.CLAIM) is not WithdrawalKind.CLAIM


# ---- rows that the scheduler wants for others ------------------------------------------------------------------------
def balance(state: HostState, out: Outgoing, message: BalanceRequest) -> None:
    """The scheduler wants rows that have not begun: now, or when workers have answered."""
    slots = message.threads or 1
    batches = frozenset(zip(message.clients, message.batches, strict=True))
    response = _take_last(state, out, message.rows, slots, batches)
    asked = False
    if message.rows and not response and slots == 1:
        for worker in state.workers.records.values():
            if worker.silence is SILENT or worker.kill_reason is not None:
                continue
            if worker.rows > 1 and (not batches or _may_give_back(worker, batches)):
                worker_commands.recall(state, out, worker)
                asked = True
    if asked:
        state.withdrawals.rows_to_return += message.rows
        state.withdrawals.to_return_of = batches
    else:
        out.say(response)


def _may_give_back(worker: WorkerRecord, batches: frozenset[Key]) -> bool:
    """A worker has rows of these batches besides the one that runs."""
    first = worker.first
    return any(
        dispatch.origin.key in batches and (dispatch is not first or dispatch.rows > 1)
        for dispatch in worker.dispatches.values()
    )


def return_rows(state: HostState, out: Outgoing) -> None:
    """Give the scheduler rows that it wanted, when all workers that were asked for some have answered, or can't."""
    workers = state.workers.records.values()
    wanted = state.withdrawals.rows_to_return
    if not wanted or any(worker.recalling and worker.silence is not SILENT for worker in workers):
        return
    state.withdrawals.rows_to_return = 0
    idle = sum(worker.state is IDLE and worker.may_be_fed for worker in workers)
    batches = state.withdrawals.to_return_of
    out.say(_take_last(state, out, min(wanted, max(0, state.queued - idle)), 1, batches))


def _take_last(state: HostState, out: Outgoing, wanted: int, slots: int, batches: frozenset[Key]) -> BalanceResponse:
    response = BalanceResponse()
    if batches:
        for origin, lo, hi in staging.take_last_of(state, out, wanted, slots, batches):
            response.add(*origin.key, lo, hi)
        return response
    while wanted and (taken := staging.take_last(state, out, wanted, slots)) is not None:
        origin, lo, hi = taken
        response.add(*origin.key, lo, hi)
        wanted -= hi - lo
    return response
