"""What a scheduler's process does with what came: sessions, the core and the local agent, put together."""

from dataclasses import replace
from typing import Any

import pytest
from simulator.scripted import hello

from scaler.protocol.acceptor import Acceptor, Outgoing, Terms, TurnedAway
from scaler.protocol.channel import Envelope
from scaler.protocol.hello import epoch_of, hello_of
from scaler.protocol.initiator import Established, Initiator
from scaler.protocol.messages import (
    BalanceRequest,
    Copying,
    DisconnectRequest,
    Heartbeat,
    JobAnswer,
    JobQuestion,
    JournalState,
    Message,
    PartnerReport,
    Query,
    QueryResult,
    Refused,
    Welcome,
    u64,
)
from scaler.scheduler.composition import ANEW, LOCAL_AGENT, RETURN, Composition, Disconnect
from scaler.scheduler.core import events as ev
from scaler.scheduler.residents import Join
from scaler.scheduler.succession import BEAT, StepDown, Succession, Tell
from scaler.scheduler.turns import MOST


class Core:
    """Answers what it hears with what the test says."""

    workers = 3

    def __init__(self) -> None:
        self.heard: list[list[ev.Event]] = []
        self.answers: dict[type, list[ev.Effect]] = {}

    def handle(self, events: list[ev.Event], now: float) -> list[ev.Effect]:
        """Each kind of event has its answer."""
        self.heard.append(list(events))
        return [effect for event in events for effect in self.answers.get(type(event), ())]


class Agent:
    """Answers each message of the scheduler with a heartbeat."""

    def __init__(self) -> None:
        self.heard: list[list[Any]] = []
        self.news: list[Any] = []
        self.has_news = False

    def welcome(self, heartbeat: float, number: int) -> None:
        self.news.append((heartbeat, number))
        self.has_news = True

    def hear(self, message: Message) -> None:
        self.news.append(message)
        self.has_news = True

    def handle(self, now: float) -> list[Message]:
        news, self.news, self.has_news = self.news, [], False
        self.heard.append(news)
        return [Heartbeat(now) for item in news if isinstance(item, Message)]


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def composed(core: Core) -> Composition:
    return Composition(core, Acceptor(Terms(5, 1, True, 1.0, 10.0, 20.0, 1 << 20), LOCAL_AGENT))


def meet(composed: Composition, connection: int = 9) -> list[Any]:
    """A client says Hello; what is to be done."""
    composed.receive(connection, Envelope(0, 0, hello("client", "peer")), 0.0)
    return list(composed.settle(0.0))


def test_a_peer_is_welcomed_before_the_core_says_anything(composed: Composition, core: Core) -> None:
    core.answers[ev.Joined] = [ev.Send(2, BalanceRequest(1))]
    welcome, request = meet(composed)
    assert isinstance(welcome.message, Welcome)
    assert welcome.message.workers == core.workers
    assert request == Outgoing(9, 1, 0, BalanceRequest(1))


def test_nobody_is_asked_when_nothing_happened(composed: Composition, core: Core) -> None:
    assert list(composed.settle(0.0)) == []
    assert core.heard == []
    assert list(composed.settle(0.0, is_due=True)) == []
    assert core.heard == [[]]


def test_one_that_steps_down_hands_out_nothing_of_what_came_with_that(core: Core) -> None:
    """After it was stopped, say: all that came meanwhile is read in one step."""
    terms = Terms(5, 1, True, 1.0, 10.0, 20.0, 1 << 20)
    composed = Composition(core, Acceptor(terms, LOCAL_AGENT), Succession("tcp://a:1", 7))
    meet(composed)
    assert [event for heard in core.heard for event in heard if isinstance(event, ev.HandOut)] == [ev.HandOut(True)]
    core.heard.clear()
    composed.receive(9, Envelope(1, 0, Heartbeat(0.0)), 1.0)
    composed.receive(10, Envelope(0, 0, replace(hello("agent", "far"), epoch=epoch_of(3, 5), roster=1)), 1.0)
    assert any(isinstance(wish, StepDown) for wish in list(composed.settle(1.0)))
    assert [type(event) for heard in core.heard for event in heard][:1] == [ev.HandOut]
    assert ev.HandOut(False, "it stands by") in core.heard[0]


