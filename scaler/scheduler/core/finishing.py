"""Rows end: their client is told once, values that other rows need become objects, what they needed is let go.

A value is reported as one list for a span of rows, as a payload for each row, or as the size of what an agent's store
has. A row that is computed again ends in `recomputing.py` instead, and nothing is said of it.
"""

from scaler.common.span_lists import runs_of
from scaler.protocol.failures import dependency_cancelled
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    FILED,
    LOST,
    MOST_IDS,
    STORED,
    VALUES_EACH,
    VALUES_LIST,
    Frame,
    u32,
)
from scaler.protocol.results import NO_SIZES, SpanResult, cut, rows_of, stored_sizes, values_of
from scaler.scheduler.core import dependencies, lifetimes, lineage, recomputing
from scaler.scheduler.core.moves import AskClient, Fail, Move, Reread
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state import accounts, transitions
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import DONE, Batch, not_ended
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.object_records import ObjectRecord
from scaler.scheduler.state.transitions import Cause

#: ids of list objects, made here, have this bit; clients' ids never do
LIST_OBJECT = MOST_IDS

#: outcome of a span -> why its rows are done
_CAUSES = {
    VALUES_LIST: Cause.FINISHED,
    VALUES_EACH: Cause.FINISHED,
    ERROR: Cause.FAILED,
    CANCELLED: Cause.CANCELLED,
    LOST: Cause.FAILED,
    STORED: Cause.FINISHED,
    FILED: Cause.FINISHED,
}


def finish(state: ClusterState, out: Outgoing, batch: Batch, span: SpanResult, agent: AgentRecord | None) -> list[Move]:
    """Rows end for good, as `span` says; the agent is that whose store has values, if any."""
    if span.outcome == ERROR:
        span = _with_story(out, batch, span)
    if batch.is_recomputing(span.lo, span.hi) or (batch.has_come_back and _may_wait_for_each_other(batch, span)):
        return _finish_row_by_row(state, out, batch, span, agent)
    transitions.end(state, batch, span.lo, span.hi, _CAUSES[span.outcome])
    tell(out, batch, span)
    moves: list[Move] = []
    if batch.keeps or batch.waiters or span.outcome == STORED:
        moves = _pass_on(state, batch, span, agent)
    _let_go(state, batch, span.lo, span.hi)
    return moves


def finish_forwarded(state: ClusterState, batch: Batch, lo: int, hi: int, agent: AgentRecord) -> None:
    """Rows end with plain values that nobody but the client needs, to whom the agent's message goes as it came."""
    transitions.finish_at(state, batch, lo, hi, agent)
    if batch.needs is not None or not batch.left:
        _let_go(state, batch, lo, hi)


def fail(state: ClusterState, out: Outgoing, move: Fail) -> list[Move]:
    """A row ends with an error that is not its own; the rows that fail with it."""
    batch, row, record = move
    if batch.place[row] == DONE:
        return []
    recomputed = batch.is_recomputing(row, row + 1)
    transitions.end(state, batch, row, row + 1, Cause.FAILED)
    if recomputed:
        return recomputing.fail_row(state, batch, row, record)
    record = out.with_story(batch, row, record)
    tell(out, batch, error_span(batch, row, record))
    moves = dependencies.fail_dependents(state, state.clients[batch.client], batch, row, record)
    _let_go(state, batch, row, row + 1)
    return moves


def cancel(state: ClusterState, out: Outgoing, batch: Batch, spans: list[tuple[int, int]]) -> list[Move]:
    """Rows that no agent has end as cancelled; these spans ascend, each is all in one place and not done.

    They may be many, of one row each. Those of a batch whose rows are alike to the others end all together.
    """
    if len(spans) > 1 and _is_plain(batch):
        transitions.end_queued(state, batch, spans, Cause.CANCELLED)
        out.cancelled(batch.client, batch.id, spans)
        failures = _fail_dependents(state, state.clients[batch.client], batch, spans)
        if not batch.left:
            lifetimes.end_batch(state, state.clients[batch.client], batch)
        return failures
    moves: list[Move] = []
    for lo, hi in spans:
        moves += finish(state, out, batch, SpanResult(batch.id, lo, hi, CANCELLED, 0, 0, NO_SIZES, b""), None)
    return moves


