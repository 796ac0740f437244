"""The batches that a client waits for, and whose rows are whose."""

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any

from scaler.client.core.events import BatchGroup, Submit
from scaler.client.core.needed import NeededTokens
from scaler.common.records import entity
from scaler.protocol.codes import MOST_SPANS
from scaler.protocol.messages import GRAPH, Spans, Task

#: batches that have ended and are not looked for: as many as are pending, and so many more, before they are left out.
#: Each is an int that was made among futures, and keeps a MiB from the system that had these
FEW = 16
#: rows, or batches, that are worth a worker of their own
MANY = 256


@entity
class PendingBatch:
    """A batch whose wanted rows, or those of its graph, have not all ended."""

    task: Task
    #: one for each row; None: nobody wants the row, or it has ended, and who wanted it may have let go of it
    tokens: list[Any]
    #: wanted rows that have not ended; of all its graph
    group: BatchGroup
    #: 1 for rows that have ended
    done: bytearray
    #: there is one token, for all rows
    whole: bool
    #: per row: the tokens and references that it needs; empty if none does
    needs: Sequence[Sequence[Any]]
    #: what the shell knows of the function
    template: Any
    #: how many batches were submitted before it
    number: int
    #: rows [lo, hi) whose values are in stores; None if none is
    stored: list[tuple[int, int]] | None = None
    #: rows [lo, hi) that were cancelled; None if none was
    cancelled: list[tuple[int, int]] | None = None

    def tokens_of(self, lo: int, hi: int) -> Sequence[Any]:
        """The tokens of these rows."""
        return self.tokens if self.whole else self.tokens[lo:hi]

    def end(self, lo: int, hi: int) -> Sequence[Any]:
        """Rows [lo, hi), none of which had, have ended: their tokens."""
        rows = hi - lo
        self.group.left -= rows
        if rows == 1 and not self.whole:  # as that of a lone task: a fifth of what the rest takes
            token, self.tokens[lo], self.done[lo] = self.tokens[lo], None, 1
            return (token,)
        tokens = self.tokens_of(lo, hi)
        self.done[lo:hi] = b"\x01" * rows
        if not self.whole:
            self.tokens[lo:hi] = [None] * rows
        return tokens

    def note_cancelled(self, lo: int, hi: int) -> None:
        """Rows [lo, hi) have ended so."""
        self.cancelled = _extended(self.cancelled, lo, hi)

    def note_stored(self, lo: int, hi: int) -> None:
        """Rows [lo, hi) have ended so."""
        self.stored = _extended(self.stored, lo, hi)

    def rows_of(self, token: Any) -> Iterable[int]:
        """The rows of a token that have not ended."""
        if self.whole:
            return [row for row in range(self.task.rows) if not self.done[row]]
        row = token.id - self.task.batch
        return () if self.done[row] else (row,)

    def needed(self) -> tuple[Collection[int], Iterable[Any]]:
        """The ids of values that its rows need, and a token for each; the first batch of a graph has those of all."""
        if self.needs:
            return self.task.dependencies, chain.from_iterable(self.needs)
        keep = self.group.keep
        return (keep, keep.values()) if keep and self.group.batches[0] == self.task.batch else ((), ())


def _extended(spans: list[tuple[int, int]] | None, lo: int, hi: int) -> list[tuple[int, int]]:
    """The same list of spans, if there is one, with the rows [lo, hi) behind them."""
    if spans is None:
        return [(lo, hi)]
    if spans[-1][1] == lo:
        spans[-1] = spans[-1][0], hi
    else:
        spans.append((lo, hi))
    return spans


