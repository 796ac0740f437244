"""Where the results of a job's rows are: in which record, how far into it, in the order in which they came.

Rows are numbered from 0 over all parts of the job. 13 bytes a row and 37 a span, in columns.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

from scaler.journal.layout import Place
from scaler.protocol.messages import CANCELLED, ERROR, sizes_of, u8, u32, u64
from scaler.protocol.results import SpanResult


class SpanPlace(NamedTuple):
    """Rows [lo, hi) of a job, how they ended, and where their payloads are."""

    lo: int
    hi: int
    outcome: int
    duration: int
    segment: int
    offset: int
    size: int
    sizes: array[int]


class ResultIndex:
    """Of one job."""

    def __init__(self) -> None:
        #: of each row the number of its span, from 1; 0: it has not ended
        self._span_of = u32()
        self._lo = u64()
        self._hi = u64()
        self._outcomes = u8()
        self._durations = u32()
        self._segments = u32()
        self._offsets = u64()
        self._lengths = u64()
        #: where the sizes of the payloads of a span begin
        self._first_size = u64()
        self._sizes = u32()
        self.done = 0
        self.failed = 0
        self.cancelled = 0

    @property
    def rows(self) -> int:
        """How many rows the job has, as far as it is known."""
        return len(self._span_of)

    @property
    def ended(self) -> int:
        """How many of them have ended."""
        return self.done + self.failed + self.cancelled

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many have ended with a value, with an error, and cancelled."""
        return self.done, self.failed, self.cancelled

    @property
    def spans(self) -> int:
        """How many spans of results there are."""
        return len(self._lo)

    def add_rows(self, rows: int) -> int:
        """Rows that have not ended; the number of the first."""
        first = len(self._span_of)
        self._span_of.frombytes(bytes(4 * rows))
        return first

    def has_ended(self, lo: int, hi: int) -> int:
        """How many of the rows [lo, hi) have ended."""
        if hi - lo == 1:
            return 1 if self._span_of[lo] else 0
        return hi - lo - self._span_of[lo:hi].count(0)

    def is_ended(self, row: int) -> bool:
        """A row has ended."""
        return self._span_of[row] > 0

    def next_ended(self, row: int, most: int) -> int:
        """The first row from this one on that has ended; or as far as was looked, so many rows at most."""
        end = min(len(self._span_of), row + most)
        while row < end and not self._span_of[row]:
            row += 1
        return row

    def open_spans(self, lo: int, hi: int) -> list[tuple[int, int]]:
        """The runs of rows in [lo, hi) that have not ended."""
        found, at, spans = [], lo, self._span_of
        while at < hi:
            if spans[at]:
                at = self._hi[spans[at] - 1]
                continue
            end = at + 1
            while end < hi and not spans[end]:
                end += 1
            found.append((at, end))
            at = end
        return found

    def add(self, lo: int, result: SpanResult, place: Place, offset: int) -> None:
        """Rows from `lo` on have ended, none of which had; their payload is `offset` bytes into the segment."""
        rows = result.hi - result.lo
        self._lo.append(lo)
        self._hi.append(lo + rows)
        self._outcomes.append(result.outcome)
        self._durations.append(result.duration)
        self._segments.append(place.segment)
        self._offsets.append(offset)
        self._lengths.append(len(result.body))
        self._first_size.append(len(self._sizes))
        self._sizes.extend(result.sizes)
        number = len(self._lo)
        if rows == 1:
            self._span_of[lo] = number
        else:
            self._span_of[lo : lo + rows] = u32((number,)) * rows
        if result.outcome == ERROR:
            self.failed += rows
        elif result.outcome == CANCELLED:
            self.cancelled += rows
        else:
            self.done += rows

    def span_at(self, number: int) -> SpanPlace:
        """The span of this number, from 0 in the order of their ends."""
        lo, hi, outcome = self._lo[number], self._hi[number], self._outcomes[number]
        first = self._first_size[number]
        return SpanPlace(
            lo, hi, outcome, self._durations[number], self._segments[number], self._offsets[number],
            self._lengths[number], self._sizes[first : first + sizes_of(outcome, hi - lo)],
        )  # fmt: skip

    def number_of(self, row: int) -> int:
        """The number of the span that a row is in; -1 if it has not ended."""
        return self._span_of[row] - 1

    def move(self, first: int, count: int, segment: int, by: int) -> None:
        """The record of so many spans was copied: their payloads are in this segment, `by` bytes further."""
        for number in range(first, first + count):
            self._segments[number] = segment
            self._offsets[number] += by


def part_of(firsts: list[int], row: int) -> int:
    """The index of the part that a row is in; `firsts` are the first rows of the parts.

    >>> part_of([0, 10, 20], 10), part_of([0, 10, 20], 9)
    (1, 0)
    """
    return bisect_right(firsts, row) - 1
