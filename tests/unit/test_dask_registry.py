"""Which key stands for what."""

from typing import Any

import pytest

from scaler.worker import context
from scaler_dask.future_state import FutureState
from scaler_dask.registry import Registry
from scaler_dask.sources import NoValue


def test_in_a_worker_each_program_has_keys_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    owner: Any = None
    registry = Registry(owner)
    states = {}
    for root in (5, 6):
        monkeypatch.setattr(context, "_root", root)
        assert registry.get("key") is None
        states[root] = FutureState("key", NoValue("key"))
        registry.add(states[root])
    for root in (5, 6):
        monkeypatch.setattr(context, "_root", root)
        assert registry.get("key") is states[root]
    registry.remove(states[5])  # whoever runs meanwhile
    assert registry.get("key") is states[6]
    assert registry.states() == [states[6]]
