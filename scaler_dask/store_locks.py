"""The locks that dask itself makes for writing to one file: of the whole program, where Scaler computes.

`da.store(x, target, lock=True)`, the default, and `dd.to_hdf` ask `dask.utils.get_scheduler_lock` for a lock that suits
the scheduler. It knows dask's processes and dask.distributed's client, and gives all others a lock of threads, of which
each worker would have its own: two would write at a time, and nothing would say so.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import dask.config
import dask.utils
from dask.base import get_scheduler

from scaler.extension import host_for_tasks, surrounding_address
from scaler_dask.program_lock import ProgramLock

#: modules of dask that may have bound the function already
_USERS = ("dask.array.core", "dask.dataframe.io.hdf")
#: dask's own
_general: Any = dask.utils.get_scheduler_lock


def install() -> None:
    """Have dask ask here."""
    for name in ("dask.utils", *_USERS):
        module = sys.modules.get(name)
        if getattr(module, "get_scheduler_lock", None) is _general:
            module.get_scheduler_lock = get_scheduler_lock  # type: ignore[union-attr]


@functools.wraps(_general)
def get_scheduler_lock(collection: Any = None, scheduler: Any = None) -> Any:
    """As dask's: a lock for all tasks of the scheduler that this collection would be computed on."""
    get = get_scheduler(collections=[collection], scheduler=scheduler)  # type: ignore[no-untyped-call]
    return program_lock_for(get) if is_ours(get) else _general(collection, scheduler)


def is_ours(get: Any) -> bool:
    """Scaler computes what this scheduler function of dask's is given."""
    while isinstance(get, functools.partial):
        get = get.func
    return getattr(get, "__module__", "").partition(".")[0] == __package__


def program_lock_for(get: Any, number: int | None = None) -> ProgramLock:
    """A lock for the tasks of a scheduler function that is ours; two of one number are the same lock."""
    options: dict[str, Any] = {}
    while isinstance(get, functools.partial):
        options, get = {**get.keywords, **options}, get.func
    engine = options.get("client") or getattr(getattr(get, "__self__", None), "engine", None)
    address = (
        engine.address if engine is not None else options.get("address") or dask.config.get("scaler.address", None)
    )
    return ProgramLock(host_for_tasks(address or surrounding_address()), number)
