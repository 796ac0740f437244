"""Shared memory that a task opens, and has not made, is left alone when its worker ends.

Python has each process that makes or opens a `SharedMemory` tell its name to a tracker, a process that removes what is
left in the end. Children of `multiprocessing` have the tracker of their program. A worker has one of its own, and that
would remove the memory of a program that still uses it. So it hears only of what the worker's own tasks have made. The
worker removes that at its end, as its agent may end the tracker with it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from scaler.common.when_imported import when_imported

#: what the tracker calls it
KIND = "shared_memory"


def watch() -> None:
    """See to that module of this worker, now or as soon as something imports it."""
    when_imported("multiprocessing.shared_memory", _see_to)


def _see_to(module: Any) -> None:
    tracker = module.resource_tracker
    module.resource_tracker = made = _MadeHere(tracker, module._posixshmem.shm_unlink)
    tracker.unregister = made.unregister  # programs call it for what they have opened, so that it stays
    atexit.register(made.remove_all)


class _MadeHere:
    """In the place of `multiprocessing.resource_tracker`, for that module."""

    def __init__(self, tracker: Any, remove: Callable[[str], None]) -> None:
        self._register, self._unregister = tracker.register, tracker.unregister
        self._remove = remove
        #: names of what this process has made, and not removed
        self._names: set[str] = set()
        self._pid = os.getpid()

    def register(self, name: str, kind: str) -> None:
        """Memory was made or opened: which of both, only the constructor knows that calls this."""
        if sys._getframe(1).f_locals.get("create"):
            self._names.add(name)
            self._register(name, kind)

    def unregister(self, name: str, kind: str) -> None:
        """It is removed. Whoever has made it: the tracker complains of a name that it does not know."""
        if kind == KIND and name not in self._names:
            self._register(name, kind)
        self._names.discard(name)
        self._unregister(name, kind)

    def remove_all(self) -> None:
        """The worker ends. Processes that its tasks have forked come here, too."""
        if os.getpid() != self._pid:
            return
        for name in list(self._names):
            with contextlib.suppress(OSError):  # the program has removed it, most likely
                self._remove(name)
            self.unregister(name, KIND)
