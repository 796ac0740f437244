"""Every message survives the wire, and any bytes are a message or one ProtocolError."""

import math
from dataclasses import fields
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulator.random_messages import U64, strategy_of

from scaler.errors import ProtocolError
from scaler.protocol import codec
from scaler.protocol import messages as m
from scaler.protocol.codec import MESSAGE_CLASSES, decode, encode
from scaler.protocol.layouts import FEW, layout_of

MESSAGES = st.sampled_from(MESSAGE_CLASSES).flatmap(strategy_of)
CAREFULLY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def attempt(frames: list[Any]) -> None:
    """Decode; anything but a message or a ProtocolError fails the test."""
    try:
        _, _, message = decode(frames)
    except ProtocolError as error:
        said = str(error)
        assert said
        assert "\n" not in said
    else:
        if isinstance(message, m.Hello) and message.protocol != m.PROTOCOL_VERSION:
            assert message.role.isidentifier()  # that is all that is known of roles of another version
            message.role = m.Role.CLIENT
        message.validate()


@CAREFULLY
@given(message=MESSAGES, seq=U64, ack=U64)
def test_a_message_survives_the_wire(message: m.Message, seq: int, ack: int) -> None:
    frames = [bytes(frame) for frame in encode(message, seq, ack)]
    decoded = decode(frames)
    assert (decoded.seq, decoded.ack) == (seq, ack)
    assert type(decoded.message) is type(message)
    for item in fields(message):
        was, now = getattr(message, item.name), getattr(decoded.message, item.name)
        assert was == now or (isinstance(was, float) and math.isclose(was, now))


@CAREFULLY
@given(message=MESSAGES)
def test_messages_of_which_many_come_are_no_others(message: m.Message) -> None:
    fields_of_the_schema = dict(codec._CLASSES.values())
    if not fields(message):
        return
    layout = layout_of(type(message), fields_of_the_schema[type(message)].schema)
    arrived = []
    for _ in range(FEW + 1):
        struct = codec._Message.new_message()._init_by_field(fields_of_the_schema[type(message)])
        layout.write(struct, message)
        arrived.append(layout.read(struct))
    assert layout.write != layout._write_one_of_few
    assert layout.read != layout._read_one_of_few
    assert arrived[-1] == arrived[0]


def test_every_class_of_messages_is_tried() -> None:
    assert all(not strategy_of(cls).is_empty for cls in MESSAGE_CLASSES)


@CAREFULLY
@given(frames=st.lists(st.binary(max_size=200), max_size=4))
def test_random_bytes_are_refused_in_one_line(frames: list[bytes]) -> None:
    attempt(frames)


@CAREFULLY
@given(message=MESSAGES, data=st.data())
def test_a_damaged_message_is_a_message_or_refused(message: m.Message, data: st.DataObject) -> None:
    frames = [bytearray(bytes(frame)) for frame in encode(message, 1, 2)]
    for _ in range(data.draw(st.integers(1, 4))):
        header = frames[0]
        damage = data.draw(st.sampled_from(["flip", "cut", "grow", "lose", "double", "swap"]))
        if damage == "flip" and header:
            header[data.draw(st.integers(0, len(header) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        elif damage == "cut":
            del header[data.draw(st.integers(0, len(header))) :]
        elif damage == "grow":
            header += data.draw(st.binary(min_size=1, max_size=24))
        elif damage == "lose" and len(frames) > 1:
            frames.pop()
        elif damage == "double":
            frames.append(frames[-1])
        elif damage == "swap":
            at = data.draw(st.integers(0, max(0, len(header) // 8 - 1))) * 8
            header[at : at + 8] = data.draw(st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\x01\0\0\0\xff\xff\xff\x7f"]))
    attempt([bytes(frame) for frame in frames])
