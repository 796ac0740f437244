"""Calling a function once in each worker of a cluster, as `Client.run` does.

Tasks can't be sent to one worker. So short ones are sent until every worker has had one.
"""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from scaler import Client as Engine
from scaler.extension import name_of, pickled
from scaler_dask import worker_functions

#: seconds that it takes at most to reach all workers
_TIMEOUT = 10.0
#: seconds between two rounds when the workers that are left are busy: the tasks of others run meanwhile
_PAUSE = 0.1
#: larger than what users give their tasks
_PRIORITY = 1_000


def run_on_each(
    engine: Engine,
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    on_error: str = "raise",
) -> dict[str, Any]:
    """Call a function once in each worker: worker -> value. Blocks, at most about ten seconds.

    `on_error`: "raise", or "return" exceptions in the values' places, or "ignore" them.
    """
    call = call_in_worker(function, args, kwargs or {})
    values = {}
    for name, succeeded, value in _visits(engine, call, name_of(function)):
        if succeeded or on_error == "return":
            values[name] = value
        elif on_error == "raise":
            raise value
    return values


def call_in_worker(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
    """What a worker calls: it is itself the argument `dask_worker`, if there is one; an `async def` is awaited."""
    call = partial(worker_functions.awaited(function), *args, **kwargs)
    if "dask_worker" not in kwargs and _takes_worker(function):
        call = partial(worker_functions.with_worker, call)
    return call


def _visits(engine: Engine, call: Callable[[], Any], name: str) -> Iterator[tuple[str, bool, Any]]:
    """(worker, whether the call returned, value or exception) of each worker, as they come."""
    visit, seen = worker_functions.Visit(uuid.uuid4().hex, pickled(call), name), 0
    session = engine.with_options(priority=_PRIORITY)
    deadline = time.monotonic() + _TIMEOUT
    while True:
        expected, before = engine.n_workers, seen
        # as many as there are workers, also where one is left: fewer may come to those that were visited each time
        futures = [session.submit(visit) for _ in range(max(1, expected))]
        try:
            for future in futures:
                try:
                    outcome = future.result(max(0.0, deadline - time.monotonic()))
                except worker_functions.VisitFailed as failed:
                    seen += 1
                    yield str(failed), False, failed.__cause__
                    continue
                if outcome is not None:
                    seen += 1
                    name, value = outcome
                    yield name, True, value
        except TimeoutError:
            return
        finally:
            session.cancel(futures)
        if seen >= expected or time.monotonic() > deadline:
            return
        if seen == before:  # the others are busy
            time.sleep(_PAUSE)


def _takes_worker(function: Callable[..., Any]) -> bool:
    try:
        return "dask_worker" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin that does not tell
        return False


def compared_versions(engine: Engine, check: bool) -> dict[str, Any]:
    """Versions here and in each worker; with `check` raises ValueError naming those that differ. Blocks."""
    here, workers = worker_functions.versions(), run_on_each(engine, worker_functions.versions, on_error="ignore")
    differing = {
        f"{package}: {version} here, {other['packages'].get(package)} on {name}"
        for name, other in workers.items()
        for package, version in here["packages"].items()
        if other["packages"].get(package) != version
    }
    if check and differing:
        raise ValueError(f"versions differ, install the same: {'; '.join(sorted(differing))}")
    return {"scheduler": None, "workers": workers, "client": here}
