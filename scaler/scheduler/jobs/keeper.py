"""The durable jobs of a scheduler's process: its journal on disk around what `jobs_core.py` decides."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from scaler.errors import ProtocolError
from scaler.journal.directory import Directory
from scaler.journal.layout import Layout, Place
from scaler.journal.records import RECORD_HEADER, SEGMENT_HEADER, Damaged, Frame, Record, pack, read
from scaler.journal.writer import Writer
from scaler.protocol.codec import decode, encode
from scaler.protocol.messages import JobQuestion, JobSubmit, Message
from scaler.protocol.results import SpanResult
from scaler.scheduler.jobs import at_core
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs.job_records import Kind
from scaler.scheduler.jobs.jobs_core import JobsCore
from scaler.scheduler.residents import Reply, ResidentWish


class JobKeeper:
    """Keeps them in one journal. For one thread; `close` blocks for a moment, nothing else does for long."""

    def __init__(self, path: str | Path, heartbeat: float) -> None:
        """Read the journal, and become the one who writes it. Blocks. Raises `JournalError`.

        `heartbeat` in seconds. `notes` says what was found, for the log.
        """
        self._directory = Directory(path)
        self._directory.lock()
        try:
            self._term = 1
            self.core, self.notes = self._restored(heartbeat)
            self._writer = Writer(self._directory)
        except BaseException:
            self._directory.unlock()
            raise
        #: segment -> descriptor
        self._files: dict[int, int] = {}
        self._events: list[ev.Event] = []
        self._begun = False
        self.has_news = True

    def _restored(self, heartbeat: float) -> tuple[JobsCore, list[tuple[str, str]]]:
        begun = time.monotonic()
        layout = Layout()
        core = JobsCore(layout, encode, heartbeat, time.time() - begun)
        records = 0

        def take(record: Record, place: Place) -> None:
            nonlocal records
            records += 1
            self._term = max(self._term, record.term + 1)
            core.restore(record, place, _results_in(record))

        notes = []
        damage = self._directory.replay(take)
        if damage is not None:
            self._directory.set_aside(damage)
            notes.append(("INFO" if damage.is_cut else "WARNING", f"Journal: {damage}"))
        segments = self._directory.segments()
        if segments:
            layout.segment = segments[-1]
            layout.offset = max(SEGMENT_HEADER, self._directory.segment(segments[-1]).stat().st_size)
        took = time.monotonic() - begun
        text = f"Journal: {self._directory.path} has {core.jobs} jobs, {records:,} records read in {took:.2f} s"
        return core, [*notes, ("INFO", text)]

    # ---- the loop --------------------------------------------------------------------------------------------------
    def fileno(self) -> int:
        """Readable when more is on disk."""
        return self._writer.fileno()

    def gather(self) -> None:
        """Take in what is on disk by now."""
        records, trouble = self._writer.take_news()
        self._tell(ev.OnDisk(records, trouble))

    @property
    def wake(self) -> float | None:
        """When something is due though nothing happened, seconds."""
        return self.core.wake

    def close(self) -> None:
        """Write what waits, and let somebody else have the journal."""
        self._writer.close()
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        self._directory.unlock()

    # ---- what it hears (`Residents`) -------------------------------------------------------------------------------
    def ask(self, monitor: int, message: JobSubmit | JobQuestion) -> None:
        """A monitor wants something."""
        if isinstance(message, JobQuestion):
            self._tell(ev.Asked(monitor, message))
            return
        try:
            inner = _messages(list(message.counts), message.bodies[1:])
        except ProtocolError as error:
            inner, trouble = [], f"a part of a job that is none: {error}"
            self._tell(ev.Submitted(monitor, message, inner, trouble))
            return
        self._tell(ev.Submitted(monitor, message, inner))

    def lose_monitor(self, monitor: int) -> None:
        """It wants no answer any more."""
        self._tell(ev.Gone(monitor))

    def welcome(self, resident: int, number: int) -> None:
        """A job is a client of the core."""
        self._tell(ev.Welcomed(resident, number))

    def hear(self, number: int, message: Message) -> None:
        """The core says something to a job."""
        self._tell(ev.Heard(number, message))

    def forget(self, number: int, reason: str) -> None:
        """The core does not know a job any more."""
        self._tell(ev.Forgotten(number, reason))

    def _tell(self, event: ev.Event) -> None:
        self._events.append(event)
        self.has_news = True

    # ---- what it does ----------------------------------------------------------------------------------------------
    def handle(self, now: float) -> list[ResidentWish]:
        """Let the jobs decide; what they want of the core, and of those who asked."""
        wishes: list[ResidentWish] = []
        if not self._begun:
            self._begun = True
            wishes += self._carry_out(self.core.begin())
        events, self._events = self._events, []
        self.has_news = False
        wishes += self._carry_out(self.core.handle(events, now))
        return wishes

    def _carry_out(self, effects: list[ev.Effect]) -> list[ResidentWish]:
        wishes: list[ResidentWish] = []
        for effect in effects:
            if isinstance(effect, ev.Write):
                record = Record(effect.kind, effect.owner, tuple(effect.frames), self._term)
                self._writer.append(effect.place, pack(record))
            elif isinstance(effect, ev.Copy):
                self._writer.append(effect.place, [self._read(*effect.source, effect.size)])
            elif isinstance(effect, ev.Remove):
                self._remove(effect.segment)
            elif isinstance(effect, ev.Load):
                self._tell(ev.Loaded(effect.job, [self._part(place) for place in effect.places]))
            elif isinstance(effect, ev.Fetch):
                self._tell(ev.Fetched(effect.number, effect.row, self._value(effect)))
            elif isinstance(effect, ev.Answer):
                if effect.pieces:
                    effect.message.bodies = [self._gathered(effect.pieces)]
                wishes.append(Reply(effect.monitor, effect.message))
            else:
                wishes.append(effect)
        return wishes

    def _file(self, segment: int) -> int:
        file = self._files.get(segment)
        if file is None:
            path = self._directory.segment(segment)
            file = self._files[segment] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return file

    def _remove(self, segment: int) -> None:
        file = self._files.pop(segment, None)
        if file is not None:
            os.close(file)
        self._directory.remove(segment)

    def _read(self, segment: int, offset: int, size: int) -> bytes:
        return os.pread(self._file(segment), size, offset)

    def _gathered(self, pieces: Sequence[tuple[int, int, int]]) -> bytes:
        """Bytes of segments; neighbours in one go."""
        found, at = [], 0
        while at < len(pieces):
            segment, offset, size = pieces[at]
            at += 1
            while at < len(pieces) and pieces[at][0] == segment and pieces[at][1] == offset + size:
                size += pieces[at][2]
                at += 1
            found.append(self._read(segment, offset, size))
        return found[0] if len(found) == 1 else b"".join(found)

    def _part(self, place: Place) -> list[Message]:
        """The messages of a part that was written."""
        head = self._read(place.segment, place.offset, 4)
        size = int.from_bytes(head, "little")
        data = memoryview(self._read(place.segment, place.offset, size + RECORD_HEADER))
        record, _ = read(data, 0)
        counts = json.loads(bytes(record.frames[1]))["counts"]
        return _messages(counts, record.frames[2:])

    def _value(self, effect: ev.Fetch) -> bytes | None:
        span = effect.span
        body = self._read(span.segment, span.offset, span.size)
        result = SpanResult(0, 0, span.hi - span.lo, span.outcome, 0, 0, span.sizes, body)
        return at_core.value_in(result, effect.at)


def _messages(counts: Sequence[int], frames: Sequence[Frame]) -> list[Message]:
    """The messages whose frames these are. Raises ProtocolError."""
    found, at = [], 0
    for count in counts:
        found.append(decode(list(frames[at : at + count])).message)
        at += count
    return found


def _results_in(record: Record) -> list[Message]:
    if record.kind != Kind.RESULTS:
        return []
    try:
        return [decode(list(record.frames)).message]
    except ProtocolError as error:
        raise Damaged(f"results in it can't be read: {error}") from None
