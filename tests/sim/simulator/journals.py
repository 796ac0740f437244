"""Directories of journals in a run: real files, written in virtual time by schedulers that are killed and lose power.

What a scheduler had written stays when it is killed, perhaps with a part of what it was about to write; after a power
cut only what was synced is certain to be there. Syncing costs nothing here: `os.fsync` and `os.fdatasync` note how much
of a file is safe, and each is a place to be killed at.
"""

import contextlib
import math
import os
import shutil
import stat
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from scaler.errors import ScalerError
from scaler.journal.directory import Damage, Directory
from scaler.journal.journal import Journal
from scaler.journal.layout import Layout, Place
from scaler.journal.records import SEGMENT_HEADER, Frame, Record, segment_header
from scaler.scheduler.copies import events as ev
from scaler.scheduler.copies.follower import Follower
from scaler.scheduler.copies.opening import Opening
from scaler.scheduler.jobs_opener import Opened
from simulator.bad_reads import BadReads
from simulator.world import Killed, World

#: bytes of a segment, of a piece that is sent along, and of those that are on their way, so that there are several
SEGMENT, SLICE, WINDOW = 4_000, 1_500, 6_000
#: chance that the disk refuses for a while when something is written, and that it is stuck
REFUSES, STUCK = 0.005, 0.002
#: chance that then there is no more room than the reserve, for up to ten seconds
FILLED = 0.005
#: chance that a journal takes long to be opened
OPENS_LATE = 0.2


