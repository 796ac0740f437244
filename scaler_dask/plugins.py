"""What workers are set up with before their tasks: plugins, uploaded files, initializers.

Those that are there run a setup at once; and for workers that come later, each task brings the setups along, which its
worker runs unless it has.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from typing import Any

from scaler import Client as Engine
from scaler.extension import name_of, pickled
from scaler_dask.every_worker import run_on_each
from scaler_dask.worker_functions import PreparedFunction, Setup, run_setups, run_teardown

#: makes of a function what is called in its place
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class WorkerPlugin:
    """What plugins are derived from; any other class with a `setup` is as good. See `Client.register_plugin`."""

    def setup(self, worker: Any) -> Any:
        """Called in each worker, before its next task."""

    def teardown(self, worker: Any) -> Any:
        """Called in each worker that was set up, when the plugin is unregistered."""


class Plugins:
    """What the workers of one client's cluster are set up with, by name."""

    def __init__(self) -> None:
        self._setups: dict[str, Setup] = {}
        #: what to run when a setup is taken away
        self._teardowns: dict[str, Callable[[], Any]] = {}

    @property
    def wrap(self) -> Wrap | None:
        """Makes of a function one whose worker runs the setups before it; None if there are none."""
        return _with_setups(tuple(self._setups.values())) if self._setups else None

    def register(
        self, engine: Engine, name: str, setup: Callable[[], Any], teardown: Callable[[], Any] | None
    ) -> dict[str, Any]:
        """Run a setup in each worker, and in those that come later before their next task: worker -> {"status": "OK"}.

        Blocks like `run_on_each`. Raises what the setup raises.
        """
        one = uuid.uuid4().hex, pickled(setup)
        reached = run_on_each(engine, run_setups, ((one,),))
        self._setups[name] = one
        if teardown is not None:
            self._teardowns[name] = teardown
        return {worker: {"status": "OK"} for worker in reached}

    def unregister(self, engine: Engine, name: str) -> dict[str, Any]:
        """Forget a setup, and run its teardown in each worker that it ran in. ValueError: unknown name. Blocks."""
        if name not in self._setups:
            raise ValueError(f"there is no worker plugin {name!r}: those that are known are {sorted(self._setups)}")
        key, _ = self._setups.pop(name)
        teardown = self._teardowns.pop(name, None)
        reached = run_on_each(engine, run_teardown, (key, teardown)) if teardown is not None else {}
        return {worker: {"status": "OK"} for worker in reached}


def initialized_first(initializer: Callable[[], Any]) -> Wrap:
    """What makes of a function one whose worker has called an initializer before, once."""
    as_bytes = pickled(initializer)
    return _with_setups(((hashlib.sha256(as_bytes).hexdigest(), as_bytes),))


def _with_setups(setups: tuple[Setup, ...]) -> Wrap:
    return lambda function: PreparedFunction(pickled(function), setups, name_of(function))
