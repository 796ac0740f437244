"""What clients have not read is counted; beyond a bound their rows wait, and who reads nothing is given up."""

from dataclasses import replace
from typing import Any

import pytest
from simulator.scripted import FakeScheduler, as_heard, hello, task

from scaler.protocol import acceptor
from scaler.protocol.acceptor import Acceptor, Lost, Terms
from scaler.protocol.channel import ACK_BYTES, Channel, Envelope
from scaler.protocol.codes import Stream
from scaler.protocol.messages import (
    Ack,
    Heartbeat,
    HeartbeatEcho,
    ObjectRequest,
    ObjectResponse,
    Task,
    TaskOutput,
    TaskResult,
    u32,
    u64,
)
from scaler.scheduler.core import events as ev
from scaler.scheduler.core.outgoing import MOST_ANSWERED

LIMIT = 10_000
TERMS = Terms(5, 1, True, 1.0, 10.0, 20.0, 1 << 20, LIMIT)
MUCH = 80_000_000


def results(size: int) -> TaskResult:
    """Values of so many bytes."""
    return TaskResult(0, bodies=[b"x" * size])


# ---- the channel and the sessions ----
def test_what_was_not_acknowledged_is_counted_in_bytes() -> None:
    channel = Channel()
    channel.stamp(results(1000))
    first = channel.unread
    channel.stamp(results(5000))
    assert 1000 < first == channel.oldest < 2000
    assert 5000 < channel.unread - first < 6000
    channel.accept(0, 1)
    assert channel.oldest == channel.unread > 5000
    channel.accept(0, 2)
    assert channel.oldest == channel.unread == 0


def test_who_reads_much_says_so_soon() -> None:
    channel = Channel()
    channel.accept(1, 0, ACK_BYTES - 1)
    assert not channel.owes_ack
    channel.accept(2, 0, 1)
    assert channel.owes_ack
    channel.stamp_ack()
    assert not channel.owes_ack


def session(role: str) -> Acceptor:
    """A scheduler with the session of a peer that is number 1, over connection 9."""
    these = Acceptor(TERMS)
    these.receive(9, Envelope(0, 0, replace(hello(role, "peer"), protocol=1)), 0)
    return these


def told(these: Acceptor) -> list[Any]:
    """What the core is told since the last time."""
    unread, these.unread = these.unread, []
    return unread


def test_the_core_is_told_of_much_that_is_unread_of_each_that_is_read_then_and_that_it_is_little_again() -> None:
    these = session("client")
    for _ in range(9):
        these.send(1, results(1000))
    (much,) = told(these)
    assert (much.number, much.bytes > LIMIT, much.oldest > 1000) == (1, True, True)
    these.receive(9, Envelope(1, 0, Heartbeat(1.0)), 0)
    assert told(these) == []
    these.receive(9, Envelope(0, 1, Ack()), 0)
    (less,) = told(these)
    assert less.bytes > LIMIT / 2
    these.receive(9, Envelope(0, 9, Ack()), 0)
    assert [each.bytes for each in told(these)] == [0]
    these.receive(9, Envelope(0, 9, Ack()), 0)
    assert told(these) == []


def test_a_new_connection_is_no_sign_of_reading() -> None:
    these = session("client")
    for _ in range(9):
        these.send(1, results(1000))
    told(these)
    again = replace(hello("client", "peer"), protocol=1, received=0)
    these.receive(11, Envelope(0, 0, again), 0)
    assert told(these) == []
    these.receive(12, Envelope(0, 0, replace(again, received=9)), 0)
    assert [each.bytes for each in told(these)] == [0]


def test_agents_are_not_waited_for() -> None:
    these = session("agent")
    for _ in range(20):
        these.send(1, results(1000))
    assert told(these) == []


