"""Which rows a task that waits for a token of its own asks for, to run them in its own stack."""

from collections.abc import Iterable
from itertools import islice

from scaler.client.core.events import Claim
from scaler.client.core.pending import PendingBatch, PendingBatches

Row = tuple[PendingBatch, int]


def rows_to_claim(pending: PendingBatches, claim: Claim) -> list[Row]:
    """Half of the token's rows, so that others can have the rest; empty if none may be claimed.

    Where asking takes longer than running them, more: of the same template what these rows need, and what comes behind.
    """
    rows = pending.rows_of([claim.token])
    if not rows or not _may_be_claimed(rows[0][0], claim):
        return []
    wanted = min((len(rows) + 1) // 2, claim.most or len(rows))
    if rows[0][0].template is not claim.template or claim.least <= wanted:
        return rows[-wanted:]
    rows = rows[-claim.least :]
    return _with_others(pending, claim, rows) if len(rows) < claim.least else rows


def _with_others(pending: PendingBatches, claim: Claim, rows: list[Row]) -> list[Row]:
    found = {(batch.task.batch, row): (batch, row) for batch, row in rows}
    last = max(batch + row for batch, row in found)
    reached = rows
    while reached and len(found) < claim.least:
        reached = _short(claim, (each for batch, row in reached for each in _needed(pending, batch, row)))
        found |= {(batch.task.batch, row): (batch, row) for batch, row in reached}
    left = max(0, claim.least - len(found))
    behind = islice(_short(claim, pending.rows_behind(last, left)), left) if left else ()
    found |= {(batch.task.batch, row): (batch, row) for batch, row in behind}
    return [found[key] for key in sorted(found)]


def _needed(pending: PendingBatches, batch: PendingBatch, row: int) -> Iterable[Row]:
    return pending.rows_of(batch.needs[row]) if batch.needs else ()


def _short(claim: Claim, rows: Iterable[Row]) -> list[Row]:
    return [(batch, row) for batch, row in rows if batch.template is claim.template and _may_be_claimed(batch, claim)]


def _may_be_claimed(batch: PendingBatch, claim: Claim) -> bool:
    return batch.task.may_be_claimed and batch.task.nesting < claim.below