def _is_plain(batch: Batch) -> bool:
    """Its rows need nothing and never waited, none runs again, and its client wants all results."""
    return not (
        batch.has_come_back or batch.task.wanted or batch.needs is not None or batch.missing is not None
        or batch.lineage is not None
    )  # fmt: skip


def _fail_dependents(
    state: ClusterState, client: ClientRecord, batch: Batch, spans: list[tuple[int, int]]
) -> list[Move]:
    """The rows that fail since these, which they need, were cancelled."""
    if not (batch.waiters or batch.task.uses or client.values.remaking):
        return []
    record = dependency_cancelled(batch.function.name).encode()
    return [
        move for lo, hi in spans for row in range(lo, hi)
        for move in dependencies.fail_dependents(state, client, batch, row, record)
    ]  # fmt: skip


def hand_over(state: ClusterState, batch: Batch, lo: int, hi: int) -> list[Move]:
    """Rows were claimed: their client runs them itself, and nothing is sent about them."""
    transitions.end(state, batch, lo, hi, Cause.CLAIMED)
    moves = _ask_client(state.clients[batch.client], batch, lo, hi)
    _let_go(state, batch, lo, hi)
    return moves


def _ask_client(client: ClientRecord, batch: Batch, lo: int, hi: int) -> list[Move]:
    """Values of these rows are where only their client can read them: it is asked for those that other rows need."""
    values = client.values
    moves: list[Move] = []
    for row in _waited_for(batch, lo, hi):
        value = batch.id + row
        waiting = not_ended(batch.waiters.pop(row))
        if waiting:
            values.awaited.setdefault(value, []).extend(waiting)
            moves.append(AskClient(client, [value]))
    if values.remaking:
        lost = [value for value in values.remaking if lo <= value - batch.id < hi]
        moves.append(AskClient(client, lost))
    return moves


def error_span(batch: Batch, row: int, record: Frame, duration_us: int = 0) -> SpanResult:
    """The result of a row that ends with an error."""
    return SpanResult(batch.id, row, row + 1, ERROR, duration_us, 0, u32([len(record)]), record)


def _with_story(out: Outgoing, batch: Batch, span: SpanResult) -> SpanResult:
    record = out.with_story(batch, span.lo, span.body)
    return span if record is span.body else span._replace(body=record, sizes=u32([len(record)]))


def _may_wait_for_each_other(batch: Batch, span: SpanResult) -> bool:
    """An agent that has rows since before this scheduler tells at once of one and of another that needs its value."""
    return span.hi - span.lo > 1 and batch.missing is not None and any(batch.missing[span.lo : span.hi])


def _finish_row_by_row(
    state: ClusterState, out: Outgoing, batch: Batch, span: SpanResult, agent: AgentRecord | None
) -> list[Move]:
    """Some of these rows had ended before, and nothing is said of those; or some wait for what others have made."""
    moves: list[Move] = []
    for row, part in enumerate(rows_of(span), span.lo):
        if batch.is_recomputing(row, row + 1):
            transitions.end(state, batch, row, row + 1, _CAUSES[span.outcome])
            moves += recomputing.end_row(state, agent, batch, row, part)
        else:
            moves += finish(state, out, batch, part, agent)
    return moves


def _waited_for(batch: Batch, lo: int, hi: int) -> list[int]:
    """The rows of [lo, hi) that others wait for."""
    waiters = batch.waiters
    if not waiters:
        return []
    if hi - lo <= len(waiters):
        return [row for row in range(lo, hi) if row in waiters]
    return [row for row in waiters if lo <= row < hi]


def _pass_on(state: ClusterState, batch: Batch, span: SpanResult, agent: AgentRecord | None) -> list[Move]:
    """What ended rows made, or why they made nothing, reaches the rows that need it."""
    client, lo, hi, outcome = state.clients[batch.client], span.lo, span.hi, span.outcome
    if outcome == VALUES_EACH:
        return _supply_each(state, client, batch, span)
    if outcome == FILED:
        return _ask_client(client, batch, lo, hi)
    moves: list[Move] = []
    if outcome == VALUES_LIST:
        for row in _waited_for(batch, lo, hi):
            moves += _supply_element(state, client, batch, row, span)
    elif outcome == STORED:
        if agent is not None:
            for row, size in zip(range(lo, hi), stored_sizes(span), strict=True):
                moves += _supply_stored(state, batch, row, size, agent)
    else:
        record = span.body if outcome == ERROR else dependency_cancelled(batch.function.name).encode()
        for row in range(lo, hi):
            moves += dependencies.fail_dependents(state, client, batch, row, record)
    return moves


