"""Pausing the garbage collector while much is made of which nothing is garbage.

It would look at all that a large graph consists of, again and again; without it a graph of a million tasks is planned
in half the time.
"""

from __future__ import annotations

import gc
import threading
from types import TracebackType


class _CollectorPause:
    """`with collector_paused:` no collection begins in any thread; may be nested, and used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: blocks that are being executed
        self._inside = 0
        #: the collector was on when the first of them began
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._was_on = gc.isenabled()
                gc.disable()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._was_on:
                gc.enable()


collector_paused = _CollectorPause()
