"""One core at a time, with everybody else played by the test: for tables of what a core does when told something."""

import math
import pickle
from array import array
from collections.abc import Iterable
from typing import Any

from scaler.agent.core import events as ae
from scaler.agent.core.agent_core import AgentCore
from scaler.agent.state.memory import AgentLimits
from scaler.protocol.codec import decode, encode
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import (
    APART,
    EACH,
    ERROR,
    GRAPH,
    KEEP,
    LIVE,
    LOST,
    SIZE,
    STORED,
    TOGETHER,
    VALUES_EACH,
    VALUES_LIST,
    AgentsInUse,
    ClientIntroduction,
    Hello,
    Message,
    ObjectAnnounce,
    Spans,
    Task,
    TaskCancel,
    TaskClaim,
    TaskResult,
    i32,
    u8,
    u32,
    u64,
)
from scaler.protocol.messages.worker_columns import unpack
from scaler.protocol.results import NO_SIZES, ResultBuilder, SpanResult
from scaler.protocol.views import decode_view, encode_view
from scaler.scheduler.core import events as se
from scaler.scheduler.core import roots
from scaler.scheduler.core.scheduler_core import SchedulerCore
from scaler.scheduler.state.batch_records import AGENT
from scaler.worker_protocol import messages as wm
from simulator.limits import default_limits

Span = tuple[int, int, int]


def hello(
    role: str, name: str, workers: int = 0, capabilities: tuple[str, ...] = (), boot_id: str = "here", store: str = ""
) -> Hello:
    """A Hello as far as a core looks at it."""
    return Hello(role, name, 1, 1, "3", "", boot_id, 1, 0, 0, workers, capabilities, store, "token", "tcp://h:1")


def spans(cls: Any, client: int, *rows: Span) -> Any:
    """A message that names rows."""
    message = cls()
    for batch, lo, hi in rows:
        message.add(client, batch, lo, hi)
    return message


def task(batch: int, rows: int, form: int = EACH, client: int = 0, **more: Any) -> Task:
    """Rows of a function that is object 1; the ids of TOGETHER's arguments are the batch's + 1,000,000."""
    made = Task(client, batch, rows, form, 0, 1, 0, "f", spans=u32([0, rows]))
    if form == EACH:
        made.sizes = u32([1]) * rows
        made.bodies = [b"x" * rows]
    elif form == TOGETHER:
        made.arguments = 1_000_000 + batch
        made.objects = u64([made.arguments])
        made.bodies = [b"arguments".ljust(rows)]
    for name, value in more.items():
        setattr(made, name, value)
    return made


def graph(batch: int, needs: list[list[int]], wanted: Iterable[int]) -> Task:
    """A graph in one batch; `needs` are row numbers."""
    rows = len(needs)
    uses = [sum(others.count(row) for others in needs) for row in range(rows)]
    function = 2_000_000 + batch
    return task(
        batch, rows, GRAPH, flags=KEEP, function=function, objects=u64([function]), bodies=[b"graph"],
        dependency_counts=u32(map(len, needs)), dependencies=u64([batch + need for others in needs for need in others]),
        uses=u32(uses), wanted=u8([row in set(wanted) for row in range(rows)]),
    )  # fmt: skip


#: what `some_work` has: batches, and ids of all that is there, and at its edges
BATCHES = (10, 14, 18)
IDS = (1, *range(10, 20), 1_000_014, 1_000_018, 2_000_010)


def some_work(**of_the_second: Any) -> tuple[Task, Task, Task]:
    """A graph, rows that go one by one and rows that go together: one batch of each."""
    return graph(10, [[], [0], [0, 1]], [2]), task(14, 4, **of_the_second), task(18, 2, TOGETHER)


def result(batch: int, lo: int, hi: int, outcome: int = VALUES_LIST, us: int = 100) -> SpanResult:
    """How rows ended."""
    if outcome == VALUES_EACH:
        return SpanResult(batch, lo, hi, outcome, us, 0, u32([1]) * (hi - lo), b"v" * (hi - lo))
    if outcome == STORED:
        return SpanResult(batch, lo, hi, outcome, us, 0, u32([8]) * (hi - lo), SIZE.pack(1 << 20) * (hi - lo))
    if outcome == VALUES_LIST:
        body = pickle.dumps(list(range(lo, hi)), 5)
        return SpanResult(batch, lo, hi, outcome, us, 0, u32([len(body)]), body)
    if outcome in (ERROR, LOST):
        record = ErrorRecord(ErrorKind.RAISED).encode() if outcome == ERROR else b"why"
        return SpanResult(batch, lo, hi, outcome, us, 0, u32([len(record)]), record)
    return SpanResult(batch, lo, hi, outcome, us, 0, NO_SIZES, b"")


