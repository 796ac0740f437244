"""An agent's core alone: no row is lost or doubled, while workers finish, give back, block and die."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from simulator import checks
from simulator.returns import Returns
from simulator.scripted import FakeAgent, spans
from simulator.world import World

from scaler.agent.core import events as ae
from scaler.protocol.messages import (
    BalanceRequest,
    BalanceResponse,
    ClientDeparture,
    ObjectRelease,
    Spans,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskResult,
    TaskRunning,
    u32,
    u64,
)
from scaler.worker_protocol import messages as wm
from scaler.worker_protocol.encoding import read_by_worker, to_worker

Row = tuple[int, int, int]


class FakeWorker:
    """Dispatches in order; what it said and the agent has not heard yet."""

    def __init__(self) -> None:
        #: [number, client, batch, next row, end]
        self.dispatches: list[list[int]] = []
        #: the first row of the first dispatch has begun
        self.said: list[wm.FromWorker] = []
        self.recalls: list[int] = []
        self.dying = False
        self.quits = False
        self.ready = False

    @property
    def running(self) -> tuple[int, int] | None:
        """(dispatch, row) that runs."""
        return (self.dispatches[0][0], self.dispatches[0][3]) if self.dispatches else None


class Agent(RuleBasedStateMachine):
    """What the scheduler gave must be reported, given back, granted, or still be here."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(0)
        self.fake = FakeAgent(2, ready=False)
        self.returns = Returns()
        self.workers: dict[int, FakeWorker] = {}
        #: the one whose end is just being told
        self.ending: int | None = None
        self.next_batch = 10
        #: rows the scheduler gave and has not heard of
        self.given: set[Row] = set()
        self.balances = 0
        #: the batches from which the scheduler wants rows; empty: any
        self.wanted_of: list[tuple[int, int]] = []
        self._collect()

    def _handle(self, *events: ae.Event) -> None:
        self.returns.note(self.fake.core.state, events)
        for effect in self.fake.core.handle(events, self.fake.now):
            self._effect(effect)
        checks.THOROUGH, before = True, checks.THOROUGH
        try:
            checks.check_agent(self.world, "agent", self.fake.core, self.returns)
        finally:
            checks.THOROUGH = before

    def _effect(self, effect: ae.Effect) -> None:
        if isinstance(effect, ae.ToScheduler):
            self._heard(effect.message)
        elif isinstance(effect, ae.StartWorker):
            self.workers[effect.slot] = FakeWorker()
        elif isinstance(effect, ae.KillWorker):
            if effect.slot in self.workers:
                self.workers[effect.slot].dying = True
            else:
                assert effect.slot == self.ending, "it has ended, as the agent was told before"
        elif isinstance(effect, ae.ToWorker):
            message = read_by_worker(to_worker(effect.message))
            worker = self.workers.get(effect.slot)
            if worker is None:
                return  # it has ended just now
            if isinstance(message, wm.Run):
                assert not worker.quits
                worker.dispatches.append([message.dispatch, message.client, message.batch, message.lo, message.hi])
            elif isinstance(message, wm.Recall):
                worker.recalls.append(message.token)
            elif isinstance(message, wm.Quit):
                worker.quits = True

    def _collect(self) -> None:
        for slot in self.fake.started:
            self.workers[slot] = FakeWorker()
        self.fake.started.clear()

    def _gone(self, client: int, batch: int, lo: int, hi: int) -> None:
        for row in range(lo, hi):
            assert (client, batch, row) in self.given, f"{(client, batch, row)} is not the agent's to speak of"
            self.given.remove((client, batch, row))

    def _heard(self, message: object) -> None:
        if isinstance(message, TaskResult):
            for batch, lo, hi in zip(message.batches, message.spans[::2], message.spans[1::2], strict=True):
                self._gone(message.client, batch, lo, hi)
        elif isinstance(message, BalanceResponse):
            self.balances -= 1
            assert self.balances >= 0
            for span in message:
                assert not self.wanted_of or span[:2] in self.wanted_of
                self._gone(*span)
        elif isinstance(message, TaskClaimResponse):
            for span in message.granted:
                self._gone(*span)
        elif isinstance(message, TaskRunning):
            assert all((c, b, row) in self.given for c, b, lo, hi in message for row in range(lo, hi))

    @invariant()
    def every_row_is_here(self) -> None:
        state = self.fake.core.state
        here = {(*origin.key, row) for origin, lo, hi in state.ready for row in range(lo, hi)}
        for worker in state.workers.records.values():
            for dispatch in worker.dispatches.values():
                if not dispatch.unwanted:
                    here |= {(*dispatch.origin.key, row) for lo, hi in dispatch.left for row in range(lo, hi)}
        assert here == self.given
        assert set(state.withdrawals.withdrawing) <= self.given

    # ---- the scheduler ---------------------------------------------------------------------------------------------
    @rule(
        client=st.integers(1, 2),
        rows=st.integers(1, 12),
        priority=st.integers(0, 1),
        timeout=st.sampled_from([0.0, 0.0, 0.0, 2.0]),
        threads=st.sampled_from([0, 0, 0, 2, 9]),
    )
    def task(self, client: int, rows: int, priority: int, timeout: float, threads: int) -> None:
        batch, self.next_batch = self.next_batch, self.next_batch + rows
        self.given |= {(client, batch, row) for row in range(rows)}
        handled = []
        self.fake.tell = lambda message: handled.append(message)  # type: ignore[method-assign,assignment]
        self.fake.give(batch, 0, rows, client=client, priority=priority, timeout=timeout, threads=threads)
        self._handle(ae.FromScheduler(handled[0]))

    def _span(self, data: st.DataObject) -> Row | None:
        if not self.given:
            return None
        client, batch, row = data.draw(st.sampled_from(sorted(self.given)))
        return client, batch, row

    @rule(data=st.data(), n=st.integers(1, 5), force=st.booleans())
    def cancel(self, data: st.DataObject, n: int, force: bool) -> None:
        span = self._span(data)
        if span is not None:
            client, batch, row = span
            self._handle(ae.FromScheduler(TaskCancel(spans(Spans, client, (batch, row, row + n)), force)))

    @rule(data=st.data(), n=st.integers(1, 5))
    def claim(self, data: st.DataObject, n: int) -> None:
        span = self._span(data)
        if span is not None:
            client, batch, row = span
            self._handle(ae.FromScheduler(spans(TaskClaim, client, (batch, row, row + n))))

    @precondition(lambda self: not self.balances)
    @rule(data=st.data(), rows=st.integers(1, 10), threads=st.sampled_from([0, 0, 2]), some=st.booleans())
    def balance(self, data: st.DataObject, rows: int, threads: int, some: bool) -> None:
        here = sorted({row[:2] for row in self.given}) or [(1, 10)]
        self.wanted_of = data.draw(st.lists(st.sampled_from(here), max_size=3)) if some else []
        self.balances += 1
        clients, batches = u32(c for c, _ in self.wanted_of), u64(b for _, b in self.wanted_of)
        self._handle(ae.FromScheduler(BalanceRequest(rows, threads, clients, batches)))

    @rule(client=st.integers(1, 2))
    def departure(self, client: int) -> None:
        self.given = {row for row in self.given if row[0] != client}
        self._handle(ae.FromScheduler(ClientDeparture(client)))

    @rule()
    def begin_anew(self) -> None:
        self.given.clear()
        self.balances = 0
        self._handle(ae.Welcomed(False, 1.0))

    @precondition(lambda self: not self.given)
    @rule(client=st.integers(1, 2))
    def release(self, client: int) -> None:
        self._handle(ae.FromScheduler(ObjectRelease(u32([client]), u64([1]))))

    # ---- workers ---------------------------------------------------------------------------------------------------
    def _worker(self, data: st.DataObject) -> tuple[int, FakeWorker] | None:
        return (
            data.draw(st.sampled_from(sorted(self.workers.items(), key=lambda item: item[0]))) if self.workers else None
        )

    @rule(data=st.data())
    def ready(self, data: st.DataObject) -> None:
        slots = [slot for slot, worker in sorted(self.workers.items()) if not worker.ready and not worker.dying]
        if slots:
            slot = data.draw(st.sampled_from(slots))
            self.workers[slot].ready = True
            self._handle(ae.FromWorker(slot, wm.Ready(1)))

    @rule(data=st.data(), n=st.integers(1, 9), us=st.sampled_from([1, 100, 5_000, 10**6]), error=st.booleans())
    def works(self, data: st.DataObject, n: int, us: int, error: bool) -> None:
        """Rows end in a worker; the agent hears of it later."""
        slots = [slot for slot, worker in sorted(self.workers.items()) if worker.dispatches]
        if not slots:
            return
        worker = self.workers[data.draw(st.sampled_from(slots))]
        dispatch = worker.dispatches[0]
        number, client, batch, lo, end = dispatch
        hi = min(end, lo + n)
        dispatch[3] = hi
        done = []
        if hi == end:
            worker.dispatches.pop(0)
            done.append(number)
        spans_ = [(lo, hi)] if not error else [(row, row + 1) for row in range(lo, hi)]
        results = [
            wm.EndedSpan(number, client, batch, a, b, 2 if error else 0, us * (b - a), 0, u32([4]), b"data")
            for a, b in spans_
        ]
        worker.said.append(wm.Results(results, done))

    @rule(data=st.data(), asked=st.booleans())
    def gives_back(self, data: st.DataObject, asked: bool) -> None:
        """All but the row that runs."""
        slots = [
            slot for slot, worker in sorted(self.workers.items()) if (worker.recalls or not asked) and worker.ready
        ]
        if not slots:
            return
        worker = self.workers[data.draw(st.sampled_from(slots))]
        returned = []
        for i, dispatch in reversed(list(enumerate(worker.dispatches))):
            lo = dispatch[3] + (i == 0)
            if lo < dispatch[4]:
                returned.append(wm.ReturnedSpan(dispatch[0], dispatch[1], dispatch[2], lo, dispatch[4]))
                dispatch[4] = lo
        emptied = [h[0] for h in worker.dispatches if h[3] >= h[4]]
        worker.dispatches = [h for h in worker.dispatches if h[3] < h[4]]
        worker.said.append(wm.Returned(worker.recalls.pop(0) if asked else 0, returned, worker.running))
        if emptied:
            worker.said.append(wm.Results([], emptied))

    @rule(data=st.data(), blocked=st.booleans())
    def waits(self, data: st.DataObject, blocked: bool) -> None:
        slots = [slot for slot, worker in sorted(self.workers.items()) if worker.dispatches]
        if slots:
            self.workers[data.draw(st.sampled_from(slots))].said.append(wm.Blocked() if blocked else wm.Unblocked())

    @rule(data=st.data(), n=st.integers(1, 5))
    def is_heard(self, data: st.DataObject, n: int) -> None:
        slots = [slot for slot, worker in sorted(self.workers.items()) if worker.said]
        if slots:
            slot = data.draw(st.sampled_from(slots))
            worker = self.workers[slot]
            said, worker.said = worker.said[:n], worker.said[n:]
            self._handle(*[ae.FromWorker(slot, message) for message in said])

    @rule(data=st.data(), is_halted=st.booleans())
    def hangs_up(self, data: st.DataObject, is_halted: bool) -> None:
        """A worker is at its end, and its process is not."""
        if self.workers:
            slot = data.draw(st.sampled_from(sorted(self.workers)))
            worker = self.workers[slot]
            if is_halted:
                self._handle(*[ae.Sampled({slot: 0}, halted=[slot])] * 2)
            else:
                said, worker.said = worker.said, []
                self._handle(*[ae.FromWorker(slot, message) for message in said], ae.HungUp(slot))
            assert worker.dying

    @rule(data=st.data(), hard=st.booleans())
    def ends(self, data: st.DataObject, hard: bool) -> None:
        """A worker that was killed or told to quit ends, or one just dies."""
        slots = [
            slot
            for slot, worker in sorted(self.workers.items())
            if hard or worker.dying or (worker.quits and not worker.dispatches)
        ]
        if slots:
            self._end(data.draw(st.sampled_from(slots)))

    def _end(self, slot: int) -> None:
        worker = self.workers.pop(slot)
        begun = (worker.dispatches[0][0], worker.dispatches[0][3]) if worker.dispatches else (0, -1)
        said = [ae.FromWorker(slot, message) for message in worker.said]
        self.ending = slot  # the agent may end it for what it says last
        self._handle(*said, ae.WorkerExited(slot, 1, 9, begun, claimed=slot % 3 - 1))
        self.ending = None

    @rule(seconds=st.sampled_from([0.0001, 0.01, 3.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.fake.now += seconds
        self._handle(ae.Tick())

    def teardown(self) -> None:
        """Left alone with workers that work, the agent ends all rows and owes nothing."""
        for _ in range(400):
            state = self.fake.core.state
            if (
                not self.given
                and not self.balances
                and not any(
                    w.recalling or w.kill_reason or w.state == "starting" for w in state.workers.records.values()
                )
            ):
                break
            for slot, worker in sorted(self.workers.items()):
                if self.workers.get(slot) is not worker:
                    continue
                if worker.dying or (worker.quits and not worker.dispatches and not worker.said):
                    self._end(slot)
                    continue
                if not worker.ready:
                    worker.ready = True
                    worker.said.insert(0, wm.Ready(1))
                worker.said.append(wm.Unblocked())
                while worker.recalls:
                    worker.said.append(wm.Returned(worker.recalls.pop(0), [], worker.running))
                for number, client, batch, lo, hi in worker.dispatches:
                    results = [wm.EndedSpan(number, client, batch, lo, hi, 0, 100, 0, u32([4]), b"data")]
                    worker.said.append(wm.Results(results, [number]))
                worker.dispatches = []
                said, worker.said = worker.said, []
                self._handle(*[ae.FromWorker(slot, message) for message in said])
            self.fake.now += 0.5
            self._handle(ae.Tick())
        assert not self.given
        assert not self.balances, "the scheduler waits for rows, and would never ask again"
        assert not self.fake.core.state.withdrawals.withdrawing
        assert not self.fake.core.state.queued


TestAgent = Agent.TestCase
TestAgent.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=40)
