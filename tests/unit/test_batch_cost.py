"""A batch is as long as its message: nobody takes the scheduler's memory with a number alone."""

import tracemalloc

import pytest
from simulator.checks import check_scheduler
from simulator.scripted import FakeScheduler, as_heard, graph, spans, task
from simulator.world import World

from scaler.protocol.messages import (
    CANCELLED,
    GRAPH,
    INLINE,
    KEEP,
    PLACE,
    STORED_OBJECT,
    TOGETHER,
    ObjectAnnounce,
    Spans,
    Task,
    TaskCancel,
    TaskResult,
    u8,
    u32,
    u64,
)
from scaler.scheduler.core import batch_cost
from scaler.scheduler.core import events as ev
from scaler.scheduler.core.batch_cost import MOST_FAILING, MOST_ROWS_APART

MANY = 1 << 24
BATCH, ARGUMENTS = 100, 50


def together(rows: int, payload: bytes | None) -> Task:
    """A map of so many rows; without a payload its arguments were sent before."""
    made = Task(0, BATCH, rows, TOGETHER, 0, 1, ARGUMENTS, "f", spans=u32([0, rows]))
    if payload is not None:
        made.objects, made.bodies = u64([ARGUMENTS]), [payload]
    return made


def bare_graph(rows: int) -> Task:
    """A graph that has nothing but its entries."""
    return Task(
        0, BATCH, rows, GRAPH, KEEP, ARGUMENTS, 0, "g", spans=u32([0, rows]), graph=BATCH,
        objects=u64([ARGUMENTS]), bodies=[b"entries"],
    )  # fmt: skip


@pytest.mark.parametrize("said", [together(MANY, b"tiny"), together(MANY, None), bare_graph(MANY)], ids=str)
def test_a_batch_of_more_rows_than_its_message_has_bytes_costs_the_session(said: Task) -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, said)
    (forgotten,) = [effect for effect in fake.effects if isinstance(effect, ev.Forget)]
    assert forgotten.number == client
    assert f"{MANY:,} rows" in forgotten.reason
    assert client not in fake.core.state.clients


def test_arguments_that_came_before_allow_for_as_many_rows_as_they_have_bytes() -> None:
    fake = FakeScheduler(1)
    client, greedy = fake.client(), fake.client()
    for number in (client, greedy):
        fake.say(number, ObjectAnnounce(u64([ARGUMENTS]), u8([INLINE]), [b"[1, 2, 3]"]))
    fake.say(client, together(3, None))
    assert fake.core.state.clients[client].outstanding == 3
    fake.say(greedy, together(10, None))
    assert greedy not in fake.core.state.clients


def test_arguments_in_a_store_are_believed_up_to_a_bound() -> None:
    fake = FakeScheduler(1)
    client, greedy = fake.client(), fake.client()
    for number in (client, greedy):
        place = PLACE.pack(1 << 40, fake.agents[0])
        fake.say(number, ObjectAnnounce(u64([ARGUMENTS]), u8([STORED_OBJECT]), [place]))
    fake.say(client, together(MOST_ROWS_APART, None))
    assert fake.core.state.clients[client].outstanding == MOST_ROWS_APART
    fake.say(greedy, together(MOST_ROWS_APART + 1, None))
    assert greedy not in fake.core.state.clients


@pytest.mark.parametrize("arguments", [0, ARGUMENTS])
def test_many_rows_whose_function_or_arguments_were_never_sent_cost_the_session(arguments: int) -> None:
    fake = FakeScheduler(1)
    client, greedy = fake.client(), fake.client()

    def unsent(rows: int) -> Task:
        return together(rows, None) if arguments else task(BATCH, rows, function=ARGUMENTS)

    fake.say(client, unsent(MOST_FAILING))
    (result,) = fake.heard(client, TaskResult)
    assert len(result.batches) == MOST_FAILING
    fake.say(greedy, unsent(MOST_FAILING + 1))
    assert greedy not in fake.core.state.clients


def test_rows_without_their_arguments_are_bounded_together_as_long_as_they_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_cost, "MOST_APART_TOGETHER", 50)
    fake = FakeScheduler(1)
    client, greedy = fake.client(), fake.client()

    def apart(batch: int) -> Task:
        return Task(0, batch, 20, TOGETHER, 0, 1, ARGUMENTS, "f", spans=u32([0, 20]))

    for number in (client, greedy):
        fake.say(number, ObjectAnnounce(u64([ARGUMENTS]), u8([INLINE]), [b"x" * 20]), apart(100), apart(200))
    fake.end_all(fake.agents[0], client)
    fake.say(client, *[TaskCancel(spans(Spans, 0, (batch, 0, 20))) for batch in (100, 200)])
    fake.end_all(fake.agents[0], client, CANCELLED)
    assert not fake.core.state.clients[client].values.rows_apart
    fake.say(client, apart(300), apart(400))
    fake.say(greedy, apart(300))
    (forgotten,) = [effect for effect in fake.effects if isinstance(effect, ev.Forget)]
    assert forgotten.number == greedy
    assert "60 rows without their arguments" in forgotten.reason
    assert client in fake.core.state.clients
    check_scheduler(World(0), fake.core)


def test_what_clients_make_is_as_long_as_it_has_to_be() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 4), task(20, 4, TOGETHER), graph(30, [[], [0], [1]], [2]))
    assert fake.core.state.clients[client].outstanding == 11


def test_an_object_that_no_agent_has_takes_little_more_than_its_record() -> None:
    """Each had an empty set of its own for those that have it: half of what a client made the scheduler keep."""
    fake, count = FakeScheduler(1), 1_000
    client = fake.client()
    said = as_heard(ObjectAnnounce(u64(range(1_000, 1_000 + count)), u8([INLINE]) * count, [b"x"] * count))
    tracemalloc.start()
    try:
        fake.core.handle([ev.Received(client, said)], 0.0)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(fake.core.state.clients[client].values.objects) == count + 1
    assert kept < 300 * count
