"""What clients have the scheduler keep is bounded: who has most kept is given up, and nobody else."""

import tracemalloc
from collections.abc import Callable

import pytest
from simulator.checks import check_scheduler
from simulator.scripted import FakeScheduler, as_heard, graph, result, spans, task
from simulator.world import World

from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import (
    CANCELLED,
    EACH,
    ERROR,
    GRAPH,
    INLINE,
    KEEP,
    PLACE,
    STORED,
    STORED_OBJECT,
    TOGETHER,
    VALUES_EACH,
    ClientClear,
    ClientReturn,
    Heartbeat,
    HeartbeatEcho,
    Message,
    ObjectAnnounce,
    ObjectRelease,
    Spans,
    Task,
    TaskCancel,
    u8,
    u32,
    u64,
)
from scaler.protocol.results import SpanResult
from scaler.scheduler.core import events as ev
from scaler.scheduler.state.accounts import BATCH, OBJECT

MB = 1_000_000


def forgotten(fake: FakeScheduler) -> list[ev.Forget]:
    """Who was given up in the last step."""
    return [effect for effect in fake.effects if isinstance(effect, ev.Forget)]


def flood(fake: FakeScheduler, client: int, batches: int, first: int = 1_000) -> ev.Forget | None:
    """A client submits tasks one by one, until it is given up."""
    for number in range(first, first + batches):
        fake.say(client, task(number, 1))
        if client not in fake.core.state.clients:
            (end,) = forgotten(fake)
            return end
    return None


def test_a_flood_ends_its_client_and_nobody_else() -> None:
    fake = FakeScheduler(kept_bytes=MB)
    honest, greedy = fake.client(), fake.client()
    assert flood(fake, honest, 10) is None
    end = flood(fake, greedy, 1_000)
    assert end is not None
    assert (end.number, end.is_told, end.is_final) == (greedy, True, True)
    assert "most of all clients" in end.reason
    assert "1.0 MB, half of its memory. Submit fewer tasks at a time" in end.reason
    assert fake.core.state.clients[honest].outstanding == 10
    assert fake.core.state.kept == fake.core.state.clients[honest].kept > 10 * BATCH
    check_scheduler(World(0), fake.core)


def test_whoever_has_most_goes_not_whoever_speaks_last() -> None:
    fake = FakeScheduler(kept_bytes=MB)
    honest, greedy = fake.client(), fake.client()
    share = MB * 9 // 20 // BATCH
    assert flood(fake, honest, share) is None
    assert flood(fake, greedy, share + 20) is None
    assert flood(fake, honest, 30, first=9_000) is None
    assert greedy not in fake.core.state.clients
    assert fake.core.state.clients[honest].outstanding == share + 30


def test_a_sum_that_is_nobodys_harms_nobody() -> None:
    """Should the accounts not add up, that is a defect, and no reason to end the scheduler."""
    fake = FakeScheduler(kept_bytes=MB)
    client = fake.client()
    fake.core.state.kept, fake.core._crowded = 2 * MB, 0
    fake.say(client, Heartbeat(0.0))
    assert fake.heard(client, HeartbeatEcho)
    fake.core.state.kept = 0