def test_the_partner_is_welcomed_before_it_is_told_anything(core: Core) -> None:
    """Its last connection was lost a moment ago: there is something to say at once, of the pair and of its journal."""
    terms = Terms(5, 1, True, 1.0, 10.0, 20.0, 1 << 20)
    succession = Succession("tcp://a:1", 7)
    composed = Composition(core, Acceptor(terms, LOCAL_AGENT), succession)
    succession.hear_partner(PartnerReport(0, False, "tcp://b:1", 0, False, u64()), 0.0)
    initiator = Initiator(hello("scheduler", "tcp://b:1"))
    composed.receive(9, initiator.greet(0.0), 0.0)
    composed.pairing.tell(JournalState(3, Copying.LEADS))
    heard = []
    for step in (0.0, BEAT):
        for wish in composed.settle(step, is_due=True):
            if isinstance(wish, Tell):
                composed.pairing.tell(wish.report)
            elif isinstance(wish, Outgoing) and wish.connection == 9:
                heard.append(type(initiator.receive(Envelope(wish.seq, wish.ack, wish.message), step)))
    assert heard == [Established, JournalState, PartnerReport, PartnerReport]
    assert composed.sent == {Welcome: 1, JournalState: 1, PartnerReport: 2}


def test_what_the_local_agent_says_is_heard_in_the_same_step(composed: Composition, core: Core) -> None:
    agent = Agent()
    composed.host(agent, hello("agent", "local"), 1.5)
    core.answers[ev.Joined] = [ev.Send(LOCAL_AGENT, BalanceRequest(1))]
    assert list(composed.settle(4.0)) == []
    assert agent.heard == [[(1.5, LOCAL_AGENT), BalanceRequest(1)]]
    assert core.heard[1:] == [[ev.Received(LOCAL_AGENT, Heartbeat(4.0))]]


def test_what_happens_in_the_local_agent_reaches_its_core(composed: Composition) -> None:
    agent = Agent()
    composed.host(agent, hello("agent", "local"), 1.5)
    list(composed.settle(0.0))
    agent.news.append("a worker ended")
    agent.has_news = True
    list(composed.settle(0.0))
    assert agent.heard[1:] == [["a worker ended"]]


def test_a_local_agent_that_the_core_took_for_lost_joins_again(composed: Composition, core: Core) -> None:
    agent, greeting = Agent(), hello("agent", "local")
    composed.host(agent, greeting, 1.5)
    core.answers[ev.Received] = [ev.Forget(LOCAL_AGENT, "sent a list of results that is none")]
    agent.hear(BalanceRequest(1))
    assert list(composed.settle(0.0)) == []
    joined = ev.Joined(LOCAL_AGENT, greeting)
    assert [event for events in core.heard for event in events] == [
        joined,
        ev.Received(LOCAL_AGENT, Heartbeat(0.0)),
        joined,
    ]
    assert agent.heard == [[(1.5, LOCAL_AGENT), BalanceRequest(1)], [(1.5, LOCAL_AGENT)]]


def test_a_local_agent_that_said_goodbye_does_not_join_again(composed: Composition, core: Core) -> None:
    class Leaving(Agent):
        def handle(self, now: float) -> list[Message]:
            super().handle(now)
            return [DisconnectRequest()]

    composed.host(Leaving(), hello("agent", "local"), 1.5)
    core.answers[ev.Received] = [ev.Forget(LOCAL_AGENT, "it said goodbye")]
    list(composed.settle(0.0))
    assert [type(event) for events in core.heard for event in events] == [ev.Joined, ev.Received]


def test_a_message_that_can_not_be_sent_ends_the_session_in_the_same_step(composed: Composition, core: Core) -> None:
    core.answers[ev.Joined] = [ev.Send(2, BalanceRequest(1))]
    core.answers[ev.Lost] = [ev.Forget(2, "gone")]
    composed.receive(9, Envelope(0, 0, hello("client", "peer")), 0.0)
    wishes = []
    for wish in composed.settle(0.0):
        wishes.append(wish)
        if isinstance(wish, Outgoing) and isinstance(wish.message, BalanceRequest):
            composed.disconnect(9, 0.0, "it is too large")
    assert core.heard[1:] == [[ev.Lost(2, "it is too large")]]
    assert wishes[-1] == Disconnect(9)


