"""Rows that were with a worker when it ended, and of which one may have made it end: each runs alone from now on.

A worker runs short rows one after the other and reports them together. If one of them has spoilt what it reports by
(has closed its worker's sockets, say), that is noticed some rows later, and the row at which it is noticed is as likely
as not another's. Alone, with nothing reported late and nothing behind it, a row can only be blamed for what it did.

Nor for what another one did: a row that waits for its own tasks may run these in its stack, and dies with one that ends
its process. So what it waits for runs in workers of their own from now on. Of a tree of tasks that is so at the depth
at which a worker ended, if that is known: what is above did nothing, and need not die of it once more, one by one.
"""

from dataclasses import field

from scaler.common.records import entity
from scaler.store.layout import Key

#: rows that are remembered; of more the oldest are forgotten
MOST = 20_000


@entity
class Suspects:
    """Rows that are to run alone, whether they are here or come again."""

    #: (client, batch) -> its rows, both in the order in which they came -> what `claims_below` says
    rows: dict[Key, dict[int, int]] = field(default_factory=dict)
    #: rows in all
    count: int = 0

    def add(self, batch: Key, lo: int, hi: int, claims_below: int = 0) -> None:
        """Rows [lo, hi) of a batch are suspected, and claim from now on nothing that is as deep as this, or deeper."""
        if lo >= hi:
            return
        known = self.rows.setdefault(batch, {})
        before = len(known)
        known.update((row, min(known.get(row, claims_below), claims_below)) for row in range(lo, hi))
        self.count += len(known) - before
        while self.count > MOST:
            oldest = next(iter(self.rows))
            self.clear_row(oldest, next(iter(self.rows[oldest])))

    def expect(self, batch: Key, lo: int, hi: int) -> None:
        """Rows come that were lost with workers before, of this agent or of others."""
        known = self.rows.get(batch, {})
        for row in range(lo, hi):
            if row not in known:
                self.add(batch, row, row + 1)

    def claims_below(self, batch: Key, row: int) -> int:
        """What a suspected row claims is submitted in fewer tasks, one inside the other, than this."""
        return self.rows[batch][row]

    def clear_row(self, batch: Key, row: int) -> None:
        """A row has ended and its worker has told so: it is suspected no more."""
        known = self.rows.get(batch)
        if known is None or row not in known:
            return
        del known[row]
        self.count -= 1
        if not known:
            del self.rows[batch]

    def first(self, batch: Key, lo: int, hi: int) -> int:
        """The first of rows [lo, hi) of a batch that is suspected; `hi` if none is."""
        known = self.rows.get(batch)
        if known is None:
            return hi
        return next((row for row in range(lo, hi) if row in known), hi)

    def drop_client(self, client: int) -> None:
        """Forget the rows of a client."""
        for batch in [batch for batch in self.rows if batch[0] == client]:
            self.count -= len(self.rows.pop(batch))