def session_of(number: int) -> int:
    """The session of a peer of this number that has not come back."""
    return 1_000_000 + number


def root_of(number: int) -> int:
    """That peer as a root."""
    return roots.root_of(session_of(number))


def as_heard(message: Message) -> Any:
    """What arrives of a message."""
    return decode([bytes(frame) for frame in encode(message)]).message


class FakeScheduler:
    """A scheduler's core among peers that say what the test says."""

    def __init__(self, *workers: int, **limits: Any) -> None:
        self.core = SchedulerCore(default_limits(**limits), strict=True)
        self.now = 0.0
        self._sent: dict[int, list[Message]] = {}
        self.effects: list[se.Effect] = []
        #: lines of the log
        self.log: list[str] = []
        self._last = 0
        self.agents = [self.agent(count) for count in workers]

    def handle(self, *events: se.Event) -> None:
        """Something happens."""
        self.effects = self.core.handle(events, self.now)
        for effect in self.effects:
            if isinstance(effect, se.Send):
                self._sent.setdefault(effect.number, []).append(effect.message)
            elif isinstance(effect, se.Log):
                self.log.append(effect.text)

    def _join(self, made: Hello) -> int:
        self._last += 1
        made.session = session_of(self._last)
        self.handle(se.Joined(self._last, made))
        return self._last

    def agent(self, workers: int = 1, capabilities: tuple[str, ...] = (), boot_id: str = "here") -> int:
        """An agent joins."""
        return self._join(hello("agent", f"agent-{self._last + 1}", workers, capabilities, boot_id, "/store"))

    def come_back(self, role: str, at: int, session: int = 7, **more: Any) -> int:
        """A client or agent joins that has kept the number it had at another scheduler."""
        made = hello(role, f"{role}-{at}", 2 if role == "agent" else 0, (), "here", "/store")
        made.session, made.number, made.epoch = session, at, 1
        for name, value in more.items():
            setattr(made, name, value)
        self._last = max(self._last, at)
        self.handle(se.Joined(at, made))
        return at

    def store(self) -> int:
        """The store beside the scheduler joins."""
        return self._join(hello("store", "store", 0, (), "scheduler", "/beside"))

    def client(self, store: str = "") -> int:
        """A client joins, and sends the function that is object 1. `store`, of one in a worker: that of its agent."""
        number = self._join(hello("client", f"client-{self._last + 1}", store=store))
        self.say(number, ObjectAnnounce(u64([1]), u8([0]), [b"function"]))
        return number

    def monitor(self) -> int:
        """A monitor joins."""
        return self._join(hello("monitor", f"monitor-{self._last + 1}"))

    def say(self, number: int, *messages: Message) -> None:
        """A peer says something."""
        self.handle(*[se.Received(number, message) for message in messages])

    def lose(self, number: int) -> None:
        """A peer's connection is gone for good."""
        self.handle(se.Lost(number, "test"))

    def wait(self, seconds: float) -> None:
        """Time goes by."""
        self.now += seconds
        self.handle(se.Tick())

    def heard(self, number: int, kind: type[Message] | None = None) -> list[Any]:
        """What a peer was sent since the last time; of one kind if that is asked for, or else without introductions."""
        messages = self._sent.pop(number, [])
        if kind is None:
            return [message for message in messages if type(message) not in (AgentsInUse, ClientIntroduction)]
        return [message for message in messages if type(message) is kind]

    def placed(self, agent: int) -> list[Span]:
        """The rows that an agent was given since the last time."""
        found = []
        for message in self.heard(agent, Task):
            found += [(message.batch, lo, hi) for lo, hi in zip(message.spans[::2], message.spans[1::2], strict=True)]
        return found

    def report(self, agent: int, client: int, *ended: SpanResult) -> None:
        """An agent says how rows ended."""
        builder = ResultBuilder(client)
        for span in ended:
            builder.add(span)
        self.say(agent, builder.build())

    def end_all(self, agent: int, client: int, outcome: int = VALUES_LIST) -> None:
        """An agent says how all rows of a client's ended that it has."""
        for batch in list(self.core.state.clients[client].batches.values()):
            ended = [result(batch.id, lo, hi, outcome) for lo, hi in batch.spans_in(AGENT + agent)]
            if ended:
                self.report(agent, client, *ended)

    def ends(self, client: int) -> list[tuple[int, int, int, int]]:
        """(batch, lo, hi, outcome) of what a client was told since the last time."""
        found = []
        for message in self.heard(client, TaskResult):
            found += list(zip(message.batches, message.spans[::2], message.spans[1::2], message.outcomes, strict=True))
        return found

    def holds(self, agent: int) -> int:
        """Rows that an agent has."""
        return self.core.state.agents[agent].load.outstanding

    def cancel(self, client: int, *rows: Span, force: bool = False) -> None:
        """A client cancels rows."""
        self.say(client, TaskCancel(spans(Spans, client, *rows), force))

    def claim(self, client: int, *rows: Span) -> None:
        """A client claims rows."""
        self.say(client, spans(TaskClaim, client, *rows))