def test_a_client_whose_connection_is_cut_on_its_way_goes_on_over_another(composed: Composition, core: Core) -> None:
    core.answers[ev.Received] = [ev.Send(2, BalanceRequest(1))]
    meet(composed)
    composed.part(9, 0.0)
    composed.receive(9, Envelope(1, 0, Heartbeat(0.0)), 0.0)  # what it is answered is lost
    assert list(composed.settle(0.1)) == [Outgoing(9, 1, 1, BalanceRequest(1))]
    composed.receive(10, Envelope(0, 0, hello("client", "peer")), 0.2)
    welcome, again = composed.settle(0.2)
    assert isinstance(welcome, Outgoing)
    assert isinstance(welcome.message, Welcome)
    assert welcome.message.resumed
    assert again == Outgoing(10, 1, 1, BalanceRequest(1))
    assert composed.wake == RETURN
    assert list(composed.settle(RETURN)) == []
    assert composed.wake is None
    assert [type(event) for events in core.heard for event in events] == [ev.Joined, ev.Received]


def test_a_client_that_does_not_come_back_is_lost_a_second_later(composed: Composition, core: Core) -> None:
    core.answers[ev.Lost] = [ev.Forget(2, "gone")]
    meet(composed)
    composed.part(9, 5.0)
    assert list(composed.settle(5.0 + RETURN / 2)) == []
    assert composed.wake == 5.0 + RETURN
    assert list(composed.settle(composed.wake)) == [Disconnect(9)]
    assert core.heard[1:] == [[ev.Lost(2, "its connection closed")]]


def test_a_monitor_whose_connection_closed_is_gone_at_once(composed: Composition, core: Core) -> None:
    composed.receive(9, Envelope(0, 0, hello("monitor", "top")), 0.0)
    list(composed.settle(0.0))
    composed.part(9, 5.0)
    list(composed.settle(5.0))
    assert core.heard[1:] == [[ev.Lost(2, "its connection closed")]]


def test_a_peer_that_was_forgotten_is_sent_nothing(composed: Composition, core: Core) -> None:
    core.answers[ev.Joined] = [ev.Forget(2, "too many"), ev.Send(2, BalanceRequest(1))]
    assert meet(composed)[1:] == [Disconnect(9)]


def test_who_is_turned_away_is_told_of_while_its_connection_is_there(composed: Composition, core: Core) -> None:
    hello = hello_of("agent", "node-7", 5)
    hello.protocol = 99
    composed.receive(9, Envelope(0, 0, hello), 0.0)
    told, refused = composed.settle(0.0)
    assert isinstance(refused, Outgoing)
    assert isinstance(refused.message, Refused)
    assert told == TurnedAway(9, "agent", "node-7", refused.message.reason)
    assert list(composed.settle(0.0)) == []
    assert core.heard == []


def test_bytes_that_are_no_message_are_answered_and_the_core_hears_who_is_lost(
    composed: Composition, core: Core
) -> None:
    meet(composed)
    composed.reject(9, "garbage", 0.0)
    assert list(composed.settle(0.0)) == [Outgoing(9, 0, 0, Refused("garbage"), last=True)]
    assert core.heard[1:] == [[ev.Lost(2, "garbage")]]


def test_what_concerns_the_shell_alone_is_passed_on(composed: Composition, core: Core) -> None:
    core.answers[ev.Joined] = [ev.WakeAt(3.0), ev.Log("info", "hello"), ev.StartStore(), ev.Stop()]
    assert meet(composed)[1:] == core.answers[ev.Joined]


def test_a_peer_that_said_what_can_not_be_is_told_so(composed: Composition, core: Core) -> None:
    core.answers[ev.Joined] = [ev.Forget(2, "sent nonsense", is_told=True)]
    last = meet(composed)[-1]
    assert isinstance(last, Outgoing)
    assert (last.connection, last.message, last.last) == (9, Refused("this peer sent nonsense"), True)


class Asking:
    """Residents that remember what they were asked."""

    has_news = False

    def __init__(self) -> None:
        self.asked: list[int] = []

    def ask(self, monitor: int, message: JobQuestion) -> None:
        self.asked.append(message.number)


def test_whoever_asks_for_jobs_while_they_go_to_the_partner_is_not_told_that_there_are_none(
    composed: Composition,
) -> None:
    residents = Asking()
    composed.lodge(residents)  # type: ignore[arg-type]
    composed.receive(1, Envelope(0, 0, hello("monitor", "somebody")), 0.0)
    composed.receive(1, Envelope(1, 0, JobQuestion(7, "list")), 0.0)
    composed.part_with_residents()
    for seq in range(2, 40):
        composed.receive(1, Envelope(seq, 0, JobQuestion(seq, "list")), 0.0)
    said = [wish.message for wish in composed.settle(0.0) if isinstance(wish, Outgoing)]
    assert residents.asked == [7]
    assert not any(isinstance(message, JobAnswer) for message in said)


