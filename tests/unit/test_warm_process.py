"""The warm process leaves the processors to whom they belong, until somebody waits for it."""

import os
from collections.abc import Iterator

import pytest

from scaler.agent import warm_process
from scaler.agent.warm_process import _GivingWay

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


def test_before_there_is_a_cluster_a_module_is_loaded_when_a_processor_is_free(wanted: int, looks: list[int]) -> None:
    looks += [4, 3, 2, 10_000]
    _GivingWay(wanted, 1, PAUSE, calm=1).find_spec("any")
    assert looks == [10_000]


def test_beside_a_cluster_it_takes_a_moment_in_which_nothing_runs(wanted: int, looks: list[int]) -> None:
    looks += [1, 10_000]
    _GivingWay(wanted, 0, PAUSE, calm=3).find_spec("any")
    assert looks == [10_000], "as long as nobody runs, it just goes on"
    looks[:] = [2, 1, 1, 2, 1, 1, 1, 10_000]
    _GivingWay(wanted, 0, PAUSE, calm=3).find_spec("any")
    assert looks == [10_000]


def test_it_does_not_look_again_at_once(wanted: int, looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_process, "PAUSE", 1e6)
    giving_way = _GivingWay(wanted, 0, PAUSE, calm=1)
    looks += [1, 10_000]
    giving_way.find_spec("any")
    giving_way.find_spec("other")
    assert looks == [10_000]


def test_or_a_worker_that_waits_for_it(wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def look() -> int:
        os.eventfd_write(wanted, 1)
        return 10_000

    monkeypatch.setattr(warm_process, "_running", look)
    _GivingWay(wanted, 0, 1e6, calm=1).find_spec("any")


def test_nobody_who_waits_gets_a_head_start(wanted: int) -> None:
    giving_way = _GivingWay(wanted, 0, PAUSE, calm=1)
    assert not giving_way.is_wanted(PAUSE)
    os.eventfd_write(wanted, 1)
    assert giving_way.is_wanted(1e6)


def test_the_load_of_this_host_is_read() -> None:
    assert warm_process._running() >= 1
