"""The scheduler's core alone: whatever clients and agents say in whatever order, its books stay right."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from simulator import checks
from simulator.mirror import Mirror
from simulator.scripted import FakeScheduler, graph, result, spans, task
from simulator.world import World

from scaler.protocol.messages import (
    CANCELLED,
    EACH,
    ERROR,
    KEEP,
    LOST,
    PLACE,
    STORED,
    STORED_OBJECT,
    TOGETHER,
    VALUES_EACH,
    VALUES_LIST,
    BalanceRequest,
    BalanceResponse,
    ClientClear,
    ClientDeparture,
    DisconnectRequest,
    Heartbeat,
    ObjectAnnounce,
    ObjectFetch,
    ObjectGone,
    ObjectMissing,
    ObjectRelease,
    ObjectRequest,
    ObjectResponse,
    Objects,
    Spans,
    StoreRequest,
    Task,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskResult,
    TaskRunning,
    u8,
    u32,
    u64,
)
from scaler.scheduler.core import lineage
from scaler.scheduler.state.batch_records import AGENT, DONE


class Scheduler(RuleBasedStateMachine):
    """Clients submit, cancel, claim, leave; agents report what they have, give it back, or are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.fake = FakeScheduler(2)
        self.mirror = Mirror(self.fake.core.state)
        self.world = World(0)
        self.next_id: dict[int, int] = {}
        #: what agents were told to release, and what they have, as they know it
        self.held: dict[int, set[tuple[int, int]]] = {}
        #: values that clients were asked for
        self.wanted: list[tuple[int, int]] = []
        #: (agent, client, object) that agents were asked to make readable
        self.fetches: list[tuple[int, int, int]] = []
        self.owing: list[int] = []
        self.ended: set[tuple[int, int, int]] = set()
        self._collect()

    def teardown(self) -> None:
        for number in list(self.fake.core.state.clients):
            self.fake.say(number, DisconnectRequest())
        self._collect()
        core = self.fake.core
        assert not core.state.queues.rows
        for agent in core.state.agents.values():
            left = (agent.load.outstanding, agent.batches, agent.holdings.keys, agent.withdrawals)
            assert not any(left)

    # ---- what comes out --------------------------------------------------------------------------------------------
    def _collect(self) -> None:
        core = self.fake.core
        for number in list(self.fake._sent):
            for message in self.fake.heard(number):
                if isinstance(message, Task):
                    held = self.held.setdefault(number, set())
                    held |= {(message.client, i) for i in (*message.objects, *message.stored)}
                    needed = {message.function, *message.dependencies} | (
                        {message.arguments} if message.arguments else set()
                    )
                    assert {(message.client, i) for i in needed} <= held, "rows without what they need"
                    message.validate()
                elif isinstance(message, ObjectAnnounce):
                    self.held.setdefault(number, set()).update((message.client, i) for i in message.ids)
                elif isinstance(message, ObjectFetch):
                    names = list(zip(message.clients, message.ids, strict=True))
                    self.held.setdefault(number, set()).update(names)
                    self.fetches += [(number, *name) for name in names]
                elif isinstance(message, ObjectResponse):
                    pass
                elif isinstance(message, ObjectRelease):
                    self.held[number] -= set(message)
                elif isinstance(message, ClientDeparture):
                    self.held[number] = {key for key in self.held.get(number, ()) if key[0] != message.client}
                elif isinstance(message, ObjectRequest):
                    self.wanted += list(message)
                elif isinstance(message, BalanceRequest):
                    assert number not in self.owing
                    self.owing.append(number)
                elif isinstance(message, TaskResult):
                    for batch, lo, hi in zip(message.batches, message.spans[::2], message.spans[1::2], strict=True):
                        for row in range(lo, hi):
                            assert (number, batch, row) not in self.ended, "a row ended twice"
                            self.ended.add((number, batch, row))
        self.wanted = [(c, v) for c, v in self.wanted if c in core.state.clients]
        self.owing = [n for n in self.owing if n in core.state.agents]

    @invariant()
    def books_are_right(self) -> None:
        self._collect()
        for agent in self.fake.core.state.agents.values():
            # what an agent knows is what the scheduler thinks, but for releases that have not been sent
            held, holdings = self.held.get(agent.number, set()), agent.holdings
            assert holdings.keys | set(holdings.released) >= held >= holdings.keys
        for client in self.fake.core.state.clients.values():
            for value in client.values.remaking:
                source = lineage.maker_of(client, value, None)
                asked = (client.number, value) in self.wanted
                made = any(
                    batch.id <= value < batch.id + batch.rows and batch.place[value - batch.id] != DONE
                    for batch in client.batches.values()
                )
                assert made or asked, f"nobody makes {value} of {source} again"
        checks.THOROUGH, before = True, checks.THOROUGH
        try:
            checks.check_scheduler(self.world, self.fake.core, self.mirror)
        finally:
            checks.THOROUGH = before

    # ---- clients ---------------------------------------------------------------------------------------------------
    def _ids(self, client: int, count: int) -> int:
        first = self.next_id.get(client, 10)
        self.next_id[client] = first + count
        return first

    def _client(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.fake.core.state.clients)))

    @precondition(lambda self: len(self.fake.core.state.clients) < 3)
    @rule()
    def join(self) -> None:
        self.fake.client()

    @precondition(lambda self: self.fake.core.state.clients)
    @rule(
        data=st.data(),
        rows=st.integers(1, 8),
        form=st.sampled_from([EACH, TOGETHER]),
        retries=st.integers(0, 1),
        gpu=st.booleans(),
        threads=st.sampled_from([0, 0, 2, 3]),
    )
    def submit(self, data: st.DataObject, rows: int, form: int, retries: int, gpu: bool, threads: int) -> None:
        client = self._client(data)
        capabilities = ("gpu",) if gpu else ()
        made = task(self._ids(client, rows), rows, form, retries=retries, capabilities=capabilities, threads=threads)
        if form == EACH and data.draw(st.booleans()):
            known = range(1, self.next_id[client] - rows)
            needs = [data.draw(st.lists(st.sampled_from(known), max_size=3)) for _ in range(rows)]
            made.dependency_counts = u32(map(len, needs))
            made.dependencies = u64([value for values in needs for value in values])
        self.fake.say(client, made)

    @precondition(lambda self: self.fake.core.state.clients)
    @rule(data=st.data(), rows=st.integers(1, 8))
    def submit_graph(self, data: st.DataObject, rows: int) -> None:
        client = self._client(data)
        needs = [data.draw(st.lists(st.integers(0, row - 1), max_size=3)) if row else [] for row in range(rows)]
        wanted = data.draw(st.sets(st.integers(0, rows - 1), min_size=1))
        self.fake.say(client, graph(self._ids(client, rows), needs, wanted))

    @precondition(lambda self: self.fake.core.state.clients)
    @rule(data=st.data())
    def announce(self, data: st.DataObject) -> None:
        client = self._client(data)
        self.fake.say(client, ObjectAnnounce(u64([self._ids(client, 1)]), u8([0]), [b"value"]))

    @precondition(lambda self: self.wanted)
    @rule(failed=st.booleans())
    def supply(self, failed: bool) -> None:
        client, value = self.wanted.pop(0)
        self.fake.say(client, ObjectAnnounce(u64([value]), u8([failed]), [b"value"]))

    @precondition(lambda self: self.fake.core.state.clients)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        client = self._client(data)
        held = [
            i
            for i, item in self.fake.core.state.clients[client].values.objects.items()
            if item.held_by_client and i > 1
        ]
        if held:
            self.fake.say(client, ObjectRelease(u32([0]), u64([data.draw(st.sampled_from(held))])))

    def _some_rows(self, data: st.DataObject, client: int) -> list[tuple[int, int, int]]:
        batches = list(self.fake.core.state.clients[client].batches.values())
        if not batches:
            return []
        batch = data.draw(st.sampled_from(batches))
        lo = data.draw(st.integers(0, batch.rows - 1))
        return [(batch.id, lo, data.draw(st.integers(lo + 1, batch.rows)))]

    @precondition(lambda self: self.fake.core.state.clients)
    @rule(data=st.data(), force=st.booleans())
    def cancel(self, data: st.DataObject, force: bool) -> None:
        client = self._client(data)
        self.fake.cancel(client, *self._some_rows(data, client), force=force)

    @precondition(lambda self: self.fake.core.state.clients)
    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        client = self._client(data)
        self.fake.claim(client, *self._some_rows(data, client))

    @precondition(lambda self: self.fake.core.state.clients)
    @rule(data=st.data(), how=st.sampled_from(["lost", "goodbye", "clear"]))
    def leave(self, data: st.DataObject, how: str) -> None:
        client = self._client(data)
        if how == "lost":
            self.fake.lose(client)
        else:
            self.fake.say(client, DisconnectRequest() if how == "goodbye" else ClientClear())
        self.wanted = [(c, v) for c, v in self.wanted if c != client]
        if how == "clear":
            self._collect()
            self.fake.say(client, ObjectAnnounce(u64([1]), u8([0]), [b"function"]))

    # ---- agents ----------------------------------------------------------------------------------------------------
    @precondition(lambda self: len(self.fake.core.state.agents) < 4)
    @rule(workers=st.integers(0, 3), gpu=st.booleans(), boot_id=st.sampled_from(["here", "there"]))
    def agent_joins(self, workers: int, gpu: bool, boot_id: str) -> None:
        self.fake.agent(workers, ("gpu",) if gpu else (), boot_id)

    @precondition(lambda self: self.fake.core.state.agents)
    @rule(data=st.data())
    def agent_lost(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.fake.core.state.agents)))
        self.held.pop(number, None)
        self.fake.lose(number)

    @precondition(lambda self: self.fake.core.state.agents)
    @rule(data=st.data(), workers=st.integers(0, 4), full=st.booleans())
    def heartbeat(self, data: st.DataObject, workers: int, full: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.fake.core.state.agents)))
        self.fake.say(number, Heartbeat(0.0, workers, full=full))

    # ---- stored objects --------------------------------------------------------------------------------------------
    @precondition(lambda self: self.fake.core.state.clients and self.fake.core.state.agents)
    @rule(data=st.data())
    def announce_stored(self, data: st.DataObject) -> None:
        client = self._client(data)
        agent = data.draw(st.sampled_from([*sorted(self.fake.core.state.agents), 999]))
        body = PLACE.pack(1 << 20, agent)
        self.fake.say(client, ObjectAnnounce(u64([self._ids(client, 1)]), u8([STORED_OBJECT]), [body]))

    @precondition(lambda self: self.wanted and self.fake.core.state.agents)
    @rule(data=st.data())
    def supply_stored(self, data: st.DataObject) -> None:
        client, value = self.wanted.pop(0)
        agent = data.draw(st.sampled_from(sorted(self.fake.core.state.agents)))
        self.fake.say(client, ObjectAnnounce(u64([value]), u8([STORED_OBJECT]), [PLACE.pack(1 << 20, agent)]))

    def _stored_at(self, data: st.DataObject) -> tuple[int, int, int] | None:
        places = [
            (number, client.number, value)
            for client in self.fake.core.state.clients.values()
            for value, item in client.values.objects.items()
            for number in sorted(item.copies)
        ]
        return data.draw(st.sampled_from(places)) if places else None

    @rule(data=st.data())
    def object_gone(self, data: st.DataObject) -> None:
        place = self._stored_at(data)
        if place is not None:
            self.fake.say(place[0], ObjectGone(u32([place[1]]), u64([place[2]])))

    @precondition(lambda self: self.fake.core.state.agents)
    @rule(data=st.data())
    def object_fetched(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.fake.core.state.agents)))
        told = sorted(self.held.get(number, ()))
        if told:
            client, value = data.draw(st.sampled_from(told))
            body = PLACE.pack(1 << 20, number)
            self.fake.say(number, ObjectAnnounce(u64([value]), u8([STORED_OBJECT]), [body], client))

    @rule(data=st.data())
    def object_missing(self, data: st.DataObject) -> None:
        place = self._rows_at(data)
        if place is None:
            return
        agent, client, batch_id, lo, hi = place
        batch = self.fake.core.state.clients[client].batches[batch_id]
        needed = {batch.task.function, *(value for row in range(lo, hi) for value in (batch.needs or [()] * hi)[row])}
        lacking = [i for i in needed if getattr(self.fake.core.state.clients[client].values.objects.get(i), "size", 0)]
        if lacking:
            names = Objects(u32([client]) * len(lacking), u64(sorted(lacking)))
            self.fake.say(agent, ObjectMissing(names, spans(Spans, client, (batch_id, lo, hi))))

    @precondition(lambda self: self.fake.core.state.clients)
    @rule(data=st.data(), beside=st.booleans())
    def look_for_a_store(self, data: st.DataObject, beside: bool) -> None:
        self.fake.say(self._client(data), StoreRequest(beside))

    @precondition(lambda self: self.fake.core.state.clients)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        client = self._client(data)
        held = [
            i
            for i, item in self.fake.core.state.clients[client].values.objects.items()
            if item.held_by_client and item.size
        ]
        if held:
            self.fake.say(client, ObjectRequest(u32([0]), u64([data.draw(st.sampled_from(held))])))

    @precondition(lambda self: self.fetches)
    @rule(outcome=st.integers(0, 1))
    def respond(self, outcome: int) -> None:
        number, client, value = self.fetches.pop(0)
        if number in self.fake.core.state.agents:
            self.fake.say(number, ObjectResponse(u32([client]), u64([value]), u8([outcome]), number, "test"))

    def _rows_at(self, data: st.DataObject) -> tuple[int, int, int, int, int] | None:
        core = self.fake.core
        places = [
            (n, b, lo, hi) for n, a in core.state.agents.items() for b in a.batches for lo, hi in b.spans_in(AGENT + n)
        ]
        if not places:
            return None
        number, batch, lo, hi = data.draw(st.sampled_from(places))
        lo = data.draw(st.integers(lo, hi - 1))
        return number, batch.client, batch.id, lo, data.draw(st.integers(lo + 1, hi))

    @rule(
        data=st.data(),
        outcome=st.sampled_from([VALUES_LIST, VALUES_LIST, VALUES_EACH, STORED, STORED, ERROR, LOST, CANCELLED]),
        us=st.integers(1, 10**6),
    )
    def report(self, data: st.DataObject, outcome: int, us: int) -> None:
        place = self._rows_at(data)
        if place is not None:
            agent, client, batch, lo, hi = place
            if outcome == VALUES_LIST and self.fake.core.state.clients[client].batches[batch].task.flags & KEEP:
                outcome = VALUES_EACH
            if outcome == STORED:
                self.held.setdefault(agent, set()).update((client, batch + row) for row in range(lo, hi))
            self.fake.report(agent, client, result(batch, lo, lo + 1 if outcome in (ERROR, LOST) else hi, outcome, us))

    @rule(data=st.data())
    def runs(self, data: st.DataObject) -> None:
        place = self._rows_at(data)
        if place is not None:
            self.fake.say(place[0], spans(TaskRunning, place[1], place[2:]))

    @rule(data=st.data(), granted=st.booleans())
    def answer_a_claim(self, data: st.DataObject, granted: bool) -> None:
        agents = self.fake.core.state.agents
        asks = [
            (n, ask)
            for n, a in agents.items()
            for asks_of in a.withdrawals.values()
            for ask in asks_of
            if ask.kind == "claim"
        ]
        if asks:
            number, (_, batch, lo, hi) = data.draw(st.sampled_from(asks))
            rows = spans(Spans, batch.client, (batch.id, lo, hi))
            self.fake.say(number, TaskClaimResponse(rows, Spans()) if granted else TaskClaimResponse(Spans(), rows))

    @precondition(lambda self: self.owing)
    @rule(data=st.data())
    def balance(self, data: st.DataObject) -> None:
        number = self.owing.pop(0)
        mine = [
            (b, lo, hi) for b in self.fake.core.state.agents[number].batches for lo, hi in b.spans_in(AGENT + number)
        ]
        response = BalanceResponse()
        if mine:
            for batch, lo, hi in data.draw(st.lists(st.sampled_from(mine), max_size=2, unique=True)):
                response.add(batch.client, batch.id, lo, hi)
        self.fake.say(number, response)

    @rule(seconds=st.sampled_from([0.1, 3.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.fake.wait(seconds)
        for number in (*self.fake.core.state.clients, *self.fake.core.state.agents):
            self.fake.say(number, Heartbeat(0.0, getattr(self.fake.core.state.agents.get(number), "workers", 0)))

    # ---- nonsense --------------------------------------------------------------------------------------------------
    @precondition(lambda self: self.fake.core.state.clients and self.fake.core.state.agents)
    @rule(data=st.data(), rows=st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(1, 9)))
    def nonsense(self, data: st.DataObject, rows: tuple[int, int, int]) -> None:
        """Rows that nobody has, in every message that names rows."""
        client = self._client(data)
        agent = data.draw(st.sampled_from(sorted(self.fake.core.state.agents)))
        batch, lo, n = rows
        span = (batch, lo, lo + n)
        kind = data.draw(st.sampled_from(["result", "running", "granted", "balance", "cancel", "claim", "release"]))
        place = self.fake.core.state.clients[client].batches.get(batch)
        at = place is not None and AGENT + agent in place.place[lo : lo + n]
        if kind == "result":
            self.fake.report(agent, client, result(*span, VALUES_EACH))
        elif kind == "running":
            self.fake.say(agent, spans(TaskRunning, client, span))
        elif kind == "granted" and not at:
            self.fake.say(agent, TaskClaimResponse(spans(Spans, client, span), Spans()))
        elif kind == "balance" and agent not in self.owing:
            self.fake.say(agent, spans(BalanceResponse, client, span))
        elif kind == "cancel":
            self.fake.say(client, TaskCancel(spans(Spans, client, span)))
        elif kind == "claim":
            self.fake.say(client, spans(TaskClaim, client, span))
        elif kind == "release" and batch > 1 and (client, batch) not in self.wanted:
            self.fake.say(client, ObjectRelease(u32([0]), u64([batch])))


TestScheduler = Scheduler.TestCase
TestScheduler.settings = settings(
    max_examples=2 * settings().max_examples,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
