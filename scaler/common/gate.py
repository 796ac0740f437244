"""What a thread that Ctrl-C may interrupt waits at until another one opens it.

`threading.Event` is not for that: a thread that is interrupted while it takes the event's lock back lets go of it all
the same, which may then be held by the thread that sets the event, and fails there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from scaler.common.interrupts import wait_in_steps


class Gate:
    """Closed at first. Any thread may open it, and any number may wait; each waits at a lock of its own.

    >>> gate = Gate()
    >>> gate.wait(0.0)
    False
    >>> gate.open()
    >>> gate.wait(None)
    True
    """

    __slots__ = ("_locks", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        #: a held lock for each thread that waits
        self._locks: list[threading.Lock] = []

    def open(self) -> None:
        """Let all pass that wait, and all that come."""
        self.is_open = True
        for lock in list(self._locks):
            with contextlib.suppress(RuntimeError):  # opened by another thread as well
                lock.release()

    def close(self) -> None:
        """Have those wait that come from here on."""
        self.is_open = False

    def wait(self, timeout: float | None) -> bool:
        """Block until it is open, for at most so many seconds; whether it was opened."""
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        try:
            return self.is_open or wait_in_steps(lambda seconds: lock.acquire(timeout=seconds), timeout) or self.is_open
        finally:
            self._locks.remove(lock)

    def wait_for(self, holds: Callable[[], object], timeout: float | None) -> bool:
        """Block until this holds, for at most so many seconds; whether it does. What makes it hold opens the gate then.

        >>> ended = []
        >>> Gate().wait_for(lambda: ended, 0.0)
        False
        """

        def look(seconds: float) -> bool:
            self.close()  # what comes after the look opens it; of several threads one may miss it, for `LOOK`
            return bool(holds() or (self.wait(seconds) and holds()))

        return wait_in_steps(look, timeout)
