"""The warm process leaves the processors to whom they belong, until somebody waits for it."""

import os
from collections.abc import Iterator

import pytest

from scaler.agent import warm_process
from scaler.agent.warm_process import YieldPolicy, _GivingWay

PAUSE = 0.001


@pytest.fixture
def wanted() -> Iterator[int]:
    """What says that somebody waits."""
    descriptor = os.eventfd(0)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many threads run at each look that is still to come; one after them."""
    running: list[int] = []
    monkeypatch.setattr(warm_process, "_running", lambda: running.pop(0) if running else 1)
    return running


def giving_way(wanted: int, others: int, pause: float, calm: int) -> _GivingWay:
    """One whose policy never changes."""
    policy = YieldPolicy(others, pause, calm)
    return _GivingWay(wanted, lambda: policy)


def test_before_there_is_a_cluster_a_module_is_loaded_when_a_processor_is_free(wanted: int, looks: list[int]) -> None:
    looks += [4, 3, 2, 10_000]
    giving_way(wanted, 1, PAUSE, calm=1).find_spec("any")
    assert looks == [10_000]


def test_beside_a_cluster_it_takes_a_moment_in_which_nothing_runs(wanted: int, looks: list[int]) -> None:
    looks += [1, 10_000]
    giving_way(wanted, 0, PAUSE, calm=3).find_spec("any")
    assert looks == [10_000], "as long as nobody runs, it just goes on"
    looks[:] = [2, 1, 1, 2, 1, 1, 1, 10_000]
    giving_way(wanted, 0, PAUSE, calm=3).find_spec("any")
    assert looks == [10_000]


def test_it_has_other_manners_from_the_moment_on_in_which_there_is_a_cluster(wanted: int, looks: list[int]) -> None:
    looks += [3, 2, 2, 1, 1, 10_000]
    policy = [YieldPolicy(1, PAUSE, 1)]

    def of_the_moment() -> YieldPolicy:
        if len(looks) < 6:
            policy[0] = YieldPolicy(0, PAUSE, 2)
        return policy[0]

    _GivingWay(wanted, of_the_moment).find_spec("any")
    assert looks == [10_000]


def test_it_does_not_look_again_at_once(wanted: int, looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_process, "PAUSE", 1e6)
    loading = giving_way(wanted, 0, PAUSE, calm=1)
    looks += [1, 10_000]
    loading.find_spec("any")
    loading.find_spec("other")
    assert looks == [10_000]


def test_or_a_worker_that_waits_for_it(wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def look() -> int:
        os.eventfd_write(wanted, 1)
        return 10_000

    monkeypatch.setattr(warm_process, "_running", look)
    giving_way(wanted, 0, 1e6, calm=1).find_spec("any")


def test_nobody_who_waits_gets_a_head_start(wanted: int) -> None:
    loading = giving_way(wanted, 0, PAUSE, calm=1)
    assert not loading.is_wanted(PAUSE)
    os.eventfd_write(wanted, 1)
    assert loading.is_wanted(1e6)


def test_the_load_of_this_host_is_read() -> None:
    assert warm_process._running() >= 1
