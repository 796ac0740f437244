"""The scheduler's core and stored objects: who has them, who reads them, and what happens when they are lost."""

import math
import pickle
from typing import Any

import pytest
from simulator.scripted import FakeScheduler, graph, result, spans, task
from support.counting import steps_of

from scaler.errors import StoreFull, TaskFailed
from scaler.protocol.messages import (
    APART,
    ERROR,
    FAILED,
    PLACE,
    STORED,
    STORED_OBJECT,
    VALUES_EACH,
    VALUES_LIST,
    AgentsInUse,
    BalanceResponse,
    Heartbeat,
    Neighbours,
    ObjectAnnounce,
    ObjectFetch,
    ObjectGone,
    ObjectMissing,
    ObjectRelease,
    ObjectRequest,
    ObjectResponse,
    Objects,
    Spans,
    StoreOffers,
    StoreRequest,
    Task,
    TaskCancel,
    TaskResult,
    u8,
    u32,
    u64,
)
from scaler.protocol.results import SpanResult
from scaler.scheduler.core import placement
from scaler.scheduler.core.events import Forget, Moved, StartStore
from scaler.scheduler.core.placement import FASTEST, SLOWEST
from scaler.scheduler.state.validate import thorough
from scaler.serialize.record import decode_error

MIB = 1 << 20


def names(client: int, *ids: int, cls: type[Objects] = Objects) -> Any:
    return cls(u32([client]) * len(ids), u64(ids))


def stored(agent: int, *ids: int, client: int = 0, size: int = MIB) -> ObjectAnnounce:
    return ObjectAnnounce(u64(ids), u8([STORED_OBJECT]) * len(ids), [PLACE.pack(size, agent)] * len(ids), client)


def released(fake: FakeScheduler, agent: int) -> list[int]:
    fake.wait(3.0)
    for number in (*fake.core.state.clients, *fake.core.state.agents):
        fake.say(number, Heartbeat(0.0, getattr(fake.core.state.agents.get(number), "workers", 0)))
    return [i for message in fake.heard(agent, ObjectRelease) for i in message.ids]


def ended(fake: FakeScheduler, client: int) -> list[tuple[int, int, int, int]]:
    return fake.ends(client)


@pytest.fixture
def one() -> tuple[FakeScheduler, int, int]:
    fake = FakeScheduler(2)
    return fake, fake.agents[0], fake.client()


@pytest.fixture
def two() -> tuple[FakeScheduler, int, int, int]:
    fake = FakeScheduler(1, 1)
    client = fake.client()
    return fake, *fake.agents, client


def test_a_stored_result_stays_where_it_is_until_the_client_lets_go_of_it(one: Any) -> None:
    fake, agent, client = one
    fake.say(client, task(10, 1))
    fake.report(agent, client, result(10, 0, 1, STORED))
    assert ended(fake, client) == [(10, 0, 1, STORED)]
    assert released(fake, agent) == []
    fake.say(client, names(0, 10, cls=ObjectRelease))
    assert released(fake, agent) == [10]


def test_a_stored_result_that_nobody_wants_is_released_at_once(one: Any) -> None:
    fake, agent, client = one
    fake.say(client, graph(10, [[], [0]], [1]))
    fake.report(agent, client, result(10, 0, 1, STORED))
    (message,) = [m for m in fake.heard(agent, Task) if m.stored]
    assert message.stored.tolist() == [10]
    assert message.stored_sizes.tolist() == [MIB]
    assert message.holders.tolist() == [agent]
    fake.report(agent, client, result(10, 1, 2))
    assert 10 in released(fake, agent)


def test_a_future_of_a_stored_result_is_an_argument_without_a_way_through_the_client(one: Any) -> None:
    fake, agent, client = one
    fake.say(client, task(10, 1))
    fake.report(agent, client, result(10, 0, 1, STORED))
    fake.heard(agent)
    fake.say(client, task(20, 1, dependency_counts=u32([1]), dependencies=u64([10])))
    (message,) = fake.heard(agent, Task)
    assert message.stored.tolist() == [10]
    assert not fake.heard(client, ObjectRequest)


def test_the_agent_is_told_of_what_a_client_wrote_into_its_store(one: Any) -> None:
    fake, agent, client = one
    fake.say(client, stored(agent, 5))
    (message,) = fake.heard(agent, ObjectAnnounce)
    assert (message.client, message.ids.tolist()) == (client, [5])
    fake.say(client, task(10, 1, dependency_counts=u32([1]), dependencies=u64([5])))
    (message,) = fake.heard(agent, Task)
    assert message.stored.tolist() == [5]
    fake.say(client, names(0, 5, cls=ObjectRelease))
    fake.report(agent, client, result(10, 0, 1))
    assert released(fake, agent) == [5]


def test_a_row_goes_to_the_agent_that_has_most_of_its_input(two: Any) -> None:
    fake, first, second, client = two
    fake.say(client, stored(second, 5, size=100 * MIB), stored(first, 6, size=MIB))
    fake.say(client, task(10, 1, dependency_counts=u32([2]), dependencies=u64([5, 6])))
    (message,) = fake.heard(second, Task)
    assert message.holders.tolist() == [second, first]
    assert fake.holds(first) == 0


def test_a_row_does_not_wait_longer_for_its_data_than_moving_it_takes(two: Any) -> None:
    fake, first, second, client = two
    fake.say(client, task(10, 1), task(11, 1))
    fake.report(second, client, result(11, 0, 1, us=10**6))
    fake.say(client, task(12, 1))
    fake.say(client, stored(second, 5, size=MIB))
    fake.report(first, client, result(10, 0, 1, us=10**6))
    assert fake.holds(second) == 1
    assert fake.holds(first) == 0
    fake.say(client, task(20, 1, dependency_counts=u32([1]), dependencies=u64([5])))
    assert fake.holds(first) == 1


