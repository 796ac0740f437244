"""One end of a journal that is sent along, with real files, and somebody at the other end who says anything.

Whoever writes a journal has all that it wrote in the end, whatever was said of a copy. Whoever makes a copy has a
journal in the end that can be opened and written, whatever was sent.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from simulator.hostile_messages import Lot
from simulator.scripted import as_heard

from scaler.errors import ProtocolError, ScalerError
from scaler.journal import records
from scaler.journal.directory import Directory
from scaler.journal.journal import Journal
from scaler.journal.layout import Place
from scaler.journal.records import SEGMENT_HEADER, Frame, Record
from scaler.protocol import messages as m
from scaler.protocol.messages.journals import MAX_OFFSET, MAX_SEGMENT, MAX_TURN
from scaler.scheduler.copies import events as ev
from scaler.scheduler.copies.copied_journal import CopiedJournal
from scaler.scheduler.copies.follower import Follower

#: bytes of a segment, of a piece that is sent along, and of those that are on their way, so that there are several
SEGMENT, SLICE, WINDOW = 400, 150, 500
THERE = "tcp://there:1"


class Pen:
    """Like `Writer`: what is appended is on disk at once, or as long as it is stuck, later."""

    room = float("inf")

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.is_stuck = False
        self._waiting: deque[tuple[Place, bytes]] = deque()
        self._synced = 0

    def fileno(self) -> int:
        return -1

    def append(self, place: Place, buffers: list[Frame]) -> None:
        self._waiting.append((place, b"".join(buffers)))
        self.write()

    @property
    def has_all(self) -> bool:
        """Nothing waits."""
        return not self._waiting

    def write(self) -> None:
        """What waits is written, if it can be."""
        while self._waiting and not self.is_stuck:
            place, data = self._waiting.popleft()
            file = self._directory.open_segment(place.segment)
            try:
                os.pwrite(file, data, place.offset)
            finally:
                os.close(file)
            self._synced += 1

    def take_news(self) -> tuple[int, str | None]:
        return self._synced, None

    def measure_room(self) -> None:
        pass

    def close(self, timeout: float = 0.0) -> bool:
        self.is_stuck = False
        self.write()
        return True


class AtOnce:
    """Like `SideThread`, of a follower, without a thread. A disk that refuses is not tried again."""

    def __init__(
        self, do: Callable[[Any], None], fail: Callable[[Any, Exception], None], end: Callable[[], None]
    ) -> None:
        self._do, self._fail, self._end = do, fail, end
        self._done: list[Any] = []
        self._work: deque[Any] = deque()
        self.is_closing = threading.Event()
        self._is_over = False
        #: what was raised that is no matter of disks
        self.unexpected: list[Exception] = []

    def fileno(self) -> int:
        return -1

    def put_by(self, work: Any) -> None:
        self._work.append(work)

    def work(self) -> None:
        """Do what waits."""
        while self._work:
            work = self._work.popleft()
            try:
                self._do(work)
            except Exception as error:
                if not isinstance(error, (OSError, ScalerError)):
                    self.unexpected.append(error)
                self._fail(work, error)

    def take(self) -> list[Any]:
        done, self._done = self._done, []
        return done

    def tell(self, done: Any) -> None:
        self._done.append(done)

    def next_if(self, fits: Callable[[Any], bool]) -> Any:
        return self._work.popleft() if self._work and fits(self._work[0]) else None

    def close(self, timeout: float) -> bool:
        if not self._is_over:
            self._is_over = True
            self._end()
        return True


@contextlib.contextmanager
def a_directory() -> Iterator[Path]:
    """For a journal; nothing in it is really synced."""
    path = Path(tempfile.mkdtemp(prefix="scaler-hostile-"))
    try:
        with contextlib.ExitStack() as patched:
            for name in ("fsync", "fdatasync"):
                patched.enter_context(patch.object(os, name, lambda file: None))
            for name, value in (("SLICE", SLICE), ("WINDOW", WINDOW)):
                patched.enter_context(patch.object(ev, name, value))
            yield path / "journal"
    finally:
        shutil.rmtree(path, ignore_errors=True)


class _Words:
    """What somebody says of a journal; `mine`: turns and the end of the one that is there."""

    def __init__(self, random: Lot) -> None:
        self.random = random
        self.stream = 0
        self.turns: list[int] = []
        self.end = Place(1, SEGMENT_HEADER)
        self.segments: list[int] = []

    def _stream(self) -> int:
        return self.stream if self.random.random() < 0.9 else self.random.choice((0, 1, 2**64 - 1))

    def place(self) -> Place:
        random, (segment, offset) = self.random, self.end
        if random.random() < 0.5:
            return self.end
        return Place(
            random.choice((0, 1, 2, segment, segment + 1, max(0, segment - 1), MAX_SEGMENT - 1)),
            random.choice((0, 1, SEGMENT_HEADER, offset, offset + 1, max(0, offset - 40), MAX_OFFSET - 1)),
        )

    def _turns(self) -> Any:
        random, known = self.random, list(self.turns)
        if random.random() < 0.4:
            known = known[: m.TURN_NUMBERS * random.randrange(len(known) // m.TURN_NUMBERS + 1)]
        if random.random() < 0.4:
            known += [random.choice((1, 2, MAX_TURN - 1)), random.choice((5, 2**64 - 1)), *self.place()]
        if random.random() < 0.1:
            known = [*known, *known]
        return m.u64(known)

    def state(self, copying: str | None = None) -> m.JournalState:
        """What copy it says that it has."""
        random = self.random
        known = random.choice((self.segments, self.segments[1:], [], [1, 2, 3, MAX_SEGMENT, 2**64 - 1]))
        return m.JournalState(
            self._stream(), copying or random.choice(("own", "own", "own", "shared", "none", "leads")), *self.place(),
            self._turns(), random.random() < 0.5, m.u64(known), "" if random.random() < 0.9 else "no room",
        )  # fmt: skip

    def synced(self) -> m.JournalSynced:
        """How far it says that its copy is."""
        random = self.random
        number = random.choice((0, 1, 2, 2**64 - 1))
        return m.JournalSynced(self._stream(), *self.place(), number, random.random() < 0.5)

    def start(self) -> m.JournalStart:
        """What it says that comes next."""
        return m.JournalStart(self._stream(), self.random.random() < 0.5, *self.place(), self._turns())

    def slice(self, place: Place) -> m.JournalSlice:
        """Some bytes for a place, or for another one."""
        random = self.random
        record = b"".join(records.pack(Record(1, 7, (b"x" * random.randrange(60),), 1)))
        data = random.choice(
            (record, record, record + record, record[:-3], record[:5], b"", b"y" * 30, b"z" * (SLICE + WINDOW))
        )
        where = place if random.random() < 0.8 else self.place()
        removed = random.choice(((), (), (), (1,), (where.segment % 2**32,), (1, 2, 3), (2**32 - 1,)))
        return m.JournalSlice(
            self._stream(), *where, random.choice((0, 1, 2, 2**64 - 1)), random.random() < 0.5, random.random() < 0.3,
            m.u32(removed), [data],
        )  # fmt: skip


class _Story:
    """One life of a journal's directory; all is drawn from `random`."""

    def __init__(self, random: Lot, path: Path) -> None:
        self.random, self.path = random, path
        self.now = 0.0
        self._words = _Words(random)

    def be_steady(self) -> None:
        """From now on all is drawn by one lot."""
        self.random = self._words.random = Random(0)


