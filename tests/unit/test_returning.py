"""A scheduler has taken the place of another: clients and agents come back, and their work is put together again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from simulator.scripted import FakeScheduler, graph, hello, result, root_of, session_of, spans, task
from support.counting import steps_of
from support.weight import objects_below

from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    FAILED,
    LOST,
    PLACE,
    STORED,
    STORED_OBJECT,
    VALUES_EACH,
    VALUES_LIST,
    Ack,
    AgentsInUse,
    BalanceRequest,
    BalanceResponse,
    ClientDeparture,
    ClientIntroduction,
    ClientReturn,
    ClientShutdown,
    Command,
    DisconnectRequest,
    Heartbeat,
    HeartbeatEcho,
    Inventory,
    ObjectAnnounce,
    ObjectGone,
    ObjectMissing,
    ObjectRelease,
    ObjectRequest,
    ObjectResponse,
    Objects,
    Query,
    QueryResult,
    Settled,
    ShutdownResponse,
    Spans,
    StoreRequest,
    Task,
    TaskCancel,
    TaskClaimResponse,
    TaskOutput,
    TaskResult,
    u8,
    u32,
    u64,
)
from scaler.scheduler.core import events as se
from scaler.scheduler.core import mail, roots
from scaler.scheduler.core.returning import BRIEF, LOOK, PATIENCE, REPEATING, TOGETHER
from scaler.scheduler.state.batch_records import DONE, QUEUED, WAITING
from scaler.scheduler.state.root_records import Fate
from scaler.scheduler.state.validate import validate
from scaler.scheduler.views.cluster_view import cluster_view

#: numbers at the last scheduler
CLIENT, AGENT, OTHER = 1002, 1003, 1004
SESSION, OTHERS_SESSION = 7, 8
FUNCTION = ObjectAnnounce(u64([1]), u8([0]), [b"function"])


def inventory(*rows: tuple[int, int, int], objects: dict[int, int] | None = None, session: int = SESSION) -> Inventory:
    """What an agent has of the client; objects by id with their sizes."""
    found = objects or {}
    held = Spans()
    for batch, lo, hi in rows:
        held.add(CLIENT, batch, lo, hi)
    return Inventory(
        u32([CLIENT]), u64([session]), held, Objects(u32([CLIENT]) * len(found), u64(found)), u64(found.values())
    )


def names(*ids: int, cls: type[Objects]) -> Any:
    """A message about objects of the client's own."""
    return cls(u32([0]) * len(ids), u64(ids))


def ended_rows(fake: FakeScheduler) -> list[tuple[int, int, int]]:
    """What the client was told of."""
    told = []
    for message in fake.heard(CLIENT, TaskResult):
        told += [
            (batch, lo, hi)
            for batch, lo, hi in zip(message.batches, message.spans[::2], message.spans[1::2], strict=True)
        ]
    return told


def place_of(fake: FakeScheduler, batch: int) -> list[int]:
    """Where the rows of a batch are."""
    found = fake.core.state.batch_of(CLIENT, batch)
    assert found is not None
    return found.place.tolist()


@pytest.fixture
def fake() -> FakeScheduler:
    return FakeScheduler()


def back(
    fake: FakeScheduler,
    *messages: Any,
    agents: tuple[int, ...] = (AGENT,),
    ids: tuple[int, ...] = (),
    whereabouts: tuple[str, ...] = (),
    store: str = "/store",
) -> None:
    """The client comes back and says these again."""
    fake.come_back("client", CLIENT, SESSION, agents=u32(agents), whereabouts=whereabouts, store=store)
    fake.say(CLIENT, FUNCTION, *messages, ClientReturn(u64(ids)))


def agent_back(fake: FakeScheduler, *said: Any, number: int = AGENT) -> None:
    fake.come_back("agent", number, 70 + number)
    fake.say(number, *said)


def test_a_cluster_that_is_ended_as_all_come_back_waits_a_moment_for_its_agents() -> None:
    fake = FakeScheduler(protected=False)
    agent_back(fake, inventory())
    back(fake, ClientShutdown(), agents=())
    assert [answer.accepted for answer in fake.heard(CLIENT, ShutdownResponse)] == [True]
    assert not fake.heard(AGENT, ClientShutdown)
    fake.wait(TOGETHER / 2)
    fake.say(CLIENT, DisconnectRequest())
    agent_back(fake, inventory(), number=OTHER)
    assert not fake.heard(OTHER, ClientShutdown)
    fake.wait(TOGETHER / 2)
    assert [len(fake.heard(agent, ClientShutdown)) for agent in (AGENT, OTHER)] == [1, 1]
    assert any(isinstance(effect, se.Stop) for effect in fake.effects)


@pytest.mark.parametrize("comes", [True, False])
def test_a_cluster_that_is_ended_waits_longer_for_workers_that_clients_knew_of(comes: bool) -> None:
    fake = FakeScheduler(protected=False)
    fake.come_back("client", CLIENT, SESSION, agents=u32(), workers=4)
    fake.say(CLIENT, ClientReturn(u64()), ClientShutdown())
    agent_back(fake, inventory())
    for _ in range(int(PATIENCE) - 1):
        fake.wait(1.0)
        fake.say(AGENT, Heartbeat(0.0, workers=2))
    assert not fake.heard(AGENT, ClientShutdown)
    if comes:
        agent_back(fake, inventory(), number=OTHER)
        assert len(fake.heard(OTHER, ClientShutdown)) == 1
    else:  # its host went with that of the last scheduler
        fake.wait(1.0)
    assert len(fake.heard(AGENT, ClientShutdown)) == 1


# ---- rows ------------------------------------------------------------------------------------------------------------
def test_rows_stay_where_they_are_and_the_others_run(fake: FakeScheduler) -> None:
    back(fake, task(10, 6, ended=u32([0, 1])))
    agent_back(fake, inventory((10, 1, 3)))
    assert place_of(fake, 10)[:3] == [2, 16 + AGENT, 16 + AGENT]
    assert fake.placed(AGENT) == [(10, 3, 5)]  # as many as it may have while nobody knows how long they take
    assert (
        f"client {CLIENT} (client-{CLIENT}) is here, with 5 rows" in fake.log
    )  # which a durable job that is new says, too
    fake.report(AGENT, CLIENT, result(10, 1, 3))
    assert ended_rows(fake) == [(10, 1, 3)]


@pytest.mark.parametrize("refusal", ["", "there is no room"])
def test_a_row_that_its_agent_gives_up_waits_for_what_is_not_known_here_yet(fake: FakeScheduler, refusal: str) -> None:
    back(fake, graph(10, [[], [0]], [1]))
    agent_back(fake, inventory((10, 1, 2)))
    assert place_of(fake, 10)[1] == 16 + AGENT
    fake.say(AGENT, ObjectMissing(Objects(u32([CLIENT]), u64([10])), spans(Spans, CLIENT, (10, 1, 2)), refusal))
    assert place_of(fake, 10)[1] == WAITING
    fake.end_all(AGENT, CLIENT, VALUES_EACH)
    assert place_of(fake, 10) == [DONE, 16 + AGENT]
    fake.end_all(AGENT, CLIENT, VALUES_EACH)
    assert ended_rows(fake) == [(10, 1, 2)]


@pytest.mark.parametrize("outcome", [STORED, VALUES_EACH, VALUES_LIST])
def test_an_agent_may_tell_at_once_of_rows_that_need_each_other(fake: FakeScheduler, outcome: int) -> None:
    """The value is kept for the row that has not run yet, and no longer."""
    back(fake, graph(10, [[], [0], [0]], [1, 2]))
    agent_back(fake, inventory((10, 0, 2)))
    fake.report(AGENT, CLIENT, result(10, 0, 2, outcome))
    state = fake.core.state
    assert ended_rows(fake) == [(10, 1, 2)]
    assert state.clients[CLIENT].values.objects[10].references == 1
    assert validate(state) == []
    fake.end_all(AGENT, CLIENT, VALUES_EACH)
    assert 10 not in state.clients[CLIENT].values.objects
    assert validate(state) == []


def test_results_that_did_not_reach_the_client_are_told_and_those_that_did_are_not(fake: FakeScheduler) -> None:
    back(fake, task(10, 4, ended=u32([0, 2])))
    agent_back(fake, inventory((10, 0, 4)))
    fake.report(AGENT, CLIENT, result(10, 0, 4, VALUES_EACH))
    assert ended_rows(fake) == [(10, 2, 4)]
    assert CLIENT in fake.core.state.clients
    assert not fake.core.state.clients[CLIENT].batches
    assert fake.placed(AGENT) == []


def test_results_that_come_before_the_client_wait_for_it(fake: FakeScheduler) -> None:
    agent_back(fake, inventory((10, 0, 2)))
    fake.report(AGENT, CLIENT, result(10, 0, 1))
    fake.report(AGENT, CLIENT, result(10, 1, 2, ERROR))
    back(fake, task(10, 2))
    assert ended_rows(fake) == [(10, 0, 1), (10, 1, 2)]


def test_a_client_waits_for_the_agents_that_may_have_its_rows(fake: FakeScheduler) -> None:
    (idle,) = [fake.agent(2)]
    back(fake, task(10, 2))
    assert fake.placed(idle) == []
    fake.wait(PATIENCE - 1)
    assert fake.placed(idle) == []
    fake.wait(1.5)
    assert fake.placed(idle) == [(10, 0, 2)]


