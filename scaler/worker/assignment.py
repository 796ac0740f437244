"""Rows that were handed to this worker, and who may take which of them.

The main thread takes rows from the front and runs them; whoever gives rows back takes them from the end. Both are
single operations of a deque, so neither needs a lock against the other, and no row is ever in two hands.
"""

from __future__ import annotations

from array import array
from collections import deque
from itertools import accumulate

from scaler.serialize.call import AnySerializer
from scaler.worker_protocol.messages import Need, Run


class Assignment:
    """The rows of one dispatch, and what they have in common."""

    __slots__ = ("_offsets", "end", "lo", "rows", "run", "serializer")

    def __init__(self, run: Run) -> None:
        self.run = run
        #: the user's, that its function was written by; None until that has been decoded
        self.serializer: AnySerializer | None = None
        #: the first row that was handed
        self.lo = run.lo
        #: one after the last row that was not taken back
        self.end = run.hi
        #: rows not begun: always the last ones before `end`
        self.rows = deque(range(run.lo, run.hi))
        #: where the payload of row `lo + i` begins in the body, and where the last one ends
        self._offsets = list(accumulate(array("I", run.sizes), initial=0)) if run.sizes else []

    def payload(self, row: int) -> memoryview:
        """Return the bytes of one row of an EACH batch."""
        assert self.run.body is not None
        at = row - self.lo
        return memoryview(self.run.body)[self._offsets[at] : self._offsets[at + 1]]

    def needs(self, row: int) -> list[Need]:
        """Return what one row needs, in the order of its arguments."""
        needs = self.run.needs
        return needs[row - self.lo] if needs else []

    def is_wanted(self, row: int) -> bool:
        """Say whether the client wants the value of one row."""
        return self.wanted(row) > 0

    def wanted(self, row: int) -> int:
        """Return what the column `wanted` of the protocol says of one row; 1 without one."""
        wanted = self.run.wanted
        return 1 if wanted is None else wanted[row - self.lo]

    def next_row(self) -> int:
        """Return the row that would be begun next, or `end`; the rows before it have been begun."""
        rows = self.rows
        try:
            return rows[0]
        except IndexError:
            return self.end

    def take_back(self, row: int) -> tuple[int, int]:
        """Take rows that have not begun, from `row` to the end; return those taken as (lo, hi)."""
        hi = lo = self.end
        pop = self.rows.pop
        try:
            while lo > row:
                pop()
                lo -= 1
        except IndexError:  # the main thread was faster
            pass
        self.end = lo
        return lo, hi
