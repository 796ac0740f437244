"""A journal that is open: replayed once, then appended to and read. What programs use of this package."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from scaler.journal.directory import Damage, Directory
from scaler.journal.layout import Layout, Place
from scaler.journal.records import SEGMENT_HEADER, Frame, Record
from scaler.journal.writer import Writer


class Journal:
    """For one thread. `replay` comes first; it and `close` block, nothing else does for long."""

    def __init__(self, path: str | Path) -> None:
        """Become the one who writes it; it is made if it is not there. Raises `JournalError`."""
        self.path = Path(path)
        self._directory = Directory(path)
        self._directory.lock()
        self._writer: Writer | None = None
        #: segment -> descriptor
        self._files: dict[int, int] = {}

    def replay(self, take: Callable[[Record, Place], None]) -> tuple[Layout, Damage | None]:
        """Give all that was written to `take`; where the next record goes, and where the journal could not be believed.

        What is behind such a place is moved aside. Raises `JournalError`.
        """
        damage = self._directory.replay(take)
        if damage is not None:
            self._directory.set_aside(damage)
        layout = Layout()
        segments = self._directory.segments()
        if segments:
            layout.segment = segments[-1]
            layout.offset = max(SEGMENT_HEADER, self._directory.segment(segments[-1]).stat().st_size)
        self._writer = Writer(self._directory)
        return layout, damage

    def fileno(self) -> int:
        """Readable when there are news."""
        assert self._writer is not None
        return self._writer.fileno()

    def append(self, place: Place, buffers: list[Frame]) -> None:
        """Write a record at its place, which is behind the last one's."""
        assert self._writer is not None
        self._writer.append(place, buffers)

    def take_news(self) -> tuple[int, str | None]:
        """How many records are on disk, counted from the first `append`; and what keeps others from it, or None."""
        assert self._writer is not None
        return self._writer.take_news()

    def read(self, segment: int, offset: int, size: int) -> bytes:
        """Bytes that are on disk."""
        file = self._files.get(segment)
        if file is None:
            path = self._directory.segment(segment)
            file = self._files[segment] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(file, size, offset)

    def remove(self, segment: int) -> None:
        """Remove a segment that nothing needs any more."""
        file = self._files.pop(segment, None)
        if file is not None:
            os.close(file)
        self._directory.remove(segment)

    def close(self) -> None:
        """Write what waits, and let somebody else have it."""
        if self._writer is not None:
            self._writer.close()
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        self._directory.unlock()
