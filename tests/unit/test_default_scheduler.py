"""Dask's settings while clients live, and after them."""

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest
from dask.base import named_schedulers
from support import signals_at
from support.signals_at import signals_at_each_point

import scaler
import scaler_dask
from scaler_dask import default_scheduler


@pytest.fixture(autouse=True)
def _all_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    packages = [str(module.__file__) for module in (dask.config, scaler, scaler_dask)]
    monkeypatch.setattr(signals_at, "FILES", tuple(file.removesuffix("__init__.py") for file in packages))
    while client := default_scheduler.current():  # of other tests
        default_scheduler.leave(client)
    yield
    while client := default_scheduler.current():
        default_scheduler.leave(client)


def settings() -> Any:
    return copy.deepcopy(dask.config.config), dict(named_schedulers)


@pytest.mark.parametrize("others", [0, 1])
def test_a_signal_at_any_point_leaves_all_of_dasks_settings_as_they_were_or_none(others: int) -> None:
    for _ in range(others):
        default_scheduler.enter(SimpleNamespace(asynchronous=False, get=len))
    client = SimpleNamespace(asynchronous=False, get=print)
    without = settings()
    default_scheduler.enter(client)
    within = settings()
    default_scheduler.leave(client)
    assert settings() == without != within

    def look() -> None:
        assert settings() == (within if default_scheduler.current() is client else without)
        default_scheduler.leave(client)
        assert settings() == without

    assert signals_at_each_point(lambda: default_scheduler.enter(client), look) > 100

    def leave() -> None:
        default_scheduler.leave(client)
        default_scheduler.enter(client)

    default_scheduler.enter(client)
    assert signals_at_each_point(leave, look) > 100