def test_it_is_said_who_is_waited_for_and_how_long(fake: FakeScheduler) -> None:
    def errors() -> list[str]:
        said = [Query(7, "explain", row=10, client=CLIENT), Query(7, "story", row=10), Command(8, "cancel", CLIENT, 10)]
        for each in said:  # one by one: of what comes in one step, questions about rows are answered last
            fake.say(monitor, each)
        return [answer.error for answer in fake.heard(monitor)]

    def awaited() -> str:
        return cluster_view(fake.core.state)[0].scheduler.awaited

    monitor = fake.monitor()
    agent_back(fake, inventory((10, 0, 2)), number=OTHER)
    words = f"client {CLIENT} of the last scheduler has not come yet: 10 s more at most"
    assert errors()[0] == f"task {CLIENT}:10 is not known yet, if there is one: {words}"
    fake.come_back("client", CLIENT, SESSION, agents=u32((AGENT, OTHER)))
    words = f"work of client {CLIENT} waits for agent {AGENT}, which may have some of it: 10 s more at most"
    assert awaited() == words
    fake.say(CLIENT, FUNCTION, task(10, 2), ClientReturn(u64()))
    assert errors() == [
        f"task {CLIENT}:10 is not known yet, if there is one: {words}",
        f"task 10 is not known yet, if there is one: {words}",
        f"not all tasks are known yet: {words}; try again then",
    ]
    fake.log.clear()
    for _ in range(3):
        fake.wait(BRIEF)
    words = words.replace("10 s", "9 s")
    assert [line for line in fake.log if "waits for" in line] == [words], "once"
    agent_back(fake, inventory())
    assert awaited() == ""
    fake.say(monitor, Query(7, "explain", row=10, client=CLIENT))
    assert not fake.heard(monitor, QueryResult)[0].error


def looked_for(fake: FakeScheduler) -> list[tuple[int, str]]:
    """The agents that the last step has looked for."""
    return [agent for effect in fake.effects if isinstance(effect, se.LookFor) for agent in effect.agents]


def test_work_does_not_wait_for_an_agent_that_has_surely_ended(fake: FakeScheduler) -> None:
    back(fake, task(10, 2), agents=(AGENT, OTHER), whereabouts=("tcp://a:1 boot", "tcp://b:2 boot"))
    agent_back(fake, inventory((10, 0, 1)))
    assert looked_for(fake) == []
    fake.wait(LOOK)
    assert looked_for(fake) == [(OTHER, "tcp://b:2 boot")]
    fake.wait(LOOK)
    assert looked_for(fake) == [(OTHER, "tcp://b:2 boot")], "it may end later"
    assert fake.placed(AGENT) == []
    fake.handle(se.Vanished(OTHER, "tcp://b:2 boot"))
    assert fake.placed(AGENT) == [(10, 1, 2)]
    assert f"agent {OTHER} of the last scheduler has ended: nothing listens at tcp://b:2 any more" in fake.log
    assert [number for message in fake.heard(CLIENT, AgentsInUse) for number in message.removed] == [OTHER]


def test_an_agent_that_came_or_is_somewhere_else_is_still_waited_for(fake: FakeScheduler) -> None:
    back(fake, task(10, 2), agents=(AGENT, OTHER), whereabouts=("tcp://a:1 boot", "tcp://b:2 boot"))
    fake.come_back("agent", AGENT, 70 + AGENT)
    fake.wait(LOOK)
    assert looked_for(fake) == [(OTHER, "tcp://b:2 boot")], "the other one is about to say what it has"
    fake.handle(se.Vanished(AGENT, "tcp://a:1 boot"), se.Vanished(OTHER, "tcp://c:3 boot"))
    fake.say(AGENT, inventory((10, 0, 1)))
    assert fake.placed(AGENT) == []


def test_an_agent_that_does_not_say_where_it_listens_is_not_looked_for(fake: FakeScheduler) -> None:
    back(fake, task(10, 2), agents=(AGENT, OTHER), whereabouts=("", ""))
    fake.wait(LOOK)
    assert looked_for(fake) == []


def test_a_client_is_told_where_its_agents_listen(fake: FakeScheduler) -> None:
    fake.come_back("agent", AGENT, 70, number=0, data="tcp://a:1")
    client = fake.client()
    fake.say(client, task(10, 1))
    assert [message.whereabouts for message in fake.heard(client, AgentsInUse)] == [("tcp://a:1 here",)]


def test_a_client_is_to_wait_once_for_an_agent_that_does_not_come(fake: FakeScheduler) -> None:
    back(fake, task(10, 2), agents=(AGENT, OTHER))
    agent_back(fake, inventory((10, 0, 2)))
    assert fake.heard(CLIENT, AgentsInUse) == []
    fake.wait(PATIENCE + 1)
    told = fake.heard(CLIENT, AgentsInUse)
    assert [number for message in told for number in message.added] == [AGENT]
    assert [number for message in told for number in message.removed] == [OTHER]


def test_a_client_is_not_to_wait_for_a_store_that_ends_with_its_scheduler(fake: FakeScheduler) -> None:
    client = fake.client()
    fake.say(client, StoreRequest(True))
    store = fake.store()
    assert [message.client for message in fake.heard(store, ClientIntroduction)] == [client]
    assert fake.heard(client, AgentsInUse) == []


def test_nothing_is_done_again_and_again_while_a_client_does_not_say_all_again(fake: FakeScheduler) -> None:
    """It may have much to say; that its agents have been waited for long enough matters when it has."""
    fake.come_back("client", CLIENT, SESSION, agents=u32([AGENT]))
    wakes = 0
    while fake.now < 3 * PATIENCE:
        assert wakes < 6 * PATIENCE / LOOK
        assert fake.core._wake is not None
        fake.wait(max(fake.core._wake - fake.now, 0.0))
        fake.say(CLIENT, Heartbeat(1))
        wakes += 1
    agent = fake.agent(2)
    fake.say(CLIENT, FUNCTION, task(10, 2), ClientReturn())
    assert fake.placed(agent) == [(10, 0, 2)]


def test_others_do_not_wait_with_it(fake: FakeScheduler) -> None:
    agent, other = fake.agent(2), fake.client()
    back(fake, task(10, 2))
    fake.say(other, task(20, 2))
    assert fake.placed(agent) == [(20, 0, 2)]


def inventory_of_both() -> Inventory:
    """What an agent has of the client, and of another one that has not come yet."""
    held = inventory((10, 0, 1))
    held.clients.append(OTHER)
    held.sessions.append(OTHERS_SESSION)
    held.rows.add(OTHER, 10, 0, 1)
    return held


def of_both(cls: Any) -> Any:
    """A message that names all of these rows."""
    rows = spans(cls, OTHER, (10, 0, 1))
    rows.add(CLIENT, 10, 0, 1)
    return rows


@pytest.mark.parametrize(
    "said",
    [
        of_both(BalanceResponse),
        ObjectMissing(rows=of_both(Spans)),
        ObjectMissing(rows=of_both(Spans), refusal="no room"),
    ],
    ids=["gives back", "lacks", "refuses"],
)
def test_no_client_waits_for_another_one_that_its_agent_speaks_of_as_well(fake: FakeScheduler, said: Any) -> None:
    """What an agent gives back of all clients it says in one message."""
    agent_back(fake, inventory_of_both())
    back(fake, task(10, 1))
    helper = fake.agent(2)
    fake.say(AGENT, Heartbeat(0.0, 2, full=True), said)
    assert fake.placed(helper) == [(10, 0, 1)]
    fake.report(helper, CLIENT, result(10, 0, 1))
    assert ended_rows(fake) == [(10, 0, 1)]
    fake.come_back("client", OTHER, OTHERS_SESSION, agents=u32([AGENT]))
    fake.say(OTHER, FUNCTION, task(10, 1), ClientReturn())
    assert fake.placed(helper) == [(10, 0, 1)]
    assert validate(fake.core.state) == []


def test_what_is_said_of_a_client_that_does_not_come_is_lost_with_it_alone(fake: FakeScheduler) -> None:
    agent_back(fake, inventory_of_both())
    back(fake, task(10, 1))
    helper = fake.agent(2)
    fake.say(AGENT, Heartbeat(0.0, 2, full=True), of_both(BalanceResponse))
    fake.wait(fake.core._limits.client_timeout)
    assert f"client {OTHER} did not come back" in fake.log
    assert not fake.core.state.returning.mail
    assert fake.placed(helper) == [(10, 0, 1)]


def two(cls: Any, **more: Any) -> tuple[Any, Any, Any]:
    """A message that names objects of both clients, and its parts."""
    return tuple(cls(u32(numbers), u64(numbers), **more) for numbers in ([CLIENT, OTHER], [CLIENT], [OTHER]))  # type: ignore[return-value]


def answers(*numbers: int) -> ObjectResponse:
    """An agent says of objects of these clients that it can't have them."""
    return ObjectResponse(u32(numbers), u64(numbers), u8([1] * len(numbers)), AGENT, "out of reach")


def running(*numbers: int) -> Spans:
    """A row of each of these clients."""
    return Spans(u32(numbers), u64(numbers), u32([0, 1] * len(numbers)))


BOTH, ONE, THE_OTHER = (CLIENT, OTHER), (CLIENT,), (OTHER,)


