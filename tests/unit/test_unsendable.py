"""What can't be sent has something else said in its place, and agents and sessions go on."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from simulator.scripted import result

from scaler.agent.daemon import Daemon
from scaler.errors import ObjectTooLarge
from scaler.protocol.acceptor import Acceptor, Outgoing, Terms
from scaler.protocol.channel import Channel, Envelope
from scaler.protocol.codec import decode
from scaler.protocol.hello import hello_of
from scaler.protocol.initiator import Initiator
from scaler.protocol.messages import (
    ERROR,
    LOST,
    STORED,
    VALUES_EACH,
    Ack,
    BalanceRequest,
    Heartbeat,
    Message,
    TaskOutput,
    TaskResult,
    Welcome,
    u32,
)
from scaler.protocol.results import ResultBuilder, SpanResult, spans_of
from scaler.protocol.unsendable import send_instead
from scaler.scheduler.composition import Composition
from scaler.scheduler.server import Server
from scaler.serialize.record import decode_error

LIMIT = 1 << 16
#: over that and over what the engine's own headers may have
TOO_LARGE = LIMIT + (2 << 20)


def each(batch: int, lo: int, *values: bytes) -> SpanResult:
    """Rows with a payload for each."""
    return SpanResult(batch, lo, lo + len(values), VALUES_EACH, 100, 0, u32(map(len, values)), b"".join(values))


def message_of(*ended: SpanResult) -> TaskResult:
    """A client's results."""
    builder = ResultBuilder(7)
    for span in ended:
        builder.add(span)
    return builder.build()


def outcomes(message: TaskResult) -> list[tuple[int, int, int, int]]:
    """What a message says of rows."""
    return [(span.batch, span.lo, span.hi, span.outcome) for span in spans_of(message)]


# ---- what is said instead --------------------------------------------------------------------------------------------
def test_rows_whose_results_can_not_be_sent_end_with_an_error_that_says_why() -> None:
    sent: list[Message] = []
    whole = message_of(each(10, 0, b"a" * 20, b"b" * 20), result(10, 2, 4, STORED), result(20, 0, 1, ERROR))
    words = send_instead(whole, ObjectTooLarge("a message of 40 bytes is over max_message_bytes (30)"), sent.append)
    assert words == (
        "results of client 7 can't be sent, and 3 rows end with an error: "
        "a message of 40 bytes is over max_message_bytes (30)"
    )
    assert len(sent) == 1
    said = cast("TaskResult", sent[0])
    assert outcomes(said) == [(10, 0, 1, ERROR), (10, 1, 2, ERROR), (10, 2, 4, STORED), (20, 0, 1, ERROR)]
    error = decode_error(bytes(spans_of(said)[0].body), "task f (10)")
    assert isinstance(error, ObjectTooLarge)
    assert str(error).startswith("task f (10): its result, or what it raised, takes 20 bytes and can't be sent: a mess")


def test_what_can_not_be_sent_either_is_left_out() -> None:
    sent: list[Message] = []

    def send(message: Message) -> None:
        if isinstance(message, TaskResult):
            raise OverflowError
        sent.append(message)

    words = send_instead(message_of(each(10, 0, b"a")), OverflowError("what\nelse"), send)
    assert words == "a TaskResult can't be sent, and is left out: what"
    assert sent == [Ack()]
    words = send_instead(TaskOutput(7, 1, "f", 1, "text"), OverflowError(), send)
    assert words == "what f has said can't be sent, and is left out: OverflowError"


def test_another_message_takes_the_place_of_one_that_is_kept() -> None:
    channel = Channel()
    for number in range(3):
        channel.stamp(BalanceRequest(number))
    before = channel.unread
    channel.replace(2, TaskOutput(7, 1, "f", 1, "text"))
    assert [(seq, type(message)) for seq, _, message in channel.resume(0)] == [
        (1, BalanceRequest),
        (2, TaskOutput),
        (3, BalanceRequest),
    ]
    assert channel.unread == before + TaskOutput(7, 1, "f", 1, "text").weight - BalanceRequest(1).weight
    channel.accept(0, 3)
    assert channel.unread == 0