class WellSpoken(FakeScheduler):
    """A scheduler all of whose words get through the codec: its shell would end with one that does not."""

    def __init__(self, *workers: int) -> None:
        #: number of the last snapshot
        self.shown = 0
        super().__init__(*workers)

    def handle(self, *events: se.Event) -> None:
        super().handle(*events)
        for effect in self.effects:
            if isinstance(effect, se.Send):
                encode(effect.message)
                effect.message.validate()  # what is left of `decode`, which takes as long as `encode`
            elif isinstance(effect, se.Publish):
                self.shown = effect.number
                view = decode_view(encode_view(effect.view))
                unpack(effect.workers, view.agents.worker_counts)


def ended(run: wm.Run, lo: int, hi: int, outcome: int, us: int, sizes: "array[int]", body: bytes) -> wm.EndedSpan:
    """How rows of a dispatch ended that took so many microseconds each."""
    return wm.EndedSpan(run.dispatch, run.client, run.batch, lo, hi, outcome, us * (hi - lo), 0, sizes, body)


class FakeAgent:
    """An agent's core whose scheduler and workers say what the test says."""

    CLIENT, NUMBER = 7, 3

    def __init__(self, workers: int = 1, ready: bool = True, may_return: bool = True, **limits: int) -> None:
        self.core = AgentCore(workers, AgentLimits(**limits), strict=True, may_return=may_return)
        self.now = 0.0
        self.said: list[Message] = []
        #: `Run`s each worker has not answered, by slot
        self.runs: dict[int, list[wm.Run]] = {}
        self.control: list[tuple[int, wm.ToWorker]] = []
        self.started: list[int] = []
        self.killed: list[int] = []
        self.looks: list[int] = []
        #: when it wants to be woken
        self.wake = math.inf
        #: lines of the log
        self.logged: list[str] = []
        #: what the store was told to do
        self.store: list[ae.Effect] = []
        self.handle(ae.Welcomed(False, 1.0, self.NUMBER))
        if ready:
            for slot in list(self.started):
                self.worker(slot, wm.Ready(100 + slot))

    def handle(self, *events: ae.Event) -> None:
        """Something happens."""
        for effect in self.core.handle(events, self.now):
            if isinstance(effect, ae.ToScheduler):
                self.said.append(effect.message)
            elif isinstance(effect, ae.ToWorker) and isinstance(effect.message, wm.Run):
                self.runs.setdefault(effect.slot, []).append(effect.message)
            elif isinstance(effect, ae.ToWorker) and effect.control:
                self.control.append((effect.slot, effect.message))
            elif isinstance(effect, ae.StartWorker):
                self.started.append(effect.slot)
            elif isinstance(effect, ae.KillWorker):
                self.killed.append(effect.slot)
            elif isinstance(effect, ae.LookAt):
                self.looks.append(effect.slot)
            elif isinstance(effect, ae.Log):
                self.logged.append(effect.text)
            elif isinstance(effect, ae.WakeAt):
                self.wake = effect.when
            elif not isinstance(effect, (ae.ToWorker, ae.ShowOutput)):
                self.store.append(effect)

    def asked(self, kind: type[ae.Effect]) -> list[Any]:
        """The objects that the store was told to do something with since the last time; other things are kept."""
        found = [effect for effect in self.store if type(effect) is kind]
        self.store = [effect for effect in self.store if type(effect) is not kind]
        return [effect.key for effect in found]  # type: ignore[union-attr]

    def told(self, slot: int, kind: type[wm.Publish] | type[wm.Drop]) -> list[Any]:
        """The keys that a worker was told to publish or to drop since the last time."""
        found = [message.keys for to, message in self.control if to == slot and isinstance(message, kind)]
        self.control = [item for item in self.control if item[0] != slot or not isinstance(item[1], kind)]
        return [key for keys in found for key in keys]

    def makes(self, slot: int, live: bool = False, size: int = 1_000_000, us: int = 100) -> list[tuple[int, int]]:
        """A worker finishes its oldest dispatch with stored values; their names."""
        run = self.runs[slot].pop(0)
        rows = run.hi - run.lo
        body, sizes = SIZE.pack(size) * rows, u32([SIZE.size] * rows)
        outcome = LIVE if live else STORED
        self.worker(slot, wm.Results([ended(run, run.lo, run.hi, outcome, us, sizes, body)], [run.dispatch]))
        return [(run.client, run.batch + row) for row in range(run.lo, run.hi)]

    def give_dependents(
        self, batch: int, needs: list[list[int]], holders: Iterable[int] = (), size: int = 1_000_000, **more: Any
    ) -> None:
        """A graph comes, each row of which needs these stored values, which these agents have."""
        ids = list(dict.fromkeys(need for row in needs for need in row))
        numbers = list(holders)
        given = task(
            batch, len(needs), GRAPH, client=self.CLIENT, flags=KEEP, bodies=[b"function"], objects=u64([1]),
            dependency_counts=u32(map(len, needs)), dependencies=u64([need for row in needs for need in row]),
            indexes=i32([-1 for row in needs for _ in row]), wanted=u8([0] * len(needs)), stored=u64(ids),
            stored_sizes=u64([size] * len(ids)), holder_counts=u32([len(numbers)] * len(ids)),
            holders=u32(numbers * len(ids)), **more,
        )  # fmt: skip
        self.tell(given)

    def tell(self, *messages: Message) -> None:
        """The scheduler says something."""
        self.handle(*map(ae.FromScheduler, messages))

    def worker(self, slot: int, message: wm.FromWorker) -> None:
        """A worker says something."""
        self.handle(ae.FromWorker(slot, message))

    def give(self, batch: int, lo: int, hi: int, **more: Any) -> None:
        """Rows come, with the function."""
        client = more.pop("client", self.CLIENT)
        rows = hi - lo
        given = task(
            batch,
            hi,
            client=client,
            spans=u32([lo, hi]),
            sizes=u32([1]) * rows,
            bodies=[b"x" * rows, b"function"],
            **more,
        )
        given.objects = u64([1])
        self.tell(given)

    def heard(self, kind: type[Message]) -> list[Any]:
        """What the scheduler was told, of one kind; everything is forgotten."""
        said, self.said = self.said, []
        return [message for message in said if type(message) is kind]

    def running(self, slot: int) -> list[Span]:
        """Rows that a worker was told to run and has not finished."""
        return [(run.batch, run.lo, run.hi) for run in self.runs.get(slot, [])]

    def finish(self, slot: int, rows: int | None = None, us: int = 100) -> None:
        """A worker finishes its oldest dispatch, or that many rows of it."""
        run = self.runs[slot][0]
        end = run.hi if rows is None else run.lo + rows
        if end == run.hi:
            self.runs[slot].pop(0)
        else:
            self.runs[slot][0] = run._replace(lo=end)
        done = [run.dispatch] if end == run.hi else []
        outcome, count = (VALUES_EACH, end - run.lo) if run.flags & (KEEP | APART) else (VALUES_LIST, 1)
        self.worker(slot, wm.Results([ended(run, run.lo, end, outcome, us, u32([4]) * count, b"list" * count)], done))

    def give_back(self, slot: int, token: int, keep: int = 0) -> None:
        """A worker answers a recall: all but the first row of its oldest dispatch."""
        returned = []
        for i, run in reversed(list(enumerate(self.runs.get(slot, [])))):
            lo = run.lo + (i == 0) + (keep if i == 0 else 0)
            if lo < run.hi:
                returned.append(wm.ReturnedSpan(run.dispatch, run.client, run.batch, lo, run.hi))
            if i:
                self.runs[slot].pop(i)
            elif lo < run.hi:
                self.runs[slot][0] = run._replace(hi=lo)
        runs = self.runs.get(slot)
        self.worker(slot, wm.Returned(token, returned, (runs[0].dispatch, runs[0].lo) if runs else None))

    def dies(self, slot: int, status: int = 9) -> None:
        """A worker's process ends in the row it began last."""
        runs = self.runs.pop(slot, [])
        begun = (runs[0].dispatch, runs[0].lo) if runs else (0, -1)
        self.handle(ae.WorkerExited(slot, 100 + slot, status, begun))
