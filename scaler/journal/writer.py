"""Writing a journal: one thread appends what has come up and syncs it, all of it at once, while the next comes up.

Whoever writes names the place of each record (`layout.py`) and goes on; `fileno` is readable when more is on disk, and
`take_news` says how much; `room` is what the disk has left. While the disk refuses, the same bytes are tried again and
again, and `take_news` says why: nothing is lost, nothing acknowledged. What waits is bounded by who waits.
"""

from __future__ import annotations

import contextlib
import math
import os

from scaler.common.records import record
from scaler.common.side_thread import SideThread
from scaler.journal.directory import Directory, JournalError, refusal
from scaler.journal.layout import ONLY_ANEW, Place
from scaler.journal.records import Frame

#: seconds between two tries of a disk that refuses
AGAIN = 0.5
#: seconds that the disk is given to come to an end
ENDING = 5.0
#: buffers for one system call
_MOST_BUFFERS = 512


@record
class _Waiting:
    """A record that is not on disk."""

    place: Place
    buffers: list[Frame]


class _Measure:
    """How much room is there?"""


class Writer:
    """Appends to one journal. `append` and `take_news` are for one thread and never block; `close` does."""

    def __init__(self, directory: Directory) -> None:
        """`directory` is locked; whoever has closed this unlocks it, unless that did not come to an end."""
        self._directory = directory
        #: tells how many records more are on disk, or what the system says instead of writing
        self._thread: SideThread[_Waiting | _Measure, int | str] = SideThread(
            "scaler-journal", self._write_some, lambda _, error: None, self._end
        )
        #: bytes that the disk took when it was last looked at, but for its reserve; any thread may read it
        self.room = math.inf
        #: records that are on disk
        self._synced = 0
        #: what the system says instead of writing; None while it writes
        self._trouble: str | None = None
        #: of the thread
        self._file: int | None = None
        self._segment = 0
        #: a record could not be written before the end: none is that comes behind it
        self._has_failed = False

    def fileno(self) -> int:
        """Readable when there are news to take."""
        return self._thread.fileno()

    def append(self, place: Place, buffers: list[Frame]) -> None:
        """Write a record at its place, which is behind the last one's."""
        self._thread.put(_Waiting(place, buffers))

    def measure_room(self) -> None:
        """Find out how much room there is; there are news then."""
        self._thread.put(_Measure())

    def take_news(self) -> tuple[int, str | None]:
        """How many records are on disk, counted from the first `append`; and what keeps others from it, or None."""
        for told in self._thread.take():
            if isinstance(told, str):
                self._trouble = told
            else:
                self._synced, self._trouble = self._synced + told, None
        return self._synced, self._trouble

    def close(self, timeout: float = ENDING) -> bool:
        """Write what waits, as far as the disk takes it within this many seconds; then end. Blocks.

        Whether it came to an end: as long as it has not, bytes of this writer may still come to the disk. The directory
        is unlocked when they have.
        """
        return self._thread.close(timeout)

    # ---- the thread ------------------------------------------------------------------------------------------------
    def _write_some(self, first: _Waiting | _Measure) -> None:
        """Write all that waits; as often as it takes, whatever happens: nobody else would write it, or tell of it."""
        work = [first]
        while (more := self._thread.next_if(lambda _: True)) is not None:
            work.append(more)
        batch = [each for each in work if isinstance(each, _Waiting)]
        trouble = ""
        while not self._has_failed:
            try:
                self._write(batch)
                self.room = self._directory.room()
            except Exception as error:
                if refusal(error) != trouble:
                    trouble = refusal(error)
                    self._thread.tell(trouble)
                self._has_failed = self._thread.is_closing.wait(AGAIN)
            else:
                self._thread.tell(len(batch))
                return

    def _end(self) -> None:
        with contextlib.suppress(OSError):  # what was not synced was not told of
            self._leave_segment()
        self._directory.unlock()

    def _write(self, batch: list[_Waiting]) -> None:
        """Write and sync records; after an error as if nothing had been written, since the next try overwrites it."""
        self._directory.see_whether_locked()
        at = 0
        while at < len(batch):
            first = batch[at].place
            end = at
            buffers: list[Frame] = []
            while end < len(batch) and batch[end].place.segment == first.segment:
                buffers += batch[end].buffers
                end += 1
            self._enter_segment(first)
            assert self._file is not None
            _write_at(self._file, first.offset, buffers)
            os.fdatasync(self._file)
            at = end
        if self._file is not None and not os.fstat(self._file).st_nlink:
            self._leave_segment()  # nobody needs it any more, and it takes room as long as it is open

    def _enter_segment(self, place: Place) -> None:
        """What comes goes to this place: not into a file that somebody has removed, and not behind a gap."""
        if self._segment != place.segment or self._file is None:
            self._leave_segment()
            self._file, self._segment = self._directory.open_segment(place.segment), place.segment
        found = os.fstat(self._file)
        if not found.st_nlink or found.st_size < place.offset:
            self._leave_segment()
            raise JournalError(f"{self._directory.segment(place.segment)} was removed or cut; {ONLY_ANEW}")

    def _leave_segment(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _write_at(file: int, offset: int, buffers: list[Frame]) -> None:
    for start in range(0, len(buffers), _MOST_BUFFERS):
        some = buffers[start : start + _MOST_BUFFERS]
        size = sum(map(len, some))
        written = os.pwritev(file, some, offset)
        if written < size:  # the disk is full, or the system takes no more at once: the rest in one piece
            rest = memoryview(b"".join(some))[written:]
            while rest:
                count = os.pwrite(file, rest, offset + written)
                written, rest = written + count, rest[count:]
        offset += size
