"""Calling something once in each worker: by short tasks, as none can be sent to one worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scaler_dask import every_worker
from scaler_dask.worker_functions import VisitFailed


class FakeEngine:
    """Two workers: the second is busy at first, and gets a task only while the first one has one."""

    n_workers = 2

    def __init__(self, outcome: Callable[[str], Any]) -> None:
        self._outcome = outcome
        self._submitted = 0
        self._rounds = 0
        self._visited: set[str] = set()

    def with_options(self, priority: int) -> FakeEngine:
        return self

    def submit(self, *call: Any) -> FakeFuture:
        self._submitted += 1
        return FakeFuture(self, self._submitted - 1)

    def cancel(self, futures: list[FakeFuture]) -> None:
        self._submitted, self._rounds = 0, self._rounds + 1

    def visited(self, place: int) -> Any:
        name = "second" if place and self._rounds else "first"
        if name in self._visited:
            return None
        self._visited.add(name)
        return self._outcome(name)


class FakeFuture:
    def __init__(self, engine: FakeEngine, place: int) -> None:
        self._engine = engine
        self._place = place

    def result(self, timeout: float) -> Any:
        return self._engine.visited(self._place)


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_worker, "_TIMEOUT", 0.5)
    monkeypatch.setattr(every_worker, "_PAUSE", 0.0)


def test_a_worker_that_is_busy_for_a_moment_is_not_left_out() -> None:
    engine: Any = FakeEngine(lambda name: (name, len(name)))
    assert every_worker.run_on_each(engine, abs, (-1,)) == {"first": 5, "second": 6}


def test_what_the_function_has_raised_is_told_with_its_worker() -> None:
    def fail(name: str) -> Any:
        raise VisitFailed(name) from KeyError(name)

    engine: Any = FakeEngine(fail)
    returned = every_worker.run_on_each(engine, abs, (-1,), on_error="return")
    assert {name: error.args for name, error in returned.items()} == {"first": ("first",), "second": ("second",)}
    with pytest.raises(KeyError, match="first"):
        every_worker.run_on_each(FakeEngine(fail), abs, (-1,))  # type: ignore[arg-type]