@pytest.mark.parametrize("told", [math.inf, math.nan, 1e300, 1e17, 5e-324])
def test_what_an_agent_tells_of_its_network_spoils_nothing_for_good(two: Any, told: float) -> None:
    fake, first, second, _ = two
    state = fake.core.state
    for _ in range(100):
        fake.say(first, Heartbeat(0.0, 1, bandwidth=told), Heartbeat(0.0, 1, bandwidth=told / 2))
    assert SLOWEST <= state.bandwidth <= FASTEST
    for at in range(60):
        fake.say(second, Heartbeat(0.0, 1, bandwidth=1e9 + at))
    assert state.bandwidth == pytest.approx(1e9, rel=0.01)


def test_an_agent_is_told_where_to_fetch_before_it_has_to() -> None:
    fake = FakeScheduler(1)
    (first,) = fake.agents
    second, client = fake.agent(1, ("gpu",)), fake.client()
    fake.say(client, stored(first, 5))
    fake.say(client, task(20, 1, dependency_counts=u32([1]), dependencies=u64([5]), capabilities=("gpu",)))
    told = fake.heard(second)
    assert [type(message) for message in told] == [Neighbours, Task]
    assert (told[0].numbers.tolist(), told[0].addresses) == ([first], ("tcp://h:1",))
    assert told[1].holders.tolist() == [first]
    fake.report(second, client, result(20, 0, 1))
    fake.say(client, task(30, 1, dependency_counts=u32([1]), dependencies=u64([5]), capabilities=("gpu",)))
    assert [type(message) for message in fake.heard(second)] == [Task]


def test_those_who_know_of_an_agent_are_told_when_its_address_changes() -> None:
    fake = FakeScheduler()
    client, other = fake.client(), fake.client()
    first = fake.agent()
    needs_5 = {"dependency_counts": u32([1]), "dependencies": u64([5]), "capabilities": ("gpu",)}
    fake.say(client, task(10, 1))
    second, third = fake.agent(1, ("gpu",)), fake.agent()
    fake.say(client, stored(first, 5), task(20, 1, **needs_5))
    fake.core.state.agents[second].unreachable[first] = 0.0
    for number in (second, third, client, other):
        fake.heard(number)
    fake.handle(Moved(first, "tcp://there:1"))
    (told,) = fake.heard(second)
    assert (told.numbers.tolist(), told.addresses) == ([first], ("tcp://there:1",))
    (told,) = fake.heard(client, AgentsInUse)
    assert (told.added.tolist(), told.whereabouts) == ([first], ("tcp://there:1 here",))
    assert not fake.heard(third)
    assert not fake.heard(other, AgentsInUse)
    assert not fake.core.state.agents[second].unreachable
    fake.report(second, client, result(20, 0, 1))
    fake.say(client, task(30, 1, **needs_5))
    assert [type(message) for message in fake.heard(second)] == [Task]


def test_it_is_told_of_others_that_are_gone_before_those_are_many() -> None:
    fake = FakeScheduler(1)
    second, client = fake.agent(1, ("gpu",)), fake.client()
    known: dict[int, str] = {}
    for number in range(100):
        other, value, batch = fake.agent(1), 100 + number, 1_000 + 10 * number
        fake.say(client, stored(other, value))
        fake.say(client, task(batch, 1, dependency_counts=u32([1]), dependencies=u64([value]), capabilities=("gpu",)))
        for message in fake.heard(second, Neighbours):
            known.update(zip(message.numbers, message.addresses, strict=True))
        assert known[other]
        fake.report(second, client, result(batch, 0, 1))
        fake.lose(other)
    assert len([address for address in known.values() if address]) < 30
    assert len(fake.core.state.agents[second].introduced) < 30


def test_a_copy_that_was_fetched_is_known_and_released_too(two: Any) -> None:
    fake, first, second, client = two
    fake.say(client, stored(first, 5))
    fake.say(second, stored(second, 5, client=client))
    assert fake.core.state.clients[client].values.objects[5].copies == {first, second}
    fake.say(client, names(0, 5, cls=ObjectRelease))
    assert released(fake, second) == [5]


def test_a_copy_that_comes_too_late_is_released(one: Any) -> None:
    fake, agent, client = one
    fake.say(agent, stored(agent, 77, client=client))
    (message,) = fake.heard(agent, ObjectRelease)
    assert list(message) == [(client, 77)]


# ---- reading --------------------------------------------------------------------------------------------------------
def test_a_client_reads_by_way_of_the_agent_on_its_host(one: Any) -> None:
    fake, agent, client = one
    fake.say(client, StoreRequest())
    (offers,) = fake.heard(client, StoreOffers)
    assert (offers.agents.tolist(), offers.paths, offers.tokens) == ([agent], ("/store",), ("token",))
    fake.say(client, task(10, 1))
    fake.report(agent, client, result(10, 0, 1, STORED))
    fake.say(client, names(0, 10, cls=ObjectRequest))
    (fetch,) = fake.heard(agent, ObjectFetch)
    assert (fetch.ids.tolist(), fetch.sizes.tolist(), fetch.holders.tolist()) == ([10], [MIB], [])
    fake.heard(client)
    fake.say(agent, ObjectResponse(u32([client]), u64([10]), u8([0]), agent))
    (answer,) = fake.heard(client, ObjectResponse)
    assert (answer.ids.tolist(), answer.outcomes.tolist(), answer.agent) == ([10], [0], agent)


