"""Modules that the host's warm process has loaded, or is loading: a worker makes room for one that has them.

    cold worker                         agent                      zygote ───► warm process
    is handed rows, decodes them,
    comes upon a promised module  ───► Leaving: rows come back
    ends                                starts another one  ────► as soon as it is ready ────► fork

It does so before any code of the user has begun, and only if it has run nothing before. Rows that need none of these
modules are run at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

#: functions and arguments are decoded in these
_DECODING = (
    "scaler.worker.inputs", "scaler.serialize.call", "scaler.serialize.outofband", "scaler.serialize.payload",
    "scaler.serialize.class_states",
)  # fmt: skip
#: rows are run in this one
_RUNNER = "scaler.worker.row_runner"


class PromisedModules:
    """Notices when the main thread is about to load one of these packages to decode what rows are made of."""

    def __init__(self, packages: frozenset[str], leave: Callable[[], None]) -> None:
        self._packages = packages
        #: ends this process, unless it has run something already
        self._leave = leave
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Leave the search for a module to others, unless this process ends here. Called by the import system."""
        if name.partition(".")[0] in self._packages and _is_decoding():
            self._leave()

    def revoke(self) -> None:
        """From now on this process loads what it needs."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _is_decoding() -> bool:
    """Say whether the calling thread is the one that runs rows, and is not inside of code of the user."""
    if threading.current_thread() is not threading.main_thread():
        return False
    names: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        names.append(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    names.reverse()
    if _RUNNER not in names:
        return False
    innermost = ""
    for name in names[names.index(_RUNNER) :]:
        if not name.startswith("scaler."):
            break
        innermost = name
    return innermost in _DECODING