@pytest.mark.parametrize(
    ("said", "now", "later"),
    [
        two(ObjectGone, with_worker=True),
        (answers(*BOTH), answers(*ONE), answers(*THE_OTHER)),
        (TaskClaimResponse(running(*BOTH), Spans()), TaskClaimResponse(running(*ONE), Spans()),
         TaskClaimResponse(running(*THE_OTHER), Spans())),
        (TaskClaimResponse(running(*ONE), running(*THE_OTHER)), TaskClaimResponse(running(*ONE), Spans()),
         TaskClaimResponse(Spans(), running(*THE_OTHER))),
        (ObjectMissing(rows=running(*THE_OTHER), refusal="no worker", unfit=True), None,
         ObjectMissing(rows=running(*THE_OTHER), refusal="no worker", unfit=True)),
        (ObjectMissing(two(Objects)[0], running(*ONE)), ObjectMissing(two(Objects)[1], running(*ONE)),
         ObjectMissing(two(Objects)[2])),
        (TaskResult(OTHER), None, TaskResult(OTHER)),
        (TaskResult(CLIENT), TaskResult(CLIENT), None),
        (Heartbeat(0.0), Heartbeat(0.0), None),
    ],
)  # fmt: skip
def test_a_message_about_several_clients_is_taken_apart(fake: FakeScheduler, said: Any, now: Any, later: Any) -> None:
    agent_back(fake, inventory_of_both())
    back(fake)
    state = fake.core.state
    assert mail.put_aside(state, state.agents[AGENT], said) == now
    assert state.returning.mail == ({} if later is None else {OTHER: [(AGENT, later)]})


def test_an_agent_that_comes_too_late_is_told_to_let_go_of_rows(fake: FakeScheduler) -> None:
    agent = fake.agent(2)
    back(fake, task(10, 2))
    fake.wait(PATIENCE + 1)
    assert fake.placed(agent) == [(10, 0, 2)]
    agent_back(fake, inventory((10, 0, 2), objects={50: 100}))
    (cancel,) = fake.heard(AGENT, TaskCancel)
    assert (list(cancel.spans), cancel.force) == ([(CLIENT, 10, 0, 2)], True)
    fake.report(AGENT, CLIENT, result(10, 0, 2, CANCELLED))
    assert ended_rows(fake) == []
    fake.report(agent, CLIENT, result(10, 0, 2))
    assert ended_rows(fake) == [(10, 0, 2)]


def test_an_agent_that_comes_too_late_is_given_nothing_before_it_has_told_of_what_it_had(
    fake: FakeScheduler,
) -> None:
    """Of a row that it had twice nobody could tell which has ended: as cancelled, maybe, which nobody wanted."""
    back(fake, task(10, 4))
    fake.wait(PATIENCE + 1)
    agent_back(fake, inventory((10, 0, 2), (10, 3, 4)))
    assert fake.placed(AGENT) == []
    fake.say(AGENT, Heartbeat(0.0, 2))
    fake.report(AGENT, CLIENT, result(10, 1, 2))  # it had ended before
    fake.report(AGENT, CLIENT, result(10, 0, 1, CANCELLED))
    assert (fake.placed(AGENT), place_of(fake, 10)) == ([], [QUEUED] * 4)
    fake.report(AGENT, CLIENT, result(10, 3, 4, LOST))
    assert fake.placed(AGENT) == [(10, 0, 4)]
    fake.report(AGENT, CLIENT, result(10, 0, 4))
    assert ended_rows(fake) == [(10, 0, 4)]


def test_what_an_agent_tells_of_rows_that_came_too_late_is_cut_out_of_the_rest(fake: FakeScheduler) -> None:
    other = fake.agent(2)
    back(fake, task(10, 4))
    fake.wait(PATIENCE + 1)
    fake.end_all(other, CLIENT)
    assert ended_rows(fake) == [(10, 0, 4)]
    agent_back(fake, inventory((10, 1, 3), (10, 2, 3), (20, 0, 1)))
    late = fake.core.state.returning.late
    assert late == {AGENT: {(CLIENT, 10): [(1, 3)], (CLIENT, 20): [(0, 1)]}}
    fake.report(AGENT, CLIENT, result(10, 2, 4, VALUES_EACH))
    assert late == {AGENT: {(CLIENT, 10): [(1, 2)], (CLIENT, 20): [(0, 1)]}}
    fake.report(AGENT, CLIENT, result(10, 0, 2, VALUES_EACH))
    assert late == {AGENT: {(CLIENT, 20): [(0, 1)]}}
    assert fake.core.state.agents[AGENT].load.is_full
    fake.say(CLIENT, DisconnectRequest())
    assert late == {}
    assert not fake.core.state.agents[AGENT].load.is_full


@pytest.mark.parametrize("is_aside", [True, False])
@pytest.mark.parametrize("how", ["for others", "for want of an input"])
def test_an_agent_that_gives_back_what_it_is_to_end_is_given_rows(
    fake: FakeScheduler, how: str, is_aside: bool
) -> None:
    """It did so before it heard that it is to end them: it has nothing to tell of them any more."""
    if is_aside:
        agent_back(fake, inventory((10, 0, 2)), number=OTHER)
    else:
        back(fake, task(10, 2, ended=u32([0, 2])), agents=())
        agent_back(fake, inventory((10, 0, 2)), number=OTHER)
        assert len(fake.heard(OTHER, TaskCancel)) == 1
    if how == "for others":
        fake.say(OTHER, spans(BalanceResponse, CLIENT, (10, 0, 2)))
    else:
        fake.say(OTHER, ObjectMissing(Objects(u32([CLIENT]), u64([5])), spans(Spans, CLIENT, (10, 0, 2))))
    if is_aside:
        back(fake, task(10, 2, ended=u32([0, 2])), agents=(OTHER,))
        assert len(fake.heard(OTHER, TaskCancel)) == 1
    assert not fake.core.state.returning.late
    fake.say(CLIENT, task(20, 1))
    assert fake.placed(OTHER) == [(20, 0, 1)]


def test_an_agent_that_is_gone_owes_nothing(fake: FakeScheduler) -> None:
    back(fake, task(10, 4))
    fake.wait(PATIENCE + 1)
    agent_back(fake, inventory((10, 1, 3)))
    fake.lose(AGENT)
    assert not fake.core.state.returning.late


def test_what_is_said_behind_the_repetition_is_new(fake: FakeScheduler) -> None:
    fake.come_back("client", CLIENT, SESSION, agents=u32([AGENT]))
    fake.say(CLIENT, FUNCTION, task(10, 1), ClientReturn(), task(20, 1), names(1, cls=ObjectRelease))
    agent_back(fake, inventory((10, 0, 1)))
    assert fake.placed(AGENT) == [(20, 0, 1)]
    fake.say(CLIENT, TaskCancel(spans(Spans, 0, (10, 0, 1))))
    assert [list(message.spans) for message in fake.heard(AGENT, TaskCancel)] == [[(CLIENT, 10, 0, 1)]]


def test_what_is_said_as_new_was_perhaps_said_to_another_scheduler(fake: FakeScheduler) -> None:
    """A durable job whose part was not on disk is submitted anew, and agents have rows of it."""
    agent_back(fake, inventory((10, 0, 2)))
    fake.report(AGENT, CLIENT, result(10, 0, 1))
    fake.come_back("client", CLIENT, SESSION, agents=u32([AGENT, OTHER]))
    fake.say(CLIENT, ClientReturn(), FUNCTION, task(10, 3))
    agent_back(fake, inventory(), number=OTHER)
    assert ended_rows(fake) == [(10, 0, 1)]
    assert place_of(fake, 10)[:2] == [DONE, 16 + AGENT]
    assert (10, 0, 1) not in fake.placed(AGENT) + fake.placed(OTHER)


def test_heartbeats_of_a_client_that_waits_are_answered(fake: FakeScheduler) -> None:
    back(fake, task(10, 1))
    fake.say(CLIENT, Heartbeat(5.0))
    assert [echo.clock for echo in fake.heard(CLIENT, HeartbeatEcho)] == [5.0]


def test_rows_of_a_lost_agent_run_elsewhere(fake: FakeScheduler) -> None:
    back(fake, task(10, 2))
    agent_back(fake, inventory((10, 0, 2)))
    other = fake.agent(2)
    fake.lose(AGENT)
    assert fake.placed(other) == [(10, 0, 2)]


def test_an_agent_that_is_lost_again_is_not_waited_for(fake: FakeScheduler) -> None:
    agent = fake.agent(2)
    agent_back(fake, inventory((10, 0, 2)))
    fake.lose(AGENT)
    back(fake, task(10, 2), agents=(agent,))
    assert fake.placed(agent) == [(10, 0, 2)]


def busy_agent(fake: FakeScheduler) -> tuple[int, int]:
    """An agent with more rows than it runs, which take long, and their client."""
    busy, client = fake.agent(2), fake.client()
    fake.say(client, task(10, 1))
    fake.report(busy, client, result(10, 0, 1, us=100_000))
    fake.say(client, task(20, 4))
    assert fake.holds(busy) == 4
    return busy, client


@pytest.mark.parametrize("comes", ["client", "agent"])
def test_rows_of_others_are_shared_while_somebody_has_not_said_what_it_has(fake: FakeScheduler, comes: str) -> None:
    busy, client = busy_agent(fake)
    fake.come_back(comes, OTHER, OTHERS_SESSION)
    idle = fake.agent(2)
    (asked,) = fake.heard(busy, BalanceRequest)
    assert not asked.batches
    fake.say(busy, spans(BalanceResponse, client, (20, 3, 4)))
    assert fake.placed(idle) == [(20, 3, 4)]