class Journals:
    """All directories of a run. While it is entered, nothing is really synced."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="scaler-sim-"))
        self._patches = contextlib.ExitStack()
        #: both schedulers of a pair have the same
        self.is_shared = False
        #: bytes of a file that a power cut leaves, by its inode
        self._safe: dict[int, int] = {}
        #: the scheduler whose process is at work, and one that is killed when it syncs next
        self.working: Any = None
        self.doomed: Any = None
        #: all that were opened, also by those who have died
        self.opened: list[SimJournal | SimFollower] = []

    def __enter__(self) -> "Journals":
        self._patches.enter_context(patch.object(os, "fsync", self._synced))
        self._patches.enter_context(patch.object(os, "fdatasync", self._synced))
        self._patches.enter_context(patch.object(ev, "SLICE", SLICE))
        self._patches.enter_context(patch.object(ev, "WINDOW", WINDOW))
        return self

    def __exit__(self, *error: object) -> None:
        for each in self.opened:
            with contextlib.suppress(Exception):  # of a run that has failed
                each.kill()
        self._patches.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def of(self, site: int) -> Path:
        """The directory that the scheduler at a site is given."""
        return self._root / ("shared" if self.is_shared else f"site-{site}")

    @contextlib.contextmanager
    def worked_by(self, server: Any) -> Iterator[None]:
        """What is synced meanwhile is synced by this scheduler."""
        before, self.working = self.working, server
        try:
            yield
        finally:
            self.working = before

    def _synced(self, file: int) -> None:
        about = os.fstat(file)
        if stat.S_ISREG(about.st_mode):
            self._safe[about.st_ino] = about.st_size
        if self.working is not None and self.working is self.doomed:
            doomed, self.doomed = self.doomed, None
            doomed.world.note(doomed.name, "is killed while it syncs")
            doomed.die()
            raise Killed

    def lose_power(self, world: World, site: int) -> None:
        """A scheduler that was just killed there had no time to sync: what was not may be lost, from any byte on."""
        for path in sorted(self.of(site).rglob("*.log")):
            about = path.stat()
            safe = min(self._safe.get(about.st_ino, 0), about.st_size)
            if safe < about.st_size:
                os.truncate(path, world.random.randint(safe, about.st_size))

    def wipe(self, site: int) -> None:
        """The host is gone with its disk; another one takes its place."""
        shutil.rmtree(self.of(site), ignore_errors=True)

    def identity_of(self, world: World, site: int, known: str) -> str:
        """What the journal at a site calls its part of the directory for results; drawn if nobody knows."""
        path = self.of(site) / "results.id"
        if not path.exists():
            path.write_text(known or f"{world.random.getrandbits(128):032x}")
        return path.read_text()

    def segments(self, site: int) -> dict[str, bytes]:
        """What is in it, but for segments without records."""
        return {
            path.name: path.read_bytes() for path in self.of(site).glob("*.log") if path.stat().st_size > SEGMENT_HEADER
        }


class SimWriter:
    """Like `Writer`, with a thread that works in virtual time."""

    def __init__(self, server: Any, journals: Journals, directory: Directory, bad_reads: BadReads) -> None:
        self._server = server
        self._world: World = server.world
        self._journals = journals
        self._directory = directory
        self._waiting: deque[tuple[Place, bytes]] = deque()
        self._synced = 0
        self._trouble: str | None = None
        #: as of the real one
        self.room = math.inf
        self._bad_reads = bad_reads
        self._is_busy = False
        self._is_open = True
        self._wakeup = server.loop.new_wakeup()

    def fileno(self) -> int:
        """Of its wakeup."""
        return self._wakeup

    def append(self, place: Place, buffers: list[Frame]) -> None:
        """Write, some time."""
        self._waiting.append((place, b"".join(buffers)))
        self._go_on()

    def measure_room(self) -> None:
        """As the real one: there are news, unless there will be anyway."""
        if self._is_open and not self._waiting:
            self._server.loop.ring(self._wakeup)

    def take_news(self) -> tuple[int, str | None]:
        """As the real one."""
        return self._synced, self._trouble

    def _go_on(self) -> None:
        if self._waiting and not self._is_busy:
            self._is_busy = True
            self._world.after(self._world.random.choice((0.0003, 0.003, 0.008)), self._write)

    def _write(self) -> None:
        if not self._is_open or self._waits_while_stopped(self._write):
            return
        self._bad_reads.strike()
        if self._world.random.random() < FILLED:
            self.room = 0.0
            self._world.after(self._world.random.uniform(0.0, 10.0), self._make_room)
        if self._world.random.random() < REFUSES:
            self._trouble = "No space left on device"
            self._world.after(0.5, self._write)
            self._server.loop.ring(self._wakeup)
            return
        with self._journals.worked_by(self._server):
            for place, data in self._waiting:
                self._put(place, data)
        delay = 3.0 if self._world.random.random() < STUCK else self._world.random.choice((0.0001, 0.003))
        self._world.after(delay, self._sync, len(self._waiting))

    def _make_room(self) -> None:
        self.room = math.inf

    def _sync(self, count: int) -> None:
        if not self._is_open or self._waits_while_stopped(self._sync, count):
            return
        with self._journals.worked_by(self._server):
            self._sync_files({place.segment for place, _ in list(self._waiting)[:count]})
        for _ in range(count):
            self._waiting.popleft()
        self._synced += count
        self._trouble = None
        self._is_busy = False
        self._server.loop.ring(self._wakeup)
        self._go_on()

    def _waits_while_stopped(self, call: Callable[..., None], *arguments: Any) -> bool:
        if self._server.stopped:
            self._world.after(0.05, call, *arguments)
        return bool(self._server.stopped)

    def _put(self, place: Place, data: bytes) -> None:
        path = self._directory.segment(place.segment)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < SEGMENT_HEADER:
                os.pwrite(file, segment_header(place.segment), 0)
                os.fsync(file)
            os.pwrite(file, data, place.offset)
        finally:
            os.close(file)

    def _sync_files(self, segments: set[int]) -> None:
        for number in sorted(segments):
            file = os.open(self._directory.segment(number), os.O_RDONLY)
            try:
                os.fdatasync(file)
            finally:
                os.close(file)

    def close(self, timeout: float = 0.0) -> bool:
        """An orderly end: what waits is written."""
        if self._is_open:
            self._is_open = False
            for place, data in self._waiting:
                self._put(place, data)
            self._sync_files({place.segment for place, _ in self._waiting})
            self._synced += len(self._waiting)
            self._waiting.clear()
        return True

    def kill(self) -> None:
        """Its process is killed: a part of what waits may be there, cut at any byte."""
        if not self._is_open:
            return
        self._is_open = False
        random = self._world.random
        while self._waiting and random.random() < 0.7:
            place, data = self._waiting.popleft()
            cut = random.random() < 0.3
            self._put(place, data[: random.randrange(len(data))] if cut else data)
            if cut:
                break
        self._waiting.clear()


class SimJournal(Journal):
    """The real one, with such a writer."""

    def __init__(self, server: Any, journals: Journals, path: Path) -> None:
        super().__init__(path, self._new_writer, lambda: server.world.random.getrandbits(63))
        self._server = server
        self._journals = journals
        self.bad_reads = BadReads(server.world)
        server.opened.append(self)
        journals.opened.append(self)

    def _new_writer(self, directory: Directory) -> SimWriter:
        return SimWriter(self._server, self._journals, directory, self.bad_reads)

    def replay(self, take: Callable[[Record, Place], None]) -> tuple[Layout, Damage | None]:
        """As the real one, with shorter segments."""
        layout, damage = super().replay(take)
        layout.most = SEGMENT
        return layout, damage

    def read(self, segment: int, offset: int, size: int) -> bytes:
        """As the real one, unless the disk does not let it."""
        self.bad_reads.check()
        return super().read(segment, offset, size)

    def remove(self, segment: int) -> None:
        """As the real one, unless the disk does not let it."""
        self.bad_reads.check()
        super().remove(segment)

    def kill(self) -> None:
        """Its process is killed."""
        if isinstance(self._writer, SimWriter):
            self._writer.kill()
        self.close()
        self._directory.unlock()  # also if it is killed in the middle of closing it: a lock goes with its process


class SimThread:
    """Like `SideThread`, in virtual time."""

    def __init__(self, follower: "SimFollower", server: Any, journals: Journals) -> None:
        self._follower = follower
        self._server = server
        self._world: World = server.world
        self._journals = journals
        self._work: deque[Any] = deque()
        self._done: list[Any] = []
        self._wakeup = server.loop.new_wakeup()
        self._is_busy = self._is_over = self._is_at_work = False
        self.is_closing = threading.Event()

    def fileno(self) -> int:
        """Of its wakeup."""
        return self._wakeup

    def put_by(self, work: Any) -> None:
        """Have something done, some time."""
        self._work.append(work)
        self._go_on()

    def take(self) -> list[Any]:
        """What was told."""
        done, self._done = self._done, []
        return done

    def tell(self, done: Any) -> None:
        """Say what came of it."""
        self._done.append(done)
        self._server.loop.ring(self._wakeup)

    def next_if(self, fits: Callable[[Any], bool]) -> Any:
        """As the real one."""
        return self._work.popleft() if self._work and fits(self._work[0]) else None

    def _go_on(self) -> None:
        if self._work and not self._is_busy:
            self._is_busy = True
            delay = 3.0 if self._world.random.random() < STUCK else self._world.random.choice((0.0003, 0.003, 0.01))
            self._world.after(delay, self._work_once)

    def _work_once(self) -> None:
        if self._is_over:
            return
        if self._server.stopped:
            self._world.after(0.05, self._work_once)
            return
        self._is_busy, self._is_at_work = False, True
        with self._journals.worked_by(self._server):
            self._follower.work(self._work.popleft())
        self._is_at_work = False
        self._go_on()

    def close(self, timeout: float) -> bool:
        """As the real one: what waits is not wanted any more."""
        if not self._is_over:
            self._is_over = True
            self.is_closing.set()
            self._follower.release(in_order=True)
        return True

    def kill(self) -> None:
        """Its process is killed: a part of what came last may be there, cut at any byte."""
        if not self._is_over:
            self._is_over = True
            if self._work and not self._is_at_work:
                self._follower.leave_part_of(self._work[0])
        self._follower.release(in_order=False)


class SimFollower(Follower):
    """The real one, with such a thread."""

    def __init__(self, server: Any, journals: Journals, path: Path) -> None:
        super().__init__(path)
        self._thread.close(0.0)
        self._world: World = server.world
        self._sim: SimThread = SimThread(self, server, journals)
        self._thread = self._sim  # type: ignore[assignment]
        server.opened.append(self)
        journals.opened.append(self)

    def work(self, task: Any) -> None:
        """Do a piece of work as the real thread does."""
        try:
            self._do(task)
        except Killed:
            raise
        except Exception as error:
            self._fail(task, error)

    def leave_part_of(self, task: Any) -> None:
        """What its process was about to write is there in part."""
        piece = task.work
        if self._is_wanted(task) and isinstance(piece, ev.Append) and piece.data:
            with contextlib.suppress(ScalerError, AssertionError):
                self._disk.check(piece.place, piece.data)
                self._disk.write(piece.place, piece.data[: self._world.random.randrange(len(piece.data))])

    def release(self, in_order: bool) -> None:
        """Let go of the directory; unless `in_order` as the end of a process does."""
        try:
            if in_order:
                self._end()
        finally:
            if self._disk._file is not None:
                os.close(self._disk._file)
                self._disk._file = None
            self._disk._directory.unlock()

    def kill(self) -> None:
        """Its process is killed."""
        self._sim.kill()


class SimOpener:
    """Like `JobsOpener`, in virtual time: the disk answers at once, or after a while."""

    def __init__(self, server: Any, journals: Journals) -> None:
        self._server = server
        self._world: World = server.world
        self._journals = journals
        self._done: Opened | None = None
        self._is_over = False
        self._wakeup = server.loop.new_wakeup()

    def fileno(self) -> int:
        """Of its wakeup."""
        return self._wakeup

    def begin(self, opening: Opening) -> None:
        """As the real one."""
        slow = self._world.slow
        if slow.random() < OPENS_LATE:
            self._world.note(self._server.name, "the journal takes long to be opened")
            self._world.after(slow.choice((0.01, 0.3, 1.0, 3.0, 8.0)), self._open_late, opening)
        else:
            self._open(opening)

    def _open_late(self, opening: Opening) -> None:
        if self._is_over or not self._server.alive:
            return
        if self._server.stopped:
            self._world.after(0.05, self._open_late, opening)
            return
        with self._journals.worked_by(self._server):
            self._open(opening)
        self._server.loop.ring(self._wakeup)

    def _open(self, opening: Opening) -> None:
        try:
            self._done = Opened(opening, self._server.open_jobs(opening))
        except ScalerError as error:
            self._done = Opened(opening, None, str(error))

    def wait(self, seconds: float) -> None:
        """What was not done at once takes longer than that."""

    def take(self) -> Opened | None:
        """What came of it."""
        done, self._done = self._done, None
        return done

    def close(self) -> None:
        """As the real one, of which nothing comes any more."""
        self._is_over = True
        if self._done is not None:
            if self._done.jobs is not None:
                self._done.jobs.close()
            self._done.opening.discard()
