"""Whatever a worker says, its agent goes on, its state adds up, and no row is told of twice or forgotten."""

from array import array
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from simulator.scripted import FakeAgent

from scaler.agent.core import events as ev
from scaler.agent.state.validate import validate
from scaler.protocol.messages import (
    DOUBTFUL,
    ERROR,
    LIVE,
    SIZE,
    STORED,
    VALUES_EACH,
    VALUES_LIST,
    BalanceRequest,
    BalanceResponse,
    ObjectMissing,
    ObjectRelease,
    TaskResult,
    u32,
    u64,
)
from scaler.worker_protocol import messages as wm
from scaler.worker_protocol.encoding import from_worker, read_by_agent

C = FakeAgent.CLIENT
ROWS = 12

#: numbers near those that mean something
dispatch = st.integers(0, 9)
client = st.sampled_from([C, C, C, C + 1, 0])
batch = st.sampled_from([5, 10, 10, 20, 30, 99])
row = st.integers(0, ROWS + 1)
key = st.tuples(client, st.integers(0, 35))


@st.composite
def ended(draw: st.DrawFn) -> wm.EndedSpan:
    """How rows ended, well-formed."""
    outcome = draw(st.sampled_from([VALUES_LIST, VALUES_EACH, ERROR, STORED, LIVE, DOUBTFUL]))
    lo = draw(row)
    rows = 1 if outcome in (ERROR, DOUBTFUL) else draw(st.integers(1, 4))
    if outcome in (STORED, LIVE):
        sizes, body = [SIZE.size] * rows, SIZE.pack(draw(st.integers(1, 1 << 21))) * rows
    elif outcome == VALUES_EACH:
        sizes, body = [1] * rows, b"v" * rows
    else:
        sizes, body = [4], b"data"
    numbers = draw(dispatch), draw(client), draw(batch)
    return wm.EndedSpan(*numbers, lo, lo + rows, outcome, draw(st.integers(0, 1 << 40)), 0, array("I", sizes), body)


@st.composite
def returned(draw: st.DrawFn) -> wm.Returned:
    """Rows come back."""
    spans = []
    for _ in range(draw(st.integers(0, 2))):
        lo = draw(row)
        spans.append(wm.ReturnedSpan(draw(dispatch), draw(client), draw(batch), lo, lo + draw(st.integers(1, 4))))
    return wm.Returned(draw(st.integers(0, 3)), spans, draw(st.none() | st.tuples(dispatch, row)))


def said() -> st.SearchStrategy[wm.FromWorker]:
    """Anything that is a message."""
    written = st.builds(wm.PublishedValue, key, st.integers(1, 1 << 21), st.none())
    value = written | st.builds(wm.PublishedValue, key, st.integers(0, 1 << 21), st.just("there is no room"))
    return st.one_of(
        st.builds(wm.Ready, st.just(1)),
        st.builds(wm.Results, st.lists(ended(), max_size=2), st.lists(dispatch, max_size=2)),
        returned(),
        st.builds(wm.Published, st.lists(value, max_size=2)),
        st.builds(wm.Output, client, row, st.integers(1, 3), st.just("f"), st.just("text")),
        st.just(wm.Blocked()),
        st.just(wm.Unblocked()),
        st.just(wm.Leaving()),
        st.just(wm.Unfit("has no descriptors")),
    )


def honest(fake: FakeAgent, slot: int) -> wm.Results | None:
    """What the worker of a slot would say if it had done what it was told first."""
    worker = fake.core.state.workers.records.get(slot)
    if worker is None or not worker.dispatches:
        return None
    number, first = next(iter(worker.dispatches.items()))
    spans = [
        wm.EndedSpan(number, *first.origin.key, lo, hi, VALUES_LIST, 100, 0, array("I", [4]), b"data")
        for lo, hi in first.left
    ]
    return wm.Results(spans, [number])


class Account:
    """What has become of the rows that the scheduler gave, by its own books."""

    def __init__(self, fake: FakeAgent) -> None:
        self.fake = fake
        self.told: Counter[tuple[int, int]] = Counter()

    def settle(self) -> None:
        """Take what the scheduler was told; nothing is told twice, and the rest is here."""
        messages, self.fake.said = self.fake.said, []
        for message in messages:
            if isinstance(message, TaskResult):
                for number, lo, hi in zip(message.batches, message.spans[::2], message.spans[1::2], strict=True):
                    self._gone(number, lo, hi)
            elif isinstance(message, BalanceResponse):
                for _, number, lo, hi in message:
                    self._gone(number, lo, hi)
            elif isinstance(message, ObjectMissing):
                for _, number, lo, hi in message.rows:
                    self._gone(number, lo, hi)
            message.validate()  # else the scheduler would end the session of the agent
        assert validate(self.fake.core.state) == []
        assert set(self.told.values()) <= {1}

    def _gone(self, number: int, lo: int, hi: int) -> None:
        self.told.update((number, row) for row in range(lo, hi))


@given(
    st.lists(st.tuples(st.integers(0, 2), said() | st.just(None)), max_size=12),
    st.integers(0, 3),
)
@settings(max_examples=3 * settings().max_examples)
def test_no_worker_breaks_its_agent(words: list[tuple[int, wm.FromWorker | None]], asked: int) -> None:
    fake = FakeAgent(2)
    account = Account(fake)
    fake.give(5, 0, 1)
    fake.makes(0, live=True)
    fake.give(10, 0, ROWS)
    fake.give(20, 0, 2, timeout=3.0)
    fake.give_dependents(30, [[5], []])
    fake.tell(BalanceRequest(asked))
    fake.handle(ev.Requested((C, 5)))
    account.settle()
    for slot, message in words:
        message = message or honest(fake, slot)
        if message is not None:
            fake.worker(slot, read_by_agent(memoryview(from_worker(message))))
            account.settle()
        for ending in list(fake.killed):
            fake.killed.remove(ending)
            fake.handle(ev.WorkerExited(ending, 100, 9, (0, -1)))
            account.settle()
    fake.tell(ObjectRelease(u32([C]), u64([5])))
    for _ in range(60):  # left alone with workers that tell the truth it ends all rows
        for slot, worker in list(fake.core.state.workers.records.items()):
            if worker.kill_reason is not None:
                fake.handle(ev.WorkerExited(slot, 100, 9, (0, -1)))
            elif worker.state == "starting":
                fake.worker(slot, wm.Ready(100))
            else:
                if worker.blocked:
                    fake.worker(slot, wm.Unblocked())
                results = honest(fake, slot)
                if worker.recalling:
                    fake.worker(slot, wm.Returned(worker.recalling, [], None))
                if results is not None and slot in fake.core.state.workers.records:
                    fake.worker(slot, results)
        fake.now += 0.5
        fake.handle(ev.Tick())
        account.settle()
    assert len(account.told) == 1 + ROWS + 2 + 2
    assert fake.core.state.queued == fake.core.state.running == 0
