"""Results of a thread for an event loop: a queue with a descriptor that is readable while there is something in it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Any thread puts, one thread takes."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._items: deque[T] = deque()
        #: guards the descriptors, and that there is a byte in the pipe if, and only if, there are items
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The descriptor to watch for readability; always the same."""
        return self._reader

    def put(self, item: T) -> None:
        """Add an item; dropped after `close`. Never blocks."""
        with self._lock:
            if self._writer < 0:
                return
            if not self._items:
                os.write(self._writer, b"x")
            self._items.append(item)

    def take(self) -> list[T]:
        """All items, in order. Never blocks."""
        with self._lock:
            items = list(self._items)
            if items:
                self._items.clear()
                if self._reader >= 0:
                    os.read(self._reader, 1)
        return items

    def close(self) -> None:
        """Close the descriptors; what is in it can still be taken. Can be repeated."""
        with self._lock, contextlib.suppress(OSError):
            reader, writer, self._reader, self._writer = self._reader, self._writer, -1, -1
            if reader >= 0:
                os.close(reader)
                os.close(writer)
