"""A host that is about to go, at its agent: nothing new begins, the rest goes back, and it ends in time."""

import pytest
from simulator.scripted import FakeAgent

from scaler.agent.core import events as ae
from scaler.agent.core.leaving import may_be_missed
from scaler.agent.state.departure import SUCCESSOR_PATIENCE
from scaler.protocol.codes import Leaving, Wish
from scaler.protocol.messages import (
    KEEP,
    BalanceResponse,
    Drain,
    Heartbeat,
    ObjectRelease,
    Settled,
    TaskResult,
    u32,
    u64,
)
from scaler.worker_protocol import messages as wm


def given_back(fake: FakeAgent) -> list[tuple[int, int, int]]:
    """The rows that went back to the scheduler since the last time."""
    return [(batch, lo, hi) for message in fake.heard(BalanceResponse) for _, batch, lo, hi in message]


def has_ended(fake: FakeAgent) -> bool:
    """It wants to end."""
    return any(isinstance(effect, ae.Stop) for effect in fake.store)


def test_a_host_that_is_told_to_drain_gives_back_what_has_not_begun_and_ends_when_told() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 5)
    begun = sum(hi - lo for _, lo, hi in fake.running(0))
    fake.said.clear()
    fake.tell(Drain(Wish.DRAIN))
    (beat,) = [message for message in fake.said if isinstance(message, Heartbeat)]
    assert beat.leaving == Leaving.TOLD
    back = given_back(fake)
    assert sum(hi - lo for _, lo, hi in back) == 5 - begun
    while fake.running(0):
        fake.finish(0)
    assert not fake.running(0)
    fake.give(50, 0, 2)  # they were on their way
    assert given_back(fake) == [(50, 0, 2)]
    assert not has_ended(fake)
    fake.tell(Drain(Wish.END))
    assert has_ended(fake)


def test_rows_behind_a_row_that_runs_are_taken_back_from_the_worker() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 2)
    fake.finish(0, us=50)  # quick rows: they are handed out together from now on
    while fake.running(0):
        fake.finish(0, us=50)
    fake.give(20, 0, 9)
    run = fake.runs[0][0]
    assert run.hi - run.lo > 1
    fake.tell(Drain(Wish.DRAIN))
    (recall,) = [message for _, message in fake.control if isinstance(message, wm.Recall)]
    fake.worker(
        0,
        wm.Returned(
            recall.token,
            [wm.ReturnedSpan(run.dispatch, run.client, run.batch, run.lo + 1, run.hi)],
            (run.dispatch, run.lo),
        ),
    )
    assert (20, run.lo + 1, run.hi) in given_back(fake)


def test_a_host_that_shall_stay_begins_rows_again() -> None:
    fake = FakeAgent(1)
    fake.tell(Drain(Wish.DRAIN))
    fake.tell(Drain(Wish.STAY))
    assert fake.heard(Heartbeat)[-1].leaving == Leaving.NOT
    fake.give(10, 0, 1)
    assert fake.running(0)
    fake.tell(Drain(Wish.END))  # that was for another time
    assert not has_ended(fake)


def test_a_host_whose_end_was_announced_does_not_stay_and_ends_in_time_whatever_runs() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 2)
    fake.said.clear()
    fake.handle(ae.Leave(5.0))
    assert fake.heard(Heartbeat)[-1].leaving == Leaving.ANNOUNCED
    fake.tell(Drain(Wish.STAY))
    assert fake.core.state.departure.reason is Leaving.ANNOUNCED
    assert fake.wake <= 5.0
    fake.now = 4.9
    fake.handle(ae.Tick())
    assert not has_ended(fake)
    fake.now = 5.0
    fake.handle(ae.Tick())
    assert has_ended(fake)
    assert "rows that run" in fake.logged[-1]


