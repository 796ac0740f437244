"""Sequences of messages and the scheduler's side of sessions, case by case."""

from typing import Any

import pytest
from simulator.scripted import hello

from scaler.protocol.acceptor import Acceptor, Joined, Lost, Moved, Outgoing, Received, Terms
from scaler.protocol.channel import ACK_EVERY, Channel, Envelope, FalseAck, Gap
from scaler.protocol.hello import hello_of
from scaler.protocol.messages import (
    EACH,
    Ack,
    BalanceRequest,
    Heartbeat,
    Hello,
    ObjectResponse,
    Refused,
    Task,
    TaskCancel,
    TaskHold,
    Welcome,
    u8,
    u32,
    u64,
)


def test_a_message_is_kept_until_it_is_acknowledged() -> None:
    channel = Channel()
    for n in range(3):
        assert channel.stamp(BalanceRequest(n)) == (n + 1, 0)
    channel.accept(0, 2)
    assert len([*channel.kept]) == 1


def test_a_message_that_came_before_is_not_taken_again() -> None:
    channel = Channel()
    assert channel.accept(1, 0)
    assert not channel.accept(1, 0)


def test_a_missing_message_is_noticed() -> None:
    channel = Channel()
    with pytest.raises(Gap, match="message 2 came after 0"):
        channel.accept(2, 0)


def test_nobody_has_received_what_was_not_sent() -> None:
    channel = Channel()
    channel.stamp(BalanceRequest(1))
    channel.accept(0, 1)
    with pytest.raises(FalseAck, match="acknowledges message 2 of 1"):
        channel.accept(0, 2)


def test_after_a_reconnect_what_did_not_arrive_is_sent_again() -> None:
    channel = Channel()
    for n in range(4):
        channel.stamp(BalanceRequest(n))
    assert [(seq, message.rows) for seq, _, message in channel.resume(2)] == [(3, 2), (4, 3)]  # type: ignore[attr-defined]


def test_an_ack_is_owed_after_a_while_of_listening() -> None:
    channel = Channel()
    for seq in range(1, ACK_EVERY):
        channel.accept(seq, 0)
    assert not channel.owes_ack
    channel.accept(ACK_EVERY, 0)
    assert channel.owes_ack
    assert channel.stamp_ack() == (0, ACK_EVERY)
    assert not channel.owes_ack


def sessions() -> Acceptor:
    """A scheduler's sessions."""
    return Acceptor(Terms(5, 1, True, 1.0, 10.0, 20.0, 1 << 20))


def arrive(these: Acceptor, connection: int, seq: int, message: Any, ack: int = 0) -> tuple[list[Any], list[Outgoing]]:
    """A message comes; what the core hears, and what is sent."""
    said = list(these.receive(connection, Envelope(seq, ack, message), 0))
    outgoing, these.outgoing = these.outgoing, []
    return said, outgoing


def meet(
    these: Acceptor, connection: int, session: int = 1, received: int = 0, role: str = "client"
) -> tuple[list[Any], list[Outgoing]]:
    """A peer says Hello."""
    greeting = hello(role, "peer")
    greeting.session, greeting.received = session, received
    return arrive(these, connection, 0, greeting)


def test_a_hello_begins_a_session() -> None:
    these = sessions()
    (new,), (welcome,) = meet(these, 3)
    assert isinstance(new, Joined)
    assert isinstance(welcome.message, Welcome)
    assert (welcome.message.number, welcome.message.resumed, welcome.message.epoch) == (1, False, 5)
    (said,), _ = arrive(these, 3, 1, Heartbeat(0.0))
    assert said == Received(1, Heartbeat(0.0))


def test_a_second_hello_from_another_connection_goes_on_where_it_was() -> None:
    these = sessions()
    meet(these, 3)
    arrive(these, 3, 1, Heartbeat(0.0))
    for n in range(3):
        these.send(1, BalanceRequest(n))
    said, (welcome, *again) = meet(these, 4, received=1)
    assert said == []
    assert isinstance(welcome.message, Welcome)
    assert (welcome.message.resumed, welcome.message.received) == (True, 1)
    assert [(out.connection, out.seq) for out in again] == [(4, 2), (4, 3)]
    assert list(these.disconnect(3)) == []
    assert list(these.disconnect(4)) == [Lost(1, "its connection closed")]


