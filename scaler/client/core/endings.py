"""How rows end for their client: each once, whatever schedulers say again; and what that means for their graph."""

from collections.abc import Iterable, Sequence

from scaler.client.core.events import (
    BatchGroup,
    CancelRefused,
    ClaimGranted,
    ClaimRefused,
    Effect,
    Resolve,
    RowsBegun,
    Transmit,
)
from scaler.client.core.lineage import Lineage
from scaler.client.core.object_table import ObjectTable, release_message
from scaler.client.core.pending import PendingBatch, PendingBatches
from scaler.client.core.unanswered import UnansweredRequests
from scaler.common.span_lists import runs_of
from scaler.errors import ProtocolError
from scaler.protocol import failures
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    GRAPH,
    LOST,
    STORED,
    Spans,
    TaskBegun,
    TaskCancel,
    TaskClaimResponse,
    TaskResult,
    TaskRunning,
    u32,
)
from scaler.protocol.results import NO_SIZES, SpanResult, cut, spans_of

#: outcomes of rows that have no value
_WITHOUT_VALUE = frozenset({ERROR, CANCELLED, LOST})


class RowEndings:
    """What the scheduler says of rows, applied to the tables of the session."""

    def __init__(
        self, pending: PendingBatches, objects: ObjectTable, lineage: Lineage, unanswered: UnansweredRequests
    ) -> None:
        self._pending = pending
        self._objects = objects
        self._lineage = lineage
        self._unanswered = unanswered

    def take_results(self, message: TaskResult) -> list[Effect]:
        """Rows ended. Raises `ProtocolError` for one that nobody wants."""
        effects: list[Effect] = []
        by_id = self._pending.by_id
        spans = spans_of(message)
        for span in spans:
            self._check_wanted(span.batch, span.lo, span.hi)
        for span in spans:
            pending = by_id.get(span.batch)
            if pending is None or span.hi > pending.task.rows:
                continue
            lo, hi = span.lo, span.hi
            if pending.done.find(1, lo, hi) >= 0:  # said before by a scheduler that is gone: only what is new counts
                new = [row for row in range(lo, hi) if not pending.done[row]]
                parts = _parts(span, list(runs_of(new)))
                if span.outcome == STORED:
                    effects += self._release_doubles(span, new)
            else:
                parts = [span]
            group = pending.group
            for part in parts:
                lo, hi, outcome = part.lo, part.hi, part.outcome
                tokens = pending.end(lo, hi)
                if outcome in _WITHOUT_VALUE:
                    group.failed = True
                    if outcome == CANCELLED:
                        pending.note_cancelled(lo, hi)
                elif outcome == STORED:
                    self._objects.referenced.update(range(span.batch + lo, span.batch + hi))
                    pending.note_stored(lo, hi)
                    group.stored = True
                effects.append(Resolve(tokens, part, pending.task))
                if not group.left:
                    effects += self._end(group)
        return effects

    def _check_wanted(self, batch: int, lo: int, hi: int) -> None:
        """Schedulers keep to themselves how the rows of a graph end that nobody has asked for."""
        pending = self._pending.by_id.get(batch)
        if pending is not None and pending.task.form == GRAPH and 0 in pending.task.wanted[lo:hi]:
            raise ProtocolError(f"rows {lo} to {hi} of batch {batch} were not all asked for")

    def _release_doubles(self, span: SpanResult, new: list[int]) -> list[Effect]:
        """Rows that had ended before ran again, and their values are stored: those that nobody here refers to go."""
        first = span.batch
        ids = {first + row for row in range(span.lo, span.hi)} - {first + row for row in new} - self._objects.referenced
        return [Transmit(release_message(sorted(ids)))] if ids else []

    def _end(self, group: BatchGroup) -> list[Effect]:
        """All wanted rows have ended; of a graph that failed, rows may be left that nobody wants any more."""
        leftover = Spans()
        if group.stored or self._lineage.is_of_interest:
            self._lineage.end(group.batches)
        for batch in group.batches:
            pending = self._pending.remove(batch)
            if pending.task.form == GRAPH and group.failed:
                leftover.add(0, batch, 0, pending.task.rows)
        self._objects.forget_released(self._pending.oldest, self._lineage.oldest)
        if not self._pending.by_id:
            self._unanswered.clear()
        return [*map(Transmit, TaskCancel(leftover, group.is_forced).parts())] if leftover else []

    def cancel(self, pending: PendingBatch, row: int) -> list[Effect]:
        """A row that the scheduler holds back ends as cancelled; the scheduler hears of it later."""
        tokens = pending.end(row, row + 1)
        pending.note_cancelled(row, row + 1)
        group = pending.group
        group.failed = True
        span = SpanResult(pending.task.batch, row, row + 1, CANCELLED, 0, 0, NO_SIZES, b"")
        ended: list[Effect] = [Resolve(tokens, span, pending.task)]
        return ended if group.left else ended + self._end(group)

    def take_begun(self, message: TaskBegun) -> list[Effect]:
        """Rows have run for a while."""
        return [RowsBegun(pending.tokens_of(lo, hi)) for pending, lo, hi in self._known_spans(message)]

    def take_running(self, message: TaskRunning) -> list[Effect]:
        """Rows that were to be cancelled run."""
        effects: list[Effect] = []
        for pending, lo, hi in self._known_spans(message):
            tokens = pending.tokens_of(lo, hi)
            self._unanswered.end_cancels(tokens)
            effects.append(CancelRefused(tokens))
        return effects

    def _known_spans(self, spans: Spans) -> Iterable[tuple[PendingBatch, int, int]]:
        for _, batch, lo, hi in spans:
            pending = self._pending.by_id.get(batch)
            if pending is not None and hi <= pending.task.rows:
                yield pending, lo, hi

    def take_claims(self, message: TaskClaimResponse) -> list[Effect]:
        """Rows that a waiting task asked for are its own to run, or are not. Raises like `take_results`."""
        effects: list[Effect] = []
        for _, batch, lo, hi in message.granted:
            self._check_wanted(batch, lo, hi)
        for pending, lo, hi in self._known_spans(message.granted):  # none of a batch that ends meanwhile
            for row in range(lo, hi):
                self._unanswered.end_claims(pending.tokens_of(row, row + 1))
                if not pending.done[row]:
                    tokens = pending.end(row, row + 1)
                    needs = pending.needs[row] if pending.needs else ()
                    effects.append(ClaimGranted(pending.task, row, tokens[0], needs, pending.template))
            if not pending.group.left:
                effects += self._end(pending.group)
        for pending, lo, hi in self._known_spans(message.refused):
            tokens = pending.tokens_of(lo, hi)
            self._unanswered.end_claims(tokens)
            effects.append(ClaimRefused(tokens))
        return effects


def _parts(span: SpanResult, runs: Sequence[tuple[int, int]]) -> list[SpanResult]:
    """These rows of a span; as failed ones where they can't be told apart."""
    try:
        return cut(span, runs)
    except ProtocolError as problem:
        record = failures.results_damaged(str(problem)).encode()
        size = u32([len(record)])
        rows = [row for lo, hi in runs for row in range(lo, hi)]
        return [SpanResult(span.batch, row, row + 1, ERROR, 0, 0, size, record) for row in rows]
