"""What runs in workers: a batch of calls, as joblib wants it run.

Calls of joblib inside a task use the backend by its name, which importing this package has made known.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import joblib

from scaler.extension import run_once

#: what joblib knows the backend by
BACKEND = "scaler"


class ValueAt(NamedTuple):
    """Stands, among the arguments of a call, for a value that is an argument of the task."""

    place: int


#: of each call, the places of its function and of its arguments
Calls = list[tuple[int, tuple[Any, ...], dict[str, Any]]]


class BatchSettings(NamedTuple):
    """What a worker has to know to run a batch as joblib wants it."""

    #: of calls inside the batch
    nesting_level: int
    n_jobs: int
    #: threads that libraries may use; None: the cores divided by `n_jobs`
    threads: int | None
    initializer: WorkerInitializer | None


class BatchRunner:
    """Runs the calls of a batch in a worker: a list of their results. For messages it is the batch's first function."""

    def __init__(self, settings: BatchSettings, name: str) -> None:
        self._settings = settings
        self.__qualname__ = name
        self.__module__ = None  # type: ignore[assignment]  # it is part of the name

    def __reduce__(self) -> Any:
        return BatchRunner, (self._settings, self.__qualname__)

    def __call__(self, calls: Calls | None, *values: Any) -> Any:
        settings = self._settings
        if settings.initializer is not None:
            settings.initializer()

        def value_of(value: Any) -> Any:
            return values[value.place] if type(value) is ValueAt else value

        threads = settings.threads or max(_cores() // settings.n_jobs, 1)
        nested = joblib.parallel_config(backend=BACKEND, n_jobs=None, nesting_level=settings.nesting_level)
        with nested, _limited_threads(threads):
            if calls is None:
                return values[0]()
            return [
                values[function](*map(value_of, args), **{name: value_of(value) for name, value in kwargs.items()})
                for function, args, kwargs in calls
            ]


@functools.cache
def _cores() -> int:
    return int(joblib.cpu_count())


class WorkerInitializer:
    """What runs once in each worker. If it raises, so does the batch, and the next one calls it again."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._token = os.urandom(16).hex()

    def __call__(self) -> None:
        run_once(self._token, self._function, *self._arguments)


#: finds the libraries with threads of their own, as of that many imported modules
_libraries: tuple[int, Any] = 0, None


def _limited_threads(threads: int) -> contextlib.AbstractContextManager[Any]:
    """Limit the threads of BLAS and OpenMP, if threadpoolctl is there, as it is wherever scikit-learn is."""
    global _libraries
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return contextlib.nullcontext()
    if len(sys.modules) != _libraries[0]:  # libraries come with modules, and looking for them takes a millisecond
        _libraries = len(sys.modules), ThreadpoolController()
    limited: contextlib.AbstractContextManager[Any] = _libraries[1].limit(limits=threads)
    return limited
