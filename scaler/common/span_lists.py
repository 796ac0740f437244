"""Lists of spans (lo, hi): what they cover together, what of that is in others, and what is not."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter


def runs_of(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Spans that cover these ascending row numbers."""
    if not rows:
        return
    lo = previous = rows[0]
    for row in rows[1:]:
        if row != previous + 1:
            yield lo, previous + 1
            lo = row
        previous = row
    yield lo, previous + 1


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What some spans cover, ascending, as few spans.

    >>> joined([(4, 6), (0, 2), (1, 3), (3, 4), (8, 9), (0, 1)])
    [(0, 6), (8, 9)]
    """
    made: list[tuple[int, int]] = []
    end = -1
    for lo, hi in sorted(spans):
        if lo > end:
            made.append((lo, hi))
            end = hi
        elif hi > end:
            made[-1] = (made[-1][0], hi)
            end = hi
    return made


def within(spans: list[tuple[int, int]], lo: int, hi: int) -> list[tuple[int, int]]:
    """What spans that are ascending and apart cover of [lo, hi).

    >>> within([(0, 2), (4, 6), (8, 9)], 1, 5)
    [(1, 2), (4, 5)]
    """
    found = []
    for a, b in islice(spans, bisect_right(spans, lo, key=itemgetter(1)), None):
        if a >= hi:
            break
        found.append((max(a, lo), min(b, hi)))
    return found


def without(spans: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What some spans cover and none of the others does, ascending."""
    edges = [edge for lo, hi in spans for edge in ((lo, 1, 0), (hi, -1, 0))]
    edges += [edge for lo, hi in others for edge in ((lo, 0, 1), (hi, 0, -1))]
    left: list[tuple[int, int]] = []
    covered = cut = before = 0
    for at, begins, cuts in sorted(edges):
        if covered and not cut and before < at:
            lo = left.pop()[0] if left and left[-1][1] == before else before
            left.append((lo, at))
        covered, cut, before = covered + begins, cut + cuts, at
    return left