class HostileStandby(_Story):
    """Somebody writes a journal, and whoever has the copy says anything."""

    def __init__(self, random: Lot, path: Path) -> None:
        super().__init__(random, path)
        self._written = self._last = 0
        self._pens: list[Pen] = []
        #: number -> segment of what was written and is needed
        self._places: dict[int, int] = {}
        self._open()
        for _ in range(3):
            self._write()

    def _open(self) -> None:
        self.journal = CopiedJournal(Journal(self.path, self._new_pen, self._draw))
        self.layout, damage = self.journal.replay(lambda record, place: None)
        assert damage is None, damage
        self.layout.most = SEGMENT

    def _new_pen(self, directory: Directory) -> Pen:
        self._pens.append(Pen(directory))
        return self._pens[-1]

    def _draw(self) -> int:
        self._last += 1
        return 1_000 + 2 * self._last

    def _write(self) -> None:
        frames = (b"x" * self.random.choice((3, 50, 200)),)
        self._written += 1
        place = self.layout.take(frames)
        self._places[self._written] = place.segment
        self.journal.append(place, records.pack(Record(1, self._written, frames, 1)))
        self.journal.take_news()

    def step(self) -> None:
        """One thing happens."""
        random, action, journal = self.random, self.random.randrange(12), self.journal
        if action < 2:
            self._write()
        elif action < 3:
            self._pens[-1].is_stuck = random.random() < 0.4
            self._pens[-1].write()
            journal.take_news()
        elif action < 4 or (action < 6 and not journal.sending._stream):
            journal.meet(THERE)
        elif action < 9:
            self._say()
        elif action < 10:
            number = min(self._places.values())
            if number < self.layout.segment and self._pens[-1].has_all:
                self._places = {each: there for each, there in self._places.items() if there != number}
                journal.remove(number)
        else:
            self.now += random.choice((0.1, 0.6, 3.0, 10.0))
        self.attend(random.random() < 0.7)

    def _say(self) -> None:
        words, sending = self._words, self.journal.sending
        words.stream, words.end = sending._stream, sending._next
        words.turns = list(ev.said_of(sending._turns))
        words.segments = list(sending._lengths)
        says_state = sending.is_asked if self.random.random() < 0.9 else not sending.is_asked
        said = words.state() if says_state else words.synced()
        self.journal.hear(as_heard(said), self.now)

    def attend(self, may_be_alone: bool) -> None:
        """What it wants is done."""
        wishes, _ = self.journal.attend(self.now, may_be_alone)
        for wish in wishes:
            if isinstance(wish, ev.Reject):
                self.journal.sending.part(for_good=False)
            elif isinstance(wish, ev.Said):
                as_heard(wish)
        shown, _ = self.journal.take_news()
        assert shown <= self._written

    def end(self) -> None:
        """All that was written is there."""
        self.journal.sending.part(for_good=True)
        self.now += 20.0
        self._pens[-1].is_stuck = False
        self._pens[-1].write()
        self.journal.take_news()
        self.attend(True)
        assert self.journal.take_news()[0] == self._written, "not all counts though nobody has a copy"
        self.journal.end()
        found: set[int] = set()
        damage = Directory(self.path).replay(lambda record, place: found.add(record.owner))
        assert damage is None, damage
        assert found >= self._places.keys()
        self._open()
        self.journal.end()


