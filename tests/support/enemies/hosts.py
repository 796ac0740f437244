"""A scheduler and two agents, all with their real cores, among a client and workers that say anything.

What a client says reaches agents through the scheduler, which is to refuse what would harm them: no agent ends, and
what another client has sent ends as it should. All messages get through the codecs.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from simulator.hostile_messages import LikelyWords, Lot
from simulator.scripted import BATCHES, IDS, FakeAgent, FakeScheduler, as_heard, some_work

from scaler.agent.core import events as ae
from scaler.agent.state.validate import validate as findings_of_agent
from scaler.agent.state.worker_records import STARTING
from scaler.protocol import messages as m
from scaler.scheduler.state.validate import validate
from scaler.worker_protocol import messages as wm
from scaler.worker_protocol.encoding import MalformedMessage, from_worker, read_by_agent, read_by_worker, to_worker

#: messages that go to and fro in one step
MOST_TURNS = 100
WORKERS = 2
Words = Callable[[Lot, tuple[int, ...]], wm.FromWorker]


class Host(FakeAgent):
    """An agent's core with workers that do what they are told, and a store that has all it is asked for, or not."""

    def __init__(self, number: int, random: Lot) -> None:
        self.NUMBER = number  # type: ignore[misc]
        self._random = random
        #: of asking others for an object
        self._outcomes: tuple[str | None, ...] = (None, None, "out of reach")
        #: what its store and its workers have been asked for
        self._asked: list[ae.Effect] = []
        super().__init__(WORKERS)

    def handle(self, *events: ae.Event) -> None:
        super().handle(*events)
        self._asked, self.store = self._asked + self.store, []
        assert findings_of_agent(self.core.state) == []

    def be_steady(self) -> None:
        """From now on all is drawn by one lot, and nothing is out of reach."""
        self._random, self._outcomes = Random(0), (None,)

    def tend(self) -> None:
        """What is said to workers is read, those that are to end do, and the store answers."""
        for run in (run for runs in self.runs.values() for run in runs):
            read_by_worker(to_worker(run))
        while self.killed:
            self.dies(self.killed.pop())
        while self._asked:
            effect = self._asked[0]
            error = self._random.choice(self._outcomes) if isinstance(effect, ae.Fetch) else None
            self._asked.pop(0)
            if isinstance(effect, ae.Fetch):
                self.handle(ae.Fetched(effect.key, error))
            elif isinstance(effect, ae.Spill):
                self.handle(ae.Spilled(effect.key))
            elif isinstance(effect, ae.Restore):
                self.handle(ae.Restored(effect.key))
        while self.control:
            slot, message = self.control.pop(0)
            read_by_worker(to_worker(message))
            if isinstance(message, wm.Publish):
                self.worker(slot, wm.Published([wm.PublishedValue(key, 1_000, None) for key in message.keys]))

    def work(self, slot: int) -> None:
        """A worker starts, ends, or ends what it was given first: in messages, in the store, or in its own memory."""
        worker = self.core.state.workers.records.get(slot)
        if worker is None:
            return
        if worker.kill_reason is not None:  # told to end when it has done all
            self.dies(slot)
            return
        if worker.state is STARTING:
            self.worker(slot, wm.Ready(100 + slot))
            return
        if worker.blocked:
            self.worker(slot, wm.Unblocked())
        if worker.recalling:
            self.worker(slot, wm.Returned(worker.recalling, [], None))
        if worker.dispatches:
            number, dispatch = next(iter(worker.dispatches.items()))
            is_each = dispatch.origin.task.flags & (m.KEEP | m.APART)
            outcome = self._random.choice((m.VALUES_EACH if is_each else m.VALUES_LIST, m.STORED, m.LIVE))
            spans = [_ended(number, *dispatch.origin.key, lo, hi, outcome) for lo, hi in dispatch.left]
            self.worker(slot, wm.Results(spans, [number]))


def _ended(dispatch: int, client: int, batch: int, lo: int, hi: int, outcome: int) -> wm.EndedSpan:
    rows = hi - lo
    payload, count = b"list", rows if outcome == m.VALUES_EACH else 1
    if outcome in (m.STORED, m.LIVE):
        payload, count = m.SIZE.pack(1_000_000), rows
    sizes, body = m.u32([len(payload)]) * count, payload * count
    return wm.EndedSpan(dispatch, client, batch, lo, hi, outcome, 100, 0, sizes, body)


class HostsAmongEnemies:
    """One life of a cluster. `words` draws what workers say."""

    def __init__(self, random: Lot, words: Words) -> None:
        self.random, self._words = random, words
        self.scheduler = FakeScheduler()
        self.hosts = {number: Host(number, random) for number in (self.scheduler.agent(WORKERS) for _ in range(2))}
        self._likely = LikelyWords(random, IDS, WORKERS)
        self.other, self.client = self._join(), self._join()
        self.settle()

    def _join(self) -> int:
        """A client comes, and sends what is to end."""
        number = self.scheduler.client()
        self.scheduler.say(number, *some_work())
        return number

    def step(self) -> None:
        """One thing happens."""
        random, action = self.random, self.random.randrange(8)
        host = self.hosts[random.choice(tuple(self.hosts))]
        if self.client not in self.scheduler.core.state.clients:
            self.client = self._join()
        if action < 4:
            kind = random.choice(LikelyWords.ABOUT) if action < 2 else m.Task
            self.scheduler.say(self.client, self._likely.draw_one(kind, (self.client, self.other, *self.hosts)))
        elif action < 6:
            host.work(random.choice(list(host.core.state.workers.records) or [0]))
        elif action == 6:
            self._worker_says(host, random.choice(list(host.core.state.workers.records) or [0]))
        else:
            self.wait(random.choice((0.01, 1.0)))
        self.settle()

    def _worker_says(self, host: Host, slot: int) -> None:
        try:
            said = read_by_agent(memoryview(from_worker(self._words(self.random, (self.client, self.other)))))
        except MalformedMessage:
            return
        host.worker(slot, said)

    def wait(self, seconds: float) -> None:
        """Time goes by, and all but the hostile client are heard of."""
        self.scheduler.wait(seconds)
        self.scheduler.say(self.other, m.Heartbeat(self.scheduler.now))
        for host in self.hosts.values():
            host.now = self.scheduler.now
            host.handle()

    def settle(self) -> None:
        """All that is said is heard, and answered."""
        for _ in range(MOST_TURNS):
            moved = False
            for number, host in self.hosts.items():
                for message in self.scheduler._sent.pop(number, []):
                    host.tell(as_heard(message))
                    moved = True
                host.tend()
                said, host.said = host.said, []
                for word in said:
                    self.scheduler.say(number, as_heard(word))
                    moved = True
            if not moved:
                break
        else:
            raise AssertionError("they go on talking")
        assert validate(self.scheduler.core.state) == []

    def end(self) -> None:
        """The hostile client is gone, and workers do what they are told: the other's rows end."""
        self.scheduler.lose(self.client)
        for host in self.hosts.values():
            host.be_steady()
        for _ in range(40):
            self.settle()
            left = [b for b in self.scheduler.core.state.clients[self.other].batches if b in BATCHES]
            if not left:
                return
            for host in self.hosts.values():
                for slot in list(host.core.state.workers.records):
                    host.work(slot)
            self.wait(1.0)
        raise AssertionError(f"batches {left} have not ended")
