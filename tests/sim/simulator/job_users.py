"""Users of durable jobs with sessions as `scaler.client.jobs` has them: what is not answered is asked again.

They submit jobs, cancel some, read each result, some twice, and delete the job; one after the other.
"""

import json
from collections.abc import Generator
from typing import Any

from scaler.protocol.hello import hello_of
from scaler.protocol.initiator import Established
from scaler.protocol.messages import Heartbeat, JobAnswer, JobQuestion, JobSubmit
from simulator.checks import require
from simulator.durable_job import DurableJob
from simulator.network import Line
from simulator.world import TICK, Process

#: seconds that an answer takes longer than it was to be waited for, at most
SLACK = 30.0
#: seconds until something is asked again that was refused for now
PAUSE = 0.3
#: what a scheduler may say that can't do anything about jobs for now
FOR_NOW = ("can't be written", "can't be read", "durable jobs are not kept yet: ", "can't be said for now")

Question = JobSubmit | JobQuestion


class Missing(Exception):
    """Something is not there that was acknowledged, as the log of the one that leads has said that it may be."""


class JobUser(Process):
    """`cluster` is the run it belongs to; until a time it makes jobs."""

    def __init__(self, cluster: Any, number: int, until: float) -> None:
        super().__init__(cluster.world, f"user-{number}")
        self.cluster = cluster
        self._number = number
        self._until = until
        self._jobs = 0
        kind = self.world.random.choice(("unix", "tcp"))
        self.line = Line(
            self, cluster.network, kind, self.name, hello_of("monitor", self.name, 0), begins_anew=True
        )  # fmt: skip
        #: what was asked and has no answer yet, and when it was said last; None: nothing is asked at the moment
        self._asked: Question | None = None
        self._asked_at = 0.0
        #: seconds until something else is asked after the next answer; 0: a few
        self._pause = 0.0
        self.is_done = False
        self._life = self._lives()
        self.world.after(self.world.random.uniform(0, 3), self._begin)
        self._pulse()

    def _pulse(self) -> None:
        if self.alive and not self.is_done:
            self.post(TICK)
            self.world.after(0.5, self._pulse)

    # ---- the session -----------------------------------------------------------------------------------------------
    def step(self, items: list[Any]) -> None:
        """Take answers, say again what was lost with its connection, and stay alive."""
        for heard in self.line.receive(items):
            if isinstance(heard, Established) and self._asked is not None:
                self._say()
            elif isinstance(heard, JobAnswer) and self._asked is not None and heard.number == self._asked.number:
                self._answered(heard)
        if TICK in items and self.line.is_open:
            self.line.send(Heartbeat(self.world.now))
            wait = getattr(self._asked, "wait", 0.0)
            if self._asked is not None and self.world.now > self._asked_at + wait + SLACK:
                self.line.drop("no answer has come")

    def _say(self) -> None:
        if self._asked is not None and self.line.is_open and not self.is_done:
            self._asked_at = self.world.now
            self.line.send(self._asked)

    def _answered(self, answer: JobAnswer) -> None:
        if answer.error and any(words in answer.error for words in FOR_NOW):
            self.world.after(PAUSE, self._say)
            return
        self._asked = None
        pause, self._pause = self._pause or self.world.random.choice((1e-5, 0.01, 0.3)), 0.0
        self.world.after(pause, self._go_on, answer)

    def _begin(self) -> None:
        self._ask(next(self._life))

    def _go_on(self, answer: JobAnswer) -> None:
        try:
            self._ask(self._life.send(answer))
        except StopIteration:
            self.is_done = True
            self.line.close()

    def _ask(self, question: Question) -> None:
        self._asked = question
        self._asked.number = self.world.next_id()
        self._say()

    # ---- what it does ----------------------------------------------------------------------------------------------
    def _lives(self) -> Generator[Question, JobAnswer, None]:
        while True:
            self._jobs += 1
            job = DurableJob(self.cluster, f"job-{self._number}-{self._jobs}")
            self.cluster.durable_jobs[job.token] = job
            job.made = self.world.now
            try:
                yield from self._submit(job)
                yield from self._read(job)
                if self.world.random.random() < 0.5:
                    yield from self._read_again(job)
                yield from self._delete(job)
            except Missing as error:
                self.world.note(self.name, f"goes without job {job.name}: {error}")
                job.is_given_up = True
                yield from self._delete(job)
            if self.world.now > self._until:
                return
            yield from self._rest()

    def _rest(self) -> Generator[Question, JobAnswer, None]:
        """Do nothing for a while but look at all jobs."""
        for _ in range(self.world.random.choice((0, 1, 2, 4))):
            self._pause = 0.5
            yield JobQuestion(0, "list")

    def _submit(self, job: DurableJob) -> Generator[Question, JobAnswer, None]:
        is_cancelled = self.world.random.random() < 0.1
        for part in job.parts:
            answer = yield part
            self._check(job, answer)
            if answer.next != job.first_rows[part.key]:
                require(self._may_miss(job), f"{job.name}: part {part.key} begins at row {answer.next}", self.name)
                raise Missing("parts")
        job.is_accepted = True
        if is_cancelled:
            for row in job.rows:
                row.cancelled = True
            self._check(
                job, (yield JobQuestion(0, "cancel", job.name, force=self.world.random.random() < 0.5, token=job.token))
            )

    def _read(self, job: DurableJob) -> Generator[Question, JobAnswer, None]:
        while len(job.read) < len(job.rows):
            answer = yield self._question(job, len(job.read))
            self._check(job, answer)
            job.take(answer)

    def _read_again(self, job: DurableJob) -> Generator[Question, JobAnswer, None]:
        """Somebody else attaches to it, and reads the same."""
        at = 0
        while at < len(job.rows):
            answer = yield self._question(job, at)
            self._check(job, answer)
            require(bool(answer.outcomes) or self._may_miss(job), f"{job.name}: row {at} was read, and is gone")
            if not answer.outcomes:
                raise Missing("results")
            at = job.compare(answer, at)

    def _question(self, job: DurableJob, position: int) -> JobQuestion:
        wait = self.world.random.choice((0.0, 0.5, 5.0))
        limit = self.world.random.choice((100, 1 << 20))
        return JobQuestion(0, "ordered", job.name, position, wait=wait, limit=limit, token=job.token)

    def _delete(self, job: DurableJob) -> Generator[Question, JobAnswer, None]:
        answer = yield JobQuestion(0, "delete", job.name, token=job.token)
        is_gone = "there is no job" in answer.error and self._may_miss(job)
        require(not answer.error or is_gone, f"{job.name}: {answer.error}", self.name)
        job.is_deleted = True

    def _may_miss(self, job: DurableJob) -> bool:
        """Something of it may be missing, and that was said."""
        return bool(job.made <= self.cluster.pair.warned)

    def _check(self, job: DurableJob, answer: JobAnswer) -> None:
        """What was acknowledged of a job is there."""
        if answer.error:
            require(self._may_miss(job), f"{job.name}: {answer.error}", self.name)
            raise Missing(answer.error)
        rows = json.loads(answer.text)["rows"] if answer.text else None
        if job.is_accepted and rows is not None and rows != len(job.rows):
            require(self._may_miss(job), f"{job.name} has {rows} rows, not {len(job.rows)}", self.name)
            raise Missing("rows")
