"""What `Hostile` draws without a codec is what comes out of one."""

from random import Random

import pytest
from fuzz.chance import Chosen
from fuzz.targets import drawn_hello
from simulator.hostile_messages import CLASSES, Hostile

from scaler.protocol import messages as m
from scaler.protocol.codec import decode, encode

#: messages of each class: enough for every edge of each field
MANY = 300
#: without figures its frame is never what its columns need
NEVER = m.HostReport


def decoded(message: m.Message) -> m.Message:
    return decode([bytes(frame) for frame in encode(message, 1, 1)]).message


@pytest.mark.parametrize("figures", [False, True])
@pytest.mark.parametrize("cls", CLASSES)
def test_a_drawn_message_is_what_a_decoder_makes_of_its_frames(cls: type[m.Message], figures: bool) -> None:
    if cls is NEVER and not figures:
        return
    drawn = Hostile(Random(1), (0, 1, 2**31, 2**32 - 1), (0, 1, 10, 2**64 - 1), figures)
    for _ in range(MANY):
        message = drawn.message(cls)
        assert repr(decoded(message)) == repr(message)  # types and typecodes, too


def test_a_hello_that_bytes_choose_is_what_a_decoder_makes_of_its_frames() -> None:
    lot, seen = Random(1), 0
    while seen < MANY:
        try:
            hello = drawn_hello(Chosen(lot.randbytes(10)))
        except m.Malformed:
            continue
        assert repr(decoded(hello)) == repr(hello)
        seen += 1