def test_only_the_agent_that_was_asked_says_where_an_object_can_be_read(two: Any) -> None:
    fake, first, second, client = two
    fake.say(client, task(10, 1))
    fake.report(first, client, result(10, 0, 1, STORED))
    fake.say(client, names(0, 10, cls=ObjectRequest))
    assert fake.heard(first, ObjectFetch)
    for outcome, reason in ((0, ""), (1, "it is not here")):
        fake.say(second, ObjectResponse(u32([client]), u64([10]), u8([outcome]), second, reason))
    assert fake.heard(client, ObjectResponse) == []
    fake.say(first, ObjectResponse(u32([client]), u64([10]), u8([0]), first))
    (answer,) = fake.heard(client, ObjectResponse)
    assert (answer.outcomes.tolist(), answer.agent) == ([0], first)


def test_a_read_goes_on_when_the_agent_is_lost_that_it_goes_by_though_that_has_only_told_of_a_copy(two: Any) -> None:
    fake, first, second, client = two
    fake.say(client, task(10, 1))
    fake.report(first, client, result(10, 0, 1, STORED))
    fake.say(second, stored(second, 10, client=client))
    fake.say(client, names(0, 10, cls=ObjectRequest))
    for agent in (first, second):
        assert fake.heard(agent, ObjectFetch)
        assert not list(thorough(fake.core.state))
        fake.lose(agent)
    third = fake.agent(1)
    assert fake.placed(third) == [(10, 0, 1)], "it is made again"
    fake.report(third, client, result(10, 0, 1, STORED))
    assert fake.heard(third, ObjectFetch)


def steps_of_a_read(others: int) -> int:
    """Steps of the interpreter when a client reads a value while there are agents on so many other hosts."""
    fake = FakeScheduler(1)
    client = fake.client()
    for number in range(others):
        fake.agent(0, boot_id=f"host-{number}")
    fake.say(client, task(10, 1))
    fake.report(fake.agents[0], client, result(10, 0, 1, STORED))
    assert not list(thorough(fake.core.state))
    steps = steps_of(lambda: fake.say(client, names(0, 10, cls=ObjectRequest)))
    assert fake.heard(fake.agents[0], ObjectFetch)
    for number in list(fake.core.state.agents):
        fake.lose(number)
    assert fake.core.state.roots.stores == {}
    return steps


def test_a_read_does_not_look_at_agents_of_other_hosts() -> None:
    """With 10,000 of them each took 0.9 ms."""
    assert abs(steps_of_a_read(300) - steps_of_a_read(30)) < 20


def test_a_client_elsewhere_reads_by_way_of_the_store_beside_the_scheduler() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.core.state.clients[client].boot_id = "elsewhere"
    fake.say(client, StoreRequest())
    assert [type(e) for e in fake.effects] == [StartStore]
    fake.say(client, StoreRequest(standalone=True))
    assert not fake.heard(client, StoreOffers)
    store = fake.store()
    (offers,) = fake.heard(client, StoreOffers)
    assert (offers.agents.tolist(), offers.addresses) == ([store], ("tcp://h:1",))
    fake.say(client, task(10, 1))
    fake.report(agent, client, result(10, 0, 1, STORED))
    fake.say(client, names(0, 10, cls=ObjectRequest))
    told = fake.heard(store)
    assert [type(message) for message in told] == [Neighbours, ObjectFetch]
    assert told[1].holders.tolist() == [agent]
    fake.say(store, ObjectResponse(u32([client]), u64([10]), u8([0]), store))
    (answer,) = fake.heard(client, ObjectResponse)
    assert answer.agent == store
    fake.say(client, names(0, 10, cls=ObjectRelease))
    assert released(fake, store) == [10]


def test_a_copy_of_which_a_store_was_not_told_is_fetched_next(two: Any) -> None:
    fake, first, second, client = two
    fake.core.state.clients[client].boot_id = "elsewhere"
    fake.say(client, StoreRequest(standalone=True))
    store = fake.store()
    fake.say(client, task(10, 1))
    fake.report(first, client, result(10, 0, 1, STORED))
    fake.say(client, names(0, 10, cls=ObjectRequest))
    (fetch,) = fake.heard(store, ObjectFetch)
    assert fetch.holders.tolist() == [first]
    fake.say(second, stored(second, 10, client=client))
    fake.say(store, ObjectResponse(u32([client]), u64([10]), u8([1]), store, "the first one broke off"))
    (fetch,) = fake.heard(store, ObjectFetch)
    assert second in fetch.holders.tolist()


def test_who_reads_what_can_not_be_had_is_told_what_agents_said_of_it() -> None:
    fake = FakeScheduler(1, retries_on_loss=1)
    (agent,), client = fake.agents, fake.client()
    fake.say(client, task(10, 1))
    fake.report(agent, client, result(10, 0, 1, STORED))
    fake.say(client, names(0, 10, cls=ObjectRequest))
    fake.say(
        agent, names(client, 10, cls=ObjectGone), ObjectResponse(u32([client]), u64([10]), u8([1]), agent, "no room")
    )
    (answer,) = fake.heard(client, ObjectResponse)
    assert answer.reason == "it could not be made readable, again and again: at last no room"
    assert not fake.core.state.clients[client].reads.troubles


def test_no_rows_are_given_to_the_store_beside_the_scheduler() -> None:
    fake = FakeScheduler()
    store, client = fake.store(), fake.client()
    fake.say(client, task(10, 1))
    assert not fake.heard(store, Task)


def test_what_was_released_cannot_be_read(one: Any) -> None:
    fake, _, client = one
    fake.say(client, names(0, 10, cls=ObjectRequest))
    (answer,) = fake.heard(client, ObjectResponse)
    assert answer.outcomes.tolist() == [1]
    assert "released" in answer.reason


