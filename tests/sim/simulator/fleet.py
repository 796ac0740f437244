"""A batch system that is slow, fails and lies, a cluster that works, and the provisioning core between them."""

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from scaler.provisioning.core import FleetCore, Limits
from scaler.provisioning.core import events as ev
from scaler.provisioning.provider import Job, JobState
from scaler.scheduler.state.function_records import FunctionRecord

TICK = 0.5
#: seconds that a row takes at most: a host has to live for as long
LONGEST = 20.0


@dataclass
class SimJob:
    """A job of the batch system, with the agent in it."""

    id: str
    name: str
    #: when it is in lists, when it begins, when its agent connects, when the system ends it
    seen_from: float
    starts: float
    connects: float
    ends: float
    state: JobState = JobState.PENDING
    connected: float | None = None
    draining: bool = False
    #: the core has said that it is to go
    dismissed: bool = False
    #: of each row it has: seconds that are left, seconds that it takes, and its step of demand
    rows: list[list[float]] = field(default_factory=list)
    idle_since: float = 0.0
    omitted: int = 0


class FleetWorld:
    """One run, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.now = 0.0
        self.workers = random.choice([1, 2, 4, 16])
        self.walltime = random.choice([None, None, 60.0, 200.0])
        self.limits = Limits(
            minimum=random.choice([0, 0, 0, 1, 3]), maximum=random.choice([3, 5, 10, 40]), workers=self.workers,
            drain_time=random.choice([5.0, 20.0, 60.0]), guess=random.choice([0.1, 1.0, 5.0]),
            idle_time=random.choice([5.0, 15.0, 30.0]), max_pending=random.choice([2, 10, 100]),
            pending_timeout=random.choice([40.0, 200.0]), start_timeout=20.0,
            lead=0.0 if self.walltime is None else random.choice([10.0, 15.0]),
        )  # fmt: skip
        self.is_dull = random.random() < 0.3  # nothing goes wrong
        chance = (lambda most: 0.0) if self.is_dull else (lambda most: random.choice([0.0, most]))
        self.p_fail, self.p_ambiguous, self.p_never, self.p_dies = chance(0.3), chance(0.2), chance(0.2), chance(0.2)
        self.p_omit, self.p_repeat, self.p_list_fails = chance(0.2), chance(0.3), chance(0.2)
        self.p_cancel_fails, self.p_kill, self.p_unseen = chance(0.3), chance(0.004), chance(0.01)
        self.delay = random.choice([0.0, 2.0, 15.0])
        self.jobs: dict[str, SimJob] = {}
        self.queue: list[list[float]] = []
        #: how many rows of each step are in it
        self.waiting: list[int] = []
        #: what the scheduler learns of the rows of each step; theirs differ by this factor
        self.functions: list[FunctionRecord] = []
        self.spread = random.choice([1.0, 3.0, 30.0, 1000.0])
        self.core = FleetCore(self.limits, 0.0, is_new=True)
        self.born = 0.0
        #: what is on its way to the core: when, which life of it, what
        self.inbox: list[tuple[float, float, ev.Event]] = []
        self.cancels: list[tuple[float, str]] = []
        self.next_list = 0.0
        self.unseen_until = -1.0
        self.counter = 0
        self.seen: Counter[str] = Counter()
        self.done = 0
        self.added = 0
        #: numbers of wanted hosts one after the other, of each step of demand and each life of the core
        self.steps: list[list[int]] = [[]]
        also = Random(f"{seed} also")
        #: the scheduler ends with the program that has the cluster, and nobody sees the agents go
        self.ends_together = also.random() < 0.5
        #: the batch system lists no job that has ended
        self.p_forgotten = also.choice([0.5, 0.5, 1.0])
        #: a foreign host that is always there
        self.foreign = random.choice([0, 0, 0, 2])
        self.foreign_rows: list[list[float]] = []

    # ---- the provider ----------------------------------------------------------------------------------------------
    def live(self) -> list[SimJob]:
        """Jobs of the batch system that have not ended."""
        return [job for job in self.jobs.values() if job.state is not JobState.ENDED]

    def submit(self, effect: ev.Submit) -> None:
        """Take a request, or not, or take it and say that it was not."""
        self.seen["requests"] += 1
        counted = [j for j in self.live() if not j.dismissed and not (j.ends - self.now < self.limits.lead + TICK)]
        assert len(counted) + effect.n <= self.core.wanted, "more hosts are asked for than are wanted"
        assert len([j for j in self.live() if j.connected is None and not j.dismissed]) + effect.n <= max(
            self.limits.max_pending, effect.n
        )
        answered = self.now + self.random.uniform(0, 3.0)
        if self.random.random() < self.p_fail:
            self.seen["refused"] += 1
            self.inbox.append((answered, self.born, ev.SubmitFailed(effect.request, "refused")))
            return
        is_ambiguous = self.random.random() < self.p_ambiguous
        ids = []
        for n in range(effect.n):
            starts = self.now + self.random.uniform(0, self.delay)
            if self.random.random() < self.p_never:
                self.seen["never begins"] += 1
                starts = float("inf")
            connects = starts + self.random.uniform(0.3, 3.0)
            if self.random.random() < self.p_never:
                self.seen["never connects"] += 1
                connects = float("inf")
            ends = float("inf") if self.walltime is None else starts + self.walltime
            if self.random.random() < self.p_dies:
                ends = min(ends, starts + self.random.expovariate(1 / 30))
            self.counter += 1
            job = SimJob(f"{self.counter}_{n}", f"sim-{effect.request}", self.now, starts, connects, ends)
            if is_ambiguous:
                job.seen_from = answered + self.random.uniform(0, 4.5)
            self.jobs[job.id] = job
            ids.append(job.id)
        if is_ambiguous:
            self.seen["taken though it seemed refused"] += 1
            self.inbox.append((answered, self.born, ev.SubmitFailed(effect.request, "timed out")))
        else:
            self.inbox.append((answered, self.born, ev.Submitted(effect.request, tuple(ids))))

    def look(self) -> None:
        """Say what there is, more or less."""
        answered = self.now + self.random.uniform(0, 1.0)
        self.next_list = answered + 1.0
        if self.random.random() < self.p_list_fails:
            self.inbox.append((answered, self.born, ev.ListFailed("squeue does not answer")))
            return
        said = []
        for job in self.jobs.values():
            if job.seen_from > self.now or (job.state is JobState.ENDED and self.random.random() < self.p_forgotten):
                continue
            if job.omitted < 2 and self.random.random() < self.p_omit:
                job.omitted += 1
                self.seen["omitted"] += 1
                continue
            job.omitted = 0
            reason = "Priority" if job.state is JobState.PENDING else ""
            said.append(Job(job.id, job.name, job.state, "", reason))
            if self.random.random() < self.p_repeat:
                said.append(said[-1])
        self.random.shuffle(said)
        self.inbox.append((answered, self.born, ev.Listed(tuple(said), self.now)))

    # ---- the cluster -----------------------------------------------------------------------------------------------
    def work(self) -> None:
        """Let a tick's work be done."""
        for each, name in self.cancels:
            if each <= self.now and self.jobs[name].state is not JobState.ENDED:
                self.end(self.jobs[name])
        self.cancels = [item for item in self.cancels if item[0] > self.now]
        for job in self.live():
            if self.now >= job.ends:
                self.seen["walltime or death"] += 1
                self.end(job)
                continue
            if self.now >= job.starts:
                job.state = JobState.RUNNING
            if self.now >= job.connects and job.connected is None:
                job.connected = job.idle_since = self.now
            if job.connected is not None:
                left = job.ends - self.now
                if self.walltime is not None and left < 4.0:
                    job.draining = True
                self.run(job.rows, self.workers, can_take=not job.draining)
                if job.rows:
                    job.idle_since = self.now
                if job.draining and not job.rows:
                    self.end(job)
        if self.foreign:
            self.run(self.foreign_rows, self.foreign, can_take=True)

    def run(self, rows: list[list[float]], workers: int, can_take: bool) -> None:
        """Work for one tick on rows of one host."""
        free = [TICK] * workers
        for n in range(workers):
            while free[n] > 0:
                if n < len(rows):
                    spent = min(rows[n][0], free[n])
                    rows[n][0] -= spent
                    free[n] -= spent
                    if rows[n][0] <= 1e-9:
                        _, took, step = rows.pop(n)
                        self.done += 1
                        self.functions[int(step)].learn(1, round(1e6 * took))
                elif can_take and self.queue:
                    rows.append(self.queue.pop())
                    self.waiting[int(rows[-1][2])] -= 1
                else:
                    break

    def end(self, job: SimJob) -> None:
        """A job is over; what ran there is queued again."""
        job.state = JobState.ENDED
        for _, took, step in job.rows:
            self.queue.append([took, took, step])
            self.waiting[int(step)] += 1
        job.rows = []

    def observed(self) -> ev.Observed:
        """What the scheduler shows."""
        agents = [
            ev.Agent(
                job.id, self.workers, len(job.rows), 0.0 if job.rows else self.now - job.idle_since, job.draining,
                None if self.walltime is None else job.ends - self.now,
            )
            for job in self.live() if job.connected is not None
        ]  # fmt: skip
        at_agents = sum(len(job.rows) for job in self.live()) + len(self.foreign_rows)
        if self.foreign:
            agents.append(ev.Agent("", self.foreign, len(self.foreign_rows)))
        work, unknown, hardly_known = 0.0, 0, 0
        for queued, function in zip(self.waiting, self.functions, strict=True):
            if function.steady_rows:
                work += queued * function.steady_us / 1e6
            else:
                unknown += queued
            if function.is_hardly_known:
                hardly_known += queued
        asked = ev.Asked(frozenset(), len(self.queue), work, unknown, at_agents, hardly_known)
        return ev.Observed(tuple(agents), (asked,))

    # ---- the whole -------------------------------------------------------------------------------------------------
    def tick(self) -> None:
        """Half a second."""
        self.now += TICK
        if self.random.random() < self.p_kill:
            self.seen["killed"] += 1
            self.steps.append([])  # who is new knows of nothing that was wanted before
            self.core = FleetCore(self.core.limits, self.now)
            self.born = self.now
            self.next_list = self.now
        if self.now > self.unseen_until and self.random.random() < self.p_unseen:
            self.seen["unseen"] += 1
            self.unseen_until = self.now + self.random.uniform(1, 10)
        self.work()
        if self.now >= self.next_list:
            self.next_list = float("inf")
            self.look()
        come = [event for at, born, event in self.inbox if at <= self.now and born == self.born]
        self.inbox = [item for item in self.inbox if item[0] > self.now and item[1] == self.born]
        come.append(ev.Unseen() if self.now <= self.unseen_until else self.observed())
        self.carry_out(self.core.handle(come, self.now))
        assert len(self.live()) <= self.limits.maximum, f"{len(self.live())} jobs at {self.now}"
        if not self.steps[-1] or self.steps[-1][-1] != self.core.wanted:
            self.steps[-1].append(self.core.wanted)

    def carry_out(self, effects: list[ev.Effect]) -> None:
        """Do what the core wants done."""
        for effect in effects:
            if isinstance(effect, ev.Submit):
                self.submit(effect)
            elif isinstance(effect, ev.Cancel):
                for each in effect.ids:
                    self.jobs[each].dismissed = True
                    if self.random.random() >= self.p_cancel_fails:
                        self.cancels.append((self.now + self.random.uniform(0, 2), each))
            elif isinstance(effect, ev.Drain):
                for each in effect.ids:
                    job = self.jobs[each]
                    assert not job.rows or job.idle_since >= self.now - TICK, "one at work is to go"
                    job.dismissed = True
                    if self.now > self.unseen_until:
                        job.draining = True

    def add(self, count: int, seconds: float) -> None:
        """A step of demand: rows that take so long on average."""
        mean = (self.spread - 1) / math.log(self.spread) if self.spread > 1 else 1.0
        least = min(seconds / mean, LONGEST / self.spread)
        took = [least * self.spread ** self.random.random() for _ in range(count)]
        self.queue += [[each, each, len(self.functions)] for each in took]
        self.waiting.append(count)
        self.functions.append(FunctionRecord(0, f"work{len(self.functions)}"))
        self.added += count
        self.steps.append([])

    def play(self) -> None:
        """Some waves of work, then nothing more, until all is over."""
        random = self.random
        for _ in range(random.randrange(1, 4)):
            seconds = random.choice([0.02, 0.3, 2.0, 10.0])
            self.add(random.choice([1, 10, 100, 400]), seconds)
            for _ in range(random.choice([10, 80, 300])):
                self.tick()
        for n in range(12_000):
            if self.done == self.added:
                break
            if n == 4_000:
                self.heal()
            self.tick()
        assert self.done == self.added, f"{self.added - self.done} rows are left"
        for _ in range(1_500):
            self.tick()
            if len(self.live()) == self.limits.minimum and self.core.wanted == self.limits.minimum:
                break
        if self.limits.minimum == 0:
            assert not self.live(), f"{len(self.live())} hosts are left when nothing is to do"
        else:
            assert self.core.wanted == self.limits.minimum
        self.p_kill = 0.0
        if self.ends_together:
            self.unseen_until = math.inf
        self.carry_out(self.core.handle([ev.End()], self.now))
        for _ in range(600):
            self.tick()
            if self.core.is_over and not self.live():
                break
        assert self.core.is_over, "it does not end"
        assert not self.live(), "a job is left after the end"

    def heal(self) -> None:
        """Nothing goes wrong any more: now the work has to be done."""
        self.p_fail = self.p_ambiguous = self.p_never = self.p_dies = self.p_omit = self.p_repeat = 0.0
        self.p_list_fails = self.p_cancel_fails = self.p_kill = self.p_unseen = 0.0

    def direction_changes(self) -> int:
        """The most changes of direction that the number of wanted hosts made in one step of demand."""
        return max(map(changes_of_direction, self.steps))


def changes_of_direction(numbers: list[int]) -> int:
    """How often a row of numbers turns.

    >>> changes_of_direction([0, 3, 5, 5, 2, 4])
    2
    """
    signs = [b > a for a, b in pairwise(numbers) if a != b]
    return sum(a != b for a, b in pairwise(signs))
