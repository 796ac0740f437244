"""When a connection that was lost is tried again."""

import itertools

from scaler.common.attempts import FIRST_PAUSE, GROWTH, LONGEST_PAUSE, Attempts


def test_pauses_grow_to_the_longest() -> None:
    attempts = Attempts(0.0)
    pauses = [attempts.next_pause(0.0) for _ in range(20)]
    assert pauses[0] == FIRST_PAUSE
    assert all(after == min(GROWTH * before, LONGEST_PAUSE) for before, after in itertools.pairwise(pauses))
    assert pauses[-1] == LONGEST_PAUSE
    assert not attempts.are_over(1e9)


def test_the_last_attempt_is_when_patience_ends_however_long_the_pause_before_it_would_be() -> None:
    attempts, now = Attempts(100.0, 1.0), 100.0
    assert attempts.deadline == 101.0
    while not attempts.are_over(now):
        pause = attempts.next_pause(now)
        assert pause > 0.0
        now += pause
    assert now == 101.0


def test_a_pause_is_never_less_than_none() -> None:
    assert Attempts(100.0, 1.0).next_pause(102.0) == 0.0
