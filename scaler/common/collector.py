"""Pausing the garbage collector while much is made of which nothing is garbage.

It would look at all that a large graph consists of, again and again; without it a graph of a million tasks is planned
in half the time.
"""

from __future__ import annotations

import gc
import os
from threading import get_ident
from types import TracebackType

from scaler.common.renewed_lock import RenewedLock


class _CollectorPause:
    """`with collector_paused:` no collection begins in any thread; may be nested, and used by several threads."""

    def __init__(self) -> None:
        self._lock = RenewedLock()
        #: by blocks that are being executed: the thread of each
        self._inside: list[int] = []
        #: the collector was on when the first of them began
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock.lock:
            if not self._inside:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside.append(get_ident())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._lock.lock:
            self._inside.remove(get_ident())
            self._end()

    def forget_others(self) -> None:
        """In a forked child: only the thread that has forked goes on with its blocks."""
        if self._inside:
            self._inside = [thread for thread in self._inside if thread == get_ident()]
            self._end()

    def _end(self) -> None:
        if not self._inside and self._was_on:
            gc.enable()


collector_paused = _CollectorPause()
os.register_at_fork(after_in_child=collector_paused.forget_others)