def test_rows_of_a_client_that_has_not_come_yet_are_not_asked_for(fake: FakeScheduler) -> None:
    agent_back(fake, inventory_of_both())
    back(fake, task(10, 1), task(20, 4))
    fake.say(AGENT, Heartbeat(0.0, 1))
    fake.report(AGENT, CLIENT, result(10, 0, 1, us=100_000))
    fake.agent(2)
    (asked,) = fake.heard(AGENT, BalanceRequest)
    assert list(zip(asked.clients, asked.batches, strict=True)) == [(CLIENT, 20)]


def test_nothing_is_asked_for_on_account_of_an_agent_with_rows_of_a_client_that_has_not_come_yet(
    fake: FakeScheduler,
) -> None:
    busy, _ = busy_agent(fake)
    agent_back(fake, inventory((10, 0, 2)))
    assert not fake.heard(busy, BalanceRequest)
    fake.wait(fake.core._limits.client_timeout)
    assert fake.heard(busy, BalanceRequest)


# ---- who does not do its part ----------------------------------------------------------------------------------------
def beat(fake: FakeScheduler, seconds: float, *peers: int) -> None:
    """Time goes by, and these are heard of."""
    for _ in range(round(seconds)):
        fake.wait(1.0)
        for peer in peers:
            fake.say(peer, Heartbeat(fake.now, 2))


def test_a_client_that_does_not_say_all_again_is_given_up(fake: FakeScheduler) -> None:
    agent_back(fake, inventory((10, 0, 1)))
    fake.come_back("client", CLIENT, SESSION, agents=u32([AGENT]))
    fake.say(CLIENT, FUNCTION)
    beat(fake, REPEATING - 1, CLIENT, AGENT)
    fake.say(CLIENT, task(10, 1))
    beat(fake, REPEATING - 1, CLIENT, AGENT)
    fake.handle(se.Stirred(CLIENT))  # a part of a large message
    beat(fake, REPEATING - 1, CLIENT, AGENT)
    assert CLIENT in fake.core.state.clients
    beat(fake, 5, CLIENT, AGENT)
    words = (
        f"client {CLIENT} (client-{CLIENT}) is gone: said nothing for 60 s of what it has said to the last scheduler"
    )
    assert words in fake.log
    assert [message.client for message in fake.heard(AGENT, ClientDeparture)] == [CLIENT]
    assert not fake.core.state.returning


def test_a_client_that_was_stopped_with_its_scheduler_has_been_silent_for_as_long(fake: FakeScheduler) -> None:
    fake.come_back("client", CLIENT, SESSION)
    fake.wait(2 * REPEATING)
    fake.say(CLIENT, ClientReturn())
    assert CLIENT in fake.core.state.clients


def test_a_durable_job_may_wait_for_its_disk_before_it_says_anything(fake: FakeScheduler) -> None:
    made = hello("client", "job night")
    made.number = CLIENT
    fake.handle(se.Joined(CLIENT, made, is_resident=True))
    beat(fake, 3 * REPEATING, CLIENT)
    assert CLIENT in fake.core.state.clients


def test_an_agent_that_says_anything_before_it_says_what_it_has_is_thrown_out(fake: FakeScheduler) -> None:
    fake.come_back("agent", AGENT, 70)
    fake.say(AGENT, Ack())
    fake.say(AGENT, Heartbeat(0.0, 2))
    (forget,) = [effect for effect in fake.effects if isinstance(effect, se.Forget)]
    assert (forget.number, forget.reason) == (AGENT, "sent a Heartbeat before its Inventory")
    assert not fake.core.state.returning


def test_an_agent_that_has_not_said_what_it_has_is_given_nothing_in_the_step_in_which_it_comes(
    fake: FakeScheduler,
) -> None:
    client = fake.client()
    made = hello("agent", "agent", 2)
    made.number = AGENT
    fake.handle(se.Joined(AGENT, made), se.Received(client, task(10, 1)))
    assert fake.placed(AGENT) == []
    fake.say(AGENT, Inventory())
    assert fake.placed(AGENT) == [(10, 0, 1)]


# ---- graphs ----------------------------------------------------------------------------------------------------------
def test_small_values_that_only_other_rows_need_are_there_again(fake: FakeScheduler) -> None:
    made = graph(10, [[], [0], [1]], [2])
    back(fake, made)
    agent_back(fake, inventory((10, 0, 1), (10, 1, 2)))
    fake.report(AGENT, CLIENT, result(10, 0, 1, VALUES_EACH))
    assert fake.placed(AGENT) == []  # row 1 is there
    fake.report(AGENT, CLIENT, result(10, 1, 2, VALUES_EACH))
    assert fake.placed(AGENT) == [(10, 2, 3)]
    fake.report(AGENT, CLIENT, result(10, 2, 3))
    assert ended_rows(fake) == [(10, 2, 3)]
    assert not fake.core.state.clients[CLIENT].values.batch_of_row


@pytest.mark.parametrize("outcome", [VALUES_EACH, STORED, ERROR, CANCELLED])
def test_a_row_computed_again_gets_a_value_whose_own_row_had_not_ended_here(fake: FakeScheduler, outcome: int) -> None:
    back(fake, graph(10, [[], [0, 0], [1]], [2]), agents=(AGENT, OTHER))
    agent_back(fake, inventory((10, 1, 2)))
    agent_back(fake, inventory((10, 0, 1)), number=OTHER)
    fake.report(AGENT, CLIENT, result(10, 1, 2, STORED))
    assert place_of(fake, 10) == [16 + OTHER, DONE, 16 + AGENT]
    fake.lose(AGENT)  # the value of row 1 is lost, and what that needs is still being made
    assert place_of(fake, 10) == [16 + OTHER, WAITING, WAITING]
    if outcome == CANCELLED:
        fake.cancel(CLIENT, (10, 0, 1))
    fake.report(OTHER, CLIENT, result(10, 0, 1, outcome))
    assert not validate(fake.core.state)
    if outcome in (ERROR, CANCELLED):
        assert fake.core.state.batch_of(CLIENT, 10) is None
        assert ended_rows(fake) == [(10, 2, 3)]
        return
    assert place_of(fake, 10) == [DONE, 16 + OTHER, WAITING]
    fake.report(OTHER, CLIENT, result(10, 1, 2, STORED))
    fake.report(OTHER, CLIENT, result(10, 2, 3))
    assert ended_rows(fake) == [(10, 2, 3)]
    assert fake.core.state.clients[CLIENT].values.objects.keys() == {1}  # the function, which the client holds
    assert not validate(fake.core.state)


def with_many_that_wait(rows: int) -> FakeScheduler:
    """An agent has so many rows since before this scheduler, all of which need what another one is still making."""
    fake = FakeScheduler()
    back(fake, graph(10, [[], *[[0]] * rows], range(1, rows + 1)), agents=(AGENT, OTHER))
    agent_back(fake, inventory((10, 1, rows + 1)))
    agent_back(fake, inventory((10, 0, 1)), number=OTHER)
    return fake


def steps_when_they_end(rows: int) -> int:
    """Steps of the interpreter when all of them end."""
    fake = with_many_that_wait(rows)
    steps = steps_of(lambda: fake.report(AGENT, CLIENT, result(10, 1, rows + 1, VALUES_EACH)))
    assert not validate(fake.core.state)
    return steps


def steps_when_they_run_again(rows: int) -> int:
    """Steps of the interpreter when their values are lost after they have ended, and are read."""
    fake = with_many_that_wait(rows)
    fake.report(AGENT, CLIENT, result(10, 1, rows + 1, STORED))
    fake.lose(AGENT)
    steps = steps_of(lambda: fake.say(CLIENT, names(*range(11, 11 + rows), cls=ObjectRequest)))
    assert place_of(fake, 10) == [16 + OTHER] + [WAITING] * rows
    assert not validate(fake.core.state)
    fake.report(OTHER, CLIENT, result(10, 0, 1, VALUES_EACH))
    assert WAITING not in place_of(fake, 10)
    assert not validate(fake.core.state)
    return steps


@pytest.mark.parametrize("steps", [steps_when_they_end, steps_when_they_run_again])
def test_what_a_row_costs_that_ends_before_what_it_needs_does_not_follow_how_many_others_wait(
    steps: Callable[[int], int],
) -> None:
    """8,000 of them held the scheduler up for 5 s."""
    assert steps(600) < 3.3 * steps(200)


def link(batch: int, needs: list[int], uses: int, wanted: bool = False) -> Task:
    """A batch with one row of the graph that begins with row 10."""
    return replace(
        graph(batch, [[]], []), graph=10, uses=u32([uses]), wanted=u8([wanted]),
        dependency_counts=u32([len(needs)]), dependencies=u64(needs),
    )  # fmt: skip


