"""Durable jobs in a run: a disk that loses what was not synced, and users who submit jobs and read them whole.

The real `JobKeeper` runs in the scheduler's process; only the disk is made up. Users speak with it past the network,
since how a monitor's session goes on is tried elsewhere; what they asked a scheduler that died they ask the next one.
"""

import math
from collections.abc import Callable
from typing import Any

from scaler.journal.directory import Damage
from scaler.journal.layout import Layout, Place
from scaler.journal.records import Frame, Record, segment_header
from scaler.protocol.messages import (
    JobAnswer,
    JobQuestion,
    JobSubmit,
    Message,
)
from scaler.scheduler.jobs.jobs_core import JobTerms
from scaler.scheduler.residents import Reply, ResidentWish
from simulator import segments
from simulator.bad_reads import BadReads, SparedKeeper
from simulator.checks import require
from simulator.durable_job import DurableJob
from simulator.shared_files import SimFiles
from simulator.world import TICK, World

#: bytes of a segment, so that there are several
SEGMENT = 4_000
#: chance that the disk refuses for a while when something is written
REFUSES = 0.01
#: chance that after it there is no more room than the reserve, for up to ten seconds
FILLED = 0.01


class Disk:
    """What outlives schedulers."""

    def __init__(self) -> None:
        self.segments: dict[int, bytearray] = {}


class SimJournal:
    """A journal on it; `wake` is called when there are news."""

    def __init__(self, world: World, disk: Disk, wake: Callable[[], None]) -> None:
        self._world = world
        self._disk = disk
        self._wake = wake
        self._waiting: list[tuple[Place, bytes]] = []
        self._synced = 0
        self._trouble: str | None = None
        #: as of the real one: nothing while somebody else has filled the disk
        self.room = math.inf
        self.bad_reads = BadReads(world)
        self._is_writing = False
        self._is_open = True

    def replay(self, take: Callable[[Record, Place], None]) -> tuple[Layout, Damage | None]:
        """As the real one: what is behind a damage is gone."""
        last = max(self._disk.segments, default=0)
        layout, damage = segments.replay(self._disk.segments, take, SEGMENT)
        require(damage is None or int(damage.path.stem) == last, f"it is damaged before its last segment: {damage}")
        return layout, damage

    def append(self, place: Place, buffers: list[Frame]) -> None:
        """Write, some time."""
        self._waiting.append((place, b"".join(buffers)))
        self._write_soon()

    def _write_soon(self) -> None:
        if self._waiting and not self._is_writing:
            self._is_writing = True
            random = self._world.random
            self._world.after(random.choice((0.0003, 0.003, 0.008)), self._write, len(self._waiting))

    def _write(self, count: int) -> None:
        if not self._is_open:
            return
        self._is_writing = False
        self.bad_reads.strike()
        if self._world.random.random() < FILLED:
            self.room = 0.0
            self._world.after(self._world.random.uniform(0.0, 10.0), self._make_room)
        if self._world.random.random() < REFUSES:
            self._trouble = "No space left on device"
            self._is_writing = True
            self._world.after(0.5, self._write, count)
        else:
            self._trouble = None
            self._put(self._waiting[:count])
            del self._waiting[:count]
            self._synced += count
            self._write_soon()
        self._wake()

    def _make_room(self) -> None:
        self.room = math.inf

    def _put(self, waiting: list[tuple[Place, bytes]]) -> None:
        for place, data in waiting:
            segment = self._disk.segments.setdefault(place.segment, bytearray(segment_header(place.segment)))
            require(len(segment) == place.offset, f"a record is to be written at {place}, not at {len(segment)}")
            segment += data

    def take_news(self) -> tuple[int, str | None]:
        """As the real one."""
        return self._synced, self._trouble

    def read(self, segment: int, offset: int, size: int) -> bytes:
        """As the real one; only what is on disk can be read."""
        self.bad_reads.check()
        data = bytes(self._disk.segments[segment][offset : offset + size])
        require(len(data) == size, f"{size} bytes at {offset} of segment {segment} are not on disk")
        return data

    def remove(self, segment: int) -> None:
        """As the real one, unless the disk does not let it."""
        self.bad_reads.check()
        self._disk.segments.pop(segment, None)

    def measure_room(self) -> None:
        """As the real one: there are news."""
        self._world.after(0.001, self._wake)

    def fileno(self) -> int:
        """There is none."""
        return -1

    def close(self, timeout: float = 0.0) -> None:
        """The scheduler is killed: a part of what was not synced may be there, cut at any byte."""
        self._is_open = False
        random = self._world.random
        while self._waiting and random.random() < 0.5:
            place, data = self._waiting.pop(0)
            cut = random.random() < 0.3
            self._put([(place, data[: random.randrange(len(data))] if cut else data)])
            if cut:
                break


