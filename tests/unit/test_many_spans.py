"""Rows that are named one by one, thousands in a message: what that may cost a scheduler, and that nothing is lost."""

import itertools
import random
from dataclasses import dataclass

import pytest
from simulator.scripted import FakeAgent, FakeScheduler, as_heard, result, spans, task
from support.counting import calls_of, steps_of

from scaler.common.spans import SpanQueue
from scaler.errors import ProtocolError
from scaler.protocol.codes import MOST_ASKED, MOST_SPANS
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    KEEP,
    ClientClear,
    Message,
    ObjectAnnounce,
    ObjectRequest,
    Spans,
    TaskCancel,
    TaskClaim,
    TaskHold,
    TaskResult,
    u8,
    u32,
    u64,
)
from scaler.scheduler.core.events import Lost, Received
from scaler.scheduler.state.batch_records import AGENT, DONE, QUEUED
from scaler.scheduler.state.validate import validate
from scaler.transport.framing import LARGE
from scaler.transport.zeromq_sockets import drain


def every_second(count: int, batch: int = 10, first: int = 0) -> list[tuple[int, int, int]]:
    """So many spans of a row each."""
    return [(batch, row, row + 1) for row in range(first, first + 2 * count, 2)]


def cancel(count: int) -> TaskCancel:
    """So many rows are to be cancelled."""
    return TaskCancel(spans(Spans, 0, *every_second(count)))


# ---- what may be said ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [TaskCancel, TaskHold, TaskClaim])
def test_a_message_that_asks_for_more_spans_than_it_may_is_none_and_says_how_many(kind: type[Message]) -> None:
    def asks_for(count: int) -> Message:
        return cancel(count) if kind is TaskCancel else spans(kind, 0, *every_second(count))

    assert isinstance(as_heard(asks_for(MOST_SPANS)), kind)
    words = f"a malformed {kind.__name__}: {MOST_SPANS + 1:,} spans, of which it may name {MOST_SPANS:,}"
    with pytest.raises(ProtocolError, match=words):
        as_heard(asks_for(MOST_SPANS + 1))


def test_a_message_that_asks_for_more_objects_than_it_may_is_none_and_says_how_many() -> None:
    def asks_for(count: int) -> Message:
        return ObjectRequest(u32([0]) * count, u64(range(count)))

    assert isinstance(as_heard(asks_for(MOST_ASKED)), ObjectRequest)
    with pytest.raises(ProtocolError, match=f"{MOST_ASKED + 1:,} objects, of which it may ask for {MOST_ASKED:,}"):
        as_heard(asks_for(MOST_ASKED + 1))


def test_a_client_is_asked_in_few_messages_for_the_many_values_that_a_row_of_it_needs() -> None:
    """And for each once, whatever needs it; what has come in the same step it is not asked for any more."""
    scheduler = FakeScheduler(1)
    client, other = scheduler.client(), scheduler.client()
    wanted = range(1_000, 1_000 + 2 * MOST_ASKED + 20)
    needs = {"dependency_counts": u32([len(wanted)]), "dependencies": u64(wanted)}
    scheduler.handle(
        Received(client, task(10, 1, **needs)),
        Received(client, task(11, 1, **needs)),
        Received(client, ObjectAnnounce(u64([wanted[5]]), u8([0]), [b"value"])),
        Received(other, task(10, 1, dependency_counts=u32([1]), dependencies=u64([7]))),
    )
    heard = [as_heard(part) for part in scheduler.heard(client, ObjectRequest)]
    assert [len(part.ids) for part in heard] == [MOST_ASKED, MOST_ASKED, 19]
    assert [value for part in heard for _, value in part] == [value for value in wanted if value != wanted[5]]
    assert [list(part) for part in scheduler.heard(other, ObjectRequest)] == [[(other, 7)]]


def test_a_client_that_has_given_up_its_work_is_not_asked_for_what_that_needed() -> None:
    scheduler = FakeScheduler(1)
    client, other = scheduler.client(), scheduler.client()
    need = task(10, 1, dependency_counts=u32([1]), dependencies=u64([7]))
    scheduler.handle(
        Received(client, need), Received(client, ClientClear()), Received(other, need), Lost(other, "test")
    )
    assert scheduler.heard(client, ObjectRequest) == scheduler.heard(other, ObjectRequest) == []