@pytest.mark.parametrize("role", ["client", "agent", "monitor"])
def test_who_asks_on_and_reads_none_of_the_answers_is_lost(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not an answer does not count: it may come in any number of what others do."""
    monkeypatch.setattr(acceptor, "ANSWERED_BYTES", LIMIT)
    these, answer = session(role), HeartbeatEcho(0.0, 1)
    for _ in range(20):
        these.send(1, results(1000))
    told(these)
    few = LIMIT // answer.weight
    for _ in range(few):
        these.send(1, answer)
    assert told(these) == []
    these.send(1, answer)
    (lost,) = told(these)
    assert isinstance(lost, Lost)
    assert (lost.number, lost.reason.startswith("asks on, and leaves")) == (1, True)
    these.send(1, answer)
    assert told(these) == []


def test_who_has_most_unread_is_lost_when_all_together_have_too_much() -> None:
    """A hundred monitors that read nothing took a hundred times what one of them may."""
    these = Acceptor(replace(TERMS, unread=MUCH, unread_of_all=20 * acceptor._UNCOUNTED))
    for number, role in enumerate(["agent", *["monitor"] * 30, "client"], 1):
        said = replace(hello(role, "peer"), protocol=1, session=number)
        these.receive(number, Envelope(0, 0, said), 0)
    for _ in range(10):
        these.send(1, results(acceptor._UNCOUNTED))  # agents do not count
    these.send(2, results(3 * acceptor._UNCOUNTED))
    lost = []
    for number in range(3, 32):
        these.send(number, results(acceptor._UNCOUNTED))
        these.send(32, results(1_000))
        these.receive(32, Envelope(0, these.sent_to(32), Ack()), 0)  # reads
        lost += told(these)
    assert lost[0].number == 2
    assert "most of all clients and monitors" in lost[0].reason
    assert all(isinstance(each, Lost) and 2 <= each.number < 32 for each in lost)
    left = set(range(1, 33)) - {each.number for each in lost}
    kept = sum(these._by_number[number].channel.unread for number in left - {1})
    assert kept <= 22 * acceptor._UNCOUNTED


def test_who_asks_on_is_lost_though_little_else_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as much as a client may leave unread waited for it before its answers counted: 128 MiB."""
    monkeypatch.setattr(acceptor, "ANSWERED_BYTES", LIMIT // 2)
    these, answer = session("client"), HeartbeatEcho(0.0, 1)
    sent = 0
    while not told(these):
        these.send(1, answer)
        sent += answer.weight
    assert LIMIT // 2 < sent < LIMIT


def test_answers_to_who_has_read_meanwhile_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much else is unread all the time: who is slow goes on asking now and then."""
    monkeypatch.setattr(acceptor, "ANSWERED_BYTES", LIMIT)
    these, answer = session("agent"), HeartbeatEcho(0.0, 1)
    for _ in range(30):
        these.send(1, results(1000))
    for read in range(1, 100):
        these.send(1, answer)
        these.send(1, results(1000))
        these.receive(9, Envelope(0, 2 * read, Ack()), 0)
    assert told(these) == []


def test_what_a_client_is_told_of_values_at_once_is_one_message() -> None:
    """Each was one of its own: of ten bytes that a client said 350 waited for it."""
    fake = FakeScheduler(1)
    client, other = fake.client(), fake.client()
    wanted = u64(range(5_000, 5_000 + 3 * MOST_ANSWERED))
    request = ObjectRequest(u32([0]) * len(wanted), wanted)
    fake.handle(ev.Received(client, request), ev.Received(other, ObjectRequest(u32([0]), wanted[:1])))
    answers = [as_heard(answer) for answer in fake.heard(client, ObjectResponse)]
    assert [len(answer.ids) for answer in answers] == [MOST_ANSWERED] * 3
    assert [(number, value) for answer in answers for number, value, _ in answer] == [(client, each) for each in wanted]
    assert all(outcome == 1 and "does not know it" in answer.reason for answer in answers for _, _, outcome in answer)
    assert [list(answer.ids) for answer in fake.heard(other, ObjectResponse)] == [[5_000]]


def test_who_says_that_it_has_read_what_has_not_even_left_is_not_believed() -> None:
    these = session("client")
    for _ in range(9):
        these.send(1, results(1000))
    assert these.is_believed(9, 9_000)
    these.receive(9, Envelope(0, 8, Ack()), 0)
    assert not these.is_believed(9, 9_000)
    assert not these.is_believed(10, 9_000), "it has no session"


# ---- the core ----
@pytest.fixture
def fake() -> FakeScheduler:
    return FakeScheduler(2, client_timeout=10.0, agent_timeout=1000.0)


def unread(fake: FakeScheduler, client: int, size: int, oldest: int = 0) -> None:
    fake.handle(ev.Unread(client, size, oldest))


def said(fake: FakeScheduler) -> str:
    """What the log was told since the last time."""
    lines = "\n".join(fake.log)
    fake.log.clear()
    return lines


def test_rows_of_who_does_not_read_wait_and_those_of_others_go_on(fake: FakeScheduler) -> None:
    (agent,) = fake.agents
    slow, other = fake.client(), fake.client()
    fake.say(slow, task(10, 20))
    fake.placed(agent)
    unread(fake, slow, MUCH)
    held = fake.holds(agent)
    fake.end_all(agent, slow)
    assert fake.holds(agent) == 0
    fake.say(slow, task(50, 1))
    assert fake.placed(agent) == []
    assert fake.core.state.queues.rows == 20 - held + 1
    fake.say(other, task(10, 2))
    assert fake.placed(agent) == [(10, 0, 2)]
    fake.end_all(agent, other)
    unread(fake, slow, MUCH // 2)
    assert fake.placed(agent) == []
    unread(fake, slow, 0)
    assert fake.placed(agent)
    for _ in range(20):
        fake.end_all(agent, slow)
    assert fake.core.state.clients[slow].outstanding == 0


def test_what_rows_print_meanwhile_is_left_out_and_its_client_is_told_how_much(fake: FakeScheduler) -> None:
    (agent,) = fake.agents
    slow, other = fake.client(), fake.client()
    for number in (slow, other):
        fake.say(number, task(11, 1))
        fake.end_all(agent, number)

    def prints(client: int, text: str) -> None:
        fake.say(agent, TaskOutput(client, 11, "mod.fn", Stream.STDOUT, text))

    def heard(client: int) -> list[tuple[int, str, int, str]]:
        return [(said.row, said.name, said.stream, said.text) for said in fake.heard(client, TaskOutput)]

    prints(slow, "first")
    unread(fake, slow, MUCH)
    prints(slow, "x" * 1_000_000)
    unread(fake, slow, MUCH // 2)
    prints(slow, "x" * 500_000)
    prints(other, "mine")
    assert heard(slow) == [(11, "mod.fn", Stream.STDOUT, "first")]
    assert heard(other) == [(11, "mod.fn", Stream.STDOUT, "mine")]
    unread(fake, slow, 0)
    prints(slow, "last")
    text = "... 1,500,000 characters of output are left out: this program did not read them\n"
    assert heard(slow) == [(11, "mod.fn", Stream.STDERR, text), (11, "mod.fn", Stream.STDOUT, "last")]
    unread(fake, slow, MUCH)
    unread(fake, slow, 0)
    assert heard(slow) == []


def test_rows_that_wait_can_be_cancelled_cleared_and_left(fake: FakeScheduler) -> None:
    (agent,) = fake.agents
    slow = fake.client()
    unread(fake, slow, MUCH)
    fake.say(slow, task(10, 5), task(20, 5))
    fake.cancel(slow, (10, 0, 5))
    assert fake.core.state.queues.rows == 5
    fake.lose(slow)
    assert fake.core.state.queues.rows == 0
    assert not fake.core.state.queues.items()
    assert fake.heard(agent, Task) == []


def alive(fake: FakeScheduler, client: int, seconds: float) -> bool:
    """Time goes by, while a client says that it is there; whether it is still known."""
    for _ in range(int(seconds / 2.5)):
        fake.wait(2.5)
        fake.say(client, Heartbeat(fake.now))
    return client in fake.core.state.clients


def test_who_reads_nothing_for_its_time_out_is_told_and_given_up(fake: FakeScheduler) -> None:
    slow = fake.client()
    fake.say(slow, task(10, 5))
    unread(fake, slow, MUCH)
    assert alive(fake, slow, 2.5)
    assert "80 MB wait for it: its rows wait, too, and it is given up after 10 s" in said(fake)
    assert alive(fake, slow, 5.0)
    assert said(fake) == ""  # once is enough
    unread(fake, slow, MUCH)  # it has read something
    assert alive(fake, slow, 10.0)
    fake.wait(2.5)
    (forgotten,) = [effect for effect in fake.effects if isinstance(effect, ev.Forget)]
    assert forgotten == ev.Forget(slow, "read nothing for 10 s, while 80 MB wait for it", is_told=True)
    assert slow not in fake.core.state.clients


def test_a_large_message_may_take_its_time(fake: FakeScheduler) -> None:
    slow = fake.client()
    unread(fake, slow, MUCH, oldest=MUCH)
    assert alive(fake, slow, 85.0)
    assert not alive(fake, slow, 10.0)
