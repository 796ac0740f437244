"""How much of what peers say a step takes, by what that costs."""

import socket

from scaler.scheduler.pace import LEAST, LONGEST, Pace
from scaler.transport.framing import encode
from scaler.transport.listener_state import PASS_BYTES
from scaler.transport.port import Message
from scaler.transport.stream import Stream


def test_less_is_taken_while_that_takes_long_and_more_again_when_it_does_not() -> None:
    pace = Pace()
    pace.note(100 << 20, 3 * LONGEST)
    assert pace.bytes == PASS_BYTES, "what is large takes long by its size"
    pace.note(10_000, 10 * LONGEST)
    assert pace.bytes == 1_000
    pace.note(1_000, 100 * LONGEST)
    assert pace.bytes == LEAST
    for doubled in range(1, 9):
        pace.note(LEAST, LONGEST / 2)
        assert pace.bytes == LEAST << doubled
    pace.note(LEAST, LONGEST / 2)
    assert pace.bytes == PASS_BYTES


def test_of_small_messages_few_are_taken_at_a_time_and_all_come() -> None:
    here, there = socket.socketpair()
    stream = Stream(here, 1 << 30, lambda fd, waits: None)
    said: list[Message] = [[b"%d" % number * 20, b""] for number in range(100)]
    said += [[b"x" * 50_000], [b"last"]]
    for message in said:
        there.sendall(b"".join(bytes(part) for part in encode(message, 1 << 30)))
    heard: list[Message] = []
    most = 0
    while len(heard) < len(said):
        before = len(heard)
        stream.receive(heard, LEAST)
        most = max(most, len(heard) - before)
    assert [[bytes(frame) for frame in message] for message in heard] == said
    assert 1 <= most <= LEAST // 30
    stream.close()
    there.close()