@pytest.mark.parametrize("notice_first", [True, False])
def test_a_host_whose_end_is_announced_waits_a_moment_for_another_scheduler_if_its_own_ends(notice_first: bool) -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 2)
    fake.makes(0)
    happens = [lambda: fake.handle(ae.Leave(20.0)), lambda: fake.tell(Drain(Wish.FAREWELL))]
    for each in happens if notice_first else happens[::-1]:
        each()
    assert not has_ended(fake)
    assert fake.wake <= SUCCESSOR_PATIENCE
    fake.now = SUCCESSOR_PATIENCE
    fake.handle(ae.Tick())
    assert has_ended(fake)
    assert fake.logged[-1].startswith("its scheduler has ended, too: this host ends, with 1 rows that run")


def test_a_host_whose_scheduler_ends_has_all_its_time_if_another_one_comes() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.tell(Drain(Wish.FAREWELL))
    fake.now = 2 * SUCCESSOR_PATIENCE
    fake.handle(ae.Tick())
    assert not has_ended(fake), "its own end was not announced"
    fake.handle(ae.Welcomed(False, 1.0, fake.core.state.number, True))
    fake.handle(ae.Leave(20.0))
    assert fake.core.state.departure.until == fake.now + 20.0


def test_a_host_begins_to_drain_before_its_walltime_is_over() -> None:
    fake = FakeAgent(1)
    fake.handle(ae.Limited(60.0, 10.0))
    fake.give(10, 0, 1)
    fake.now = 49.0
    fake.handle(ae.Tick())
    assert fake.wake <= 50.0
    fake.said.clear()
    fake.now = 50.0
    fake.handle(ae.Tick())
    assert fake.heard(Heartbeat)[-1].leaving == Leaving.WALLTIME
    fake.now = 60.0
    fake.handle(ae.Tick())
    assert has_ended(fake)


def test_what_somebody_may_want_of_a_host_is_rows_results_that_are_not_settled_and_stored_values() -> None:
    fake = FakeAgent(1)
    client = 1
    assert not may_be_missed(fake.core.state)
    fake.give(10, 0, 1, client=client)
    assert may_be_missed(fake.core.state)
    fake.finish(0)
    assert may_be_missed(fake.core.state)
    fake.tell(Settled(u32([client]), u64([1])))
    assert not may_be_missed(fake.core.state)
    fake.give(20, 0, 1, client=client)
    (key,) = fake.makes(0)
    fake.tell(Settled(u32([client]), u64([2])))
    assert may_be_missed(fake.core.state)
    fake.tell(ObjectRelease(u32([key[0]]), u64([key[1]])))
    assert not may_be_missed(fake.core.state)


def test_results_that_are_kept_until_their_batch_is_over_may_be_wanted_until_then() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1, client=1, flags=KEEP)
    fake.finish(0)
    fake.tell(Settled(u32([1]), u64([1])))
    assert may_be_missed(fake.core.state)
    fake.tell(Settled(over_clients=u32([1]), over_batches=u64([10])))
    assert not may_be_missed(fake.core.state)


@pytest.mark.parametrize("first", [Drain(Wish.DRAIN), None])
def test_the_earliest_end_counts(first: Drain | None) -> None:
    fake = FakeAgent(1)
    if first is not None:
        fake.tell(first)
    fake.handle(ae.Limited(60.0, 10.0), ae.Leave(5.0))
    assert fake.core.state.departure.until == 5.0


def test_while_a_task_waits_for_others_as_many_rows_are_kept_as_can_run() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.worker(0, wm.Blocked())
    fake.worker(1, wm.Ready(101))
    fake.tell(Drain(Wish.DRAIN))
    fake.give(50, 0, 3)
    assert fake.running(1)
    back = given_back(fake)
    assert sum(hi - lo for _, lo, hi in back) == 2
    fake.finish(1)
    fake.worker(0, wm.Unblocked())
    fake.give(60, 0, 1)
    assert given_back(fake) == [(60, 0, 1)]


def test_what_is_said_of_workers_that_end_with_their_host_comes_behind_its_notice() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.said.clear()
    run = fake.runs[0][0]
    fake.handle(ae.Leave(5.0), ae.WorkerExited(0, 100, 15, (run.dispatch, run.lo)))
    assert [type(message) for message in fake.said if not isinstance(message, BalanceResponse)] == [
        Heartbeat,
        TaskResult,
    ]
