"""What users do, from the seed."""

from typing import Any

from scaler.protocol.messages import FRESH
from simulator.clients import SimClient
from simulator.faults import Mix
from simulator.jobs import Block, Job
from simulator.world import World

BEHAVIOURS = (
    "value", "value", "value", "value", "value", "value", "value", "value", "value", "value", "value", "value",
    "fail", "flaky", "deadly", "poison", "block", "print", "nest", "slow",
)  # fmt: skip

#: which feature a behaviour is, and which an action
FEATURE_OF = {
    "fail": "failures", "flaky": "failures", "deadly": "poison", "poison": "poison", "block": "blocking",
    "print": "printing", "nest": "nested", "slow": "slow",
}  # fmt: skip
ACTIONS = {
    "_map": "maps", "_together": "maps", "_graph": "graphs", "_dependent": "needs", "_cancel": "cancels",
    "_claim": "claims", "_object": "objects", "_burst": "bursts",
}  # fmt: skip

#: tasks of a user that submit tasks which submit tasks, for ever
CHAINS = 3


class User:
    """Drives one client for `duration` seconds."""

    def __init__(self, world: World, client: SimClient, duration: float, actions: int, mix: Mix) -> None:
        self._world = world
        self._client = client
        #: chance that a row isn't a plain one
        self._wild = mix.wild
        self._threads = mix.threads
        self._us = world.random.choice((20, 200, 2_000, 20_000))
        #: chance that a value is stored
        self._large = world.random.choice((0.0, 0.1, 0.6))
        if mix.large is not None:
            self._large = mix.large
        self._without = mix.without
        self._fresh = mix.fresh
        self._unwaited = mix.unwaited
        self._one_by_one = mix.one_by_one
        #: tokens that can be cancelled, claimed, used
        self._tokens: list[Any] = []
        #: its tasks that submit others like themselves
        self._chains = 0
        self._end = world.now + duration
        for _ in range(actions):
            world.after(world.random.random() ** 2 * duration, client.user, self._act)

    def _job(self) -> Job:
        random = self._world.random
        us = int(self._us * random.uniform(0.2, 3.0)) + 1
        job = Job(self._world.next_id(), us)
        if random.random() < self._large:
            job.stored = random.choice((150_000, 1_000_000, 8_000_000))
        if random.random() < self._wild:
            job.behaviour = random.choice(BEHAVIOURS)
            if FEATURE_OF.get(job.behaviour) in self._without:
                job.behaviour = "value"
            if job.behaviour in ("flaky", "deadly"):
                job.parameter = random.randint(1, 3)
            elif job.behaviour == "nest":
                job.parameter = random.randint(0, 2)
            elif job.behaviour == "slow":
                job.behaviour, job.us = "value", random.choice((50_000, 400_000, 3_000_000))
        habits = self._world.habits
        if self._unwaited and self._chains < CHAINS and habits.random() < self._unwaited:
            self._chains += 1
            job.behaviour, job.us = "unwaited", habits.choice((80_000, 300_000))
        return job

    def _options(self, jobs: list[Job]) -> dict[str, Any]:
        random = self._world.random
        options: dict[str, Any] = {}
        if random.random() < 0.2:
            options["priority"] = random.randint(-2, 2)
        if random.random() < 0.1:
            options["capabilities"] = ("gpu",)
        if random.random() < 0.1:
            options["flags"] = 2
        if self._fresh and random.random() < self._fresh:
            options["flags"] = options.get("flags", 0) | FRESH
        self._add_threads(options)
        retries = random.choice((0, 0, 0, 1, 3))
        timeout = random.choice((0.0,) * 9 + (0.05, 1.0))
        for job in jobs:
            job.retries = 0 if "retries" in self._without else retries
            job.timeout = 0.0 if "timeouts" in self._without else timeout
        if "priorities" in self._without or self._unwaited:  # what is less urgent than endless work would never run
            options.pop("priority", None)
        if "capabilities" in self._without:
            options.pop("capabilities", None)
        return options

    def _add_threads(self, options: dict[str, Any]) -> None:
        if self._threads and self._world.random.random() < self._threads:
            options["threads"] = self._world.random.choice((2, 2, 3, 4, 6))

    def _name(self) -> str:
        return self._world.random.choice(("f", "g", "each", "h-each", "k"))

    def _act(self) -> None:
        random = self._world.random
        action = random.choices(
            (
                self._submit,
                self._together,
                self._map,
                self._graph,
                self._dependent,
                self._cancel,
                self._claim,
                self._object,
                self._burst,
            ),
            (6, 3, 3, 3, 6, 8 if self._one_by_one else 3, 3, 2, 2),
        )[0]
        action = self._submit if ACTIONS.get(action.__name__) in self._without else action
        action()

    def _submit(self) -> None:
        jobs = [self._job() for _ in range(self._world.random.choice((1, 1, 1, 3, 10)))]
        self._client.submit(self._name(), jobs, **self._options(jobs))
        self._tokens += jobs

    def _together(self) -> None:
        jobs = [self._job() for _ in range(self._world.random.choice((1, 2, 5, 20)))]
        self._client.map(self._name(), jobs, whole=False, **self._options(jobs))
        self._tokens += jobs

    def _burst(self) -> None:
        for _ in range(self._world.random.randint(3, 12)):
            self._submit()

    def _map(self) -> None:
        jobs = [self._job() for _ in range(self._world.random.choice((1, 8, 40, 150)))]
        if len(jobs) > 10:
            for job in jobs:
                if job.behaviour in ("poison", "nest"):
                    job.behaviour = "value"
        options = self._options(jobs)
        self._client.map(self._name(), jobs, whole=True, **options)
        self._tokens.append(self._client_block(jobs))

    def _client_block(self, jobs: list[Job]) -> Block:
        token = next(
            p.tokens[0]
            for p in reversed(self._client.session.pending.by_id.values())
            if p.whole and p.tokens[0].jobs is jobs
        )
        assert isinstance(token, Block)
        return token

    def _graph(self) -> None:
        random = self._world.random
        jobs: list[Job] = []
        constants = [self._client.announce(random.randint(0, 1000)) for _ in range(random.choice((0, 0, 1, 2)))]
        options: dict[str, Any] = {}
        run = random.choice((1, 3, 16))
        earlier = [token for token in self._tokens if isinstance(token, Job)][-12:]
        for number in range(random.choice((1, 4, 12, 40))):
            job = self._job()
            if job.behaviour in ("nest", "block", "unwaited"):
                job.behaviour = "value"
            for _ in range(random.choice((0, 1, 2, 2, 4)) if jobs else 0):
                job.needs.append(random.choice(jobs[-8:]))
            if constants and random.random() < 0.2:
                job.needs.append(random.choice(constants))
            if earlier and random.random() < 0.15:
                job.needs.append(random.choice(earlier))
            job.retries = random.choice((0, 0, 2)) if not number % run else jobs[-1].retries
            jobs.append(job)
        wanted = {job.uid for job in random.sample(jobs, min(len(jobs), random.randint(1, 4)))} | {jobs[-1].uid}
        if random.random() < 0.1:
            options["capabilities"] = ("gpu",)
        self._add_threads(options)
        self._client.graph([jobs[at : at + run] for at in range(0, len(jobs), run)], wanted, constants, **options)
        self._tokens += [job for job in jobs if job.uid in wanted]

    def _dependent(self) -> None:
        random = self._world.random
        pool = [token for token in self._tokens if isinstance(token, Job)][-12:] + self._client.constants
        jobs = []
        for _ in range(random.choice((1, 1, 4))):
            job = self._job()
            job.needs = random.sample(pool, min(len(pool), random.randint(1, 3)))
            jobs.append(job)
        self._client.submit(self._name(), jobs, **self._options(jobs))
        self._tokens += jobs

    def _cancel(self) -> None:
        tokens = [token for token in self._tokens if token.end is None]
        if tokens:
            random = self._world.random
            if self._one_by_one and random.random() < self._one_by_one:
                self._cancel_one_by_one(tokens)
                return
            self._client.cancel(
                random.sample(tokens, min(len(tokens), random.choice((1, 1, 4)))), random.random() < 0.4
            )

    def _cancel_one_by_one(self, tokens: list[Any]) -> None:
        """Some of what is under way, or of much that was submitted just before."""
        random = self._world.random
        jobs = [token for token in tokens if isinstance(token, Job) and token.group is None]
        if random.random() < 0.6:
            jobs = [self._job() for _ in range(random.choice((30, 100, 300)))]
            options = self._options(jobs)
            for at in range(0, len(jobs), 50):
                self._client.map(self._name(), jobs[at : at + 50], whole=False, **options)
            self._tokens += jobs
        if random.random() < 0.5:
            random.shuffle(jobs)
        self._client.cancel_one_by_one(jobs[: random.choice((8, 20, 60, 200))], random.random() < 0.2)

    def _claim(self) -> None:
        tokens = [token for token in self._tokens if token.end is None]
        if tokens:
            self._client.claim(self._world.random.choice(tokens))

    def _object(self) -> None:
        needed = {id(need) for job in self._client.waiting.values() for need in job.needs}
        free = [constant for constant in self._client.constants if id(constant) not in needed]
        if free and self._world.random.random() < 0.5:
            self._client.release(self._world.random.choice(free))
        else:
            self._client.announce(self._world.random.randint(0, 1000))