# ---- loss -----------------------------------------------------------------------------------------------------------
def test_a_lost_result_is_computed_again_when_it_is_read(two: Any) -> None:
    fake, first, second, client = two
    fake.say(client, task(10, 1))
    fake.report(first, client, result(10, 0, 1, STORED))
    ended(fake, client)
    fake.lose(first)
    assert fake.holds(second) == 0
    fake.say(client, names(0, 10, cls=ObjectRequest))
    assert fake.holds(second) == 1
    fake.report(second, client, result(10, 0, 1, STORED))
    (fetch,) = fake.heard(second, ObjectFetch)
    assert fetch.ids.tolist() == [10]
    assert ended(fake, client) == []


def test_a_result_that_could_not_be_computed_again_at_first_is_as_any_other_afterwards(two: Any) -> None:
    fake, first, second, client = two
    fake.say(client, task(10, 1))
    fake.report(first, client, result(10, 0, 1, STORED))
    fake.lose(first)
    fake.say(client, names(0, 10, cls=ObjectRequest))
    fake.report(second, client, result(10, 0, 1, ERROR))
    batch = fake.core.state.clients[client].batches[10]
    assert fake.holds(second) == 1, "it is read, and tried once more"
    assert list(thorough(fake.core.state)) == []
    fake.report(second, client, result(10, 0, 1, STORED))
    assert batch.state_of(0) == "done"
    assert len(fake.heard(second, ObjectFetch)) == 1


def test_a_lost_intermediate_is_computed_again_with_what_it_needs_in_turn(two: Any) -> None:
    fake, first, second, client = two
    fake.say(client, graph(10, [[], [0], [1], [2]], [3]))
    for row in range(3):
        fake.report(first, client, result(10, row, row + 1, STORED))
    assert fake.holds(first) == 1
    fake.lose(first)
    for row in range(3):
        assert fake.core.state.clients[client].batches[10].place[row : row + 1].tolist() != [2], row
        fake.report(second, client, result(10, row, row + 1, STORED))
    fake.report(second, client, result(10, 3, 4, VALUES_EACH))
    assert ended(fake, client) == [(10, 3, 4, VALUES_EACH)]
    assert not fake.core.state.clients[client].values.objects.keys() - {1}


def test_nothing_is_computed_again_where_rows_may_not_run_twice() -> None:
    fake = FakeScheduler(1, retries_on_loss=0)
    (first,), client = fake.agents, fake.client()
    fake.say(client, graph(10, [[], [0]], [1]))
    fake.report(first, client, result(10, 0, 1, STORED))
    fake.report(first, client, result(10, 1, 2, STORED))
    ended(fake, client)
    queued = task(20, 1, capabilities=("gpu",), dependency_counts=u32([1]), dependencies=u64([11]))
    fake.say(client, queued)
    fake.lose(first)
    second = fake.agent(4)
    fake.say(client, task(30, 1, dependency_counts=u32([1]), dependencies=u64([11])))
    fake.say(client, names(0, 11, cls=ObjectRequest))
    said = fake.heard(client)
    (answer,) = [message for message in said if isinstance(message, ObjectResponse)]
    assert "no task runs a second time" in answer.reason
    results = [message for message in said if isinstance(message, TaskResult)]
    assert [(list(message.batches), list(message.outcomes)) for message in results] == [
        ([20], [ERROR]),
        ([30], [ERROR]),
    ]
    assert all(b"no task runs a second time" in bytes(message.bodies[0]) for message in results)
    assert fake.placed(second) == []
    assert list(thorough(fake.core.state)) == []
    fake.say(client, names(0, 11, cls=ObjectRelease))
    assert not fake.core.state.clients[client].values.objects.keys() - {1}
    assert not fake.core.state.clients[client].batches


def test_what_a_client_sent_is_asked_of_it_again_where_rows_may_not_run_twice() -> None:
    fake = FakeScheduler(1, retries_on_loss=0)
    (agent,), client = fake.agents, fake.client()
    fake.say(client, stored(agent, 5))
    fake.lose(agent)
    fake.say(client, task(10, 1, dependency_counts=u32([1]), dependencies=u64([5])))
    (request,) = fake.heard(client, ObjectRequest)
    assert list(request) == [(client, 5)]


@pytest.mark.parametrize("outcome", [VALUES_EACH, VALUES_LIST, STORED])
def test_rows_of_a_graph_that_end_together_are_told_of_together_as_far_as_they_are_wanted(
    one: Any, outcome: int
) -> None:
    fake, agent, client = one
    fake.say(client, graph(10, [[], [], [], [], [], [2]], [0, 1, 3, 4, 5]))
    fake.report(agent, client, result(10, 0, 2, outcome))
    fake.report(agent, client, result(10, 2, 5, outcome))
    told = STORED if outcome == STORED else VALUES_EACH
    assert ended(fake, client) == [(10, 0, 2, told), (10, 3, 5, told)]


def test_a_value_that_is_small_when_it_is_computed_again_is_made_for_good(two: Any) -> None:
    fake, first, second, client = two
    fake.say(client, graph(10, [[], [0], [0]], [1, 2]))
    fake.report(first, client, result(10, 0, 1, STORED))
    fake.lose(first)
    fake.report(second, client, result(10, 0, 1, VALUES_EACH))
    fake.report(second, client, result(10, 1, 3))
    assert [(lo, hi) for _, lo, hi, _ in ended(fake, client)] == [(1, 3)]
    record = fake.core.state.clients[client]
    assert not record.batches
    assert not record.remembered, "nothing of it can be lost any more"
    assert not record.values.objects.keys() - {1}


