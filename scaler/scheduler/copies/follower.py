"""The copy of a journal that a standby makes: a thread has the disk, `taking.py` decides.

the other one ──► Taking ──► thread: check, write, sync ──► Taking ──► the other one
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scaler.common.effects import Log
from scaler.common.records import record
from scaler.common.side_thread import SideThread
from scaler.errors import ScalerError
from scaler.journal.copy_on_disk import CopyOnDisk
from scaler.journal.directory import refusal
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


@record
class _Task:
    """Something to be done for a stream; `partner`: where the one that leads is."""

    stream: int
    partner: str
    work: ev.Look | ev.BeginWhole | ev.BeginBehind | ev.Append


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


@record
class _Failed:
    stream: int
    why: str


_Done = _Looked | _Synced | _Damaged | _Failed | Log


class Follower:
    """For one thread, but for the one that it has itself. `close` blocks, nothing else does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._taking = Taking()
        #: where the one that leads is
        self._partner = ""
        #: the stream that is worked for; what belongs to others is dropped
        self._stream = 0
        self._thread: SideThread[_Task, _Done] = SideThread("scaler-copy", self._do, self._fail, self._end)
        #: of the thread: the directory, and the stream of which no more is wanted
        self._disk = CopyOnDisk(path)
        self._over = 0
        #: what the log has said last of a copy that can't be made
        self._complained = ""

    # ---- the loop --------------------------------------------------------------------------------------------------
    def fileno(self) -> int:
        """Readable when the disk has done something."""
        return self._thread.fileno()

    @property
    def wake(self) -> float | None:
        """When something is due though nothing happened."""
        return self._taking.wake

    def is_in_step(self, now: float) -> bool:
        """Whatever counts at the one that leads is in this copy."""
        return self._taking.is_in_step(now)

    @property
    def in_step_until(self) -> float:
        """When that ends, if the one that leads is not heard again."""
        return self._taking.in_step_until

    def hear(self, message: JournalState | JournalStart | JournalSlice, partner: str, now: float) -> None:
        """The one that leads says something."""
        self._partner = partner
        self._taking.hear(message, now)

    def attend(self, now: float) -> list[Wish]:
        """Take in what the disk has done, and what is left to others."""
        found: list[Wish] = []
        for done in self._thread.take():
            if isinstance(done, _Looked):
                self._taking.looked(done.stream, done.seen)
            elif isinstance(done, _Synced):
                self._taking.synced(done.stream, done.place, done.size, done.complete, now)
            elif isinstance(done, _Damaged):
                self._taking.damaged(done.stream, done.why)
            elif isinstance(done, _Failed):
                self._taking.failed(done.stream, done.why)
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
                if isinstance(wish, ev.Look):
                    self._stream = wish.stream
                self._thread.put_by(_Task(self._stream, self._partner, wish))
        return found

    def close(self) -> bool:
        """End the work, and let somebody else have the directory; whether it came to an end. Blocks."""
        self._stream = 0
        return self._thread.close(ENDING)

    # ---- the thread ------------------------------------------------------------------------------------------------
    def _is_wanted(self, task: _Task) -> bool:
        return task.stream == self._stream != self._over

    def _do(self, task: _Task) -> None:
        if not self._is_wanted(task):
            return
        work, disk = task.work, self._disk
        if isinstance(work, ev.Look):
            self._thread.tell(_Looked(task.stream, disk.look(task.stream)))
        elif isinstance(work, ev.BeginWhole):
            disk.begin_whole(work.turns, task.partner)
        elif isinstance(work, ev.BeginBehind):
            disk.begin_behind(work.place, work.turns, task.partner)
        else:
            self._append(task, work)
        if not isinstance(work, ev.Look):
            self._complained = ""

    def _fail(self, task: _Task, error: Exception) -> None:
        """It is said once, and not tried again before the one that leads asks for it."""
        self._over = task.stream
        why = refusal(error)
        if why != self._complained:
            self._complained = why
            self._thread.tell(Log("ERROR", f"Journal: no copy of it can be made here: {why}"))
        if isinstance(task.work, ev.Look):
            self._thread.tell(_Looked(task.stream, why))
        else:
            self._thread.tell(_Failed(task.stream, why))

    def _end(self) -> None:
        with contextlib.suppress(OSError):  # what was not synced was not told of
            self._disk.close()

    def _append(self, task: _Task, first: ev.Append) -> None:
        """Write pieces, as many as there are, and sync them together."""
        some = [first]
        while len(some) < MOST_TOGETHER and not (some[-1].complete or some[-1].removed):
            more = self._thread.next_if(lambda other: other.stream == task.stream and isinstance(other.work, ev.Append))
            if more is None:
                break
            assert isinstance(more.work, ev.Append)
            some.append(more.work)
        disk, last = self._disk, some[-1]
        end = Place(last.place.segment, last.place.offset + len(last.data))
        try:
            for piece in some:
                disk.check(piece.place, piece.data, piece.complete)
        except Damaged as why:
            self._over = task.stream
            self._thread.tell(_Damaged(task.stream, str(why)))
            return
        steps: list[Callable[[], None]] = [partial(_write, disk, some)]
        if last.complete:
            steps.append(partial(disk.complete, end))
        if last.removed:
            steps.append(partial(disk.remove, list(last.removed)))
        if all(self._insist(task, step) for step in steps):
            self._thread.tell(_Synced(task.stream, end, sum(len(piece.data) for piece in some), last.complete))

    def _insist(self, task: _Task, step: Callable[[], None]) -> bool:
        """Do this to the disk, as often as it takes; False if nobody wants it any more."""
        trouble = ""
        while self._is_wanted(task):
            try:
                step()
                return True
            except (OSError, ScalerError) as error:
                if refusal(error) != trouble:
                    trouble = refusal(error)
                    text = f"Journal: the copy here can't be written: {trouble}; trying until it can"
                    self._thread.tell(Log("ERROR", text))
                self._thread.is_closing.wait(AGAIN)
        return False


def _write(disk: CopyOnDisk, some: list[ev.Append]) -> None:
    for piece in some:
        if piece.data:
            disk.write(piece.place, piece.data)
    disk.sync()
