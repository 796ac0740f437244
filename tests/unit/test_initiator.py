"""The client's or agent's side of a session, case by case."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from simulator.scripted import hello

from scaler.common.attempts import UNDER_WAY
from scaler.protocol.channel import ACK_EVERY, Envelope
from scaler.protocol.codes import MAX_WORKERS
from scaler.protocol.initiator import (
    FIRST_TIMEOUT,
    TRANSITIONS,
    Broken,
    Cause,
    Established,
    Initiator,
    Rejected,
    State,
)
from scaler.protocol.messages import (
    Ack,
    AgentsInUse,
    BalanceRequest,
    HeartbeatEcho,
    Hello,
    Message,
    Refused,
    Welcome,
    u32,
)

EPOCH, TIMEOUT = 5, 3.0


def welcome(resumed: bool = False, received: int = 0) -> Welcome:
    """What a scheduler answers."""
    return Welcome(EPOCH, 7, resumed, received, 2, True, 1.0, TIMEOUT, 1 << 20)


def hear(session: Initiator, message: Message, seq: int = 0, ack: int = 0, now: float = 0.0) -> Any:
    """A message comes; what it means."""
    return session.receive(Envelope(seq, ack, message), now)


def greeting() -> Initiator:
    """One that has said Hello."""
    session = Initiator(hello("client", "peer"))
    session.greet(0.0)
    return session


def opened() -> Initiator:
    """One that was welcomed."""
    session = greeting()
    hear(session, welcome())
    return session


def rows(envelopes: list[Envelope]) -> list[tuple[int, int]]:
    """Number and content of what is sent."""
    return [(seq, message.rows) for seq, _, message in envelopes if isinstance(message, BalanceRequest)]


def test_the_first_hello_says_that_nothing_is_known() -> None:
    seq, ack, said = Initiator(hello("client", "peer")).greet(0.0)
    assert (seq, ack) == (0, 0)
    assert isinstance(said, Hello)
    assert (said.name, said.session, said.epoch, said.received) == ("peer", 1, 0, 0)


def test_a_welcome_begins_a_session() -> None:
    session = greeting()
    assert not session.is_open
    assert hear(session, welcome(resumed=True)) == Established(welcome(resumed=True), False, [])
    assert session.is_open
    assert session.send(BalanceRequest(1)) == Envelope(1, 0, BalanceRequest(1))


def test_messages_are_handed_on_once_and_acks_are_not() -> None:
    session = opened()
    assert hear(session, BalanceRequest(1), 1) == BalanceRequest(1)
    assert hear(session, BalanceRequest(1), 1) is None
    assert hear(session, Ack()) is None


def test_before_the_welcome_nothing_is_listened_to() -> None:
    session = greeting()
    assert hear(session, BalanceRequest(1), 1) is None
    hear(session, welcome())
    assert hear(session, BalanceRequest(2), 1) == BalanceRequest(2)


def test_what_is_said_before_the_first_welcome_is_not_kept() -> None:
    session = greeting()
    assert session.send(BalanceRequest(1)) is None
    hear(session, welcome())
    assert session.send(BalanceRequest(2)) == Envelope(1, 0, BalanceRequest(2))


def test_a_session_that_goes_on_says_again_what_was_lost_and_what_was_said_meanwhile() -> None:
    session = opened()
    for n in range(1, 4):
        session.send(BalanceRequest(n))
    hear(session, BalanceRequest(9), 1)
    session.disconnect("it broke")
    assert session.send(BalanceRequest(4)) is None
    said = session.greet(1.0).message
    assert isinstance(said, Hello)
    assert (said.epoch, said.received) == (EPOCH, 1)
    assert session.send(BalanceRequest(5)) is None
    established = hear(session, welcome(resumed=True, received=2))
    assert established.resumed
    assert rows(established.again) == [(3, 3), (4, 4), (5, 5)]
    assert session.send(BalanceRequest(6)) == Envelope(6, 1, BalanceRequest(6))


def test_it_is_known_what_the_scheduler_may_not_have() -> None:
    session = opened()
    assert not session.has_unsaid(BalanceRequest)
    session.send(BalanceRequest(1))
    assert session.has_unsaid(BalanceRequest)
    assert not session.has_unsaid(Refused)
    hear(session, BalanceRequest(2), seq=1, ack=1)
    assert not session.has_unsaid(BalanceRequest)


def test_a_scheduler_that_says_it_has_what_was_not_sent_is_left() -> None:
    session = opened()
    session.send(BalanceRequest(1))
    assert isinstance(hear(session, BalanceRequest(9), 1, ack=2), Broken)
    session.greet(1.0)
    assert isinstance(hear(session, welcome(resumed=True, received=2)), Broken)
    assert (session.state, session.trouble) == (State.AWAY, "the scheduler acknowledges message 2 of 1")


def test_a_scheduler_that_forgot_the_session_begins_a_new_one() -> None:
    session = opened()
    session.send(BalanceRequest(1))
    session.disconnect("it broke")
    session.greet(1.0)
    assert hear(session, welcome(resumed=False)) == Established(welcome(), False, [])
    assert session.send(BalanceRequest(2)) == Envelope(1, 0, BalanceRequest(2))


def test_a_refused_hello_is_a_rejection() -> None:
    session = greeting()
    assert hear(session, Refused("another protocol")) == Rejected("another protocol")
    assert session.trouble == "another protocol"


@pytest.mark.parametrize(
    ("message", "seq", "reason"),
    [
        (Refused("say Hello first"), 0, "say Hello first"),
        (BalanceRequest(2), 2, "message 2 came after 0"),
        (welcome(), 0, "the scheduler welcomed this process twice"),
    ],
)
def test_what_breaks_an_open_session_asks_for_a_new_connection(message: Message, seq: int, reason: str) -> None:
    session = opened()
    session.send(BalanceRequest(1))
    assert hear(session, message, seq) == Broken(reason)
    assert session.trouble == reason
    assert hear(session, BalanceRequest(1), 1) is None, "what came behind it is ignored"
    session.disconnect("closed, then")
    assert session.trouble == reason
    session.greet(1.0)
    assert rows(hear(session, welcome(resumed=True)).again) == [(1, 1)]


def test_bytes_that_are_no_message_break_the_connection_once() -> None:
    session = opened()
    assert session.reject("garbage") == Broken("garbage")
    assert session.reject("more garbage") == Broken("garbage")
    assert session.state is State.AWAY


def test_silence_is_as_long_as_the_scheduler_said() -> None:
    session = greeting()
    assert session.check_silence(FIRST_TIMEOUT) is None
    assert hear(session, welcome(), now=FIRST_TIMEOUT) is not None
    hear(session, Ack(), now=FIRST_TIMEOUT + 1)
    assert session.check_silence(FIRST_TIMEOUT + 1 + TIMEOUT) is None
    assert session.check_silence(FIRST_TIMEOUT + 1.1 + TIMEOUT) == Broken("nothing was heard for 3 s")
    assert session.check_silence(1e9) is None, "without a connection there is nothing to be heard"


def test_a_message_that_is_still_coming_is_no_silence() -> None:
    session = opened()
    for step in range(1, 100):
        assert session.check_silence(0.5 * step, lambda step=step: step * UNDER_WAY) is None
    assert session.check_silence(49.5 + TIMEOUT + 1, lambda: 99 * UNDER_WAY) == Broken("nothing was heard for 3 s")


def test_bytes_that_are_too_few_to_be_of_a_message_are_silence() -> None:
    session = opened()
    found = [session.check_silence(0.5 * step, lambda step=step: step * UNDER_WAY // 8) for step in range(1, 8)]
    assert found == [None] * 6 + [Broken("nothing was heard for 3 s")]


def test_an_ack_is_said_when_much_has_come_and_nothing_was_said() -> None:
    session = opened()
    for seq in range(1, ACK_EVERY + 1):
        assert session.take_ack() is None
        hear(session, BalanceRequest(seq), seq)
    assert session.take_ack() == Envelope(0, ACK_EVERY, Ack())
    assert session.take_ack() is None


def test_only_one_connection_at_a_time() -> None:
    with pytest.raises(RuntimeError, match="a session that is open can't be told: connected"):
        opened().greet(1.0)


@dataclass
class Case:
    """A session brought to a state, and what each cause looks like."""

    session: Initiator
    causes: dict[Cause, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.causes = {
            Cause.CONNECTED: lambda: self.session.greet(0.0),
            Cause.WELCOME: lambda: hear(self.session, welcome()),
            Cause.REFUSED: lambda: hear(self.session, Refused("no")),
            Cause.MESSAGE: lambda: hear(self.session, Ack()),
            Cause.GAP: lambda: hear(self.session, BalanceRequest(1), 5),
            Cause.MALFORMED: lambda: self.session.reject("garbage"),
            Cause.SILENCE: lambda: self.session.check_silence(1e9),
            Cause.CLOSED: lambda: self.session.disconnect("closed"),
        }


@pytest.mark.parametrize(("state", "cause"), TRANSITIONS, ids=lambda x: x.name)
def test_the_table_says_what_happens(state: State, cause: Cause) -> None:
    begin = {State.AWAY: lambda: Initiator(hello("client", "peer")), State.GREETING: greeting, State.OPEN: opened}
    case = Case(begin[state]())
    assert case.session.state is state
    case.causes[cause]()
    assert case.session.state is TRANSITIONS[state, cause][0]


def test_why_the_scheduler_ended_a_connection_is_known_until_the_next_one() -> None:
    session = opened()
    session.receive(Envelope(0, 0, Refused("a malformed Task")), 3.0)
    assert session.refusal == "a malformed Task"
    session.disconnect("closed")
    assert session.refusal == "a malformed Task"
    session.greet(4.0)
    assert session.refusal is None


def moved(number: int) -> Any:
    """Another scheduler's welcome after this one's connection was lost, as one that has this number."""
    session = opened()
    hear(session, AgentsInUse(u32([3, 4]), whereabouts=("tcp://a:1 boot", "tcp://b:1 boot")), 1)
    hear(session, AgentsInUse(u32([5]), u32([3])), 2)
    session.disconnect("lost")
    _, _, said = session.greet(1.0)
    assert isinstance(said, Hello)
    assert (said.number, said.agents.tolist(), said.received) == (7, [4, 5], 2)
    assert said.whereabouts == ("tcp://b:1 boot", "")
    return hear(session, Welcome(EPOCH + 1, number, False, 0, 2, True, 1.0, TIMEOUT, 1 << 20))


def test_who_keeps_its_number_at_another_scheduler_comes_back() -> None:
    established = moved(7)
    assert (established.resumed, established.returned) == (False, True)


def test_who_gets_another_number_begins_anew() -> None:
    assert not moved(8).returned


def test_a_client_that_comes_back_says_how_many_workers_the_cluster_had_and_an_agent_how_many_it_has() -> None:
    for role, own, told, said in (("client", 0, 9, 9), ("client", 0, MAX_WORKERS + 1, MAX_WORKERS), ("agent", 2, 9, 2)):
        session = Initiator(hello(role, "peer", own))
        session.greet(0.0)
        hear(session, welcome())
        hear(session, HeartbeatEcho(0.0, told), seq=1)
        session.disconnect("it is gone")
        assert session.greet(0.0).message.workers == said


def test_which_agents_are_in_use_is_no_news_to_others() -> None:
    assert hear(opened(), AgentsInUse(u32([3])), 1) is None
