"""Rows that wait for values: what they wait for, and what becomes of them when it comes, fails, or was lost.

A row's entry in `missing` counts what it waits for. A value that is not made yet has the waiting rows in its batch's
`waiters`; one that the client has to send in its `awaited`; one that was lost in its `remaking`. A row that ends while
it waits stays in these lists, of which each may be long: who reads them passes over it.
"""

from collections.abc import Iterator

from scaler.protocol.messages import Frame, u32
from scaler.scheduler.core import lifetimes
from scaler.scheduler.core.moves import AskClient, Fail, Move, Remake, Reread, Route
from scaler.scheduler.state import accounts
from scaler.scheduler.state.batch_records import DONE, WAITING, Batch, Row, not_ended
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.transitions import Cause


def await_needs(
    state: ClusterState, client: ClientRecord, batch: Batch, there: bytearray | None = None
) -> tuple[list[Move], list[Fail]]:
    """Let the rows of a new batch wait for the values that they need; what has to be asked for, and which rows fail.

    Of a batch that another scheduler had, rows may have ended, and agents have those that are marked in `there`: these
    need nothing more, but are counted among those that need a value.
    """
    task, at = batch.task, 0
    batch.needs = needs = []
    batch.missing = u32([0]) * batch.rows
    values = task.dependencies.tolist()
    moves: list[Move] = []
    unknown: list[int] = []
    failures: list[Fail] = []
    for row, count in enumerate(task.dependency_counts):
        wanted = tuple(values[at : at + count])
        at += count
        needs.append(wanted)
        if batch.place[row] == DONE:
            for value in wanted:
                if batch.reserves(value):
                    lifetimes.expect_less(state, client, value)
            continue
        record, waits, is_at_agent = None, (batch, row), there is not None and bool(there[row])
        for value in wanted:
            record = _await_value(state, client, waits, value, moves, unknown, is_at_agent) or record
        if record is not None:
            failures.append(Fail(batch, row, record))
    if unknown:
        moves.append(AskClient(client, unknown))
        batch.price += accounts.UNKNOWN * len(unknown)
        accounts.charge(state, client, accounts.UNKNOWN * len(unknown))
    return moves, failures


def ready(batch: Batch, failures: list[Fail]) -> Iterator[tuple[int, int]]:
    """The spans of rows that wait for nothing, but for those that fail."""
    missing, failed = batch.missing, {failure.row for failure in failures}
    for lo, hi in batch.spans_in(WAITING):
        first = lo
        for row in range(lo, hi) if missing is not None or failed else ():
            if (missing is not None and missing[row]) or row in failed:
                if first < row:
                    yield first, row
                first = row + 1
        if first < hi:
            yield first, hi


def _await_value(
    state: ClusterState,
    client: ClientRecord,
    waits: Row,
    value: int,
    moves: list[Move],
    unknown: list[int],
    is_at_agent: bool,
) -> Frame | None:
    """Let a row wait for a value unless it is there; the error record if it never will be.

    A row may need a million values, most of them `unknown`: all that is done for each takes the others' time.
    """
    batch, row = waits
    assert batch.missing is not None
    values = client.values
    item = values.objects.get(values.object_id_of(value))
    if item is not None:
        item.references += 1
        if item.expected and batch.reserves(value):
            item.expected -= 1
        if item.is_lost and not is_at_agent:
            moves += await_lost(client, batch, row, value)
        return None
    failure = values.failed.get(value)
    if failure is not None:
        record, others = failure
        if batch.reserves(value) and others > 1:
            values.failed[value] = record, others - 1
        elif batch.reserves(value):
            del values.failed[value]
            accounts.charge(state, client, -accounts.price_of_failure(record))
        return record
    source = _batch_of(client, value)
    if source is not None and source.place[value - source.id] != DONE:
        source.waiters.setdefault(value - source.id, []).append(waits)
    else:
        waiting = values.awaited.get(value)
        if waiting is None:
            values.awaited[value] = [waits]
            unknown.append(value)
        else:
            waiting.append(waits)
            if not is_at_agent and value in values.refused:
                values.refused.discard(value)
                unknown.append(value)
    batch.missing[row] += 1
    return None


def _batch_of(client: ClientRecord, row_id: int) -> Batch | None:
    """The batch of a row whose value others may need, or a live one: a future was used while it is pending."""
    kept = client.values.batch_of_row.get(row_id)
    if kept is not None:
        return kept
    first = client.batch_ids.below(row_id + 1)
    if first is None:
        return None
    batch = client.batches[first]
    return batch if row_id < first + batch.rows else None


