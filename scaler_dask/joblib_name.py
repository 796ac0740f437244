"""What joblib calls "dask": Scaler, while a client of Scaler is the default one; distributed otherwise.

Programs for dask write `with joblib.parallel_backend("dask")` beside the client that they have made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaler.extension import when_imported
from scaler_dask import default_scheduler
from scaler_dask.task_options import options_of_call

NAME = "dask"
#: arguments that say how distributed is to be used, and mean nothing here: what tasks share is sent once anyway
_IGNORED = frozenset({"scheduler_host", "scatter", "loop", "wait_for_workers_timeout"})
#: of `Client.submit`
_OPTIONS = frozenset({"resources", "retries", "priority"})


def install() -> None:
    """Have joblib ask here what the name means: from now on, or as soon as it is imported."""
    when_imported("joblib.parallel", _have_ask_here)


def _have_ask_here(module: Any) -> None:
    """`module` is `joblib.parallel`."""
    theirs: Callable[..., Any] | None = module.BACKENDS.get(NAME)

    def made(**arguments: Any) -> Any:
        nonlocal theirs
        client = default_scheduler.current()
        if client is not None:
            return _backend(client, arguments)
        if theirs is None:
            module.EXTERNAL_BACKENDS[NAME]()  # puts distributed's in the place of this one
            theirs = module.BACKENDS[NAME]
            module.BACKENDS[NAME] = made
        return theirs(**arguments)

    module.BACKENDS[NAME] = made


def _backend(client: Any, arguments: dict[str, Any]) -> Any:
    from scaler.joblib import ScalerBackend  # here, as it needs joblib

    of_joblib = {name: arguments[name] for name in ("nesting_level", "inner_max_num_threads") if name in arguments}
    unknown = arguments.keys() - _IGNORED - _OPTIONS - of_joblib.keys()
    if unknown:
        raise TypeError(f"joblib's backend 'dask' has no argument {min(unknown)!r} on Scaler")
    options = options_of_call(*(arguments.get(name) for name in ("resources", "retries", "priority")))
    engine = client.engine
    return ScalerBackend(client=engine.with_options(**options) if options else engine, **of_joblib)
