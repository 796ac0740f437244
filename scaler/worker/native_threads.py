"""Native threads of the libraries in this process: a row that takes several slots may use the share of all of them.

Libraries read variables when they are loaded, so these are raised while such a row runs, for those that it loads.
Those that are there already are told by calls: BLAS and OpenMP by way of threadpoolctl, others by their own, if they
have one. All of it is put back behind the row, also in libraries that it has loaded.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

OPENMP = "OMP_NUM_THREADS"
#: whoever reads one of these takes what OpenMP may have if it isn't set; so do Arrow and PyTorch
LIKE_OPENMP = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
OTHERS = (
    "NUMBA_NUM_THREADS", "OPENCV_FOR_THREADS_NUM", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
VARIABLES: tuple[str, ...] = (OPENMP, *LIKE_OPENMP, *OTHERS)

_NUMBA = "numba.np.ufunc.parallel"
#: module -> the functions that say how many threads it uses, and set that
_CALLS = {
    "pyarrow": ("cpu_count", "set_cpu_count"),
    "cv2": ("getNumThreads", "setNumThreads"),
    "torch": ("get_num_threads", "set_num_threads"),
    _NUMBA: ("get_num_threads", "set_num_threads"),
}
#: Numba compares this with what it has begun with, again and again, and raises an error if it differs
_COMPARED = "NUMBA_NUM_THREADS"

#: packages that bring libraries which can be told
_LIBRARIES = frozenset({"numpy", "scipy", *_CALLS})

#: sets how many threads one library uses
Set = Callable[[int], Any]


@contextlib.contextmanager
def raised(times: int) -> Iterator[None]:
    """Let libraries use so many times the threads that they use otherwise, as far as they can be told."""
    share = _number(os.environ.get(OPENMP)) or 1
    before = {name: os.environ.get(name) for name in VARIABLES}
    for name, value in before.items():
        number = _number(value)
        if number and not _is_settled(name):
            os.environ[name] = str(number * times)
    loaded = dict(_loaded())
    for number, set_threads in loaded.values():
        _set(set_threads, number * times)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is not None and not _is_settled(name):
                os.environ[name] = value
        for name, (_, set_threads) in _loaded():
            _set(set_threads, loaded[name][0] if name in loaded else share)


def share_what_is_loaded() -> None:
    """Let libraries that were loaded before the variables were set use no more threads than OpenMP's says."""
    share = _number(os.environ.get(OPENMP))
    if share and not _LIBRARIES.isdisjoint(sys.modules):
        for _, (_, set_threads) in _loaded():
            _set(set_threads, share)


def _loaded() -> Iterator[tuple[str, tuple[int, Set]]]:
    """The libraries that are loaded and can be told: how many threads each uses, and what sets that."""
    try:
        from threadpoolctl import ThreadpoolController

        for library in ThreadpoolController().lib_controllers:
            yield library.filepath, (library.num_threads or 1, library.set_num_threads)
    except Exception:  # it looks into libraries of all kinds and versions
        pass
    for name, (get, set_threads) in _CALLS.items():
        module = sys.modules.get(name)
        if module is None or (name == _NUMBA and not getattr(module, "_is_initialized", False)):
            continue  # asked before it has begun, Numba would begin
        try:
            yield name, (getattr(module, get)(), getattr(module, set_threads))
        except Exception:  # it is being loaded
            pass


def _is_settled(name: str) -> bool:
    """A variable is not to be changed any more."""
    return name == _COMPARED and "numba" in sys.modules


def _set(set_threads: Set, number: int) -> None:
    with contextlib.suppress(Exception):  # more than it began with, as Numba says
        set_threads(number)


def _number(value: str | None) -> int:
    """What a variable says; 0 if that is no number: some take lists."""
    return int(value) if value and value.isdecimal() else 0