def test_an_agent_drops_what_it_knew_of_a_value_that_comes_inside_a_message_from_now_on(one: Any) -> None:
    fake, agent, client = one
    fake.say(client, graph(10, [[], [0]], [1]))
    fake.report(agent, client, result(10, 0, 1, STORED))
    missing = ObjectMissing(names(client, 10), spans(Spans, client, (10, 1, 2)))
    fake.say(agent, names(client, 10, cls=ObjectGone), missing)
    fake.heard(agent)
    fake.report(agent, client, result(10, 0, 1, VALUES_EACH))
    release, again = fake.heard(agent)
    assert isinstance(release, ObjectRelease)
    assert list(release.ids) == [10]
    assert isinstance(again, Task)
    assert list(again.objects) == [10]


def test_a_row_that_ended_and_is_cancelled_while_it_waits_to_be_computed_again_is_computed_again(two: Any) -> None:
    fake, first, second, client = two
    fake.say(client, graph(10, [[], [0]], [1]))
    fake.report(first, client, result(10, 0, 1, STORED))
    fake.report(first, client, result(10, 1, 2, STORED))
    fake.lose(first)
    fake.say(client, names(0, 11, cls=ObjectRequest))
    assert fake.placed(second) == [(10, 0, 1)], "it is computed again for the row that made what the client reads"
    fake.cancel(client, (10, 1, 2))
    fake.report(second, client, result(10, 0, 1, STORED))
    assert fake.placed(second) == [(10, 1, 2)]
    fake.report(second, client, result(10, 1, 2, STORED))
    assert list(thorough(fake.core.state)) == []
    fake.say(client, names(0, 11, cls=ObjectRelease))
    assert not fake.core.state.clients[client].values.objects.keys() - {1}
    assert not fake.core.state.clients[client].remembered


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("is_waiting", [False, True])
def test_rows_that_ended_and_are_cancelled_while_they_are_computed_again_are_there_for_others(
    two: Any, force: bool, is_waiting: bool
) -> None:
    """Whoever cancels all of a graph has heard how some of it ended, or does not want to hear; others need it."""
    fake, first, second, client = two
    fake.say(client, graph(10, [[], [0]], [0, 1]))
    fake.report(first, client, result(10, 0, 1, STORED))
    fake.report(first, client, result(10, 1, 2, STORED))
    fake.lose(first)
    fake.say(client, sum_of(20, 11))
    if not is_waiting:
        fake.report(second, client, result(10, 0, 1, STORED))
    fake.ends(client)
    fake.cancel(client, (10, 0, 2), force=force)
    assert not fake.heard(second, TaskCancel)
    if is_waiting:
        fake.report(second, client, result(10, 0, 1, STORED))
    fake.report(second, client, result(10, 1, 2, STORED))
    fake.report(second, client, result(20, 0, 1, VALUES_EACH))
    assert fake.ends(client) == [(20, 0, 1, VALUES_EACH)]


def test_small_values_are_not_computed_again(two: Any) -> None:
    fake, first, second, client = two
    fake.say(client, graph(10, [[], [0], [1]], [2]))
    fake.report(first, client, result(10, 0, 1, VALUES_EACH))
    fake.report(first, client, result(10, 1, 2, STORED))
    fake.lose(first)
    assert [m.spans.tolist() for m in fake.heard(second, Task)] == [[1, 2]]
    fake.report(second, client, result(10, 1, 2, STORED))
    fake.report(second, client, result(10, 2, 3, VALUES_EACH))
    assert ended(fake, client) == [(10, 2, 3, VALUES_EACH)]


def test_rows_that_were_queued_wait_for_what_is_lost() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, stored(agent, 5))
    fake.say(client, task(10, 4, dependency_counts=u32([1]) * 4, dependencies=u64([5]) * 4))
    fake.lose(agent)
    assert fake.core.state.queues.rows == 0
    (request,) = fake.heard(client, ObjectRequest)
    assert list(request) == [(client, 5)]
    other = fake.agent(2)
    fake.say(client, stored(other, 5))
    assert fake.holds(other) > 0


def test_a_client_that_cannot_send_it_again_ends_the_rows() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, stored(agent, 5))
    fake.say(client, task(10, 2, dependency_counts=u32([1]) * 2, dependencies=u64([5]) * 2))
    fake.lose(agent)
    fake.say(client, ObjectAnnounce(u64([5]), u8([FAILED]), [b"record"]))
    assert {(lo, outcome) for _, lo, _, outcome in ended(fake, client)} == {(0, ERROR), (1, ERROR)}


def test_an_agent_that_lost_a_live_value_says_so_and_it_is_computed_again(one: Any) -> None:
    fake, agent, client = one
    fake.say(client, graph(10, [[], [0]], [1]))
    fake.report(agent, client, result(10, 0, 1, STORED))
    missing = ObjectMissing(names(client, 10), spans(Spans, client, (10, 1, 2)))
    fake.heard(agent)
    fake.say(agent, names(client, 10, cls=ObjectGone), missing)
    assert fake.placed(agent) == [(10, 0, 1)]
    fake.report(agent, client, result(10, 0, 1, STORED))
    assert fake.placed(agent) == [(10, 1, 2)]


def test_a_row_that_cannot_get_its_input_goes_where_that_is() -> None:
    fake = FakeScheduler()
    first, second, client = fake.agent(1, ("gpu",)), fake.agent(1), fake.client()
    fake.say(client, stored(first, 5))
    fake.say(client, task(8, 1, capabilities=("gpu",)))
    fake.report(first, client, result(8, 0, 1, us=10**7))
    fake.say(client, task(9, 1, capabilities=("gpu",)))
    fake.say(client, task(10, 1, dependency_counts=u32([1]), dependencies=u64([5])))
    assert fake.holds(second) == 1
    fake.heard(first)
    fake.say(second, ObjectMissing(names(client, 5), spans(Spans, client, (10, 0, 1))))
    assert fake.placed(first) == [(10, 0, 1)]