class PendingBatches:
    """All batches that have not ended, in the order submitted."""

    def __init__(self) -> None:
        #: batch id -> batch; always the same table. A plain dict passes all that were removed to find its first one
        self.by_id: OrderedDict[int, PendingBatch] = OrderedDict()
        #: ids of batches, ascending, for finding the batch of a row; may have ended ones
        self._order: list[int] = []
        #: batches that were ever submitted
        self.submitted = 0
        #: what those need whose numbers are below `_noted`: as many as were submitted when a value was last asked for
        self._needed = NeededTokens()
        self._noted = 0

    def add(self, event: Submit) -> None:
        """A batch is submitted; gives its tokens the ids of their rows."""
        task, tokens = event.task, event.tokens
        batch = task.batch
        for row_id, token in enumerate(tokens, batch):
            if token is not None:
                token.id = row_id
        group = event.group or BatchGroup(task.rows)
        group.batches.append(batch)
        self.by_id[batch] = PendingBatch(
            task, list(tokens), group, bytearray(task.rows), event.whole, event.needs, event.template, self.submitted
        )
        self.submitted += 1
        insort(self._order, batch)

    def remove(self, batch: int) -> PendingBatch:
        """A batch has ended."""
        pending = self.by_id.pop(batch)
        order = self._order
        if len(order) > 2 * len(self.by_id) + FEW:
            order[:] = sorted(self.by_id)
        if pending.number < self._noted:
            values, _ = pending.needed()
            self._needed.remove(values)
        return pending

    def clear(self) -> None:
        """Nothing is waited for any more."""
        self.by_id.clear()
        self._order.clear()
        self._needed.clear()

    @property
    def is_lone_row(self) -> bool:
        """Exactly one row is under way. May be asked by any thread, as a guess."""
        by_id = self.by_id
        if len(by_id) != 1:
            return False
        try:
            return next(iter(by_id.values())).task.rows == 1
        except (StopIteration, RuntimeError):  # it ended just now
            return False

    @property
    def are_many(self) -> bool:
        """Many rows are under way, or many batches. May be asked by any thread, as a guess."""
        by_id = self.by_id
        if len(by_id) >= MANY:
            return True
        try:
            return any(pending.done.count(0) >= MANY for pending in by_id.values())
        except RuntimeError:  # it changes just now
            return True

    @property
    def oldest(self) -> int:
        """The number of the oldest batch; that of the next one if there is none."""
        return next(iter(self.by_id.values())).number if self.by_id else self.submitted

    def tokens(self) -> list[Any]:
        """All tokens of rows that have not ended, and of batches that have one token."""
        return [token for pending in list(self.by_id.values()) for token in pending.tokens if token is not None]

    def batch_of(self, row_id: int) -> PendingBatch | None:
        """The batch of a row, None if it has ended or was never sent."""
        order = self._order
        at = bisect_right(order, row_id)
        pending = self.by_id.get(order[at - 1]) if at else None
        return pending if pending is not None and row_id < pending.task.batch + pending.task.rows else None

    def rows_of(self, tokens: Sequence[Any]) -> list[tuple[PendingBatch, int]]:
        """The rows of these tokens that have not ended."""
        found = []
        for token in tokens:
            pending = self.batch_of(token.id)
            if pending is not None:
                found += [(pending, row) for row in pending.rows_of(token)]
        return found

    def rows_near(self, row_id: int, rows: int, backwards: bool) -> Spans:
        """Rows with tokens of their own that come after this one, or before it, and have not ended; at most so many.

        They are as many spans as one message may name, at most.
        """
        order, found = self._order, Spans()
        at = bisect_right(order, row_id) - 1
        while rows > 0 and 0 <= at < len(order):
            pending = self.by_id.get(order[at])
            at += -1 if backwards else 1
            if pending is None or pending.whole or pending.task.form == GRAPH:
                continue
            done, batch = pending.done, pending.task.batch
            if backwards:
                hi = done.rfind(0, 0, max(0, row_id - batch)) + 1
                lo = max(0, hi - rows)
            else:
                lo = done.find(0, max(0, row_id + 1 - batch))
                hi = min(len(done), lo + rows) if lo >= 0 else -1
            while 0 <= lo < hi and len(found.batches) < MOST_SPANS:
                end = done.find(1, lo, hi)
                end = hi if end < 0 else end
                if lo < end:
                    found.add(0, batch, lo, end)
                    rows -= end - lo
                lo = done.find(0, end, hi)
        return found

    def cancelled(self) -> Spans:
        """Rows that were cancelled, of batches that have not ended."""
        found = Spans()
        for pending in self.by_id.values():
            if pending.cancelled and pending.task.form != GRAPH:
                for lo, hi in pending.cancelled:
                    found.add(0, pending.task.batch, lo, hi)
        return found

    def need(self, value_id: int) -> Any:
        """The token or reference with this id that a pending row needs; None if there is none.

        Looks at the batches that came since it was last asked, once at each.
        """
        for pending in reversed(self.by_id.values()):
            if pending.number < self._noted:
                break
            self._needed.add(*pending.needed())
        self._noted = self.submitted
        return self._needed.get(value_id)
