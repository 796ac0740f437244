"""The copy of a journal that a standby makes: a thread has the disk, `taking.py` decides.

the other one ──► Taking ──► thread: check, write, sync ──► Taking ──► the other one
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import deque
from pathlib import Path

from scaler.common.effects import Log
from scaler.common.records import record
from scaler.errors import ScalerError
from scaler.journal.copy_on_disk import CopyOnDisk, refusal
from scaler.journal.history import Seen
from scaler.journal.layout import Place
from scaler.journal.records import Damaged
from scaler.protocol.messages import JournalSlice, JournalStart, JournalState
from scaler.scheduler.copies import events as ev
from scaler.scheduler.copies.taking import Taking

#: seconds between two tries of a disk that refuses
AGAIN = 0.5
#: pieces that are synced together, at most
MOST_TOGETHER = 16
#: seconds that the disk is given to come to an end
ENDING = 5.0

#: what is left to others
Wish = ev.Said | ev.Reject | Log
_Work = ev.Look | ev.BeginWhole | ev.BeginBehind | ev.Append


@record
class _Looked:
    stream: int
    seen: Seen | str


@record
class _Synced:
    stream: int
    place: Place
    size: int
    complete: bool


@record
class _Damaged:
    stream: int
    why: str


class Follower:
    """For one thread, but for the one that it has itself. `close` blocks, nothing else does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._taking = Taking()
        #: where the one that leads is
        self._partner = ""
        self._work: queue.SimpleQueue[tuple[int, _Work] | None] = queue.SimpleQueue()
        self._done: deque[_Looked | _Synced | _Damaged | Log] = deque()
        #: the stream that is worked for; what belongs to others is dropped
        self._stream = 0
        self._is_closing = threading.Event()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread: threading.Thread | None = None

    # ---- the loop --------------------------------------------------------------------------------------------------
    def fileno(self) -> int:
        """Readable when the disk has done something."""
        return self._bell

    @property
    def wake(self) -> float | None:
        """When something is due though nothing happened."""
        return self._taking.wake

    def is_in_step(self, now: float) -> bool:
        """Whatever counts at the one that leads is in this copy."""
        return self._taking.is_in_step(now)

    def part(self) -> None:
        """The other one can't be spoken to any more."""
        self._taking.part()
        self._stream = 0

    def hear(self, message: JournalState | JournalStart | JournalSlice, partner: str, now: float) -> None:
        """The one that leads says something."""
        self._partner = partner
        self._taking.hear(message, now)

    def attend(self, now: float) -> list[Wish]:
        """Take in what the disk has done, and what is left to others."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        found: list[Wish] = []
        while self._done:
            done = self._done.popleft()
            if isinstance(done, _Looked):
                self._taking.looked(done.stream, done.seen, now)
            elif isinstance(done, _Synced):
                self._taking.synced(done.stream, done.place, done.size, done.complete, now)
            elif isinstance(done, _Damaged):
                self._taking.damaged(done.stream, done.why)
            else:
                found.append(done)
        self._taking.tick(now)
        for wish in self._taking.take():
            if isinstance(wish, ev.Say):
                found.append(wish.message)
            elif isinstance(wish, (ev.Reject, Log)):
                if isinstance(wish, ev.Reject):
                    self._stream = 0
                found.append(wish)
            else:
                self._give(wish)
        return found

    def _give(self, work: _Work) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="scaler-copy", daemon=True)
            self._thread.start()
        if isinstance(work, ev.Look):
            self._stream = work.stream
        self._work.put((self._stream, work))

    def close(self) -> bool:
        """End the work, and let somebody else have the directory; whether it came to an end. Blocks."""
        self._stream = 0
        self._is_closing.set()
        self._work.put(None)
        if self._thread is not None:
            self._thread.join(ENDING)
            if self._thread.is_alive():
                return False
        os.close(self._bell)
        return True

    # ---- the thread ------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        disk = CopyOnDisk(self.path)
        try:
            waiting: tuple[int, _Work] | None = None
            while True:
                item = waiting or self._work.get()
                waiting = None
                if item is None:
                    return
                if isinstance(item[1], ev.Append):
                    waiting = self._append(disk, item[0], item[1])
                elif item[0] == self._stream:
                    self._prepare(disk, item[0], item[1])
        finally:
            disk.close()

    def _tell(self, done: _Looked | _Synced | _Damaged | Log) -> None:
        self._done.append(done)
        if not self._is_closing.is_set():
            os.eventfd_write(self._bell, 1)

    def _prepare(self, disk: CopyOnDisk, stream: int, work: _Work) -> None:
        try:
            if isinstance(work, ev.Look):
                self._tell(_Looked(stream, disk.look(stream)))
            elif isinstance(work, ev.BeginWhole):
                disk.begin_whole(work.turns, self._partner)
            elif isinstance(work, ev.BeginBehind):
                disk.begin_behind(work.place, work.turns, self._partner)
        except (OSError, ScalerError) as error:
            self._tell(Log("ERROR", f"Journal: no copy of it can be made here: {refusal(error)}"))
            if isinstance(work, ev.Look):
                self._tell(_Looked(stream, refusal(error)))
            else:
                self._tell(_Damaged(stream, "it can't be written here"))

    def _append(self, disk: CopyOnDisk, stream: int, first: ev.Append) -> tuple[int, _Work] | None:
        """Write pieces, as many as there are, and sync them together; the work that was found behind them."""
        some, size, behind = [first], len(first.data), None
        while len(some) < MOST_TOGETHER and not (some[-1].complete or some[-1].removed):
            try:
                behind = self._work.get_nowait()
            except queue.Empty:
                break
            if behind is None or behind[0] != stream or not isinstance(behind[1], ev.Append):
                if behind is None:
                    self._work.put(None)
                break
            some.append(behind[1])
            size, behind = size + len(behind[1].data), None
        if stream != self._stream:
            return behind
        last = some[-1]
        try:
            for piece in some:
                disk.check(piece.place, piece.data, piece.complete)
        except Damaged as why:
            self._stream = 0
            self._tell(_Damaged(stream, str(why)))
            return behind
        if self._persist(disk, stream, some):
            place = Place(last.place.segment, last.place.offset + len(last.data))
            self._tell(_Synced(stream, place, size, any(piece.complete for piece in some)))
        return behind

    def _persist(self, disk: CopyOnDisk, stream: int, some: list[ev.Append]) -> bool:
        """Write and sync, as often as it takes; False if nobody wants it any more."""
        trouble = ""
        while stream == self._stream:
            try:
                for piece in some:
                    if piece.data:
                        disk.write(piece.place, piece.data)
                disk.sync()
                last = some[-1]
                if last.complete:
                    disk.complete(Place(last.place.segment, last.place.offset + len(last.data)))
                if last.removed:
                    disk.remove(list(last.removed))
                return True
            except (OSError, ScalerError) as error:
                if refusal(error) != trouble:
                    trouble = refusal(error)
                    self._tell(Log("ERROR", f"Journal: the copy here can't be written: {trouble}; trying until it can"))
                self._is_closing.wait(AGAIN)
        return False