def test_a_row_whose_only_host_does_not_reach_its_input_fails_within_half_a_minute_and_says_so() -> None:
    fake = FakeScheduler()
    maker, user, client = fake.agent(1, ("maker",)), fake.agent(1, ("user",)), fake.client()
    fake.say(client, task(10, 1, capabilities=("maker",)))
    fake.report(maker, client, result(10, 0, 1, STORED))
    fake.say(client, task(20, 1, capabilities=("user",), dependency_counts=u32([1]), dependencies=u64([10])))
    fake.heard(client)
    answers: list[Any] = []
    while not answers:
        assert fake.now < 30.0
        fake.wait(1.0)
        for agent in (maker, user):
            fake.say(agent, Heartbeat(fake.now, 1))
        fake.say(client, Heartbeat(fake.now))
        if fake.placed(maker) == [(10, 0, 1)]:
            fake.report(maker, client, result(10, 0, 1, STORED))
        elif int(fake.now) % 5 == 0:  # each time after a silence
            fake.say(user, ObjectMissing(names(client, 10), spans(Spans, client, (20, 0, 1))))
        answers = fake.heard(client, TaskResult)
    assert "agent-2 could not, which does not reach agent-1" in str(decode_error(bytes(answers[0].bodies[0])))


def test_what_only_a_host_beyond_reach_can_make_is_not_made_again_there_without_end() -> None:
    """Row 30 runs at one host alone, which can't reach the other one; row 20 is made again there, and needs row 10."""
    fake = FakeScheduler()
    maker, client = fake.agent(1, ("maker",)), fake.client()
    fake.say(client, task(10, 1, capabilities=("maker",)))
    fake.report(maker, client, result(10, 0, 1, STORED))
    fake.say(client, task(20, 1, dependency_counts=u32([1]), dependencies=u64([10])))
    fake.report(maker, client, result(20, 0, 1, STORED))
    user = fake.agent(1, ("user",))
    fake.say(client, task(30, 1, capabilities=("user",), dependency_counts=u32([1]), dependencies=u64([20])))
    fake.heard(client)
    fake.heard(maker)
    made, needs = 0, {20: 10, 30: 20}
    answers: list[Any] = []
    while not answers:
        for batch, _, _ in fake.placed(maker):
            made += 1
            fake.report(maker, client, result(batch, 0, 1, STORED))
        for batch, _, _ in fake.placed(user):
            fake.say(user, ObjectMissing(names(client, needs[batch]), spans(Spans, client, (batch, 0, 1))))
        assert made <= 10
        answers = fake.heard(client, TaskResult)
    assert "agent-3 could not, which does not reach agent-1" in str(decode_error(bytes(answers[0].bodies[0])))


def lacking(client: int, row: int, *objects: int) -> ObjectMissing:
    return ObjectMissing(names(client, *objects), spans(Spans, client, (row, 0, 1)))


def sum_of(batch: int, *needs: int, **more: Any) -> Any:
    return task(batch, 1, dependency_counts=u32([len(needs)]), dependencies=u64(needs), **more)


def test_what_is_made_again_for_a_host_stays_within_its_reach_though_that_host_gives_it_back() -> None:
    """The other host idles, and has asked for rows; from there the value would be out of reach again."""
    fake = FakeScheduler()
    one, other, client = fake.agent(1), fake.agent(1), fake.client()
    fake.say(client, task(10, 1), task(11, 1))
    fake.report(one, client, result(10, 0, 1, STORED))
    fake.report(other, client, result(11, 0, 1, STORED))
    fake.say(client, sum_of(20, 10, 11))
    assert fake.placed(one)[-1] == (20, 0, 1)
    fake.say(one, lacking(client, 20, 11))
    assert fake.placed(one) == [(11, 0, 1)]
    fake.say(one, spans(BalanceResponse, client, (11, 0, 1)))
    assert fake.placed(one) == [(11, 0, 1)]
    fake.report(one, client, result(11, 0, 1, STORED))
    assert fake.placed(one) == [(20, 0, 1)]


def test_what_two_hosts_alone_can_make_that_do_not_reach_each_other_goes_where_both_are_reached() -> None:
    fake = FakeScheduler()
    one, other, client = fake.agent(1, ("one",)), fake.agent(1, ("other",)), fake.client()
    fake.say(client, task(10, 1, capabilities=("one",)), task(11, 1, capabilities=("other",)))
    fake.report(one, client, result(10, 0, 1, STORED))
    fake.report(other, client, result(11, 0, 1, STORED))
    third = fake.agent(1)
    fake.say(client, sum_of(20, 10, 11))
    at = {agent: fake.placed(agent) for agent in (one, other)}
    assert at == {one: [(10, 0, 1), (20, 0, 1)], other: [(11, 0, 1)]}
    fake.say(one, lacking(client, 20, 11))
    assert fake.placed(third) == [(20, 0, 1)]
    assert [fake.placed(agent) for agent in (one, other)] == [[], []], "nothing is made again"


