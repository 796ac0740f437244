"""A pytest plugin that has dask's own tests computed by one engine, whatever scheduler they name.

SCALER_COMPAT_ENGINE=scaler python -m pytest -p compat_tests.dask.plugin --pyargs dask.bag
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable
from typing import Any

import dask
import dask.base
import pytest

ENGINE = os.environ.get("SCALER_COMPAT_ENGINE", "scaler")
#: run one of so many tests
SAMPLE = int(os.environ.get("SCALER_COMPAT_SAMPLE", "1"))


def _scaler() -> Callable[..., Any]:
    from scaler_dask import scaler_get

    return scaler_get


def _threads() -> Callable[..., Any]:
    import dask.threaded

    return functools.partial(dask.threaded.get, num_workers=2)


def _processes() -> Callable[..., Any]:
    import dask.multiprocessing

    return functools.partial(dask.multiprocessing.get, num_workers=2)


def _distributed() -> Callable[..., Any]:
    from distributed import Client

    client = Client(n_workers=2, threads_per_worker=1, dashboard_address=None, set_as_default=False)

    def get(dsk: Any, keys: Any, **kwargs: Any) -> Any:
        """A function, as distributed's own tests copy dask's settings, and its client can't be copied."""
        return client.get(dsk, keys, **kwargs)

    return get


ENGINES = {"scaler": _scaler, "threads": _threads, "processes": _processes, "distributed": _distributed}


def pytest_configure(config: pytest.Config) -> None:
    """Put the engine where dask looks for schedulers by name, and where it looks for the default."""
    get = ENGINES[ENGINE]()
    for name in dask.base.named_schedulers:
        dask.base.named_schedulers[name] = get
    dask.config.set(scheduler=get)
    for line in (
        "network: needs a network", "slow: takes long", "gpu: needs a GPU", "array_expr: of array expressions",
        "queryplanning: of query planning", "dataframe: needs pandas", "array: needs numpy",
    ):  # fmt: skip
        config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not in the sample."""
    left_out = [item for item in items if zlib.crc32(item.nodeid.encode()) % SAMPLE]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not zlib.crc32(item.nodeid.encode()) % SAMPLE]
