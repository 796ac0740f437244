"""A scheduler's core among a client, an agent and a monitor that mean harm, and know what is there.

Most of what they say is taken. Who is thrown out comes again as somebody new. What another client has sent ends as it
should, at an agent that does what it is told.
"""

from simulator.hostile_messages import Hostile, LikelyWords, Lot
from simulator.scripted import BATCHES, IDS, WellSpoken, result, some_work

from scaler.protocol import messages as m
from scaler.scheduler.state.batch_records import AGENT
from scaler.scheduler.state.validate import quick, validate

WORKERS = 2
#: what an agent may say but for `TaskResult`
BY_AGENT = (
    m.TaskBegun, m.TaskRunning, m.TaskClaimResponse, m.TaskOutput, m.BalanceResponse, m.ObjectAnnounce, m.ObjectGone,
    m.ObjectMissing, m.ObjectResponse, m.Heartbeat, m.HostReport, m.QueryResult,
)  # fmt: skip
#: what a monitor may say, but for what it may do to anybody's rows
BY_MONITOR = (m.Query, m.Watch, m.Heartbeat, m.DisconnectRequest)
OUTCOMES = (m.VALUES_LIST, m.VALUES_EACH, m.ERROR, m.LOST, m.STORED)


class SchedulerAmongEnemies:
    """One life of a scheduler."""

    def __init__(self, random: Lot) -> None:
        self.random = random
        self.scheduler = WellSpoken(WORKERS)
        (self.decent,) = self.scheduler.agents
        self._likely = LikelyWords(random, IDS, WORKERS)
        self.other, self.client = self._new_client(), self._new_client("/store")
        self.hostile, self.monitor = self.scheduler.agent(WORKERS), self.scheduler.monitor()
        self._watcher = self.scheduler.monitor()
        self._watch()

    def _watch(self) -> None:
        """Somebody looks at all of it."""
        self.scheduler.say(self._watcher, m.Watch(100, self.scheduler.shown))

    def _new_client(self, store: str = "") -> int:
        number = self.scheduler.client(store)
        self.scheduler.say(number, *some_work())
        return number

    @property
    def _peers(self) -> tuple[int, ...]:
        return self.client, self.other, self.hostile, self.decent

    def step(self) -> None:
        """One thing happens."""
        random, fake, state = self.random, self.scheduler, self.scheduler.core.state
        if self.client not in state.clients:
            self.client = self._new_client("/store")
        if self.hostile not in state.agents:
            self.hostile = fake.agent(WORKERS)
        if self.monitor not in state.monitors:
            self.monitor = fake.monitor()
        action = random.randrange(16)
        if action < 5:
            fake.say(self.client, self._likely.draw(self.client, self._peers))
        elif action < 8:
            self._agent_ends_some()
        elif action < 10:
            fake.say(self.hostile, self._anything(random.choice(BY_AGENT)))
        elif action < 11:
            number, own = random.choice(((self.client, m.Task), (self.hostile, m.Inventory)))
            fake.say(number, self._anything(random.choice((None, own))))
        elif action < 12:
            fake.say(self.monitor, self._anything(random.choice(BY_MONITOR)))
        elif action < 14:
            client, outcome = random.choice(
                ((self.client, m.VALUES_EACH), (self.other, m.VALUES_EACH), (self.other, m.STORED))
            )
            fake.end_all(random.choice((self.hostile, self.decent)), client, outcome)
        elif action < 15:
            fake.lose(random.choice((self.client, self.hostile, self.monitor)))
        else:
            self.wait(random.choice((0.01, 1.0)))
        for found in quick(state):
            raise AssertionError(found)

    def _anything(self, kind: type[m.Message] | None) -> m.Message:
        return Hostile(self.random, self._peers, IDS, figures=True).message(kind)

    def _agent_ends_some(self) -> None:
        """The hostile agent says how rows ended that it has, or has not quite."""
        random, fake = self.random, self.scheduler
        client = random.choice((self.client, self.other))
        batches = fake.core.state.clients[client].batches
        held = [(batch.id, lo, hi) for batch in batches.values() for lo, hi in batch.spans_in(AGENT + self.hostile)]
        for batch, lo, hi in held[:3]:
            outcome = random.choice(OUTCOMES)
            lo += random.choice((0, 0, 0, 1))
            hi = lo + 1 if outcome in (m.ERROR, m.LOST) else min(hi + random.choice((0, 0, 0, 1)), lo + 256)
            if lo < hi:
                fake.report(self.hostile, client, result(batch, lo, hi, outcome))

    def wait(self, seconds: float) -> None:
        """Time goes by, and those who mean no harm are heard of."""
        fake = self.scheduler
        fake.wait(seconds)
        fake.say(self.decent, m.Heartbeat(fake.now, WORKERS))
        fake.say(self.other, m.Heartbeat(fake.now))
        self._watch()

    def end(self) -> None:
        """The enemies are gone: what the other client has sent ends."""
        fake, state = self.scheduler, self.scheduler.core.state
        for number in (self.client, self.hostile, self.monitor):
            fake.lose(number)
        for _ in range(12):
            left = [batch for batch in state.clients[self.other].batches if batch in BATCHES]
            if not left:
                break
            fake.end_all(self.decent, self.other, m.VALUES_EACH)
            self.wait(0.01)
        assert not left, f"batches {left} have not ended"
        for found in validate(state):
            raise AssertionError(found)