def is_to_end(client: ClientRecord, value: int) -> bool:
    """It is the value of a row that has not ended, so nobody has it."""
    batch = _batch_of(client, value)
    if batch is None:
        return False
    row = value - batch.id
    return batch.place[row] != DONE and not batch.is_recomputing(row, row + 1)


def await_lost(client: ClientRecord, batch: Batch, row: int, value: int) -> list[Move]:
    """Let a row wait for one lost value, and see that it is made again. The row keeps its reference to it."""
    if batch.missing is None:
        batch.missing = u32([0]) * batch.rows
    batch.missing[row] += 1
    waiting = client.values.remaking.get(value)
    if waiting is not None:
        waiting.append((batch, row))
        return []
    client.values.remaking[value] = [(batch, row)]
    return [Remake(client, value, batch)]


def take_those_run_again(client: ClientRecord, value: int) -> list[Row]:
    """A row has ended, for the first time here, whose value rows wait for that are computed again: these rows.

    They had ended before, so the `uses` of their graph don't count them any more: each is a reference of its own.
    """
    return client.values.end_remaking(value)


def wait_anew(client: ClientRecord, batch: Batch, row: int) -> None:
    """A row that has ended is about to run again; if it waited for something when it ended, that does not count."""
    if batch.missing is None or not batch.missing[row]:
        return
    values, needs = client.values, batch.needs[row] if batch.needs is not None else ()
    for value in {batch.task.function, batch.task.arguments, *needs}:
        if value in values.remaking:  # somebody may read it
            values.remaking[value] = not_ended(values.remaking[value])
        if value in values.awaited:
            _leave_out_ended(values.awaited, value)
        source = _batch_of(client, value)
        if source is not None and value - source.id in source.waiters:
            _leave_out_ended(source.waiters, value - source.id)


def _leave_out_ended(waiting: dict[int, list[Row]], key: int) -> None:
    """All that have ended: the next one of them to run again finds nothing to leave out."""
    left = not_ended(waiting[key])
    if left:
        waiting[key] = left
    else:
        del waiting[key]


def expected_yet(waiting: list[Row], value: int, uses: int) -> int:
    """How many rows of its graph a new value is kept for that have not come: of those counted, all but these."""
    for batch, _ in waiting:
        if uses <= 0:
            return 0  # more have come than its client has said
        uses -= batch.reserves(value)
    return uses


def fulfil(waiting: list[Row]) -> list[Move]:
    """A value is there that these rows waited for: those that miss nothing more can go.

    Rows of graphs go before others, depth first, in the order in which they are given.
    """
    moves: list[Move] = []
    if len(waiting) == 1:
        batch, row = waiting[0]
        missing = batch.missing
        assert missing is not None
        missing[row] -= 1
        if not missing[row] and batch.place[row] == WAITING:
            moves.append(Route(batch, row, row + 1, Cause.READY, front=batch.keeps))
        return moves
    span: tuple[Batch, int, int] | None = None
    for batch, row in reversed(waiting):
        missing = batch.missing
        assert missing is not None
        missing[row] -= 1
        if missing[row] or batch.place[row] != WAITING:
            continue
        if span is not None and span[0] is batch and span[1] == row + 1 and batch.keeps:
            span = (batch, row, span[2])
            continue
        if span is not None:
            moves.append(Route(*span, Cause.READY, front=span[0].keeps))
        span = (batch, row, row + 1)
    if span is not None:
        moves.append(Route(*span, Cause.READY, front=span[0].keeps))
    return moves


def fail_dependents(state: ClusterState, client: ClientRecord, batch: Batch, row: int, record: Frame) -> list[Move]:
    """The rows that fail with this one; dependents that have not come yet will find the record."""
    waiting = not_ended(batch.waiters.pop(row, ())) if batch.waiters else []
    uses = batch.task.uses
    value = batch.id + row
    if uses:
        others = expected_yet(waiting, value, uses[row])
        if others:
            before = client.values.failed.get(value)
            if before is not None:
                accounts.charge(state, client, -accounts.price_of_failure(before[0]))
            client.values.failed[value] = record, others
            accounts.charge(state, client, accounts.price_of_failure(record))
    if value not in client.values.remaking:
        return fail_all(waiting, record)
    return [Reread(client, value), *fail_all(waiting + take_those_run_again(client, value), record)]


def fail_all(rows: list[Row], record: Frame) -> list[Move]:
    """These rows, which waited for something that can't be had, fail with this error."""
    failures: list[Move] = []
    for batch, row in rows:
        assert batch.missing is not None
        batch.missing[row] -= 1
        failures.append(Fail(batch, row, record))
    return failures
