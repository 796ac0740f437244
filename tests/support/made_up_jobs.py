"""Durable jobs with a made-up core and a made-up disk."""

import errno
import json
import math
import os
from collections.abc import Iterator
from typing import Any

from simulator import segments
from simulator.bad_reads import StrictKeeper

from scaler.common.effects import Log
from scaler.journal.directory import Damage, JournalError
from scaler.journal.layout import Layout, Place
from scaler.journal.records import segment_header
from scaler.protocol.codec import encode
from scaler.protocol.messages import (
    EACH,
    INLINE,
    INLINE_VALUES,
    VALUES_EACH,
    JobAnswer,
    JobQuestion,
    JobSubmit,
    Message,
    ObjectAnnounce,
    Task,
    TaskResult,
    u8,
    u32,
    u64,
)
from scaler.scheduler.jobs.jobs_core import GATHER, JobTerms
from scaler.scheduler.residents import Hold, Join, Reply, Say

MONITOR = 9
#: what this scheduler calls the jobs' clients
FIRST = 500


class Paper:
    """A journal in memory; what is appended is on disk when the test says so."""

    def __init__(self, there: dict[int, bytes] | None = None, most: int = 1 << 20) -> None:
        self.segments = {n: bytearray(data) for n, data in (there or {}).items()}
        self.most = most
        self.waiting: list[tuple[Place, bytes]] = []
        self.synced = 0
        self.trouble: str | None = None
        self.unreadable = ""
        self.removed: list[int] = []
        self.is_stuck = False
        self.room = math.inf
        self.looks = 0

    def replay(self, take: Any) -> tuple[Layout, Damage | None]:
        return segments.replay(self.segments, take, self.most)

    def append(self, place: Place, buffers: list[Any]) -> None:
        self.waiting.append((place, b"".join(buffers)))

    def sync(self, count: int | None = None) -> None:
        for place, data in self.waiting[:count]:
            segment = self.segments.setdefault(place.segment, bytearray(segment_header(place.segment)))
            assert len(segment) == place.offset
            segment += data
            self.synced += 1
        del self.waiting[:count]

    def take_news(self) -> tuple[int, str | None]:
        return self.synced, self.trouble

    def read(self, segment: int, offset: int, size: int) -> bytes:
        if self.unreadable:
            raise JournalError(self.unreadable)
        if segment not in self.segments:
            raise JournalError(f"segment {segment} can't be read: No such file or directory")
        return bytes(self.segments[segment][offset : offset + size])

    def remove(self, segment: int) -> None:
        if self.is_stuck:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        self.removed.append(segment)
        self.segments.pop(segment, None)

    def measure_room(self) -> None:
        self.looks += 1

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


class Jobs:
    """Jobs with a made-up core and a made-up disk; everything the test does is said at once."""

    def __init__(
        self, paper: Paper | None = None, quota: int | None = None, age: float | None = None, files: Any = None,
        results_quota: int | None = None, patience: float = math.inf, memory: int | None = None,
    ) -> None:  # fmt: skip
        self.paper = paper or Paper()
        terms = JobTerms(1.0, 1000.0, quota, age, results_quota, 1 << 20, patience, memory)
        self.keeper = StrictKeeper(self.paper, terms, files)
        self.now = 0.0
        self.numbers: Iterator[int] = iter(range(FIRST, FIRST + 1000))
        self.said: list[Say] = []
        self.joined: list[Join] = []
        self.holds: list[Hold] = []
        self.answers: list[JobAnswer] = []
        self.log: list[str] = []
        self.number = 0
        self.go_on()

    def go_on(self, seconds: float = 0.0) -> None:
        self.now += seconds
        for _ in range(9):
            for wish in self.keeper.handle(self.now):
                if isinstance(wish, Join):
                    self.joined.append(wish)
                    self.keeper.welcome(wish.resident, next(self.numbers))
                elif isinstance(wish, Say):
                    self.said.append(wish)
                elif isinstance(wish, Hold):
                    self.holds.append(wish)
                elif isinstance(wish, Reply):
                    self.answers.append(wish.message)
                elif isinstance(wish, Log):
                    self.log.append(wish.text)
            if not self.keeper.has_news:
                return
        raise AssertionError("it does not come to rest")

    def sync(self, count: int | None = None) -> None:
        self.go_on(GATHER)
        for _ in range(20):
            self.paper.sync(count)
            self.keeper.gather()
            self.go_on()
            if count is not None or not self.paper.waiting:
                return

    def doubt(self, reason: str) -> None:
        self.keeper.doubt(reason)
        self.go_on()

    def ask(self, kind: str, name: str = "work", **fields: Any) -> None:
        self.number += 1
        self.keeper.ask(MONITOR, JobQuestion(self.number, kind, name, **fields))
        self.go_on()

    def submit(self, *inner: Message, name: str = "work", key: str = "0", token: int = 7, **fields: Any) -> None:
        self.number += 1
        frames = [encode(message) for message in inner]
        bodies = [fields.pop("note", b""), *(frame for each in frames for frame in each)]
        self.keeper.ask(
            MONITOR,
            JobSubmit(
                self.number, name, "me", token, key, fields.get("joins", False), fields.get("is_last", True),
                u32(map(len, frames)), bodies,
            ),
        )  # fmt: skip
        self.go_on()

    def core_says(self, message: Message, number: int = FIRST) -> None:
        self.keeper.hear(number, message)
        self.go_on()

    def told(self) -> list[str]:
        """Lines of the log since the last time."""
        lines, self.log = self.log, []
        return lines

    def tell_of(self, kind: type[Message]) -> list[Any]:
        """What was said to the core of this kind."""
        return [say.message for say in self.said if type(say.message) is kind]

    def last(self) -> JobAnswer:
        """The answer to what was asked last."""
        assert self.answers
        assert self.answers[-1].number == self.number
        return self.answers[-1]

    def state(self, name: str = "work") -> dict[str, Any]:
        self.ask("state", name)
        answer = self.last()
        assert not answer.error
        found: dict[str, Any] = json.loads(answer.text)
        return found


def part(rows: int = 3, first: int = 10) -> list[Message]:
    """A function, and rows that call it."""
    function = ObjectAnnounce(u64([first - 1]), u8([INLINE]), [b"function"])
    task = Task(0, first, rows, EACH, INLINE_VALUES, first - 1, 0, "f", spans=u32([0, rows]), sizes=u32([1] * rows))
    task.bodies = [b"x" * rows]
    return [function, task]


def results(lo: int, *values: bytes, batch: int = 10, outcome: int = VALUES_EACH) -> TaskResult:
    """Rows from `lo` on ended with these payloads."""
    count = len(values)
    return TaskResult(
        FIRST, u64([batch]), u32([lo, lo + count]), u8([outcome]), u32([5]), u32(map(len, values)), [b"".join(values)]
    )
