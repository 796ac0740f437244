"""Workers whose first call fails, at their agent: they take no rows, and a host of which none starts takes none."""

import pytest
from simulator.scripted import FakeAgent

from scaler.agent.core import events as ae
from scaler.protocol.messages import BalanceResponse, ObjectMissing
from scaler.worker_protocol import messages as wm

CALL, ERROR = "m:f", "ValueError: no"


def fails(fake: FakeAgent, slot: int, error: str = ERROR, status: int = 1 << 8) -> None:
    """A worker starts, and ends by its call."""
    said = [wm.Preloading(CALL), wm.Preloading(CALL, error)] if error else [wm.Preloading(CALL)]
    fake.handle(*[ae.FromWorker(slot, message) for message in said], ae.WorkerExited(slot, 100, status, (0, -1)))


def starts(fake: FakeAgent, slot: int) -> None:
    """A worker makes its call and is ready."""
    fake.handle(ae.FromWorker(slot, wm.Preloading(CALL)), ae.FromWorker(slot, wm.Ready(100 + slot)))


def given_up(fake: FakeAgent) -> list[str]:
    """Why the agent wants to go, as often as it has said so."""
    return [effect.reason for effect in fake.store if isinstance(effect, ae.GiveUp)]


def refused(fake: FakeAgent) -> list[tuple[int, int, int]]:
    """The rows that were refused since the last time."""
    messages = fake.heard(ObjectMissing)
    fake.said.clear()
    assert all(message.unfit for message in messages)
    return [(batch, lo, hi) for message in messages for _, batch, lo, hi in message.rows]


def test_a_host_of_which_all_workers_fail_gives_up_once_and_says_why() -> None:
    fake = FakeAgent(2, ready=False)
    fails(fake, 0)
    assert not given_up(fake)
    fails(fake, 1)
    assert given_up(fake) == [
        "no worker of this host can start: --preload m:f failed: ValueError: no; "
        "start the host again when that is mended"
    ]
    fake.now = 1.0
    fake.handle(ae.Tick())
    fails(fake, 0)
    fails(fake, 1)
    assert len(given_up(fake)) == 1
    assert not fake.logged


def test_a_call_that_ends_its_worker_has_failed() -> None:
    fake = FakeAgent(1, ready=False)
    fails(fake, 0, error="", status=11)
    (reason,) = given_up(fake)
    assert "--preload m:f failed: its worker was killed by SIGSEGV" in reason


def test_workers_that_never_come_to_make_the_call_are_no_reason_to_give_up() -> None:
    fake = FakeAgent(1, ready=False)
    fake.handle(ae.WorkerExited(0, 100, 1 << 8, (0, -1)))
    assert not given_up(fake)
    assert fake.logged == ["worker 0 could not start: it ended with exit code 1; another try in 0.1 s"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_where_another_worker_starts_one_that_fails_is_told_once_and_tried_again(order: tuple[int, int]) -> None:
    fake = FakeAgent(2, ready=False)
    for slot in order:
        starts(fake, 0) if slot == 0 else fails(fake, 1)
    for _ in range(5):
        fake.now += 100.0
        fake.handle(ae.Tick())
        assert fake.started[-1] == 1
        fails(fake, 1)
    assert not given_up(fake)
    assert fake.logged == [
        "some workers of this host could not start, and are tried again: --preload m:f failed: ValueError: no"
    ]
    fake.give(10, 0, 1)
    assert fake.running(0)


def test_a_worker_takes_no_rows_while_it_makes_its_call() -> None:
    fake = FakeAgent(1, ready=False)
    fake.handle(ae.FromWorker(0, wm.Preloading(CALL)))
    fake.give(10, 0, 1)
    assert not fake.running(0)
    fake.worker(0, wm.Ready(100))
    assert fake.running(0)


def test_a_host_whose_workers_fail_later_gives_up_when_none_is_left_and_gives_its_rows_back() -> None:
    fake = FakeAgent(2, ready=False)
    starts(fake, 0)
    starts(fake, 1)
    for slot in (0, 1):
        assert not given_up(fake)
        fake.handle(ae.WorkerExited(slot, 100, 9, (0, -1)))
        fails(fake, slot)
    assert len(given_up(fake)) == 1
    fake.give(10, 0, 3)
    assert not refused(fake)
    fake.handle(ae.Leave(5.0))
    assert [(batch, lo, hi) for message in fake.heard(BalanceResponse) for _, batch, lo, hi in message] == [(10, 0, 3)]


def test_a_local_cluster_of_which_no_worker_starts_refuses_rows_until_one_does() -> None:
    fake = FakeAgent(2, ready=False, may_return=False)
    fake.give(10, 0, 3)
    fails(fake, 0)
    assert not refused(fake)
    fails(fake, 1)
    assert refused(fake) == [(10, 0, 3)]
    fake.give(20, 0, 2)
    assert refused(fake) == [(20, 0, 2)]
    assert not given_up(fake)
    assert fake.logged == [
        "no worker of this host can start: --preload m:f failed: ValueError: no; "
        "tasks fail until it succeeds, which is tried again and again"
    ]
    fake.now = 1.0
    fake.handle(ae.Tick())
    starts(fake, 0)
    fake.give(30, 0, 1)
    assert not refused(fake)
    assert fake.running(0)


def test_a_worker_that_has_started_can_not_fail_to() -> None:
    fake = FakeAgent(1)
    fake.worker(0, wm.Preloading(CALL, ERROR))
    assert fake.killed == [0]
