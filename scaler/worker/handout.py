"""Rows that were handed to this worker, and who may take which of them.

The main thread takes rows from the front of a part and runs them; whoever gives rows back takes them from the end. Both
are single operations of a deque, so neither needs a lock against the other, and no row is ever in two hands.
The rows of a part are consecutive. Forgetting rows in the middle leaves two parts of one hand-out.
"""

from __future__ import annotations

from array import array
from collections import deque
from itertools import accumulate
from typing import Any

from scaler.worker.constants import PRIORITY_SHIFT

Key = tuple[int, int]


class Handout:
    """What the rows of one hand-out have in common."""

    __slots__ = (
        "arguments", "batch", "body", "client", "deps", "first", "flags",
        "form", "function", "name", "number", "offsets", "parts", "priority", "wanted",
    )  # fmt: skip

    def __init__(self, message: tuple[Any, ...]) -> None:
        """Read a ("run", ...) message."""
        (
            _, self.number, self.client, self.batch, self.first, _, self.form, self.function, self.arguments, flags,
            self.name, sizes, self.body, self.deps, _, _, *rest,
        ) = message  # fmt: skip
        #: per row 1 if the client wants its value, 0 if only other rows need it; None: it wants all
        self.wanted: bytes | None = rest[0] if rest else None
        self.flags: int = flags & ((1 << PRIORITY_SHIFT) - 1)
        self.priority: int = flags >> PRIORITY_SHIFT
        #: where the payload of row `first + i` begins in `body`, and where the last one ends
        self.offsets: list[int] = list(accumulate(array("I", sizes), initial=0)) if sizes else []
        #: parts of it that are not finished
        self.parts = 1

    def payload(self, row: int) -> memoryview:
        """Return the bytes of one row of an EACH batch."""
        at = row - self.first
        return memoryview(self.body)[self.offsets[at] : self.offsets[at + 1]]

    def dependencies(self, row: int) -> list[tuple[Key, int]]:
        """Return what one row depends on, in order."""
        return self.deps[row - self.first] if self.deps else []

    def is_wanted(self, row: int) -> bool:
        """Say whether the client wants the value of one row."""
        return self.wanted is None or bool(self.wanted[row - self.first])


class Part:
    """Consecutive rows of a hand-out."""

    __slots__ = ("end", "handout", "lo", "rows")

    def __init__(self, handout: Handout, lo: int, hi: int) -> None:
        self.handout = handout
        #: the first row it was made with
        self.lo = lo
        #: one after the last row that was not taken back
        self.end = hi
        #: rows not begun: always the last ones before `end`
        self.rows = deque(range(lo, hi))

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
