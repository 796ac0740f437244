"""Messages on a byte stream: any cut gives the same messages, and nonsense gives one error."""

import os
import struct
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.errors import ObjectTooLarge, ProtocolError
from scaler.transport.framing import GREETING_BYTES, LARGE, MAX_FRAMES, Decoder, encode
from scaler.transport.port import SLACK_BYTES

_LIMIT = 1 << 24

_sizes = st.one_of(st.integers(0, 40), st.sampled_from([LARGE - 1, LARGE, LARGE + 1, 3 * LARGE]))


def _read(data: bytes, cuts: list[int], limit: int = _LIMIT) -> list[list[bytes]]:
    """What a reader makes of `data` when the kernel hands it over in pieces of these sizes, again and again."""
    decoder = Decoder(limit)
    messages = []
    position, turn = 0, 0
    while position < len(data):
        size = cuts[turn % len(cuts)]
        turn += 1
        if decoder.wanted is None:
            piece = data[position : position + size]
            messages += decoder.feed(piece)
        else:
            piece = data[position : position + min(size, len(decoder.wanted))]
            decoder.wanted[: len(piece)] = piece
            message = decoder.filled(len(piece))
            messages += [] if message is None else [message]
        position += len(piece)
    return [[bytes(frame) for frame in message] for message in messages]


@given(
    st.lists(st.lists(_sizes, min_size=1, max_size=4), max_size=5),
    st.lists(st.one_of(st.integers(1, 50), st.just(262144)), min_size=1, max_size=4),
)
def test_any_cut_of_the_stream_gives_the_same_messages(shape: list[list[int]], cuts: list[int]) -> None:
    messages = [[bytes([index % 256]) * size for index, size in enumerate(sizes)] for sizes in shape]
    data = b"".join(bytes(buffer) for message in messages for buffer in encode(message, _LIMIT))
    if len(data) > 10_000:
        cuts = [size * 997 for size in cuts]
    assert _read(data, cuts) == messages


@settings(max_examples=2 * settings().max_examples)
@given(st.binary(max_size=300))
def test_any_bytes_give_messages_or_one_protocol_error(data: bytes) -> None:
    try:
        _read(data, [7], limit=1000)
    except ProtocolError:
        pass


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<I", 0),
        struct.pack("<I", MAX_FRAMES + 1),
        struct.pack("<IQ", 1, _LIMIT + SLACK_BYTES + 1),
        struct.pack("<I2Q", 2, 2**64 - 1, 2**64 - 1),
    ],
)
def test_an_absurd_header_is_refused_before_memory_is_taken(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        Decoder(_LIMIT).feed(header)


def test_large_frames_are_readonly_views_and_small_ones_are_bytes() -> None:
    data = b"".join(map(bytes, encode([b"small", b"x" * LARGE], _LIMIT)))
    (message,) = Decoder(_LIMIT).feed(data)
    assert type(message[0]) is bytes
    assert isinstance(message[1], memoryview)
    assert message[1].readonly


def test_views_of_wide_items_are_counted_in_bytes() -> None:
    wide = memoryview(bytes(16)).cast("Q")
    assert _read(b"".join(map(bytes, encode([wide], _LIMIT))), [5]) == [[bytes(16)]]


def test_a_message_that_everybody_would_refuse_is_not_sent() -> None:
    with pytest.raises(ObjectTooLarge, match="max_message_bytes"):
        encode([bytes(SLACK_BYTES + 11)], 10)
    with pytest.raises(ValueError, match="frames"):
        encode([], 10)


def _resident() -> int:
    """Bytes of memory that this process has."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_memory_is_given_as_bytes_arrive_not_as_they_are_announced() -> None:
    decoder, size, before = Decoder(1 << 30), 1 << 30, _resident()
    decoder.feed(struct.pack("<IQ", 1, size) + bytes(100))
    assert decoder.wanted is not None
    assert len(decoder.wanted) == size - 100
    assert _resident() - before < size // 8
    decoder.wanted[: 1 << 20] = bytes(1 << 20)
    assert decoder.filled(1 << 20) is None
    assert _resident() - before < size // 8


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<IQ", 1, GREETING_BYTES),
        struct.pack("<I", GREETING_BYTES // 8 + 1),
        struct.pack("<I2Q", 2, 1, LARGE),
    ],
    ids=["a large frame", "many frames", "two frames"],
)
def test_who_was_not_welcomed_may_say_little(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="greeting"):
        Decoder(_LIMIT, is_welcome=False).feed(header)
    welcomed = Decoder(_LIMIT, is_welcome=False)
    welcomed.welcome()
    assert welcomed.feed(header) == []


def test_a_greeting_is_read_from_whoever_comes() -> None:
    decoder = Decoder(_LIMIT, is_welcome=False)
    assert decoder.feed(b"".join(map(bytes, encode([b"hello", b"x" * 1000], _LIMIT)))) == [[b"hello", b"x" * 1000]]
