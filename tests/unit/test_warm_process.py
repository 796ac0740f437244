"""The process that loads modules in advance leaves the processors to others."""

from __future__ import annotations

from array import array

import pytest

from scaler.agent import warm_process
from scaler.agent.warm_process import _AT, _WANTED, _GivingWay


@pytest.fixture
def shared() -> memoryview[int]:
    return memoryview(array("I", [0, 0]))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many threads run at each look that is still to come; one after them."""
    running: list[int] = []
    monkeypatch.setattr(warm_process, "_running", lambda: running.pop(0) if running else 1)
    return running


def test_a_module_is_loaded_when_a_processor_is_free(shared: memoryview[int], looks: list[int]) -> None:
    looks += [4, 3, 2, 10_000]
    _GivingWay(shared, 1, calm=1).find_spec("any")
    assert looks == [10_000]


def test_beside_a_cluster_it_takes_a_moment_in_which_nothing_runs(shared: memoryview[int], looks: list[int]) -> None:
    giving_way = _GivingWay(shared, 0, calm=3)
    looks += [1, 10_000]
    giving_way.find_spec("any")
    assert looks == [10_000], "as long as nobody runs, it just goes on"
    looks[:] = [2, 1, 1, 2, 1, 1, 1, 10_000]
    giving_way.find_spec("any")
    assert looks == [10_000]


def test_or_when_a_worker_waits_for_it(shared: memoryview[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def look() -> int:
        shared[_WANTED] = 1
        return 10_000

    monkeypatch.setattr(warm_process, "_running", look)
    _GivingWay(shared, 0, calm=1).find_spec("any")
    assert shared[_AT] == 0


def test_nobody_who_waits_gets_a_head_start(shared: memoryview[int]) -> None:
    shared[_WANTED] = 1
    _GivingWay(shared, 0, calm=1).sleep(1e9)


def test_the_load_of_this_host_is_read() -> None:
    assert warm_process._running() >= 1