class HostileLeader(_Story):
    """Somebody makes a copy of what another one sends who says anything."""

    def __init__(self, random: Lot, path: Path) -> None:
        super().__init__(random, path)
        self._write_some(random.choice((0, 1, 4)))
        self.follower = Follower(path)
        self.follower._thread.close(0.0)
        follower = self.follower
        self.disk = AtOnce(follower._do, follower._fail, follower._end)
        follower._thread = self.disk  # type: ignore[assignment]

    def _write_some(self, count: int) -> None:
        journal = Journal(self.path, Pen, lambda: 77)
        layout, _ = journal.replay(lambda record, place: None)
        layout.most = SEGMENT
        for number in range(count):
            frames = (b"x" * 150,)
            journal.append(layout.take(frames), records.pack(Record(1, number, frames, 1)))
        self._words.turns = list(ev.said_of(journal.history.turns))
        self._words.end = Place(layout.segment, layout.offset)
        self._words.segments = list(journal.lengths())
        journal.close()

    def step(self) -> None:
        """One thing happens."""
        random, action = self.random, self.random.randrange(10)
        if action < 6:
            self._hear(self._what_comes_next())
        elif action < 8:
            words = self._words
            self._hear(random.choice((words.state, words.start, words.synced))())
        else:
            self.now += random.choice((0.1, 0.6, 3.0, 10.0))
        if random.random() < 0.7:
            self.disk.work()
        self.attend()

    def _what_comes_next(self) -> m.Message:
        taking, words = self.follower._taking, self._words
        if taking._is_taking:
            words.stream = taking._stream
            return words.slice(taking._next or Place(1, SEGMENT_HEADER))
        if taking._is_offered:
            words.stream = taking._stream
            return words.start()
        words.stream = 2 * self.random.randrange(50) + 1
        return words.state("leads")

    def _hear(self, message: m.Message) -> None:
        try:
            heard = as_heard(message)
        except ProtocolError:  # farther than journals reach
            return
        if not isinstance(heard, m.JournalSynced):  # is nothing to one that stands by
            self.follower.hear(heard, THERE, self.now)

    def attend(self) -> None:
        """What it wants is done."""
        for wish in self.follower.attend(self.now):
            if isinstance(wish, ev.Said):
                as_heard(wish)
        assert not self.disk.unexpected, self.disk.unexpected

    def end(self) -> None:
        """What is there can be opened, written, and opened again."""
        self.disk.work()
        self.attend()
        self.follower.close()
        for _ in range(2):
            written = self._write_one()
            assert self._owners() == written

    def _owners(self) -> list[int]:
        owners: list[int] = []
        damage = Directory(self.path).replay(lambda record, place: owners.append(record.owner))
        assert damage is None, damage
        return owners

    def _write_one(self) -> list[int]:
        """Open the journal, and write to it; whose the records are that are there then."""
        owners: list[int] = []
        journal = Journal(self.path, Pen, lambda: 99)
        layout, _ = journal.replay(lambda record, place: owners.append(record.owner))
        owners.append(1_000 + len(owners))
        frames = (b"more",)
        journal.append(layout.take(frames), records.pack(Record(1, owners[-1], frames, 1)))
        journal.close()
        return owners
