"""A durable job of a run: the messages that submit it, and what its results have to be."""

import json
import pickle
from collections.abc import Iterator
from typing import Any

from scaler.protocol.codec import encode
from scaler.protocol.messages import (
    EACH,
    FILED,
    GRAPH,
    INLINE,
    INLINE_VALUES,
    KEEP,
    TOGETHER,
    JobAnswer,
    JobSubmit,
    Message,
    ObjectAnnounce,
    Task,
    sizes_of,
    u8,
    u32,
    u64,
)
from scaler.protocol.results import SpanResult, values_of
from scaler.results.reference import Reference
from simulator.checks import Wrong, require
from simulator.jobs import Job, ends_of
from simulator.world import World


class DurableJob:
    """Of a few parts, drawn from the seed. `cluster` is the run it belongs to."""

    def __init__(self, cluster: Any, name: str) -> None:
        self._cluster = cluster
        self._world: World = cluster.world
        self.name = name
        self.token = self._world.random.getrandbits(60) | 1
        self._next_id = 1
        #: the rows that are wanted, in order
        self.rows: list[Job] = []
        #: those, by the ids that the cluster knows them by
        self.by_id: dict[int, Job] = {}
        #: rows that were read, and how often each had run by then
        self.read: list[int] = []
        #: the first row of each part, by its key
        self.first_rows: dict[str, int] = {}
        #: when its user began with it; all of it was acknowledged; its user has given it up; it is deleted
        self.made = 0.0
        self.is_accepted = self.is_given_up = self.is_deleted = False
        parts = self._world.random.choice((1, 2, 5))
        self.parts = [self._part(str(part), is_last=part == parts - 1) for part in range(parts)]

    def _ids(self, count: int) -> int:
        first, self._next_id = self._next_id, self._next_id + count
        return first

    def _job(self) -> Job:
        random = self._world.random
        job = Job(self._world.next_id(), random.choice((50, 2_000, 30_000)))
        job.behaviour = random.choice(("value",) * 12 + ("fail", "deadly", "print"))
        job.parameter = 1
        job.stored = random.choice((0, 0, 0, 150_000))
        self._cluster.jobs[job.uid] = job
        return job

    def _part(self, key: str, is_last: bool) -> JobSubmit:
        random = self._world.random
        jobs = [self._job() for _ in range(random.choice((1, 4, 30)))]
        function = self._ids(1)
        form = random.choice((EACH, TOGETHER, GRAPH))
        messages: list[Message] = []
        name = random.choice(("f", "each"))
        task = Task(0, 0, len(jobs), form, INLINE_VALUES, function, 0, name, spans=u32([0, len(jobs)]))
        if form != GRAPH:
            messages.append(ObjectAnnounce(u64([function]), u8([INLINE]), [b"function"]))
        task.batch = self._ids(len(jobs))
        if form == EACH:
            payloads = [pickle.dumps(job.spec) for job in jobs]
            task.sizes, task.bodies = u32(map(len, payloads)), [b"".join(payloads)]
        elif form == TOGETHER:
            task.arguments = self._ids(1)
            task.objects, task.bodies = u64([task.arguments]), [pickle.dumps([job.spec for job in jobs])]
        else:
            self._make_graph(task, jobs)
        wanted = {row: job for row, job in enumerate(jobs) if form != GRAPH or task.wanted[row]}
        self.first_rows[key] = len(self.rows)
        self.rows += wanted.values()
        self.by_id.update((task.batch + row, job) for row, job in wanted.items())
        messages.append(task)
        frames = [encode(message) for message in messages]
        return JobSubmit(
            0, self.name, "somebody", self.token, key, is_last=is_last, counts=u32(map(len, frames)),
            bodies=[b"", *(frame for each in frames for frame in each)],
        )  # fmt: skip

    def _make_graph(self, task: Task, jobs: list[Job]) -> None:
        random = self._world.random
        task.flags |= KEEP
        task.graph = task.batch
        uses = [0] * len(jobs)
        task.dependency_counts, task.dependencies = u32(), u64()
        for at, job in enumerate(jobs):
            job.group = None
            needs = random.sample(range(max(0, at - 6), at), min(at, random.choice((0, 1, 2))))
            job.needs = [jobs[need] for need in needs]
            task.dependency_counts.append(len(needs))
            task.dependencies.extend([task.batch + need for need in needs])
            for need in needs:
                uses[need] += 1
        task.uses = u32(uses)
        task.wanted = u8([at == len(jobs) - 1 or random.random() < 0.2 for at in range(len(jobs))])
        task.objects, task.bodies = u64([task.function]), [pickle.dumps([job.spec for job in jobs])]

    def take(self, answer: JobAnswer) -> None:
        """Results have come: each once, in order, and as it should be."""
        for lo, hi, ends in self._ends_in(answer):
            require(lo == len(self.read), f"{self.name}: row {lo} came after {len(self.read)} others")
            for job, how in zip(self.rows[lo:hi], ends, strict=True):
                problem = job.ended(how, self._world.lost_agents)
                if problem is not None:
                    raise Wrong(f"{self.name}: {problem}", f"job-{job.uid}.")
                self.read.append(job.runs)

    def compare(self, answer: JobAnswer, at: int) -> int:
        """The same results have come again, from a row on; the next one."""
        for lo, hi, ends in self._ends_in(answer):
            require(lo == at, f"{self.name}: row {lo} came instead of {at}")
            for job, how in zip(self.rows[lo:hi], ends, strict=True):
                require(job.end == how, f"{self.name}: a row ended as {job.end}, and then as {how}", f"job-{job.uid}.")
            at = hi
        return at

    def _ends_in(self, answer: JobAnswer) -> Iterator[tuple[int, int, list[tuple[Any, ...]]]]:
        at = size_at = 0
        for i, outcome in enumerate(answer.outcomes):
            lo, hi = answer.rows[2 * i], answer.rows[2 * i + 1]
            count = sizes_of(outcome, hi - lo)
            sizes = answer.sizes[size_at : size_at + count]
            size_at, end = size_at + count, at + sum(sizes)
            span = SpanResult(0, 0, hi - lo, outcome, 0, 0, sizes, answer.bodies[0][at:end])
            at = end
            yield lo, hi, self._values_in(answer, span) if outcome == FILED else ends_of(span)

    def _values_in(self, answer: JobAnswer, span: SpanResult) -> list[tuple[Any, ...]]:
        prefix, shared = json.loads(answer.text)["files"], self._cluster.shared
        return [("value", shared.read(prefix, Reference.unpack(each))) for each in values_of(span)]
