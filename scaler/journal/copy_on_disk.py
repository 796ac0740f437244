"""A copy of a journal that another scheduler writes: looked at, cut back, appended to, or replaced as a whole.

No byte is written before its place was looked at, and none is believed before the checksum of its record was: what
comes from elsewhere and is damaged leaves the copy as it was. For one thread; everything blocks.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from scaler.journal import replacing
from scaler.journal.directory import Directory
from scaler.journal.history import NOTHING, History, Seen, Turn
from scaler.journal.layout import Place
from scaler.journal.records import SEGMENT_HEADER, Checker, Damaged, Frame


class CopyOnDisk:
    """In one directory; locked from `look` to `close`, unless it is shared."""

    def __init__(self, path: str | Path) -> None:
        self._directory = Directory(path)
        #: where segments are written: the same, or that of a copy that is not complete
        self._files = self._directory
        self._is_locked = False
        self._checker = Checker()
        #: the segment of what was looked at last
        self._coming = 0
        self._history = History()
        #: behind the last record that is complete
        self._good = NOTHING
        self._file: int | None = None
        self._segment = 0
        self._end = NOTHING

    def look(self, mark: int) -> Seen:
        """What is there; `mark` is what whoever leads has just marked its own with. Raises `JournalError`."""
        directory = self._directory
        self._leave()
        if directory.has_mark(mark):
            self.close()
            return Seen(is_shared=True)
        if not self._is_locked:
            directory.lock()
            self._is_locked = True
        replacing.finish(directory)
        copy, _ = directory.look()
        self._history = directory.history()
        self._end = copy.end
        return Seen(False, copy, tuple(directory.segments()), self._history.alone and not copy.is_empty)

    def begin_whole(self, turns: tuple[Turn, ...], partner: str) -> None:
        """Make another copy, of which nothing is believed before it is `complete`. Raises OSError, `JournalError`."""
        self._leave()
        self._files = replacing.begin(self._directory)
        self._history = History(turns, NOTHING, partner, alone=False, follows=True)
        self._checker, self._good = Checker(), NOTHING

    def begin_behind(self, place: Place, turns: tuple[Turn, ...], partner: str) -> None:
        """Go on behind this place: nothing that is there from it on counts. Raises OSError, `JournalError`."""
        self._leave()
        self._files = self._directory
        self._directory.cut(place, is_kept=place < self._end)
        floor = min(self._history.floor, place) if self._directory.segments() else place
        self._history = History(turns, floor, partner, alone=False, follows=True)
        self._directory.write_history(self._history)
        self._checker, self._good = Checker(), place

    def check(self, place: Place, data: Frame, is_end: bool = False) -> None:
        """Look at bytes that are to be written; with these a whole copy is complete if that `is_end`.

        Raises `Damaged`; nothing but complete records is left then.
        """
        if data and place.segment != self._coming and not self._checker.is_between:
            self._refuse("a segment ends within a record")
        self._coming = place.segment
        try:
            whole = self._checker.take(data)
        except Damaged as why:
            self._refuse(str(why))
        if whole:
            self._good = Place(place.segment, place.offset + whole)
        if is_end and not self._checker.is_between:
            self._refuse("it ends within a record")

    def write(self, place: Place, data: Frame) -> None:
        """Write bytes that were looked at; they are not synced. May be tried again. Raises OSError."""
        if place.segment != self._segment or self._file is None:
            self._enter(place.segment)
        assert self._file is not None
        view, written = memoryview(data), 0
        while written < len(view):
            written += os.pwrite(self._file, view[written:], place.offset + written)

    def _refuse(self, why: str) -> None:
        """What was written of a record goes again."""
        if self._file is not None:
            is_in = self._good.segment == self._segment
            os.ftruncate(self._file, self._good.offset if is_in else SEGMENT_HEADER)
        self._leave()
        self._checker = Checker()
        raise Damaged(why)

    def sync(self) -> None:
        """What was written is on disk. Raises OSError."""
        if self._file is not None:
            os.fdatasync(self._file)

    def complete(self, end: Place) -> None:
        """The new copy, which ends here, takes the place of the old one. May be tried again.

        Raises OSError, `JournalError`.
        """
        self._leave()
        if self._files.path.exists():  # otherwise it is on its way
            if not self._files.segments():
                self._history = replace(self._history, floor=end)
            self._files.write_history(self._history)
        replacing.finish(self._directory)
        self._files = self._directory

    def remove(self, segments: list[int]) -> None:
        """Whoever writes needs these no more."""
        if segments and not set(self._files.segments()) - set(segments):
            self._history = replace(self._history, floor=Place(max(segments) + 1, SEGMENT_HEADER))
            self._files.write_history(self._history)
        for number in segments:
            self._files.remove(number)

    def close(self) -> None:
        """Let somebody else have the directory."""
        try:
            self._leave()
        finally:
            if self._is_locked:
                self._directory.unlock()
                self._is_locked = False

    def _enter(self, number: int) -> None:
        self._leave()
        self._file, self._segment = self._files.open_segment(number), number

    def _leave(self) -> None:
        file, self._file, self._segment = self._file, None, 0
        if file is not None:
            try:
                os.fdatasync(file)
            finally:
                os.close(file)
