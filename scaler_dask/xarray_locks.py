"""The locks that xarray makes for writing to one file: of the whole program, where Scaler computes.

`Dataset.to_netcdf` asks what dask's scheduler is. It knows threads, dask's processes and distributed's client: with
that, it closes the file after each piece that a task has written, and takes a lock that tasks of all processes share.
All others it takes for threads, whose locks can't be pickled. So it is told of Scaler what it is told of distributed,
and given a lock of the program.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable
from typing import Any

from dask.base import get_scheduler

from scaler.extension import when_imported
from scaler_dask.program_lock import ProgramLock
from scaler_dask.store_locks import is_ours, program_lock_for

#: where xarray asks and has its locks made
_LOCKS = "xarray.backends.locks"
#: the function that is asked: the name of today, and that of versions up to 2024
_QUESTIONS = ("get_dask_scheduler", "_get_scheduler")


def install() -> None:
    """Have xarray ask here: from now on, or as soon as it is imported."""
    when_imported(_LOCKS, _have_ask_here)


def _have_ask_here(module: Any) -> None:
    """Another version, which asks in other ways, is left as it is."""
    question = next((name for name in _QUESTIONS if hasattr(module, name)), "")
    if not question or not hasattr(module, "_get_lock_maker"):
        return
    theirs, make = getattr(module, question), module._get_lock_maker

    @functools.wraps(theirs)
    def asked(get: Any = None, collection: Any = None) -> Any:
        return "distributed" if is_ours(_scheduler(get, collection)) else theirs(get, collection)

    @functools.wraps(make)
    def lock_maker(scheduler: str | None = None) -> Callable[[str], Any]:
        get = _scheduler()
        if scheduler == "distributed" and is_ours(get):
            return functools.partial(_lock_of_file, get)
        maker: Callable[[str], Any] = make(scheduler)
        return maker

    module._get_lock_maker = lock_maker
    for name, user in list(sys.modules.items()):
        if name.startswith("xarray.backends.") and getattr(user, question, None) is theirs:
            setattr(user, question, asked)


def _scheduler(get: Any = None, collection: Any = None) -> Any:
    return get_scheduler(get, collection)  # type: ignore[no-untyped-call]


def _lock_of_file(get: Any, key: str) -> ProgramLock:
    """Writers of the same file take the same lock."""
    return program_lock_for(get, int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()))