@pytest.mark.parametrize("outcome", [VALUES_EACH, STORED])
def test_a_value_that_is_heard_of_before_what_it_was_made_of_can_be_made_again(
    fake: FakeScheduler, outcome: int
) -> None:
    """Its worker has died while the client was not back, and the agent that had made the rest came last."""
    back(fake, link(10, [], 1), link(11, [10], 1), link(12, [11], 1), link(13, [12], 0, True), agents=(AGENT, OTHER))
    agent_back(fake, inventory((12, 0, 1), objects={12: 1 << 20}))
    fake.report(AGENT, CLIENT, result(12, 0, 1, STORED))
    fake.say(AGENT, ObjectGone(u32([CLIENT]), u64([12]), with_worker=True))
    agent_back(fake, inventory((10, 0, 1), (11, 0, 1)), number=OTHER)
    fake.report(OTHER, CLIENT, result(10, 0, 1, outcome), result(11, 0, 1, outcome))
    assert fake.placed(AGENT) == [(13, 0, 1)]
    fake.say(AGENT, ObjectMissing(Objects(u32([CLIENT]), u64([12])), spans(Spans, CLIENT, (13, 0, 1))))
    asked = fake.heard(CLIENT, ObjectRequest)
    run: list[tuple[int, int, int]] = []
    for _ in range(6):
        for agent in (AGENT, OTHER):
            run += fake.placed(agent)
            fake.end_all(agent, CLIENT, STORED)
    assert run == [(10, 0, 1)] * (outcome == STORED) + [(11, 0, 1), (12, 0, 1), (13, 0, 1)]  # a small value is kept
    assert asked == []
    assert not validate(fake.core.state)


@pytest.mark.parametrize("is_early", [True, False], ids=["ended before", "ends later"])
@pytest.mark.parametrize("knows", [True, False], ids=["client has it", "client has let go of it"])
def test_what_was_made_of_what_its_client_has_heard_of_can_be_made_again(
    fake: FakeScheduler, is_early: bool, knows: bool
) -> None:
    """Of row 11 the client has had the small value, of row 10 an agent told as it came back, and both are gone."""
    heard = replace(link(11, [10], 1, True), ended=u32([0, 1]))
    agent_back(fake, inventory((10, 0, 1), (12, 0, 1), objects={12: 1 << 20} if is_early else {}))
    fake.report(AGENT, CLIENT, result(10, 0, 1, VALUES_EACH))
    if is_early:
        fake.report(AGENT, CLIENT, result(12, 0, 1, STORED))
    back(fake, link(10, [], 1), heard, link(12, [11], 1), link(13, [12], 0, True))
    refusal = ErrorRecord(ErrorKind.OBJECT, "it was released").encode()
    answer = ObjectAnnounce(u64([11]), u8([0 if knows else FAILED]), [b"value" if knows else refusal])
    fake.say(CLIENT, answer)
    if not is_early:
        fake.report(AGENT, CLIENT, result(12, 0, 1, STORED))
    assert fake.placed(AGENT) == [(13, 0, 1)]
    fake.say(AGENT, ObjectGone(u32([CLIENT]), u64([12]), with_worker=True))
    fake.say(AGENT, ObjectMissing(Objects(u32([CLIENT]), u64([12])), spans(Spans, CLIENT, (13, 0, 1))))
    run: list[tuple[int, int, int]] = []
    for _ in range(4):
        run += fake.placed(AGENT)
        fake.end_all(AGENT, CLIENT, STORED)
    assert run == [(row, 0, 1) for row in (10, 11, 12, 13) if row > 11 or is_early or not knows]
    assert ended_rows(fake) == [(13, 0, 1)]
    assert not validate(fake.core.state)


@pytest.mark.parametrize("outcome", [VALUES_EACH, VALUES_LIST])
@pytest.mark.parametrize("is_in_time", [True, False])
def test_a_small_value_that_an_agent_tells_again_is_not_asked_of_the_client_that_has_heard_it(
    fake: FakeScheduler, outcome: int, is_in_time: bool
) -> None:
    """It may have let go of it, and then its row would run once more; so it may if the agent tells a moment later."""
    heard = replace(link(11, [], 3, True), ended=u32([0, 1]))
    needs = link(12, [11], 0, True), link(13, [11, 11], 0, True)
    agent_back(fake, inventory((11, 0, 1)))
    if is_in_time:
        fake.report(AGENT, CLIENT, result(11, 0, 1, outcome))
    back(fake, heard, replace(needs[0], ended=u32([0, 1])), needs[1])
    assert len(fake.heard(CLIENT, ObjectRequest)) == (not is_in_time)
    if not is_in_time:
        fake.report(AGENT, CLIENT, result(11, 0, 1, outcome))
    assert fake.placed(AGENT) == [(13, 0, 1)]
    if not is_in_time:
        fake.say(CLIENT, ObjectAnnounce(u64([11]), u8([FAILED]), [ErrorRecord(ErrorKind.OBJECT, "gone").encode()]))
    assert not validate(fake.core.state)
    fake.report(AGENT, CLIENT, result(13, 0, 1))
    assert ended_rows(fake) == [(13, 0, 1)]
    assert 11 not in fake.core.state.clients[CLIENT].values.objects


def test_what_a_row_needs_that_comes_back_is_made_again_if_its_client_has_let_go_of_it(fake: FakeScheduler) -> None:
    """An agent had the row, and its input with it, when its client was asked for that first."""
    heard = replace(link(11, [10], 1, True), ended=u32([0, 1]))
    agent_back(fake, inventory((10, 0, 1), (12, 0, 1)))
    fake.report(AGENT, CLIENT, result(10, 0, 1, VALUES_EACH))
    back(fake, link(10, [], 1), heard, link(12, [11], 0, True))
    refusal = ObjectAnnounce(u64([11]), u8([FAILED]), [ErrorRecord(ErrorKind.OBJECT, "it was released").encode()])
    for back_again in (False, True):
        if back_again:
            fake.report(AGENT, CLIENT, result(12, 0, 1, LOST))
        assert [list(message.ids) for message in fake.heard(CLIENT) if isinstance(message, ObjectRequest)] == [[11]]
        fake.say(CLIENT, refusal)
        assert not fake.heard(CLIENT)
    for row in (10, 11, 12):
        assert fake.placed(AGENT) == [(row, 0, 1)]
        fake.end_all(AGENT, CLIENT, VALUES_EACH)
    assert ended_rows(fake) == [(12, 0, 1)]
    assert not validate(fake.core.state)


def test_what_rows_print_while_their_client_waits_for_another_agent_reaches_it_at_once(fake: FakeScheduler) -> None:
    back(fake, task(10, 2), agents=(AGENT, OTHER))
    agent_back(fake, inventory((10, 0, 1)))
    fake.say(AGENT, TaskOutput(CLIENT, 10, "f", 1, "hello\n"))
    stranger = fake.agent()
    fake.say(stranger, TaskOutput(CLIENT, 10, "f", 1, "\x1b[2J"))
    assert [said.text for said in fake.heard(CLIENT, TaskOutput)] == ["hello\n"]
    assert fake.core.state.batch_of(CLIENT, 10) is None
    agent_back(fake, inventory(), number=OTHER)
    fake.say(AGENT, TaskOutput(CLIENT, 10, "f", 1, "again\n"))
    assert [said.text for said in fake.heard(CLIENT, TaskOutput)] == ["again\n"]


def test_an_agent_ends_rows_that_have_ended_for_their_client(fake: FakeScheduler) -> None:
    """One was to be computed again there: what it needs would be let go before it runs."""
    back(fake, task(10, 3, ended=u32([0, 2])), task(20, 1), agents=(AGENT, OTHER))
    agent_back(fake, inventory((10, 0, 3)))
    fake.report(AGENT, CLIENT, result(10, 1, 2))
    fake.heard(AGENT)
    agent_back(fake, inventory(), number=OTHER)
    heard = fake.heard(AGENT)
    assert [list(message.spans) for message in heard if type(message) is TaskCancel] == [[(CLIENT, 10, 0, 1)]]
    assert not any(type(message) is Task for message in heard)  # nothing before that row has come to an end
    fake.report(AGENT, CLIENT, result(10, 0, 1, CANCELLED))
    assert not fake.core.state.returning.late
    fake.report(AGENT, CLIENT, result(10, 2, 3))
    fake.end_all(OTHER, CLIENT)
    assert ended_rows(fake) == [(10, 2, 3), (20, 0, 1)]
    assert not validate(fake.core.state)


def test_agents_end_rows_that_a_graph_has_left_over_and_have_what_those_need_until_then(fake: FakeScheduler) -> None:
    """Its client has been told how all ended that it wanted, and does not say it again."""
    back(fake, task(20, 1), agents=(AGENT, OTHER))
    agent_back(fake, inventory((10, 0, 3), objects={2: 0}))
    fake.report(AGENT, CLIENT, result(10, 1, 2))
    fake.heard(AGENT)
    agent_back(fake, inventory(), number=OTHER)
    fake.say(AGENT, Heartbeat(0.0, 2))
    fake.wait(PATIENCE)
    heard = fake.heard(AGENT)
    (cancel,) = [message for message in heard if type(message) is TaskCancel]
    assert (list(cancel.spans), cancel.force) == ([(CLIENT, 10, 0, 1), (CLIENT, 10, 2, 3)], True)
    assert not {Task, ObjectRelease} & {type(message) for message in heard}
    fake.report(AGENT, CLIENT, result(10, 0, 1, CANCELLED), result(10, 2, 3))
    fake.say(AGENT, Heartbeat(0.0, 2))
    fake.wait(PATIENCE)
    assert [list(message) for message in fake.heard(AGENT, ObjectRelease)] == [[(CLIENT, 2)]]
    assert ended_rows(fake) == []
    assert not validate(fake.core.state)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_row_that_is_to_be_computed_again_may_have_been_told_of(fake: FakeScheduler, is_read: bool) -> None:
    """Its value is in no store that came back, and the agent that is to make it says again how it ended."""
    over = {"ended": u32([0, 1])}
    made = [replace(link(10, [], 2), **over), replace(link(11, [10], 1), **over)]
    later = [] if is_read else [link(12, [11], 0, True)]
    back(fake, *made, *later, agents=(AGENT, OTHER), ids=(10, 11))
    if is_read:
        fake.say(CLIENT, names(11, cls=ObjectRequest))
    agent_back(fake, inventory((11, 0, 1), objects={10: 1 << 20}))
    fake.report(AGENT, CLIENT, result(11, 0, 1, STORED))
    agent_back(fake, inventory(), number=OTHER)
    for batch, lo, _hi in fake.placed(AGENT):  # it was sent a row that had ended, with a function that was gone
        assert place_of(fake, batch)[lo] == 16 + AGENT
    for _ in range(3):
        fake.end_all(AGENT, CLIENT, STORED)
    assert len(fake.core.state.clients[CLIENT].values.objects[11].copies) == 1
    assert is_read or ended_rows(fake) == [(12, 0, 1)]
    assert not validate(fake.core.state)