class SimKeeper(SparedKeeper):
    """The real one; answers for users of this run go to them."""

    def __init__(self, cluster: Any, server: Any) -> None:
        self._cluster = cluster
        self._server = server
        self.journal = SimJournal(cluster.world, cluster.disk, lambda: server.post(TICK))
        self.files = SimFiles(cluster.world, cluster.shared, lambda: server.post(TICK))
        files = self.files if cluster.shares_files else None
        super().__init__(self.journal.bad_reads, self.journal, JobTerms(1.0, 0.0, patience=10.0), files)

    def handle(self, now: float) -> list[ResidentWish]:
        """As the real one, with what is on disk by now."""
        self.gather()
        wishes = super().handle(now)
        if self.wake is not None:
            self._server.world.after(self.wake - now, self._server.post, TICK)
        for wish in wishes:
            if isinstance(wish, Reply):
                self._cluster.world.after(1e-4, self._cluster.durable[wish.monitor].answered, wish.message)
        return [wish for wish in wishes if not isinstance(wish, Reply)]


class DurableUser:
    """Submits one job in parts, reads it whole, and deletes it. Its number is below 0, so it is no peer's."""

    def __init__(self, cluster: Any, number: int) -> None:
        self._cluster = cluster
        self._world: World = cluster.world
        self._number = number
        self._job = DurableJob(cluster, f"job-{-number}")
        self._name = self._job.name
        #: what is to be said, in order; the first was said and has no answer yet
        self._to_say: list[Message] = []
        self._said_to: Any = None
        self.is_done = False
        self._is_cancelled = False
        self._to_say += self._job.parts
        if self._world.random.random() < 0.15:
            self._is_cancelled = True
            self._to_say.append(self._question("cancel", force=self._world.random.random() < 0.5))
            for job in self._job.rows:
                job.cancelled = True
        for message in self._to_say:
            message.number = self._world.next_id()  # type: ignore[attr-defined]
        self._world.after(self._world.random.uniform(0, 6), self._go_on)

    # ---- what it says ----------------------------------------------------------------------------------------------
    def _question(self, kind: str, **fields: Any) -> JobQuestion:
        return JobQuestion(0, kind, self._name, token=self._job.token, **fields)

    def _go_on(self) -> None:
        """Say what is next, to a scheduler that has not heard it; look again later."""
        if self.is_done:
            return
        server = self._cluster.server
        if server.alive and self._said_to is not server:
            if not self._to_say:
                kind = "ordered" if len(self._job.read) < len(self._job.rows) else "delete"
                wait = self._world.random.choice((0.0, 0.5))
                question = self._question(kind, position=len(self._job.read), wait=wait)
                question.number = self._world.next_id()
                self._to_say.append(question)
            self._said_to = server
            server.keeper.ask(self._number, self._to_say[0])
            server.post(TICK)
        self._world.after(0.3, self._go_on)

    def answered(self, answer: JobAnswer) -> None:
        """An answer has come, or the one to what was asked before."""
        if not self._to_say or answer.number != self._to_say[0].number:  # type: ignore[attr-defined]
            return
        asked = self._to_say[0]
        self._said_to = None
        if answer.error:
            if "can't be written" in answer.error or "can't be read" in answer.error:
                return
            if isinstance(asked, JobQuestion) and asked.kind == "delete" and "there is no job" in answer.error:
                self.is_done = True  # it was deleted, and the scheduler died before it could say so
                return
            refused = isinstance(asked, JobSubmit) and self._is_cancelled
            require(refused, f"{self._name}: {answer.error}")
        self._to_say.pop(0)
        if isinstance(asked, JobQuestion) and asked.kind == "delete":
            self.is_done = True
        elif isinstance(asked, JobQuestion) and asked.kind == "ordered":
            self._job.take(answer)
        self._go_on()

    def check(self) -> None:
        """All is over: what had ended for it did not run again, unless a host was lost that nobody could ask."""
        if not self._world.losses:
            for row, (job, runs) in enumerate(zip(self._job.rows, self._job.read, strict=True)):
                require(job.runs == runs, f"{self._name}: row {row} ran again after it was read", f"job-{job.uid}.")