def test_the_core_hears_of_an_agent_that_comes_back_from_another_address() -> None:
    these = sessions()
    said = []
    for connection, place in enumerate(["tcp://here:1", "tcp://here:1", "tcp://there:1", "tcp://there:1"]):
        greeting = hello("agent", "peer")
        greeting.session, greeting.data = 1, place
        said.append(arrive(these, connection, 0, greeting)[0])
    assert said[1:] == [[], [Moved(1, "tcp://there:1")], []]


def test_a_connection_has_one_session() -> None:
    """Others that began over it were here until their time-out, as many as somebody liked."""
    these = sessions()
    meet(these, 3, session=1)
    said, (refused,) = meet(these, 3, session=2)
    assert (said, type(refused.message), refused.last) == ([], Refused, True)
    assert list(these.disconnect(3)) == [Lost(1, "its connection closed")]
    assert these.numbers_of("client") == {1}


def test_who_has_no_session_is_told_to_say_hello() -> None:
    _, (refused,) = arrive(sessions(), 9, 1, Heartbeat(0.0))
    assert isinstance(refused.message, Refused)
    assert "say Hello" in refused.message.reason


def test_a_message_without_a_number_ends_its_session() -> None:
    """It could be said again and again: nothing tells that it came before."""
    these = sessions()
    meet(these, 3)
    said, (refused,) = arrive(these, 3, 0, Heartbeat(0.0))
    assert said == [Lost(1, "a Heartbeat without a number")]
    assert (refused.message, refused.last) == (Refused("a Heartbeat without a number"), True)


def test_a_gap_is_told_to_the_peer_which_says_hello_again() -> None:
    these = sessions()
    meet(these, 3)
    said, (refused,) = arrive(these, 3, 2, Heartbeat(0.0))
    assert said == []
    assert isinstance(refused.message, Refused)
    assert not refused.last


def test_who_acknowledges_what_was_not_sent_is_out() -> None:
    """It could have any number of results kept for it without reading one."""
    these = sessions()
    meet(these, 3)
    these.send(1, BalanceRequest(1))
    said, (refused,) = arrive(these, 3, 1, Heartbeat(0.0), ack=2)
    reason = "this peer acknowledges message 2 of 1"
    assert said == [Lost(1, reason)]
    assert (refused.message.reason, refused.last) == (reason, True)  # type: ignore[attr-defined]


def test_who_comes_back_and_says_so_is_not_taken_in_and_the_session_goes_on() -> None:
    these = sessions()
    meet(these, 3, session=1)
    said, (refused,) = meet(these, 4, session=1, received=1)
    assert (said, type(refused.message), refused.last) == ([], Refused, True)
    assert these.numbers_of("client") == {1}


def test_a_forgotten_session_begins_anew() -> None:
    these = sessions()
    meet(these, 3)
    assert these.forget(1) == 3
    assert these.send(1, Ack()) is None
    (new,), _ = meet(these, 3)
    assert new.number == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"protocol": 9}, "speaks protocol 9"),
    ],
)
def test_a_peer_that_can_not_work_with_the_scheduler_is_told_why(change: dict[str, Any], words: str) -> None:
    greeting: Hello = hello("agent", "peer")
    for name, value in change.items():
        setattr(greeting, name, value)
    said, (refused,) = arrive(sessions(), 3, 0, greeting)
    assert said == []
    assert refused.last
    assert isinstance(refused.message, Refused)
    assert words in refused.message.reason


# ---- who pickles -----------------------------------------------------------------------------------------------------
def pickler(name: str, session: int, python: str) -> Hello:
    greeting = hello_of("client", name, session, packages="scaler=1 cloudpickle=1")
    greeting.python = python
    return greeting