def test_of_two_hosts_of_which_one_reaches_the_other_that_one_runs_what_needs_both() -> None:
    """Each alone can make what it has: nothing is made again."""
    fake = FakeScheduler()
    one, other, client = fake.agent(1, ("one",)), fake.agent(1, ("other",)), fake.client()
    fake.say(client, task(10, 1, capabilities=("one",)), task(11, 1, capabilities=("other",)))
    fake.report(one, client, result(10, 0, 1, STORED))
    fake.report(other, client, result(11, 0, 1, STORED))
    fake.say(client, sum_of(20, 10, 11))
    fake.heard(one), fake.heard(other)
    tries = 0
    while not fake.core.state.agents[other].load.outstanding:
        assert tries < 3
        tries += 1
        fake.say(one, lacking(client, 20, 11))
        assert all(span == (20, 0, 1) for agent in (one, other) for span in fake.placed(agent))
    fake.report(other, client, result(20, 0, 1))
    assert fake.ends(client)[-1] == (20, 0, 1, VALUES_LIST)


def test_what_is_made_again_is_what_can_be_within_reach_of_the_rest_though_it_is_more() -> None:
    fake = FakeScheduler()
    other, client = fake.agent(1), fake.client()
    fake.say(client, task(10, 1), task(11, 1))
    fake.report(other, client, result(10, 0, 1, STORED), result(11, 0, 1, STORED))
    one = fake.agent(1, ("one",))
    fake.say(client, task(12, 1, capabilities=("one",)))
    fake.report(one, client, result(12, 0, 1, STORED))
    fake.say(client, sum_of(20, 10, 11, 12))
    assert fake.placed(other)[-1] == (20, 0, 1), "where most of it is"
    fake.heard(one)
    fake.say(other, lacking(client, 20, 12))
    assert (fake.placed(one), fake.placed(other)) == ([(10, 0, 1), (11, 0, 1)], [])
    fake.report(one, client, result(10, 0, 1, STORED), result(11, 0, 1, STORED))
    assert fake.placed(one) == [(20, 0, 1)]


@pytest.mark.parametrize(("unfit", "kind"), [(False, StoreFull), (True, TaskFailed)], ids=["no room", "no worker"])
def test_a_row_that_one_host_can_not_run_goes_to_each_other_one_and_then_fails_with_the_reason(
    unfit: bool, kind: type[TaskFailed]
) -> None:
    fake = FakeScheduler(1, 1, 1)
    client = fake.client()
    fake.say(client, stored(fake.agents[0], 5))
    fake.say(client, task(10, 1, dependency_counts=u32([1]), dependencies=u64([5])))
    asked = []
    for _ in fake.agents:
        (agent,) = (agent for agent in fake.agents if fake.placed(agent) == [(10, 0, 1)])
        asked.append(agent)
        fake.say(agent, ObjectMissing(Objects(), spans(Spans, client, (10, 0, 1)), "the reason", unfit))
    assert sorted(asked) == sorted(fake.agents)
    (message,) = fake.heard(client, TaskResult)
    error = decode_error(bytes(message.bodies[0]))
    assert type(error) is kind
    assert "the reason" in str(error)


def steps_of_a_refusal(rows: int, others: int) -> int:
    """Steps of the interpreter when an agent gives back so many rows that it can never run, while others are there."""
    fake = FakeScheduler(rows, *[1] * others)
    agent, client = fake.agents[0], fake.client()
    fake.say(client, task(10, rows))
    assert fake.holds(agent) > rows - others
    refusal = ObjectMissing(Objects(), spans(Spans, client, (10, 0, rows)), "the reason")
    return steps_of(lambda: fake.say(agent, refusal))


def test_the_agents_that_rows_could_go_to_are_not_all_looked_at_for_each_row_that_one_refuses() -> None:
    """With 4,000 of them each row took 4 ms: where rows need no stored value, the first will do."""
    more_agents = steps_of_a_refusal(1_000, 90) - steps_of_a_refusal(1_000, 10)
    assert more_agents < 80 * 1_000


def test_where_rows_go_that_an_agent_refuses_is_decided_once_for_those_that_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeScheduler(8)
    agent, client = fake.agents[0], fake.client()
    fake.say(client, stored(agent, 5), stored(agent, 6))
    needs = [5, 5, 6, 6, 5, 5]
    fake.say(client, task(10, 6, dependency_counts=u32([1] * 6), dependencies=u64(needs)))
    assert fake.holds(agent) == 6
    other = fake.agent(8)
    looked: list[int] = []
    real = placement.choose
    monkeypatch.setattr(placement, "choose", lambda *given, **more: looked.append(1) or real(*given, **more))
    fake.say(agent, ObjectMissing(Objects(), spans(Spans, client, (10, 0, 6)), "the reason"))
    assert (fake.holds(agent), fake.holds(other)) == (0, 6)
    assert len(looked) == 2
    assert not list(thorough(fake.core.state))


def test_a_row_whose_input_ends_with_its_worker_again_and_again_is_not_to_blame(one: Any) -> None:
    fake, agent, client = one
    fake.say(client, graph(10, [[], [0]], [1]))
    fake.report(agent, client, result(10, 0, 1, STORED))
    missing = ObjectMissing(names(client, 10), spans(Spans, client, (10, 1, 2)))
    fake.heard(agent)
    fake.say(agent, ObjectGone(u32([client]), u64([10]), with_worker=True), missing)
    assert fake.placed(agent) == [(10, 0, 1)]
    fake.report(agent, client, result(10, 0, 1, STORED))
    for _ in range(50):
        assert fake.placed(agent) == [(10, 1, 2)]
        fake.say(agent, ObjectGone(u32([client]), u64([10]), with_worker=True), missing)
        assert fake.placed(agent) == [(10, 0, 1)]
        fake.report(agent, client, result(10, 0, 1, STORED))
    assert not fake.heard(client, TaskResult)