@pytest.mark.parametrize("outcome", [VALUES_EACH, STORED, ERROR])
def test_a_row_computed_again_ends_when_its_client_has_sent_its_value(fake: FakeScheduler, outcome: int) -> None:
    """The client was asked for it by another row, and the value of a third one, which needs it, was lost since."""
    back(fake, replace(graph(10, [[], [0], [0], [1]], [0, 2, 3]), ended=u32([0, 1])), agents=(AGENT, OTHER))
    agent_back(fake, inventory((10, 1, 2)))
    agent_back(fake, inventory(), number=OTHER)
    fake.report(AGENT, CLIENT, result(10, 1, 2, STORED))
    asked = [list(message.ids) for message in fake.heard(CLIENT, ObjectRequest)]
    fake.lose(AGENT)
    assert (asked, place_of(fake, 10)) == ([[10]], [16 + OTHER, WAITING, WAITING, WAITING])
    fake.say(CLIENT, ObjectAnnounce(u64([10]), u8([0]), [b"value"]))
    assert place_of(fake, 10) == [16 + OTHER] * 3 + [WAITING]
    fake.report(OTHER, CLIENT, result(10, 0, 1, outcome))
    assert not validate(fake.core.state)
    assert fake.core.state.clients[CLIENT].values.objects[10].payload == b"value"
    assert not fake.heard(OTHER, ObjectRelease), "it was lent the other one, and both have one name"
    fake.report(OTHER, CLIENT, result(10, 1, 2, STORED))
    fake.report(OTHER, CLIENT, result(10, 2, 3))
    fake.report(OTHER, CLIENT, result(10, 3, 4))
    assert ended_rows(fake) == [(10, 2, 3), (10, 3, 4)]
    assert fake.core.state.clients[CLIENT].values.objects.keys() == {1}
    assert not validate(fake.core.state)


def test_a_row_that_comes_back_from_its_agent_waits_for_what_is_not_known_here(fake: FakeScheduler) -> None:
    back(fake, graph(10, [[], [0]], [1]))
    agent_back(fake, inventory((10, 0, 1), (10, 1, 2)))  # its input has ended, and is told of later
    other = fake.agent(2)
    assert place_of(fake, 10) == [16 + AGENT] * 2
    fake.lose(AGENT)
    assert fake.placed(other) == [(10, 0, 1)]
    fake.report(other, CLIENT, result(10, 0, 1, VALUES_EACH))
    assert fake.placed(other) == [(10, 1, 2)]


# ---- stored values ---------------------------------------------------------------------------------------------------
def test_a_stored_value_that_the_client_refers_to_can_be_read(fake: FakeScheduler) -> None:
    back(fake, ids=(10,))
    agent_back(fake, inventory(objects={10: 1 << 20, 30: 1 << 20}))
    fake.say(CLIENT, names(10, cls=ObjectRequest))
    assert fake.core.state.clients[CLIENT].values.objects[10].copies == {AGENT}
    fake.say(CLIENT, names(10, cls=ObjectRelease))
    fake.say(AGENT, Heartbeat(0.0, 2))
    fake.wait(10)
    fake.wait(10)
    told = [pair for message in fake.heard(AGENT, ObjectRelease) for pair in message]
    assert sorted(told) == [(CLIENT, 10), (CLIENT, 30)]  # the other one nobody needs


def test_one_that_no_agent_has_is_made_again_if_its_row_is_known(fake: FakeScheduler) -> None:
    back(fake, task(10, 2, ended=u32([0, 1])), ids=(10,))
    agent_back(fake, inventory((10, 1, 2)))
    fake.say(CLIENT, names(10, cls=ObjectRequest))
    assert fake.placed(AGENT) == [(10, 0, 1)]
    fake.report(AGENT, CLIENT, result(10, 0, 1, STORED))
    assert fake.core.state.clients[CLIENT].values.objects[10].copies == {AGENT}


def test_one_that_no_agent_has_and_whose_row_is_forgotten_is_lost(fake: FakeScheduler) -> None:
    back(fake, ids=(10,))
    agent_back(fake, inventory())
    fake.say(CLIENT, names(10, cls=ObjectRequest))
    (answer,) = fake.heard(CLIENT, ObjectResponse)
    assert answer.outcomes.tolist() == [1]


def test_what_a_client_had_stored_is_where_it_was(fake: FakeScheduler) -> None:
    back(fake, ObjectAnnounce(u64([5]), u8([STORED_OBJECT]), [PLACE.pack(1 << 20, AGENT)]))
    agent_back(fake, inventory(objects={5: 1 << 20}))
    agent_back(fake, inventory(objects={5: 1 << 20}), number=OTHER)
    item = fake.core.state.clients[CLIENT].values.objects[5]
    assert item.copies == {AGENT, OTHER}
    fake.say(CLIENT, task(10, 1, dependency_counts=u32([1]), dependencies=u64([5])))
    (sent,) = fake.heard(AGENT, Task)
    assert sent.stored.tolist() == [5]


# ---- who is who ------------------------------------------------------------------------------------------------------
def test_agents_drop_what_they_have_of_a_client_that_is_another_one_now(fake: FakeScheduler) -> None:
    agent_back(fake, inventory((10, 0, 1), session=99))
    fake.come_back("client", CLIENT, SESSION, number=0)
    assert [message.client for message in fake.heard(AGENT, ClientDeparture)] == [CLIENT]


def test_what_agents_have_said_of_another_client_is_not_said_of_the_one_that_has_its_number_now(
    fake: FakeScheduler,
) -> None:
    helper = fake.agent(2)
    agent_back(fake, inventory(session=99, objects={5: 1 << 20}))
    fake.say(AGENT, ObjectAnnounce(u64([5]), u8([STORED_OBJECT]), [PLACE.pack(1 << 20, AGENT)], CLIENT))
    stored = ObjectAnnounce(u64([5]), u8([STORED_OBJECT]), [PLACE.pack(1 << 20, helper)])
    back(fake, stored, agents=())
    assert fake.core.state.clients[CLIENT].values.objects[5].copies == {helper}
    assert not fake.core.state.returning.mail


def test_agents_drop_what_they_have_of_a_client_that_does_not_come(fake: FakeScheduler) -> None:
    agent_back(fake, inventory((10, 0, 1)))
    for _ in range(20):
        fake.wait(1.0)
        fake.say(AGENT, Heartbeat(0.0, 2))
    assert [message.client for message in fake.heard(AGENT, ClientDeparture)] == [CLIENT]
    assert not fake.core.state.returning


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (se.AwaitResidents(True), se.AwaitResidents(False)),
        (se.HandOut(False, "0 of the 3 agents that count are heard"), se.HandOut(True)),
    ],
)
def test_nobody_is_given_up_who_can_not_come_yet_or_may_be_at_the_other_scheduler(
    fake: FakeScheduler, before: se.Event, after: se.Event
) -> None:
    """A durable job whose journal can't be read for a while finds its rows where they were: they don't run again."""
    patience = fake.core._limits.client_timeout
    agent_back(fake, inventory((10, 0, 1)))
    fake.handle(before)
    for _ in range(5):
        fake.wait(patience / 2)
        fake.say(AGENT, Heartbeat(0.0, 2))
    assert fake.core.state.returning.absent
    fake.handle(after)
    fake.wait(patience * 0.4)
    fake.say(AGENT, Heartbeat(0.0, 2))
    assert not fake.heard(AGENT, ClientDeparture)
    fake.wait(patience * 0.7)
    fake.say(AGENT, Heartbeat(0.0, 2))
    assert [message.client for message in fake.heard(AGENT, ClientDeparture)] == [CLIENT]
    assert not fake.core.state.returning


def test_an_inventory_that_was_not_due_costs_its_sender_the_session(fake: FakeScheduler) -> None:
    agent = fake.agent(2)
    fake.say(agent, inventory((10, 0, 1)))
    (forget,) = [effect for effect in fake.effects if isinstance(effect, se.Forget)]
    assert (forget.number, forget.is_told) == (agent, True)


def test_an_agent_that_comes_too_late_is_told_when_batches_are_over_whose_values_it_keeps(fake: FakeScheduler) -> None:
    agent = fake.agent(2)
    back(fake, task(10, 2, retries=1))
    fake.wait(PATIENCE + 1)
    agent_back(fake, inventory((10, 0, 2), (20, 0, 2)))
    over = []
    for _ in range(2):
        fake.say(AGENT, Heartbeat(0.0, 2))
        for settled in fake.heard(AGENT, Settled):
            over += list(zip(settled.over_clients, settled.over_batches, strict=True))
        fake.end_all(agent, CLIENT)
    assert over == [(CLIENT, 20), (CLIENT, 10)]