def test_a_peer_with_another_python_is_refused_while_those_with_the_first_one_are_there() -> None:
    these = sessions()
    (first,), _ = arrive(these, 1, 0, pickler("a", 1, "3.11"))
    said, (refused,) = arrive(these, 2, 0, pickler("b", 2, "3.12"))
    assert said == []
    assert refused.last
    assert "client a Python 3.11" in refused.message.reason
    these.forget(first.number)
    assert [type(event) for event in arrive(these, 3, 0, pickler("c", 3, "3.12"))[0]] == [Joined]


def test_the_agent_in_the_schedulers_process_counts_among_those_that_pickle() -> None:
    these = sessions()
    these.include(1, pickler("local", 1, "3.11"))
    _, (refused,) = arrive(these, 2, 0, pickler("b", 2, "3.12"))
    assert "client local Python 3.11" in refused.message.reason


def come_back(these: Acceptor, connection: int, session: int, number: int, epoch: int = 4) -> int:
    """A peer comes from another scheduler, where it had this number; the one that it gets."""
    greeting = hello("client", "peer")
    greeting.session, greeting.number, greeting.epoch = session, number, epoch
    _, (welcome,) = arrive(these, connection, 0, greeting)
    assert isinstance(welcome.message, Welcome)
    return welcome.message.number


def test_whoever_comes_from_another_scheduler_keeps_its_number() -> None:
    these = sessions()
    assert come_back(these, 1, 11, 3) == 3
    assert [come_back(these, connection, connection, 0) for connection in (2, 3, 4)] == [1, 2, 4]


def test_a_number_that_somebody_has_is_given_to_nobody_else() -> None:
    these = sessions()
    assert come_back(these, 1, 11, 3) == 3
    assert come_back(these, 2, 12, 3) == 1


def test_whoever_this_scheduler_has_forgotten_gets_another_number() -> None:
    these = sessions()
    assert come_back(these, 1, 11, 3) == 3
    these.forget(3)
    assert come_back(these, 1, 11, 3, epoch=5) == 1


def test_nobody_comes_back_to_a_scheduler_that_has_its_agent_in_its_process() -> None:
    these = Acceptor(Terms(5, 1, True, 1.0, 10.0, 20.0, 1 << 20), 1)
    these.include(1, hello("agent", "local"))
    assert come_back(these, 1, 11, 7) == 2


def test_the_core_hears_how_much_a_peer_has_received() -> None:
    these = sessions()
    meet(these, 3)
    for n in range(2):
        these.send(1, BalanceRequest(n))
    assert list(these.receive(3, Envelope(0, 2, Ack()), 0)) == [Received(1, Ack(), 2)]


def test_what_stands_in_for_another_message_counts_in_its_place() -> None:
    channel, answer, plain = Channel(), ObjectResponse(u32([1]), u64([1]), u8([1]), 0, "x" * 1000), Ack()
    seq, _ = channel.stamp(answer)
    assert channel.answers == channel.unread == answer.weight
    channel.replace(seq, plain)
    assert (channel.answers, channel.unread) == (0, plain.weight)
    channel.replace(seq, answer)
    channel.accept(0, seq)
    assert (channel.answers, channel.unread) == (0, 0)


def test_what_a_message_weighs_grows_with_its_columns_and_those_of_its_parts() -> None:
    """An answer that names four thousand spans counted as one that names none: a client could leave 1 GB of them."""
    rows = TaskHold(u32([0]) * 4_000, u64([1]) * 4_000, u32([0, 1]) * 4_000)
    assert rows.weight - TaskHold().weight == 4_000 * 20
    assert TaskCancel(rows, False).weight - TaskCancel(TaskHold(), False).weight == 4_000 * 20
    response = ObjectResponse(u32([0]) * 1_000, u64([1]) * 1_000, u8([0]) * 1_000)
    assert response.weight - ObjectResponse().weight == 13_000
    few, many = (Task(0, 1, n, EACH, 0, 1, 0, "f", sizes=u32([0]) * n, bodies=[b""]) for n in (1, 1_001))
    assert many.weight - few.weight == 4_000
