"""Numbers in ascending order, each once, to which any can be added and of which any can be removed at little cost.

They are in runs of bounded length, one list each: to remove one moves those behind it in its run, where it would move
all that are behind it in a single list.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

#: numbers in one run, at most
LONGEST = 512


class SortedNumbers:
    """Made empty.

    >>> numbers = SortedNumbers()
    >>> for number in (5, 3, 9):
    ...     numbers.add(number)
    >>> numbers.remove(5)
    >>> list(numbers), numbers.below(9), list(numbers.between(1, 9))
    ([3, 9], 3, [3])
    """

    __slots__ = ("_bounds", "_runs")

    def __init__(self) -> None:
        #: no empty ones
        self._runs: list[list[int]] = []
        #: for each run a number that is not above any of its own, and above all of those before
        self._bounds: list[int] = []

    def add(self, number: int) -> None:
        """One more, that is not there yet."""
        runs, bounds = self._runs, self._bounds
        if not runs or number > runs[-1][-1]:  # as nearly always
            if runs and len(runs[-1]) < LONGEST:
                runs[-1].append(number)
            else:
                runs.append([number])
                bounds.append(number)
            return
        at = bisect_right(bounds, number) - 1
        if at < 0:
            at, bounds[0] = 0, number
        run = runs[at]
        insort(run, number)
        if len(run) > LONGEST:
            middle = LONGEST // 2
            runs.insert(at + 1, run[middle:])
            bounds.insert(at + 1, run[middle])
            del run[middle:]

    def remove(self, number: int) -> None:
        """One less, that is there."""
        at = bisect_right(self._bounds, number) - 1
        run = self._runs[at]
        if len(run) == 1:
            del self._runs[at], self._bounds[at]
        else:
            del run[bisect_left(run, number)]

    def clear(self) -> None:
        """None is left."""
        self._runs.clear()
        self._bounds.clear()

    def below(self, number: int) -> int | None:
        """The greatest that is less than this one; None if there is none."""
        runs = self._runs
        if runs and runs[-1][-1] < number:  # as nearly always
            return runs[-1][-1]
        at = bisect_left(self._bounds, number) - 1
        if at < 0:
            return None
        run = runs[at]
        place = bisect_left(run, number)
        if place:
            return run[place - 1]
        return runs[at - 1][-1] if at else None

    def between(self, lo: int, hi: int) -> Iterator[int]:
        """Those in [lo, hi), ascending. None may be added or removed meanwhile."""
        runs = self._runs
        for at in range(max(0, bisect_right(self._bounds, lo) - 1), bisect_left(self._bounds, hi)):
            run = runs[at]
            yield from run[bisect_left(run, lo) : bisect_left(run, hi)]

    @property
    def longest(self) -> int:
        """How many numbers are moved at most to remove one of them."""
        return max(map(len, self._runs), default=0)

    def __iter__(self) -> Iterator[int]:
        for run in self._runs:
            yield from run
