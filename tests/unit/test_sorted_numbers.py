"""Numbers in order: the same as a sorted list, and never far to move."""

import random
from bisect import bisect_left

import pytest

from scaler.common.sorted_numbers import LONGEST, SortedNumbers


@pytest.mark.parametrize("seed", range(4))
def test_they_are_what_a_sorted_list_would_be(seed: int) -> None:
    rng = random.Random(seed)
    made, known = SortedNumbers(), list[int]()
    for step in range(6_000):
        number = step if seed == 0 else rng.randrange(20_000)
        at = bisect_left(known, number)
        if known[at : at + 1] != [number]:
            known.insert(at, number)
            made.add(number)
        if rng.random() < 0.3 or step > 4_500:
            made.remove(known.pop(0 if rng.random() < 0.5 else rng.randrange(len(known))))
        if step % 50 == 0:
            lo, hi = sorted(rng.sample(range(20_100), 2))
            assert list(made) == known
            assert made.below(lo) == max((other for other in known if other < lo), default=None)
            assert list(made.between(lo, hi)) == [other for other in known if lo <= other < hi]
        assert made.longest <= LONGEST
    made.clear()
    assert (list(made), made.below(9), list(made.between(0, 9)), made.longest) == ([], None, [], 0)


def test_those_that_come_in_order_fill_their_runs() -> None:
    made = SortedNumbers()
    for number in range(10 * LONGEST):
        made.add(number)
    assert len(made._runs) == 10
