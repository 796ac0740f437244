"""When a connection that was lost is tried again."""

import itertools

from scaler.common.attempts import FIRST_PAUSE, LONGEST_PAUSE, Attempts


def test_pauses_grow_to_the_longest() -> None:
    attempts = Attempts(0.0)
    pauses = [attempts.next_pause() for _ in range(10)]
    assert pauses[0] == FIRST_PAUSE
    assert all(after == min(2 * before, LONGEST_PAUSE) for before, after in itertools.pairwise(pauses))
    assert pauses[-1] == LONGEST_PAUSE
    assert not attempts.are_over(1e9)


def test_patience_is_over_when_the_next_attempt_would_come_too_late() -> None:
    attempts = Attempts(100.0, 1.0)
    assert attempts.deadline == 101.0
    assert not attempts.are_over(101.0 - FIRST_PAUSE)
    assert attempts.are_over(101.0 - FIRST_PAUSE / 2)
    while attempts.next_pause() < LONGEST_PAUSE:
        pass
    assert not attempts.are_over(100.5)
    assert attempts.are_over(100.6)