@pytest.mark.parametrize("count", [0, 1, MOST_SPANS, MOST_SPANS + 1, 3 * MOST_SPANS - 1])
def test_many_spans_are_said_in_parts_that_are_heard(count: int) -> None:
    whole = spans(Spans, 7, *every_second(count))
    heard = [as_heard(TaskCancel(part)).spans for part in whole.parts()]
    assert [span for part in heard for span in part] == list(whole)
    assert len(heard) == max(1, -(-count // MOST_SPANS))


def test_an_agent_is_asked_in_parts_for_rows_that_a_client_named_in_one_span() -> None:
    rows = 2 * MOST_SPANS + 20
    scheduler = FakeScheduler(rows)
    (agent,), client = scheduler.agents, scheduler.client()
    scheduler.say(client, task(10, rows))
    assert scheduler.holds(agent) == rows
    scheduler.report(agent, client, *[result(*span) for span in every_second(rows // 2, first=1)])
    scheduler.heard(agent)
    scheduler.cancel(client, (10, 0, rows))
    asked = scheduler.heard(agent, TaskCancel)
    assert [span[1:] for part in asked for span in as_heard(part).spans] == every_second(rows // 2)
    assert len(asked) == 2


def test_a_scheduler_names_no_more_rows_that_it_holds_back_than_a_message_may() -> None:
    rows = 2 * MOST_SPANS + 20
    scheduler = FakeScheduler()
    client = scheduler.client()
    scheduler.say(client, task(10, rows))
    for part in spans(Spans, client, *every_second(rows // 2)).parts():
        scheduler.say(client, TaskCancel(part))
    scheduler.say(client, spans(TaskHold, client, (10, 0, rows)))
    (held,) = scheduler.heard(client, TaskHold)
    assert [span[1:] for span in as_heard(held)] == every_second(MOST_SPANS, first=1)


# ---- what it costs ---------------------------------------------------------------------------------------------------
def calls_to_cancel(*rows: tuple[int, int, int]) -> int:
    """Calls in the scheduler's core for one message that names these of a client's 4,000 queued rows."""
    scheduler = FakeScheduler()
    client = scheduler.client()
    scheduler.say(client, task(10, 4_000))
    message = TaskCancel(spans(Spans, client, *rows))
    return calls_of(lambda: scheduler.say(client, message))


def test_a_row_among_many_that_are_cancelled_at_once_costs_few_calls() -> None:
    some, more = calls_to_cancel(*every_second(500)), calls_to_cancel(*every_second(1_500))
    assert (more - some) / 1_000 < 12  # one by one they take 49


def test_rows_that_are_named_again_and_again_in_a_message_are_looked_at_once() -> None:
    once, often = calls_to_cancel((10, 0, 4_000)), calls_to_cancel(*[(10, 0, 4_000)] * 1_000)
    assert (often - once) / 1_000 < 3


def test_the_end_of_many_rows_in_one_place_is_found_without_a_look_at_each() -> None:
    scheduler = FakeScheduler()
    client = scheduler.client()
    scheduler.say(client, task(10, 100_000))
    batch = scheduler.core.state.clients[client].batches[10]
    assert list(batch.runs()) == [(QUEUED, 0, 100_000)]
    assert calls_of(lambda: list(batch.runs())) < 200


def test_whoever_has_many_small_messages_under_way_lets_others_be_served_in_between() -> None:
    taken: list[int] = []

    def receive(size: int) -> int:
        taken.append(size)
        return size

    sizes = iter([LARGE, 40_000, LARGE, 40_000, 40_000])
    assert drain(lambda: receive(next(sizes)))
    assert len(taken) == 4


# ---- that it is the same ---------------------------------------------------------------------------------------------
def test_many_rows_end_as_one_by_one() -> None:
    def ends(
        *messages: list[tuple[int, int, int]],
    ) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, int, int]]]:
        scheduler = FakeScheduler()
        client = scheduler.client()
        scheduler.say(client, task(10, 60), task(100, 9))
        for rows in messages:
            scheduler.cancel(client, *rows)
        state = scheduler.core.state
        assert sum(function.cancelled for function in state.clients[client].functions.values()) == 32
        assert state.clients[client].outstanding == state.queues.rows == 37
        return scheduler.ends(client), list(state.clients[client].batches[10].runs())

    named = [*every_second(20, first=3), (10, 50, 55), (100, 0, 3), (100, 5, 9)]
    shuffled = random.Random(5).sample(named, len(named))
    together, places = ends(shuffled)
    one_by_one, same_places = ends(*[[span] for span in named])
    assert sorted(together) == sorted(one_by_one) == sorted((*span, CANCELLED) for span in named)
    assert places == same_places
    assert sum(hi - lo for place, lo, hi in places if place == DONE) == 25


def test_the_last_rows_of_a_batch_end_it_though_they_are_many() -> None:
    scheduler = FakeScheduler()
    client = scheduler.client()
    scheduler.say(client, task(10, 40))
    scheduler.cancel(client, *every_second(20))
    scheduler.cancel(client, *every_second(20, first=1))
    assert not scheduler.core.state.clients[client].batches


@dataclass(eq=False)
class Batch:
    """As much of a batch as the queue looks at."""

    client: int
    id: int
    nesting: int = 0

    @property
    def share(self) -> int:
        return self.client


@pytest.mark.parametrize("seed", range(200))
def test_many_spans_are_taken_out_of_a_queue_as_one_by_one(seed: int) -> None:
    chance = random.Random(seed)

    def bounds(chance: random.Random) -> list[tuple[int, int]]:
        edges = sorted(chance.sample(range(60), 2 * chance.randrange(1, 12)))
        return list(zip(edges[::2], edges[1::2], strict=True))

    first, second = Batch(1, 10), Batch(1, 20)
    queued = [(batch, lo, hi) for batch in (first, second) for lo, hi in bounds(chance)]
    chance.shuffle(queued)
    together: SpanQueue[Batch] = SpanQueue()
    apart: SpanQueue[Batch] = SpanQueue()
    for span in queued:
        together.append(*span)
        apart.append(*span)
    for _ in range(3):
        named = bounds(chance)
        together.remove(1, 10, (1, 0), named)
        for lo, hi in named:
            apart.remove(1, 10, (1, 0), [(lo, hi)])
        assert list(together) == list(apart)
        assert together.rows == apart.rows == sum(hi - lo for _, lo, hi in together)
    together.prepend(first, 100, 101)
    together.remove(1, 10, (1, 0), [(0, 200)])
    together.remove(1, 20, (1, 0), [(0, 60)])
    assert not together.rows
    assert list(together) == []


@pytest.mark.parametrize("seed", range(100))
def test_runs_are_the_rows_that_are_in_one_place_and_neighbours(seed: int) -> None:
    chance = random.Random(seed)
    scheduler = FakeScheduler()
    client = scheduler.client()
    places: list[int] = []
    for _ in range(chance.randrange(1, 8)):
        places += [chance.choice((QUEUED, DONE, AGENT + 3))] * chance.choice((1, 2, 15, 16, 17, 18, 50, 300, 1_000))
    scheduler.say(client, task(10, len(places)))
    batch = scheduler.core.state.clients[client].batches[10]
    batch.place[:] = u32(places)
    lo, hi = sorted(chance.sample(range(len(places) + 1), 2))
    runs = list(batch.runs(lo, hi))
    assert [place for place, a, b in runs for _ in range(a, b)] == places[lo:hi]
    assert all(before[0] != after[0] and before[2] == after[1] for before, after in itertools.pairwise(runs))
    assert batch.spans_in(DONE, lo, hi) == [(a, b) for place, a, b in runs if place == DONE]


# ---- a batch in many places ------------------------------------------------------------------------------------------
def steps_to_cancel(count: int, flags: int) -> int:
    """Steps for a batch that is cancelled whole, of which every second row was before."""
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, task(10, 2 * count, flags=flags))
    fake.say(client, cancel(count))
    rest = Received(client, TaskCancel(spans(Spans, 0, (10, 0, 2 * count))))
    steps = steps_of(lambda: fake.core.handle([rest], 0.0))
    assert not fake.core.state.clients[client].batches
    return steps


def test_rows_whose_values_are_kept_are_cancelled_at_the_price_of_others() -> None:
    """Each ended by itself, at four times the price: 32,000 held up everybody for more than a second."""
    assert steps_to_cancel(400, KEEP) < 1.2 * steps_to_cancel(400, 0)


def test_rows_that_need_those_that_are_cancelled_together_fail() -> None:
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, task(10, 6, flags=KEEP), task(20, 1, dependency_counts=u32([1]), dependencies=u64([14])))
    fake.cancel(client, (10, 1, 2), (10, 3, 4))
    assert fake.core.state.clients[client].batches[20].left == 1
    fake.cancel(client, (10, 0, 6))
    ends = fake.ends(client)
    assert [each for each in ends if each[0] == 10] == [(10, lo, lo + 1, CANCELLED) for lo in (1, 3, 0, 2)] + [
        (10, 4, 6, CANCELLED)
    ]
    assert (20, 0, 1, ERROR) in ends
    assert validate(fake.core.state) == []


@pytest.mark.parametrize("asks", [TaskCancel, TaskClaim])
def test_an_agent_gives_back_a_batch_that_is_in_many_places_in_few_calls(asks: type[Message]) -> None:
    count = 400
    agent = FakeAgent(1)
    agent.give(9, 0, 1)  # what its worker runs
    agent.give(10, 0, 2 * count)
    agent.tell(TaskCancel(spans(Spans, agent.CLIENT, *every_second(count))))
    agent.said.clear()
    rest = spans(Spans, agent.CLIENT, (10, 0, 2 * count))
    asked = TaskCancel(rest) if asks is TaskCancel else TaskClaim(rest.clients, rest.batches, rest.spans)
    assert calls_of(lambda: agent.tell(asked)) < 16 * count
    (said,) = agent.said[:1]
    given = said.spans if isinstance(said, TaskResult) else said.granted.spans
    assert list(zip(given[::2], given[1::2], strict=True)) == [(row, row + 1) for row in range(1, 2 * count, 2)]