def test_one_that_is_alone_may_have_all() -> None:
    fake = FakeScheduler(kept_bytes=MB)
    client = fake.client()
    assert flood(fake, client, MB // BATCH - 20) is None
    assert flood(fake, client, 40, first=90_000) is not None


def test_the_log_tells_at_half_who_has_most_and_once() -> None:
    fake = FakeScheduler(kept_bytes=MB)
    client = fake.client()
    flood(fake, client, MB * 9 // 10 // BATCH)
    (line,) = [line for line in fake.log if "kept here" in line]
    assert line.startswith("0.5 MB of tasks and objects are kept here, 0.5 MB of these for client 1 (client-1)")


def rows_of_a_graph(rows: int, needs: int, unknown: bool = False, batch: int = 1 << 30) -> Task:
    """Each row needs those before it, or values that nobody has."""
    counts, values = [], []
    for row in range(rows):
        wanted = range(batch + row - needs, batch + row) if row >= needs else range(0)
        if unknown:
            wanted = range(1 << 32 | row * needs, (1 << 32 | row * needs) + needs)
        counts.append(len(wanted))
        values += wanted
    return Task(
        0, batch, rows, GRAPH, KEEP, 1, batch + rows, "g", spans=u32([0, rows]), graph=batch,
        dependency_counts=u32(counts), dependencies=u64(values), uses=u32([needs]) * rows, wanted=u8([0]) * rows,
        objects=u64([batch + rows]), bodies=[b"1234" * rows],
    )  # fmt: skip


@pytest.mark.parametrize("unknown", [False, True])
def test_a_message_that_becomes_much_more_than_its_bytes_is_refused_beforehand(unknown: bool) -> None:
    fake = FakeScheduler(kept_bytes=5 * MB)
    small, client = fake.client(), fake.client()
    fake.say(client, rows_of_a_graph(1_000, 5, unknown))
    assert fake.core.state.clients[client].outstanding == 1_000
    said = as_heard(rows_of_a_graph(10_000, 5, unknown, 1 << 31))
    tracemalloc.start()
    try:
        fake.say(client, said)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MB
    (end,) = forgotten(fake)
    assert (end.number, end.is_final) == (client, True)
    assert "it would keep" in end.reason
    assert small in fake.core.state.clients
    assert fake.core.state.kept == fake.core.state.clients[small].kept


def test_many_small_objects_are_refused_beforehand() -> None:
    fake = FakeScheduler(kept_bytes=MB)
    client = fake.client()
    ids = range(1 << 20, (1 << 20) + MB // OBJECT)
    fake.say(client, ObjectAnnounce(u64(ids), u8([INLINE]) * len(ids), [b"x"] * len(ids)))
    (end,) = forgotten(fake)
    assert end.number == client
    assert not fake.core.state.kept


def test_values_of_rows_count_too() -> None:
    fake = FakeScheduler(1, kept_bytes=MB)
    client = fake.client()
    fake.say(client, graph(100, [[], [0]], [1]))
    value = SpanResult(100, 0, 1, VALUES_EACH, 100, 0, u32([MB]), b"x" * MB)
    fake.report(fake.agents[0], client, value)
    (end,) = forgotten(fake)
    assert (end.number, end.is_final) == (client, True)


def test_what_is_put_aside_for_a_client_that_returns_counts_too() -> None:
    fake = FakeScheduler(kept_bytes=MB)
    client = fake.come_back("client", 7, agents=u32([99]))
    for number in range(1_000, 1_300):
        fake.say(client, task(number, 1))
    assert fake.core.state.clients[client].kept == fake.core.state.kept > 300 * BATCH
    check_scheduler(World(0), fake.core)
    for number in range(1_300, 1_400):
        fake.say(client, task(number, 1))
    assert client not in fake.core.state.clients
    assert not fake.core.state.kept


def test_a_client_that_returns_has_an_account_of_what_it_says_again() -> None:
    fake = FakeScheduler(kept_bytes=MB)
    client = fake.come_back("client", 7)
    said: list[Message] = [ObjectAnnounce(u64([1]), u8([INLINE]), [b"function"]), task(100, 1), task(200, 5)]
    fake.say(client, *said, ClientReturn())
    other = fake.client()
    fake.say(other, task(100, 1), task(200, 5))
    clients = fake.core.state.clients
    assert clients[client].kept == clients[other].kept > 2 * BATCH


def test_what_residents_have_is_in_their_journal() -> None:
    fake = FakeScheduler(kept_bytes=MB)
    client = fake.client()
    fake.core.state.clients[client].is_resident = True
    fake.core.state.kept = 0
    assert flood(fake, client, 2 * MB // BATCH) is None
    assert not fake.core.state.kept
    other = fake.client()
    assert flood(fake, other, 2 * MB // BATCH) is not None
    assert client in fake.core.state.clients


def test_an_account_is_empty_when_all_is_over() -> None:
    fake = FakeScheduler(2, kept_bytes=100 * MB)
    client, agent = fake.client(), fake.agents[0]
    record = fake.core.state.clients[client]
    alone = record.kept
    assert alone == OBJECT + len(b"function")
    place = PLACE.pack(1 << 20, agent)
    fake.say(client, ObjectAnnounce(u64([50, 51]), u8([INLINE, STORED_OBJECT]), [b"x" * 1_000, place]))
    fake.say(client, task(100, 5), graph(200, [[], [0], [0, 1]], [2]), task(300, 1))
    fake.end_all(agent, client)
    fake.say(client, TaskCancel(spans(Spans, 0, (100, 0, 5))))
    fake.end_all(agent, client, CANCELLED)
    assert not record.batches
    fake.say(client, ObjectRelease(u32([0, 0]), u64([50, 51])))
    assert record.kept == alone
    fake.say(client, task(400, 5), ClientClear())
    assert record.kept == fake.core.state.kept == 0


def test_batches_of_a_graph_that_are_over_hold_nothing_until_all_of_it_is() -> None:
    fake = FakeScheduler(kept_bytes=100 * MB)
    client = fake.client()
    fake.say(client, task(1 << 20, 1, flags=KEEP, graph=7, capabilities=("nowhere",)))

    def cancelled(first: int) -> None:
        for batch in range(first, first + 200):
            fake.say(client, as_heard(task(batch, 1, flags=KEEP, graph=7, bodies=[b"x" * 1_000], sizes=u32([1_000]))))
            fake.say(client, TaskCancel(spans(Spans, 0, (batch, 0, 1))))
        fake.heard(client)
        fake.effects.clear()

    cancelled(1_000)
    tracemalloc.start()
    try:
        cancelled(2_000)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fake.core.state.clients[client].outstanding == 1
    assert taken < 200 * 1_000
    check_scheduler(World(0), fake.core)


def test_errors_for_rows_that_have_not_come_count_too() -> None:
    fake = FakeScheduler(1, kept_bytes=MB)
    client = fake.client()
    made = graph(100, [[]], [0])
    made.uses = u32([1])
    fake.say(client, made)
    record = ErrorRecord(ErrorKind.RAISED, exception=b"x" * MB).encode()
    fake.report(fake.agents[0], client, SpanResult(100, 0, 1, ERROR, 100, 0, u32([len(record)]), record))
    (end,) = forgotten(fake)
    assert (end.number, end.is_final) == (client, True)
    assert not fake.core.state.kept


def _lone(number: int) -> Message:
    return task(number, 1)


def _map(number: int) -> Message:
    made = Task(0, number, 10_000, TOGETHER, 0, 1, number - 1, "f", spans=u32([0, 10_000]))
    made.objects, made.bodies = u64([number - 1]), [b"1" * 10_000]
    return made


def _objects(number: int) -> Message:
    return ObjectAnnounce(u64(range(number, number + 100)), u8([INLINE]) * 100, [b"x"] * 100)


def _several(number: int) -> Message:
    return Task(
        0, number, 1_000, EACH, 0, 1, 0, "f", spans=u32([0, 1_000]), sizes=u32([4]) * 1_000, bodies=[b"1234" * 1_000]
    )


@pytest.mark.parametrize(
    ("made", "messages"),
    [
        (_lone, 300),
        (lambda number: task(number, 1, priority=number), 300),
        (_map, 10),
        (_several, 10),
        (_objects, 20),
        (lambda number: rows_of_a_graph(2_000, 0, batch=number), 3),
        (lambda number: rows_of_a_graph(2_000, 3, batch=number), 3),
        (lambda number: rows_of_a_graph(2_000, 3, unknown=True, batch=number), 1),
    ],
    ids=["lone", "of a priority of its own", "map", "each", "objects", "graph", "needs", "unknown needs"],
)  # fmt: skip
def test_prices_are_about_what_is_taken(made: Callable[[int], Message], messages: int) -> None:
    fake = FakeScheduler(kept_bytes=1 << 40)
    client = fake.client()
    for number in range(3):
        fake.say(client, as_heard(_lone(100 + number)))
    state, tables = fake.core.state, 100_000  # of those that double now and then
    tracemalloc.start()
    try:
        before, kept = tracemalloc.get_traced_memory()[0], state.kept
        for number in range(1, messages + 1):
            fake.say(client, as_heard(made(number * 100_000)))
        fake.heard(client), fake.effects.clear()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert (state.kept - kept) / 2 - tables < taken < (state.kept - kept) * 1.5 + tables


def test_values_that_are_stored_have_their_batch_remembered_and_paid_for() -> None:
    fake = FakeScheduler(1, kept_bytes=MB)
    client, agent = fake.client(), fake.agents[0]
    record = fake.core.state.clients[client]
    alone = record.kept
    fake.say(client, task(100, 1))
    fake.report(agent, client, result(100, 0, 1, STORED))
    assert list(record.remembered) == [100]
    assert record.kept > alone + BATCH
    fake.say(client, ObjectRelease(u32([0]), u64([100])))
    assert record.kept == alone