@pytest.mark.parametrize(
    ("named", "words"), [("tcp://b:1", "stands by for the one at tcp://b:1"), ("", "waits for its partner")]
)
def test_whoever_asks_one_that_stands_by_for_jobs_is_sent_elsewhere_as_clients_are(
    core: Core, named: str, words: str
) -> None:
    acceptor = Acceptor(Terms(5, 1, True, 1.0, 10.0, 20.0, 1 << 20), LOCAL_AGENT)
    succession = Succession("tcp://a:1", 7, named)
    composed = Composition(core, acceptor, succession)
    succession.leads = False
    composed.receive(1, Envelope(0, 0, hello("monitor", "knows this one alone")), 0.0)
    composed.receive(1, Envelope(1, 0, JobQuestion(7, "list")), 0.0)
    (refused,) = [wish for wish in composed.settle(0.0) if isinstance(wish, Outgoing) and wish.last]
    assert isinstance(refused.message, Refused)
    assert refused.message.elsewhere
    assert words in refused.message.reason


def test_residents_are_told_when_the_partner_may_lead_before_they_answer_what_came_with_that(core: Core) -> None:
    succession = Succession("tcp://a:1", 5)
    acceptor = Acceptor(Terms(epoch_of(0, 7), 1, True, 1.0, 10.0, 10.0, 1 << 30), LOCAL_AGENT)
    composed = Composition(core, acceptor, succession)
    told: list[str] = []

    class Doubting(Asking):
        def doubt(self, reason: str) -> None:
            told.append(reason)

    composed.lodge(Doubting())  # type: ignore[arg-type]
    for may, reason in ((True, ""), (False, "0 of the 2 agents that count are heard"), (False, ""), (True, "")):
        succession.hands_out, succession.trouble = may, reason
        list(composed.settle(0.0))
    where = "(scaler promote tcp://a:1)"
    assert told == [
        f"0 of the 2 agents that count are heard {where}", f"it was stopped for a while {where}", "",
    ]  # fmt: skip


def test_the_core_knows_while_residents_may_still_come(composed: Composition, core: Core) -> None:
    for reason in ("the journal is being read", "the partner may have a newer copy"):
        composed.await_residents(reason, is_brief=False)
        list(composed.settle(0.0))
    composed.lodge(Asking())  # type: ignore[arg-type]
    list(composed.settle(0.0))
    composed.part_with_residents()
    list(composed.settle(0.0))
    assert [event for heard in core.heard for event in heard] == [ev.AwaitResidents(True), ev.AwaitResidents(False)]


class Coming(Asking):
    """A resident that becomes a client of the core."""

    has_news = True

    def handle(self, now: float) -> list[Join]:
        self.has_news = False
        return [Join(1, hello("client", "job night"))]

    def welcome(self, resident: int, number: int) -> None:
        self.asked.append(number)


def test_the_core_knows_who_is_a_resident(composed: Composition, core: Core) -> None:
    meet(composed)
    residents = Coming()
    composed.lodge(residents)  # type: ignore[arg-type]
    list(composed.settle(0.0))
    joined = [event for heard in core.heard for event in heard if isinstance(event, ev.Joined)]
    assert [(event.number, event.is_resident) for event in joined] == [(2, False), (*residents.asked, True)]


def test_whoever_asked_for_jobs_before_they_were_here_asks_again_over_another_connection(
    composed: Composition, core: Core
) -> None:
    for connection, name in ((1, "asks at once"), (2, "asks later"), (3, "asks nothing")):
        composed.receive(connection, Envelope(0, 0, replace(hello("monitor", name), session=connection)), 0.0)
    composed.await_residents("somebody else keeps them", is_brief=True)
    composed.receive(1, Envelope(1, 0, JobQuestion(7, "list")), 0.0)
    list(composed.settle(0.0))
    residents = Asking()
    composed.lodge(residents)  # type: ignore[arg-type]
    composed.receive(2, Envelope(1, 0, JobQuestion(8, "list")), 0.0)
    refused = [Outgoing(connection, 0, 0, Refused(ANEW), last=True) for connection in (1, 2)]
    assert list(composed.settle(0.0)) == refused
    assert core.heard[-1] == [ev.AwaitResidents(False), ev.Lost(2, ANEW), ev.Lost(3, ANEW)]
    assert residents.asked == []
    composed.receive(4, Envelope(0, 0, replace(hello("monitor", "asks again"), session=4)), 0.0)
    composed.receive(4, Envelope(1, 0, JobQuestion(9, "list")), 0.0)
    assert residents.asked == [9]


