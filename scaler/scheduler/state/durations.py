"""How long the rows of a function took: a histogram of few numbers, however many rows there were."""

from math import frexp

#: parts of an octave: what is read from the histogram is at most an eighth off
PARTS = 4
#: where rows are counted that took no time
NOTHING = -1000


class Durations:
    """Counts rows by what they took each, microseconds."""

    __slots__ = ("_counts", "_quantiles", "total_us")

    def __init__(self) -> None:
        #: part of an octave -> rows; at most `PARTS` for each power of two that a duration of u32 can have
        self._counts: dict[int, int] = {}
        #: what was last read from it; None: rows have come since
        self._quantiles: tuple[int, int] | None = None
        #: of all rows together
        self.total_us = 0

    def add(self, rows: int, together_us: int) -> None:
        """So many rows took so long together."""
        self.total_us += together_us
        self._quantiles = None
        mantissa, exponent = frexp(together_us / rows)  # the mantissa of 0 is 0, otherwise from 0.5 to 1
        part = PARTS * exponent + int(2 * PARTS * mantissa) - PARTS if mantissa else NOTHING
        self._counts[part] = self._counts.get(part, 0) + rows

    def take_in(self, other: "Durations") -> None:
        """Count the rows of another one, too."""
        self.total_us += other.total_us
        self._quantiles = None
        for part, rows in other._counts.items():
            self._counts[part] = self._counts.get(part, 0) + rows

    def quantiles(self) -> tuple[int, int]:
        """What half of all rows, and 95 of 100, took at most, microseconds; 0 while there are none."""
        if self._quantiles is None:
            self._quantiles = self._quantile(50), self._quantile(95)
        return self._quantiles

    def _quantile(self, percent: int) -> int:
        counts, seen = self._counts, 0
        wanted = percent * sum(counts.values())
        for part in sorted(counts):
            seen += 100 * counts[part]
            if seen >= wanted:
                return _middle(part)
        return 0


def _middle(part: int) -> int:
    """The middle of a part of an octave, microseconds."""
    if part == NOTHING:
        return 0
    exponent, step = divmod(part, PARTS)
    return round((PARTS + step + 0.5) / (2 * PARTS) * 2.0**exponent)