def test_a_loss_that_can_not_be_told_is_an_error() -> None:
    lost = SpanResult(10, 0, 1, LOST, 0, 0, u32([50]), b"w" * 50)
    sent: list[Message] = []
    send_instead(message_of(lost), ObjectTooLarge("no"), sent.append)
    assert outcomes(cast("TaskResult", sent[0])) == [(10, 0, 1, ERROR)]


# ---- the shells ------------------------------------------------------------------------------------------------------
class Narrow:
    """A connection that takes short messages."""

    def __init__(self) -> None:
        self.said: list[Envelope] = []

    def send(self, frames: Sequence[Any]) -> None:
        if sum(map(len, frames)) > LIMIT:
            raise ObjectTooLarge("a message is over max_message_bytes")
        self.said.append(decode([bytes(frame) for frame in frames]))


def agent_with(connection: Narrow, limit: int = 1 << 30) -> Daemon:
    """An agent's process as far as it sends, in an open session."""
    daemon = Daemon.__new__(Daemon)
    daemon._connection = connection  # type: ignore[assignment]
    daemon._initiator = Initiator(hello_of("agent", "here", 5))
    daemon._heard_bytes = limit
    daemon._initiator.greet(0.0)
    daemon._initiator.receive(Envelope(0, 0, Welcome(1, 3, False, 0, 0, True, 1.0, 10.0, 1 << 30)), 0.0)
    return daemon


MESSAGES: list[tuple[Message, type[Message]]] = [
    (message_of(each(10, 0, b"a" * TOO_LARGE)), TaskResult),
    (TaskOutput(7, 1, "f", 1, "y" * TOO_LARGE), Ack),
    (TaskOutput(1 << 40, 1, "f", 1, "of a client that no field has room for"), Ack),
    (Heartbeat(0.0, 1 << 80), Ack),
]


@pytest.mark.parametrize(("message", "instead"), MESSAGES)
def test_an_agent_goes_on_with_something_else(
    message: Message, instead: type[Message], caplog: pytest.LogCaptureFixture
) -> None:
    connection = Narrow()
    daemon = agent_with(connection)
    daemon._send(daemon._initiator.send(message))
    daemon._send(daemon._initiator.send(BalanceRequest(1)))
    assert [(said.seq, type(said.message)) for said in connection.said] == [(1, instead), (2, BalanceRequest)]
    assert len(caplog.records) == 1
    assert "\n" not in caplog.records[0].getMessage()


def test_an_agent_says_no_more_than_its_scheduler_hears() -> None:
    connection = Narrow()
    daemon = agent_with(connection, limit=0)
    connection.send = lambda frames: connection.said.append(decode(list(frames)))  # type: ignore[method-assign]
    daemon._send(daemon._initiator.send(message_of(each(10, 0, b"a" * TOO_LARGE))))
    assert [outcomes(cast("TaskResult", said.message)) for said in connection.said] == [[(10, 0, 1, ERROR)]]


@pytest.mark.parametrize(("message", "instead"), MESSAGES[:3])
def test_a_scheduler_keeps_the_session_of_a_client(
    message: Message, instead: type[Message], caplog: pytest.LogCaptureFixture
) -> None:
    acceptor = Acceptor(Terms(1, 1, True, 1.0, 10.0, 10.0, LIMIT), 1)
    connection, server = Narrow(), Server.__new__(Server)
    server._listeners = (SimpleNamespace(send=lambda peer, frames: connection.send(frames)),)  # type: ignore[assignment]
    server._composition = Composition(SimpleNamespace(workers=0), acceptor)  # type: ignore[arg-type]
    server._composition.receive(9, Envelope(0, 0, hello_of("client", "c", 5)), 0.0)
    number = next(iter(acceptor.numbers_of("client")))
    for each_one in (message, BalanceRequest(1)):
        server._send(cast("Outgoing", acceptor.send(number, each_one)))
    assert [(said.seq, type(said.message)) for said in connection.said] == [(1, instead), (2, BalanceRequest)]
    assert [record.getMessage()[:14] for record in caplog.records] == ["connection 9: "]
