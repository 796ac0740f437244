"""What an agent does about a process that workers are forked from and that does not report what it should."""

import pytest

from scaler.agent.overdue import LOOKS, PATIENCE, Overdue, Verdict


@pytest.fixture
def overdue() -> Overdue:
    made = Overdue()
    made.await_start(0, 100.0)
    return made


def test_nothing_is_due_once_all_is_reported(overdue: Overdue) -> None:
    assert Overdue().due is None
    assert overdue.due == 100.0 + PATIENCE
    overdue.await_end(1, 101.0)
    assert (overdue.slots(101.0), overdue.slots(100.0 + PATIENCE)) == ([], [0])
    overdue.note(0, has_ended=False)
    assert overdue.due == 101.0 + PATIENCE
    overdue.note(1, has_ended=True)
    assert overdue.due is None


def test_that_a_worker_has_started_does_not_tell_that_it_has_ended(overdue: Overdue) -> None:
    overdue.await_end(0, 101.0)
    overdue.await_end(0, 101.5)
    overdue.note(0, has_ended=False)
    assert overdue.due == 101.0 + PATIENCE
    overdue.note(0, has_ended=True)
    assert overdue.due is None


def test_looks_are_apart(overdue: Overdue) -> None:
    overdue.judge(109.0, is_stopped=False, is_owed=True)
    assert overdue.due == 109.0 + PATIENCE


def test_one_that_is_stopped_goes_on_and_is_replaced_if_that_is_in_vain(overdue: Overdue) -> None:
    assert overdue.judge(102.0, is_stopped=True, is_owed=True) is Verdict.CONTINUE
    assert overdue.judge(104.0, is_stopped=True, is_owed=False) is Verdict.REPLACE


def test_one_that_has_reported_something_before_it_is_stopped_again_is_not_replaced(overdue: Overdue) -> None:
    overdue.await_end(1, 101.0)
    for turn in range(5):
        assert overdue.judge(102.0 + turn, is_stopped=True, is_owed=True) is Verdict.CONTINUE
        overdue.note(0, has_ended=True)


def test_a_slow_one_is_not_replaced_until_it_has_said_nothing_for_long(overdue: Overdue) -> None:
    for turn in range(LOOKS - 1):
        assert overdue.judge(102.0 + turn, is_stopped=False, is_owed=True) is Verdict.WAIT
    overdue.note(1, has_ended=True)
    for turn in range(LOOKS - 1):
        assert overdue.judge(202.0 + turn, is_stopped=False, is_owed=True) is Verdict.WAIT
    assert overdue.judge(300.0, is_stopped=False, is_owed=True) is Verdict.REPLACE


def test_one_that_waits_for_workers_which_do_not_end_is_not_replaced(overdue: Overdue) -> None:
    for turn in range(3 * LOOKS):
        assert overdue.judge(102.0 + turn, is_stopped=False, is_owed=False) is Verdict.WAIT
