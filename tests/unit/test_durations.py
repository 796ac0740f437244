"""What is kept of how long rows took."""

import random

import pytest

from scaler.scheduler.state.durations import PARTS, Durations


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_quantiles_are_an_eighth_off_at_most(spread: float) -> None:
    chance = random.Random(1)
    took = sorted(max(1, round(1000 * 10 ** chance.uniform(-spread, spread))) for _ in range(2001))
    durations = Durations()
    for each in took:
        durations.add(1, each)
    for found, exact in zip(durations.quantiles(), (took[1000], took[int(0.95 * 2001)]), strict=True):
        assert abs(found - exact) <= exact / 8 + 1
    assert durations.total_us == sum(took)


def test_nothing_is_known_before_the_first_row() -> None:
    assert Durations().quantiles() == (0, 0)


def test_rows_that_took_no_time_count() -> None:
    durations = Durations()
    durations.add(10, 0)
    durations.add(1, 4000)
    assert durations.quantiles()[0] == 0
    durations.add(1000, 1000 * 4000)
    assert abs(durations.quantiles()[0] - 4000) <= 500


def test_the_histogram_stays_small_whatever_rows_take() -> None:
    chance, durations = random.Random(2), Durations()
    for _ in range(20_000):
        durations.add(1, min(2**32 - 1, round(2 ** chance.uniform(0, 33))))
    assert len(durations._counts) <= PARTS * 34