# ---- what is settled -------------------------------------------------------------------------------------------------
def test_a_result_is_settled_when_the_client_has_what_followed_from_it(fake: FakeScheduler) -> None:
    fake.agent(1)  # the first is in the scheduler's process, and keeps nothing
    agent, client = fake.agent(2, ("gpu",)), fake.client()
    fake.say(client, task(10, 6, capabilities=("gpu",)))
    assert [message.added.tolist() for message in fake.heard(client, AgentsInUse)] == [[agent]]
    assert [message.client for message in fake.heard(agent, ClientIntroduction)] == [client]
    fake.report(agent, client, result(10, 0, 1))
    fake.say(agent, Heartbeat(0.0, 2))
    assert not fake.heard(agent, Settled)
    fake.handle(se.Received(client, Ack(), 1_000))
    fake.say(agent, Heartbeat(0.0, 2))
    (settled,) = fake.heard(agent, Settled)
    assert (settled.clients.tolist(), settled.results.tolist()) == ([client], [1])


def test_nothing_is_kept_of_what_agents_have_told_that_are_gone(fake: FakeScheduler) -> None:
    fake.agent(1)
    client = fake.client()
    for batch in range(10, 4_010, 10):
        agent = fake.agent(2, ("gpu",))
        fake.say(client, task(batch, 1, capabilities=("gpu",)))
        fake.report(agent, client, result(batch, 0, 1))
        fake.handle(se.Received(client, Ack(), 1_000_000))
        fake.lose(agent)
    assert objects_below(fake.core.state.clients[client]) < 200


def test_agents_are_told_when_a_batch_is_over_whose_values_they_keep(fake: FakeScheduler) -> None:
    fake.agent(1)  # the first is in the scheduler's process, and keeps nothing
    agent, client = fake.agent(2, ("gpu",)), fake.client()
    made = graph(10, [[], [0]], [1])
    made.capabilities = ("gpu",)
    fake.say(client, made)
    fake.report(agent, client, result(10, 0, 1, VALUES_EACH))
    fake.say(agent, Heartbeat(0.0, 2))
    assert not fake.heard(agent, Settled)
    fake.report(agent, client, result(10, 1, 2))
    fake.say(agent, Heartbeat(0.0, 2))
    (settled,) = fake.heard(agent, Settled)
    assert list(zip(settled.over_clients, settled.over_batches, strict=True)) == [(client, 10)]


# ---- roots -----------------------------------------------------------------------------------------------------------
ROOT = 77


def test_what_was_submitted_for_a_client_that_does_not_come_back_is_cancelled(fake: FakeScheduler) -> None:
    back(fake, task(10, 2, root=roots.root_of(ROOT)), task(20, 2))
    agent_back(fake, inventory((10, 0, 1)))
    fake.heard(CLIENT)
    fake.wait(fake.core._limits.client_timeout / 2)
    for peer in (CLIENT, AGENT):
        fake.say(peer, Heartbeat(1))
    assert not fake.heard(AGENT, TaskCancel)
    fake.wait(fake.core._limits.client_timeout / 2 + 0.1)
    assert [list(asked.spans) for asked in fake.heard(AGENT, TaskCancel)] == [[(CLIENT, 10, 0, 2)]]
    fake.report(AGENT, CLIENT, result(10, 0, 2, CANCELLED))
    assert list(fake.core.state.clients[CLIENT].batches) == [20]
    assert validate(fake.core.state) == []


@pytest.mark.parametrize("comes_first", [True, False])
def test_what_was_submitted_for_a_client_that_comes_back_goes_on_until_that_leaves(
    fake: FakeScheduler, comes_first: bool
) -> None:
    if comes_first:
        fake.come_back("client", OTHER, ROOT)
    back(fake, task(10, 1, root=roots.root_of(ROOT)))
    agent_back(fake, inventory((10, 0, 1)))
    if not comes_first:
        fake.come_back("client", OTHER, ROOT)
    assert not fake.core.state.roots.awaited
    assert not fake.heard(AGENT, TaskCancel)
    fake.say(OTHER, DisconnectRequest())
    assert [list(asked.spans) for asked in fake.heard(AGENT, TaskCancel)] == [[(CLIENT, 10, 0, 1)]]
    assert validate(fake.core.state) == []


def test_a_root_may_leave_before_the_work_of_its_tasks_is_together(fake: FakeScheduler) -> None:
    fake.come_back("client", OTHER, ROOT)
    back(fake, task(10, 2, root=roots.root_of(ROOT)))
    fake.say(OTHER, DisconnectRequest())
    agent_back(fake, inventory((10, 0, 1)))
    assert [list(asked.spans) for asked in fake.heard(AGENT, TaskCancel)] == [[(CLIENT, 10, 0, 1)]]
    assert validate(fake.core.state) == []


def test_a_client_of_which_only_agents_have_something_is_a_root_as_well(fake: FakeScheduler) -> None:
    """A task of its runs there, and submits as another client, which the last scheduler has never seen."""
    agent_back(fake, inventory((10, 0, 1), session=ROOT))
    nested = fake.client()
    fake.say(nested, task(20, 1, root=roots.root_of(ROOT)))
    fake.wait(fake.core._limits.client_timeout + 0.1)
    fake.end_all(AGENT, nested, CANCELLED)
    assert [batch for batch, *_, outcome in fake.ends(nested) if outcome == CANCELLED] == [20]


def rest(fake: FakeScheduler, times: float, *peers: int) -> None:
    """That many times what a root is given to come, in which these peers say that they are there."""
    for _ in range(round(4 * times)):
        fake.wait(fake.core._limits.client_timeout / 4)
        for peer in peers:
            fake.say(peer, Heartbeat(1, workers=2 * (peer in fake.core.state.agents)))


def test_a_root_that_was_lost_with_its_scheduler_may_be_named_at_the_next_one(fake: FakeScheduler) -> None:
    """Nothing of it was held: who was in its task submits at the next scheduler what the last one never heard of."""
    agent_back(fake, inventory())
    nested = fake.come_back("client", OTHER, 8, number=0)
    fake.say(nested, ClientReturn(), ObjectAnnounce(u64([1]), u8([0]), [b"function"]))
    rest(fake, 2, AGENT, nested)
    fake.say(nested, task(20, 1, root=roots.root_of(ROOT)))
    rest(fake, 0.5, AGENT, nested)
    assert not fake.heard(AGENT, TaskCancel)
    rest(fake, 0.75, AGENT, nested)
    assert [list(asked.spans) for asked in fake.heard(AGENT, TaskCancel)] == [[(nested, 20, 0, 1)]]
    assert validate(fake.core.state) == []


def test_a_root_of_another_cluster_does_not_come_back_and_is_not_given_up(fake: FakeScheduler) -> None:
    """A task of that cluster has submitted something here, and the scheduler here was started again."""
    back(fake, task(10, 2, root=roots.root_of(ROOT)), store="/elsewhere")
    agent_back(fake, inventory((10, 0, 1)))
    nested = fake.client("/store")  # in a worker here that has begun the row before
    fake.say(nested, task(20, 1, root=roots.root_of(ROOT)))
    rest(fake, 1.25, AGENT, CLIENT, nested)
    assert not fake.core.state.roots.awaited
    fake.say(nested, task(30, 1, root=roots.root_of(ROOT)))  # its row runs still
    rest(fake, 2.5, AGENT, CLIENT, nested)
    fake.say(CLIENT, DisconnectRequest())
    rest(fake, 1.25, AGENT, nested)
    assert [list(asked.spans) for asked in fake.heard(AGENT, TaskCancel)] == [], "whose bidding it was can't be told"
    assert not fake.core.state.roots.batches
    assert validate(fake.core.state) == []


def test_a_root_of_another_cluster_in_the_end_ends_nobodys_rows_if_it_comes_after_all(fake: FakeScheduler) -> None:
    """A worker's agent came so late that its client was taken for one of another cluster's; its program comes later."""
    agent_back(fake, inventory(), number=OTHER)
    nested = fake.come_back("client", CLIENT, 8, store="/late", agents=u32())
    fake.say(nested, FUNCTION, task(10, 1, root=roots.root_of(ROOT)), ClientReturn())
    rest(fake, 1.25, nested, OTHER)
    assert fake.core.state.roots.past[roots.root_of(ROOT)] == Fate.FOREIGN
    fake.come_back("agent", AGENT, 70, store="/late")
    fake.say(AGENT, inventory())
    program = fake.come_back("client", 1010, ROOT)
    fake.say(program, FUNCTION, ClientReturn())
    fake.say(nested, task(20, 1, root=roots.root_of(ROOT)))
    fake.heard(OTHER)
    fake.heard(AGENT)
    fake.say(program, DisconnectRequest())
    asked = [list(each.spans) for agent in (OTHER, AGENT) for each in fake.heard(agent, TaskCancel)]
    assert asked == [[(nested, 20, 0, 1)]]
    assert validate(fake.core.state) == []