def test_a_row_whose_input_can_never_be_got_fails_in_the_end(one: Any) -> None:
    fake, agent, client = one
    fake.say(client, task(10, 1))
    fake.report(agent, client, result(10, 0, 1, STORED))
    fake.say(client, task(20, 1, dependency_counts=u32([1]), dependencies=u64([10])))
    fake.heard(client)
    for _ in range(20):
        for batch, lo, hi in fake.placed(agent):
            if batch == 20:
                fake.say(agent, ObjectMissing(names(client, 10), spans(Spans, client, (20, lo, hi))))
            else:
                fake.report(agent, client, result(10, 0, 1, STORED))
    (message,) = fake.heard(client, TaskResult)
    assert message.outcomes.tolist() == [ERROR]


def test_a_full_agent_gets_no_new_rows(two: Any) -> None:
    fake, first, _, client = two
    fake.say(first, Heartbeat(0.0, 1, full=True))
    fake.say(client, task(10, 3))
    assert fake.holds(first) == 0
    fake.say(first, Heartbeat(0.0, 1))
    assert fake.holds(first) > 0


def test_everything_is_released_when_a_client_leaves(two: Any) -> None:
    fake, first, _, client = two
    fake.say(client, graph(10, [[], [0]], [0, 1]))
    fake.report(first, client, result(10, 0, 1, STORED))
    fake.lose(client)
    assert not fake.core.state.agents[first].holdings.keys


# ---- values that come as a list --------------------------------------------------------------------------------------
def rows_of(placed: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    return sorted((batch, row) for batch, lo, hi in placed for row in range(lo, hi))


def computing_again(fake: FakeScheduler, first: int, client: int) -> None:
    """Rows 1 and 2 of batch 10 are computed again, since an agent is lost that has their values; row 3 for the first
    time."""
    fake.say(client, task(10, 4))
    fake.report(first, client, result(10, 0, 1), result(10, 1, 3, STORED))
    fake.lose(first)
    fake.say(client, names(0, 11, 12, cls=ObjectRequest))
    fake.ends(client)


def test_of_a_list_of_values_those_that_were_stored_before_become_objects() -> None:
    fake = FakeScheduler(4)
    (first,) = fake.agents
    client = fake.client()
    computing_again(fake, first, client)
    second = fake.agent(4)
    assert rows_of(fake.placed(second)) == [(10, 1), (10, 2), (10, 3)]
    fake.report(second, client, result(10, 1, 4))
    assert fake.ends(client) == [(10, 3, 4, VALUES_EACH)]
    objects = fake.core.state.clients[client].values.objects
    assert [pickle.loads(objects[value].payload) for value in (11, 12)] == [1, 2]


def test_each_value_of_rows_that_run_again_is_to_stand_by_itself() -> None:
    fake = FakeScheduler(4)
    (first,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 4))
    fake.report(first, client, result(10, 0, 4, STORED))
    assert not any(given.flags & APART for given in fake.heard(first, Task))
    fake.lose(first)
    fake.say(client, names(0, 11, cls=ObjectRequest))
    (given,) = fake.heard(fake.agent(4), Task)
    assert (given.batch, given.spans.tolist(), given.flags & APART) == (10, [1, 2], APART)


@pytest.mark.parametrize("damage", ["global", "length", "bytes"])
def test_a_list_of_values_that_is_none_costs_its_agent_the_session_and_its_rows_run_elsewhere(damage: str) -> None:
    body = {
        "global": pickle.dumps([1, 2, print]),
        "length": pickle.dumps([1, 2]),
        "bytes": b"garbage",
    }[damage]
    fake = FakeScheduler(4)
    (first,) = fake.agents
    client, other = fake.client(), fake.client()
    computing_again(fake, first, client)
    second = fake.agent(4)
    fake.say(other, task(20, 1))
    fake.heard(second)
    fake.report(second, client, SpanResult(10, 1, 4, VALUES_LIST, 0, 0, u32([len(body)]), body))
    assert [effect.number for effect in fake.effects if isinstance(effect, Forget)] == [second]
    assert set(fake.core.state.clients) == {client, other}
    third = fake.agent(4)
    assert rows_of(fake.placed(third)) == [(10, 1), (10, 2), (10, 3), (20, 0)]
    fake.report(third, client, result(10, 1, 4))
    fake.report(third, other, result(20, 0, 1))
    assert fake.ends(client) == [(10, 3, 4, VALUES_EACH)]
    assert fake.ends(other) == [(20, 0, 1, VALUES_LIST)]


def test_rows_whose_agents_send_lists_that_are_none_are_given_up_in_the_end() -> None:
    fake = FakeScheduler(retries_on_loss=2)
    client = fake.client()
    fake.say(client, graph(10, [[], [0]], [1]))
    for _ in range(3):
        assert fake.ends(client) == []
        agent = fake.agent(1)
        fake.report(agent, client, SpanResult(10, 0, 1, VALUES_LIST, 0, 0, u32([1]), b"?"))
        assert agent not in fake.core.state.agents
    (message,) = fake.heard(client, TaskResult)
    assert "is no pickle" in str(decode_error(bytes(message.bodies[0])))
    assert not fake.core.state.clients[client].batches


def test_a_list_of_values_of_a_graph_is_told_row_by_row() -> None:
    fake = FakeScheduler(2)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, graph(10, [[], [], [0, 1]], [1, 2]))
    fake.report(agent, client, result(10, 0, 2))
    assert fake.ends(client) == [(10, 1, 2, VALUES_EACH)]
    (given,) = [m for m in fake.heard(agent, Task) if m.dependencies]
    assert dict(zip(given.objects, map(pickle.loads, given.bodies), strict=True)) == {10: 0, 11: 1}
