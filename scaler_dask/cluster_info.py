"""What a client can say of the cluster: its workers, and which keys have values. In distributed's shapes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from scaler import Client as Engine
from scaler_dask.future_state import FutureState


def who_has(engine: Engine, states: Iterable[FutureState]) -> dict[Any, tuple[str, ...]]:
    """For each key whether it has a value: the cluster's address in a tuple, or an empty tuple."""
    return {state.key: (engine.address,) if state.status == "finished" else () for state in states}


def has_what(engine: Engine, states: Iterable[FutureState]) -> dict[str, tuple[Any, ...]]:
    """The keys that have values, under the cluster's address."""
    return {engine.address: tuple(state.key for state in states if state.status == "finished")}


def nthreads(engine: Engine) -> dict[str, int]:
    """How many tasks each worker runs at a time, which is 1; the workers are numbered."""
    return dict.fromkeys(_names(engine), 1)


def scheduler_info(engine: Engine) -> dict[str, Any]:
    """The scheduler's address, and its workers as far as a client knows them: how many there are."""
    address, names = engine.address, _names(engine)
    workers = {
        name: {"type": "Worker", "id": n, "name": n, "nthreads": 1, "status": "running"} for n, name in enumerate(names)
    }
    return {"type": "Scheduler", "id": address, "address": address, "n_workers": len(workers), "workers": workers}


def _names(engine: Engine) -> list[str]:
    return [f"{engine.address}#{n}" for n in range(engine.n_workers)]


def wait_for_workers(engine: Engine, n_workers: int, timeout: float | None) -> None:
    """Block until there are so many workers. Raises TimeoutError after `timeout` seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while engine.n_workers < n_workers:
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(f"{engine.n_workers} of {n_workers} workers are there: start more with scaler_cluster")
        time.sleep(0.05)