def tell(out: Outgoing, batch: Batch, span: SpanResult) -> None:
    """Tell a client how rows ended, as far as it wants to know of them."""
    wanted, lo, hi = batch.task.wanted, span.lo, span.hi
    if not wanted or 0 not in wanted[lo:hi]:
        out.result(batch.client, span)
    else:
        for part in cut(span, list(runs_of([row for row in range(lo, hi) if wanted[row]]))):
            out.result(batch.client, part)


def _supply_each(state: ClusterState, client: ClientRecord, batch: Batch, span: SpanResult) -> list[Move]:
    """Values of rows, a payload each, become objects if other rows need them."""
    uses, waiters, objects, remaking = batch.task.uses, batch.waiters, client.values.objects, client.values.remaking
    moves: list[Move] = []
    kept = 0
    for row, payload in enumerate(values_of(span), span.lo):
        expected = uses[row] if uses else 0
        waiting = waiters.pop(row, None) if waiters else None
        if waiting is not None:
            waiting = not_ended(waiting)
            expected = dependencies.expected_yet(waiting, batch.id + row, expected)
        if remaking and batch.id + row in remaking:
            waiting = [*(waiting or ()), *dependencies.take_those_run_again(client, batch.id + row)]
            moves.append(Reread(client, batch.id + row))
        if waiting or expected:
            references = len(waiting) if waiting else 0
            objects[batch.id + row] = ObjectRecord(bytes(payload), references, expected=expected)
            kept += accounts.OBJECT + len(payload)
        if waiting:
            moves += dependencies.fulfil(waiting)
    if kept:
        accounts.charge(state, client, kept)
    return moves


def _supply_stored(state: ClusterState, batch: Batch, row: int, size: int, agent: AgentRecord) -> list[Move]:
    """A row's value is in an agent's store: an object, unless nobody wants it."""
    task, client = batch.task, state.clients[batch.client]
    value = batch.id + row
    waiting = not_ended(batch.waiters.pop(row, ()))
    expected = dependencies.expected_yet(waiting, value, task.uses[row]) if task.uses else 0
    moves: list[Move] = []
    if value in client.values.remaking:
        waiting += dependencies.take_those_run_again(client, value)
        moves.append(Reread(client, value))
    told = not task.wanted or bool(task.wanted[row])
    if not (waiting or told or expected):
        lifetimes.release_at(state, agent, client.number, value, size)
        return moves
    lineage.retain_needs(client, batch, row)
    item = lifetimes.add_stored(state, agent, batch, row, size, len(waiting) + told, expected)
    item.held_by_client = told
    return moves + dependencies.fulfil(waiting)


def _supply_element(state: ClusterState, client: ClientRecord, batch: Batch, row: int, span: SpanResult) -> list[Move]:
    """A row's value is an element of a list that becomes an object."""
    waiting = not_ended(batch.waiters.pop(row))
    if not waiting:
        return []
    list_id = LIST_OBJECT | (batch.id + span.lo)
    client.values.element_of[batch.id + row] = (list_id, row - span.lo)
    item = client.values.objects.get(list_id)
    if item is None:
        item = lifetimes.put(state, client, list_id, ObjectRecord(bytes(span.body), elements=[]))
    item.references += len(waiting)
    assert item.elements is not None
    item.elements.append(batch.id + row)
    return dependencies.fulfil(waiting)


def _let_go(state: ClusterState, batch: Batch, lo: int, hi: int) -> None:
    """Rows have ended: let go of what they needed."""
    if batch.needs is not None:
        if batch.has_come_back:
            _retain_for_others(state.clients[batch.client], batch, lo, hi)
        lifetimes.release_needs(state, state.clients[batch.client], batch, range(lo, hi))
    if not batch.left:
        lifetimes.end_batch(state, state.clients[batch.client], batch)


def _retain_for_others(client: ClientRecord, batch: Batch, lo: int, hi: int) -> None:
    """Rows have ended, of which it may have been told after those that needed their values: these may be lost."""
    if batch.lineage is not None and batch.lineage.references:
        for row in range(lo, hi):
            lineage.retain_needs(client, batch, row)