@pytest.mark.parametrize("first", ["result", "batch"])
def test_a_root_that_ended_with_the_last_scheduler_ends_a_chain_of_tasks(fake: FakeScheduler, first: str) -> None:
    """Each submits the next one as its last act: its end is told by the agent, and may come before."""
    agent_back(fake, inventory())
    nested = fake.come_back("client", CLIENT, SESSION, number=0, agents=u32())
    fake.say(nested, FUNCTION, ClientReturn(), task(10, 1, root=roots.root_of(ROOT)))
    batch = 10
    for _ in range(8):
        rest(fake, 0.25, AGENT, nested)
        more = task(batch + 10, 1, root=roots.root_of(ROOT))
        if fake.heard(AGENT, TaskCancel):
            break
        if first == "batch":
            fake.say(nested, more)
        fake.report(AGENT, nested, result(batch, 0, 1))
        if first == "result":
            fake.say(nested, more)
        batch += 10
    else:
        pytest.fail("the chain goes on")
    assert fake.core.state.roots.past[roots.root_of(ROOT)] == Fate.GIVEN_UP
    assert validate(fake.core.state) == []


@pytest.mark.parametrize(("client_timeout", "agent_timeout", "at"), [(5.0, 30.0, 12.0), (10.0, 10.0, 17.0)])
def test_agents_have_all_of_their_time_before_a_root_is_one_of_another_cluster(
    client_timeout: float, agent_timeout: float, at: float
) -> None:
    fake = FakeScheduler(client_timeout=client_timeout, agent_timeout=agent_timeout)
    nested = fake.come_back("client", CLIENT, SESSION, store="/late", agents=u32())
    fake.say(nested, FUNCTION, task(10, 1, root=roots.root_of(ROOT)), ClientReturn())

    def go_on(upto: float, *agents: int) -> None:
        while fake.now < upto:
            fake.wait(1.0)
            for peer in (nested, *agents):
                fake.say(peer, Heartbeat(1, workers=2 * (peer != nested)))

    go_on(9.0)
    fake.come_back("agent", OTHER, 71, store="/other")
    fake.say(OTHER, inventory())
    go_on(at, OTHER)
    fake.come_back("agent", AGENT, 70, store="/late")
    fake.say(AGENT, inventory())
    go_on(at + 2 * agent_timeout + client_timeout, OTHER, AGENT)
    assert fake.core.state.roots.past == {roots.root_of(ROOT): Fate.GIVEN_UP}
    assert len([message for number in (OTHER, AGENT) for message in fake.heard(number, TaskCancel)]) == 1
    assert validate(fake.core.state) == []


def test_a_root_is_not_given_up_before_the_client_that_it_is(fake: FakeScheduler) -> None:
    """An agent has told of it later than others had named it."""
    patience = fake.core._limits.client_timeout
    other = fake.agent(2)
    nested = fake.come_back("client", 1010, 8, number=0, agents=u32())
    fake.say(nested, FUNCTION, ClientReturn(), task(10, 1, root=roots.root_of(SESSION)))
    rest(fake, 0.75, other, nested)
    agent_back(fake, inventory((10, 0, 1)))
    rest(fake, 0.5, other, nested, AGENT)
    assert fake.now > patience
    assert CLIENT in fake.core.state.returning.absent
    assert not fake.heard(other, TaskCancel)
    back(fake, task(10, 1))
    rest(fake, 2, other, nested, AGENT, CLIENT)
    assert not fake.heard(other, TaskCancel)
    fake.say(CLIENT, DisconnectRequest())
    assert [list(asked.spans) for asked in fake.heard(other, TaskCancel)] == [[(nested, 10, 0, 1)]]
    assert validate(fake.core.state) == []


def test_who_comes_from_another_scheduler_later_does_not_have_a_guests_rows_cancelled(fake: FakeScheduler) -> None:
    """For that long nobody knows whether the guest is one, once more; a root of its was given up before."""
    back(fake, task(10, 1, root=roots.root_of(ROOT)))
    agent_back(fake, inventory((10, 0, 1)))
    rest(fake, 1.25, AGENT, CLIENT)
    assert fake.heard(AGENT, TaskCancel)
    fake.come_back("client", OTHER, 8)
    guest = fake.client("/elsewhere")
    fake.say(guest, task(20, 1, root=roots.root_of(ROOT)))
    rest(fake, 1.25, AGENT, CLIENT, OTHER, guest)
    assert not fake.heard(AGENT, TaskCancel)
    assert validate(fake.core.state) == []


def test_nobody_wakes_the_scheduler_again_and_again_with_roots_that_are_not_here(fake: FakeScheduler) -> None:
    hostile = fake.come_back("client", OTHER, 8, store="/elsewhere")
    fake.say(hostile, FUNCTION, ClientReturn())
    for i in range(300):
        fake.say(hostile, task(10 * i + 10, 1, root=1000 + i))
        fake.wait(0.01)
    assert len(fake.core.state.roots.awaited) == 300
    wakes = 0
    while fake.now < 4 * fake.core._limits.client_timeout:
        fake.wait(fake.core._wake - fake.now)
        fake.say(hostile, Heartbeat(1))
        wakes += 1
    assert not fake.core.state.roots.awaited
    assert wakes < 400
    assert validate(fake.core.state) == []


def test_a_root_of_another_cluster_that_was_given_up_for_one_ends_nothing_of_the_others(fake: FakeScheduler) -> None:
    back(fake, task(10, 1, root=roots.root_of(ROOT)), store="/elsewhere")
    agent_back(fake, inventory((10, 0, 1)))
    other = fake.come_back("client", OTHER, 8, number=0, store="/elsewhere")
    fake.say(other, FUNCTION, ClientReturn())
    nested = fake.client("/store")
    fake.say(nested, task(20, 1, root=roots.root_of(ROOT)))
    fake.end_all(AGENT, CLIENT)
    fake.say(CLIENT, DisconnectRequest())
    rest(fake, 1.5, AGENT, other, nested)
    assert fake.core.state.roots.past[roots.root_of(ROOT)] == Fate.GIVEN_UP
    fake.end_all(AGENT, nested, CANCELLED)
    fake.heard(AGENT)
    new = fake.client("/elsewhere")
    for number in (other, new):
        fake.say(number, task(30, 1, root=roots.root_of(ROOT)))
    rest(fake, 1.5, AGENT, other, new)
    assert not fake.heard(AGENT, TaskCancel)
    assert validate(fake.core.state) == []


@pytest.mark.parametrize("submits", ["before", "after"])
def test_a_root_that_is_lost_while_nothing_may_be_handed_out_may_be_at_the_other_scheduler(submits: str) -> None:
    """One that led was stopped: its clients are at the other one now, and what their tasks submit goes there, too."""
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    patience = fake.core._limits.client_timeout
    root, nested = fake.client(), fake.client("/store")
    rows = task(10, 1, root=root_of(root)), task(20, 1)
    if submits == "before":
        fake.say(nested, *rows)
    fake.handle(se.HandOut(False, "0 of the 3 agents that count are heard"), se.Lost(root, "its connection closed"))
    if submits == "after":
        fake.say(nested, *rows)
    for _ in range(5):
        fake.wait(patience / 2)
        fake.say(nested, Heartbeat(1))
        fake.say(agent, Heartbeat(1, workers=1))
        assert fake.core.state.clients[nested].outstanding == 2, "nobody knows that the root has left"
    fake.handle(se.HandOut(True))
    fake.say(nested, Heartbeat(1))
    assert fake.core.state.clients[nested].outstanding == 2, "it has all of its time to come back"
    fake.wait(patience * 0.9)
    fake.say(nested, Heartbeat(1))
    fake.say(agent, Heartbeat(1, workers=1))
    assert not fake.heard(agent, TaskCancel)
    fake.wait(patience * 0.2)
    assert [list(asked.spans) for asked in fake.heard(agent, TaskCancel)] == [[(nested, 10, 0, 1)]]
    assert not fake.core.state.roots.awaited
    assert validate(fake.core.state) == []


def test_a_root_that_says_goodbye_while_nothing_may_be_handed_out_has_left() -> None:
    fake = FakeScheduler(1)
    root, nested = fake.client(), fake.client()
    fake.handle(se.HandOut(False, "it stands by"))
    fake.say(nested, task(10, 1, root=root_of(root)), task(20, 1))
    fake.say(root, DisconnectRequest())
    assert [batch for batch, *_, outcome in fake.ends(nested) if outcome == CANCELLED] == [10]


def test_a_root_that_did_not_come_back_may_be_at_the_other_scheduler_too(fake: FakeScheduler) -> None:
    """Of one that was elected, or took over, and then hears too few agents."""
    patience = fake.core._limits.client_timeout
    back(fake, task(10, 1, root=roots.root_of(ROOT)))
    agent_back(fake, inventory((10, 0, 1)))
    fake.handle(se.HandOut(False, "1 of the 3 agents that count are heard"))
    for _ in range(5):
        fake.wait(patience / 2)
        for peer in (CLIENT, AGENT):
            fake.say(peer, Heartbeat(1))
    assert not fake.heard(AGENT, TaskCancel)
    fake.handle(se.HandOut(True))
    fake.come_back("client", OTHER, ROOT)
    assert not fake.core.state.roots.awaited
    assert not fake.heard(AGENT, TaskCancel)


def test_an_agent_can_not_say_of_a_client_that_is_here_that_it_did_not_come_back(fake: FakeScheduler) -> None:
    root = fake.client()
    nested = fake.client()
    fake.say(nested, task(20, 1, root=root_of(root)))
    agent_back(fake, inventory((10, 0, 1), session=session_of(root)))
    fake.wait(fake.core._limits.client_timeout + 0.1)
    fake.say(nested, task(30, 1, root=root_of(root)))
    assert not fake.heard(AGENT, TaskCancel)
    assert fake.core.state.clients[nested].outstanding == 2