class Answering(Core):
    """Answers each question with so many bytes."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.size = size

    def asked(self) -> list[int]:
        """The questions that it has heard."""
        said = [event.message for heard in self.heard for event in heard if isinstance(event, ev.Received)]
        return [message.number for message in said if isinstance(message, Query)]

    def handle(self, events: list[ev.Event], now: float) -> list[ev.Effect]:
        """As any other, besides."""
        answers: list[ev.Effect] = [
            ev.Send(event.number, QueryResult(event.message.number, bodies=[bytes(self.size)]))
            for event in events
            if isinstance(event, ev.Received) and isinstance(event.message, Query)
        ]
        return super().handle(events, now) + answers


def monitored(core: Core, unread: int = 1 << 20) -> Composition:
    """There is a monitor, and a client."""
    terms = Terms(5, 1, True, 1.0, 10.0, 20.0, 1 << 30, unread)
    composed = Composition(core, Acceptor(terms, LOCAL_AGENT))
    composed.receive(1, Envelope(0, 0, hello("monitor", "asks")), 0.0)
    composed.receive(2, Envelope(0, 0, replace(hello("client", "works"), session=9)), 0.0)
    list(composed.settle(0.0))
    return composed


def test_a_monitor_has_one_question_dealt_with_in_a_step_and_others_are_heard_between() -> None:
    core = Answering()
    composed = monitored(core)
    for seq in range(1, 4):
        composed.receive(1, Envelope(seq, 0, Query(seq, "tasks")), 0.0)
    list(composed.settle(0.0))
    assert (core.asked(), composed.has_more) == ([1], True)
    composed.receive(2, Envelope(1, 0, Heartbeat(0.0)), 0.0)
    composed.receive(1, Envelope(4, 0, Query(4, "tasks")), 0.0)
    list(composed.settle(0.0))
    assert core.asked() == [1, 2]
    assert ev.Received(3, Heartbeat(0.0), 0) in core.heard[-1]
    list(composed.settle(0.0))
    list(composed.settle(0.0))
    assert (core.asked(), composed.has_more) == ([1, 2, 3, 4], False)


def test_many_monitors_take_turns_and_have_one_question_dealt_with_in_a_step() -> None:
    """A thousand had the scheduler hear nobody else for as long as a thousand pages of tasks take."""
    core = Answering()
    composed = monitored(core)
    for connection in (3, 4):
        composed.receive(connection, Envelope(0, 0, replace(hello("monitor", "asks"), session=connection)), 0.0)
    list(composed.settle(0.0))
    for seq in (1, 2):
        for connection in (1, 3, 4):
            composed.receive(connection, Envelope(seq, 0, Query(10 * connection + seq, "tasks")), 0.0)
    for count in range(1, 7):
        list(composed.settle(0.0))
        assert len(core.asked()) == count
        assert composed.has_more is (count < 6)
    assert core.asked() == [11, 31, 41, 12, 32, 42]


def test_a_monitor_that_does_not_read_its_answers_gets_no_more_of_them_until_it_does() -> None:
    core = Answering(size=600)
    composed = monitored(core, unread=1_000)
    for seq in range(1, 11):
        composed.receive(1, Envelope(seq, 0, Query(seq, "tasks")), 0.0)
    for _ in range(20):
        list(composed.settle(0.0))
    few = len(core.asked())
    assert few < 3
    assert not composed.has_more
    composed.receive(1, Envelope(11, few, Heartbeat(0.0)), 0.0)
    assert composed.has_more
    list(composed.settle(0.0))
    assert len(core.asked()) == few + 1


def test_a_monitor_that_asks_without_end_loses_its_session_and_is_told_why() -> None:
    core = Answering()
    composed = monitored(core)
    for seq in range(1, MOST + 3):
        composed.receive(1, Envelope(seq, 0, Query(seq, "tasks")), 0.0)
    refused = [wish for wish in composed.settle(0.0) if isinstance(wish, Outgoing) and wish.last]
    assert [(wish.connection, type(wish.message)) for wish in refused] == [(1, Refused)]
    assert "questions" in core.heard[-1][-1].reason  # type: ignore[union-attr]
    assert not composed.has_more
