"""A journal that is open: replayed once, then appended to and read. What programs use of this package."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from scaler.journal import replacing
from scaler.journal.directory import Damage, Directory, JournalError
from scaler.journal.history import Copy, History, begun
from scaler.journal.layout import Layout, Place
from scaler.journal.records import SEGMENT_HEADER, Frame, Record
from scaler.journal.writer import ENDING, Writer


def draw_lot() -> int:
    """A number that nobody else draws."""
    return secrets.randbits(63)


class Journal:
    """For one thread. `replay` comes first; it and `close` block, nothing else does for long."""

    def __init__(
        self,
        path: str | Path,
        open_writer: Callable[[Directory], Writer] = Writer,
        draw: Callable[[], int] = draw_lot,
    ) -> None:
        """Become the one who writes it; it is made if it is not there. Raises `JournalError`.

        `draw` tells turns, and whoever looks at it, apart.
        """
        self.path = Path(path)
        self._directory = Directory(path)
        self._directory.lock()
        try:
            replacing.finish(self._directory)
        except BaseException:
            self._directory.unlock()
            raise
        self.history = self._directory.history()
        self._open_writer = open_writer
        self._writer: Writer | None = None
        self._is_closed = False
        self.draw = draw
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
        self.sync()
        lengths = self.lengths()
        if lengths:
            layout.segment = max(lengths)
            layout.offset = max(SEGMENT_HEADER, lengths[layout.segment])
        floor = self.history.floor
        if (layout.segment, layout.offset) < floor:  # a segment that does not begin with a record is not believed
            layout.segment = floor.segment + (floor.offset > SEGMENT_HEADER)
            layout.offset = SEGMENT_HEADER
        self.keep_history(begun(self.history, Place(layout.segment, layout.offset), self.draw()))
        self._writer = self._open_writer(self._directory)
        self._writer.measure_room()
        return layout, damage

    def sync(self) -> None:
        """Have all that was written on disk, though whoever wrote or copied it was killed. Blocks.

        Each segment is synced: a hole in one, left by a power cut, would have all that is behind it count no more.
        Raises `JournalError`.
        """
        for number in self._directory.segments():
            self._directory.sync_segment(number)

    def lengths(self) -> dict[int, int]:
        """Segment -> bytes."""
        return {number: self._directory.segment(number).stat().st_size for number in self._directory.segments()}

    # ---- other copies ----------------------------------------------------------------------------------------------
    def look(self) -> tuple[Copy, Damage | None]:
        """What this copy is, before it is replayed; each byte of it is looked at. Blocks. Raises `JournalError`."""
        return self._directory.look()

    def keep_history(self, history: History) -> None:
        """Have this known to whoever opens the journal next. Blocks for a moment. Raises `JournalError`."""
        try:
            self._directory.write_history(history)
        except OSError as error:
            raise JournalError(f"the journal {self.path} can't be written: {error.strerror}") from None
        self.history = history

    def mark(self, number: int) -> None:
        """Let others see by this number whether they look at this directory. Blocks for a moment."""
        self._directory.mark(number)

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

    @property
    def room(self) -> float:
        """Bytes that may be written, but for a reserve, when the disk was last looked at; infinite if nobody can tell.

        The reserve is for little that makes room.
        """
        assert self._writer is not None
        return self._writer.room

    def measure_room(self) -> None:
        """Find out how much room there is; there are news then."""
        assert self._writer is not None
        self._writer.measure_room()

    def read(self, segment: int, offset: int, size: int) -> bytes:
        """Bytes that are on disk. Raises `JournalError`."""
        path = self._directory.segment(segment)
        try:
            file = self._files.get(segment)
            if file is None:
                file = self._files[segment] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            data = os.pread(file, size, offset)
        except OSError as error:
            raise JournalError(f"{path} can't be read: {error.strerror}") from None
        if len(data) < size:
            raise JournalError(f"{path} is shorter than it was")
        return data

    def remove(self, segment: int) -> None:
        """Remove a segment that nothing needs any more."""
        file = self._files.pop(segment, None)
        if file is not None:
            os.close(file)
        if self._directory.segments() == [segment]:  # numbers go on: a place is never used twice
            self.keep_history(replace(self.history, floor=Place(segment + 1, SEGMENT_HEADER)))
        self._directory.remove(segment)
        if self._writer is not None and not self._is_closed:
            self._writer.measure_room()

    def close(self, timeout: float = ENDING) -> None:
        """Write what waits, and let somebody else have it; that, once nothing can be written here any more.

        A disk that does not answer is waited for within `timeout`; as soon as it does, somebody else can have it.
        """
        if not self._is_closed:
            self._is_closed = True
            if self._writer is None or self._writer.close(timeout):
                self._directory.unlock()
        for file in self._files.values():
            os.close(file)
        self._files.clear()
