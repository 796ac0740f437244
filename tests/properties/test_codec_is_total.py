"""Every message survives the wire, and any bytes are a message or one ProtocolError."""

import math
from copy import deepcopy
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator.random_messages import U64, strategy_of

from scaler.errors import ProtocolError
from scaler.protocol import codec
from scaler.protocol import messages as m
from scaler.protocol.codec import MESSAGE_CLASSES, decode, encode
from scaler.protocol.layouts import FEW, layout_of
from scaler.protocol.messages.cluster_view import ClusterView
from scaler.protocol.views import decode_view, encode_view
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.views.cluster_view import cluster_view
from scaler.store.wire import Note
from scaler.worker_protocol.messages import EndedSpan, FromWorker, PublishedValue, ReturnedSpan

MESSAGES = st.sampled_from(MESSAGE_CLASSES).flatmap(strategy_of)
VIEW, _ = cluster_view(ClusterState())
CAREFULLY = settings(max_examples=3 * settings().max_examples)


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


def floats_of(cls: type[Any]) -> list[str]:
    """The fields of a class that are floats."""
    kinds = {name: kind for base in cls.__mro__ for name, kind in vars(base).get("__annotations__", {}).items()}
    return [name for name, kind in kinds.items() if "float" in str(kind)]


#: all floats in messages, and in what monitors are shown
FLOATS = [(cls, name) for cls in MESSAGE_CLASSES for name in floats_of(cls)]
SHOWN = [(item.name, name) for item in fields(ClusterView) for name in floats_of(type(getattr(VIEW, item.name)))]
NO_NUMBERS = (math.inf, -math.inf, math.nan, 1e300, -1e300)


@pytest.mark.parametrize(("cls", "name"), FLOATS)
@settings(max_examples=10)
@given(data=st.data())
def test_a_float_that_is_no_number_or_too_large_is_refused(
    cls: type[m.Message], name: str, data: st.DataObject
) -> None:
    message = data.draw(strategy_of(cls))
    for value in NO_NUMBERS:
        setattr(message, name, value)
        with pytest.raises(ProtocolError, match=f"a malformed {cls.__name__}"):
            decode(encode(message))


@pytest.mark.parametrize(("part", "name"), SHOWN)
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_float_that_is_no_number_or_too_large_is_not_shown(part: str, name: str, value: float) -> None:
    view = deepcopy(VIEW)
    setattr(getattr(view, part), name, value)
    with pytest.raises(ProtocolError, match="a malformed view"):
        decode_view(encode_view(view))


def test_no_float_is_left_out() -> None:
    def all_of(cls: type[m.Part]) -> list[type[m.Part]]:
        return [cls, *[each for child in cls.__subclasses__() for each in all_of(child)]]

    def name(cls: type[Any]) -> str:  # another test may have loaded the module again
        return f"{cls.__module__}.{cls.__qualname__}"

    tried = {name(cls) for cls, _ in FLOATS} | {name(type(getattr(VIEW, part))) for part, _ in SHOWN}
    assert {name(cls) for cls in all_of(m.Part) if floats_of(cls)} == tried
    told = [*get_args(FromWorker), EndedSpan, ReturnedSpan, PublishedValue, Note]
    assert not [cls for cls in told if floats_of(cls)], "agents don't believe their workers, nor stores others"


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
