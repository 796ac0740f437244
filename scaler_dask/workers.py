"""What is run in each worker: functions of `Client.run`, setups of plugins, uploaded files.

Tasks can't be sent to one worker. So short ones are sent until every worker has had one; and for workers that come
later, each task brings the setups along, which its worker runs unless it has.
"""

from __future__ import annotations

import hashlib
import inspect
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cloudpickle
from dask.utils import funcname

from scaler import Client as Engine
from scaler_dask import remote

#: seconds that it takes at most to reach all workers
_TIMEOUT = 10.0
#: larger than what users give their tasks
_PRIORITY = 1_000


class Workers:
    """The workers of one client's cluster, and what they have been set up with."""

    def __init__(self) -> None:
        #: what workers do before their next task, by name
        self._setups: dict[str, remote.Setup] = {}
        #: what to run when a plugin is taken away, by name
        self._teardowns: dict[str, Callable[[], Any]] = {}

    @property
    def have_setups(self) -> bool:
        """Whether functions have to be `prepared`."""
        return bool(self._setups)

    def prepared(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose worker runs the setups before it."""
        if not self._setups:
            return function
        return remote.Prepared(cloudpickle.dumps(function), tuple(self._setups.values()), funcname(function))

    def run(
        self,
        engine: Engine,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        on_error: str = "raise",
    ) -> dict[str, Any]:
        """Call a function once in each worker: worker -> value. Blocks; see `Client.run`."""
        call = partial(function, *args, **kwargs)
        if "dask_worker" not in kwargs and _takes_worker(function):
            call = partial(remote.with_worker, call)
        values = {}
        for name, succeeded, value in self._visits(engine, call):
            if succeeded or on_error == "return":
                values[name] = value
            elif on_error == "raise":
                raise value
        return values

    def _visits(self, engine: Engine, call: Callable[[], Any]) -> Iterator[tuple[str, bool, Any]]:
        """(worker, whether the call returned, value or exception) of each worker, as they come."""
        packed, token, seen = cloudpickle.dumps(call), uuid.uuid4().hex, 0
        session = engine.with_options(priority=_PRIORITY)
        deadline = time.monotonic() + _TIMEOUT
        while True:
            expected = engine.n_workers
            futures = [session.submit(remote.visit, token, packed) for _ in range(max(1, expected - seen))]
            try:
                for future in futures:
                    outcome = future.result(max(0.0, deadline - time.monotonic()))
                    if outcome is not None:
                        seen += 1
                        yield outcome
            except TimeoutError:
                return
            finally:
                session.cancel(futures)
            if seen >= expected or time.monotonic() > deadline:
                return

    def register(
        self, engine: Engine, name: str, setup: Callable[[], Any], teardown: Callable[[], Any] | None
    ) -> dict[str, Any]:
        """Run a setup in each worker, and in those that come later before their next task. Raises what it raises."""
        one = uuid.uuid4().hex, cloudpickle.dumps(setup)
        reached = self.run(engine, remote.prepare, ((one,),), {})
        self._setups[name] = one
        if teardown is not None:
            self._teardowns[name] = teardown
        return {worker: {"status": "OK"} for worker in reached}

    def unregister(self, engine: Engine, name: str) -> dict[str, Any]:
        """Forget a setup, and run its teardown in each worker that it ran in. KeyError for an unknown name."""
        token, _ = self._setups.pop(name)
        teardown = self._teardowns.pop(name, None)
        reached = self.run(engine, remote.tear_down, (token, teardown), {}) if teardown is not None else {}
        return {worker: {"status": "OK"} for worker in reached}

    def versions(self, engine: Engine, check: bool) -> dict[str, Any]:
        """Versions here and in each worker; with `check` raises ValueError naming those that differ."""
        here, workers = remote.versions(), self.run(engine, remote.versions, (), {}, "ignore")
        differing = {
            f"{package}: {version} here, {other['packages'].get(package)} on {name}"
            for name, other in workers.items()
            for package, version in here["packages"].items()
            if other["packages"].get(package) != version
        }
        if check and differing:
            raise ValueError(f"versions differ, install the same: {'; '.join(sorted(differing))}")
        return {"scheduler": None, "workers": workers, "client": here}


def setup_first(initializer: Callable[[], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What makes of a function one whose worker has called an initializer before, once."""
    packed = cloudpickle.dumps(initializer)
    setup = hashlib.sha256(packed).hexdigest(), packed
    return lambda function: remote.Prepared(cloudpickle.dumps(function), (setup,), funcname(function))


def _takes_worker(function: Callable[..., Any]) -> bool:
    try:
        return "dask_worker" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin that does not tell
        return False
