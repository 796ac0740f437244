"""A descriptor that any thread makes readable, to wake the one that waits for it."""

from __future__ import annotations

import contextlib
import os
import threading


class Wakeup:
    """A pipe that never blocks. Any thread may wake; one thread watches it, and clears it when it was woken.

    It is closed when nobody has this any more, as with a client that could not be made.
    """

    _reader = _writer = -1

    def __init__(self) -> None:
        #: held while one of them is used: closed, its number is anybody's
        self._lock = threading.RLock()
        self._reader, self._writer = os.pipe()
        for fd in (self._reader, self._writer):
            os.set_blocking(fd, False)

    def fileno(self) -> int:
        """The descriptor that is readable after `wake`."""
        return self._reader

    def wake(self) -> None:
        """Make the descriptor readable; nothing once it is closed."""
        with self._lock, contextlib.suppress(OSError):  # it is full: readable in any case; or closed
            os.write(self._writer, b"x")

    def clear(self) -> None:
        """Make it unreadable again; nothing once it is closed."""
        with self._lock, contextlib.suppress(OSError):  # it is unreadable; or closed
            os.read(self._reader, 4096)

    def close(self) -> None:
        """Close both ends; a second call does nothing."""
        with self._lock:
            ends, self._reader, self._writer = (self._reader, self._writer), -1, -1
            for fd in ends:
                if fd >= 0:
                    os.close(fd)

    def __del__(self) -> None:
        if self._reader >= 0:
            self.close()
