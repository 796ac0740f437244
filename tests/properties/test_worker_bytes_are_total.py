"""Any bytes a worker may send are a message that says what it says, or a MalformedMessage, and nothing else."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from scaler.protocol.messages import FILE, SIZE, sizes_of
from scaler.worker_protocol import messages as wm
from scaler.worker_protocol.encoding import MalformedMessage, from_worker, read_by_agent

u64 = st.integers(0, (1 << 64) - 1) | st.integers(0, 40)
u32 = st.integers(0, (1 << 32) - 1) | st.integers(0, 40)


@st.composite
def results(draw: st.DrawFn) -> bytes:
    """A result message, in which any number may be wrong."""
    spans = draw(st.integers(0, 3))
    done = draw(st.lists(u64, max_size=3))
    pieces = [b"\1", struct.pack("=II", draw(st.just(spans) | u32), len(done)), struct.pack(f"={len(done)}Q", *done)]
    for _ in range(spans):
        outcome, lo, rows = draw(st.integers(0, 10)), draw(st.integers(0, 9)), draw(st.integers(0, 4))
        count = sizes_of(outcome, rows)
        size = st.sampled_from([SIZE.size, FILE.size]) | st.integers(0, 9)
        sizes = draw(st.lists(size, min_size=count, max_size=count))
        body = draw(st.binary(min_size=sum(sizes), max_size=sum(sizes)))
        numbers = [draw(st.just(len(sizes)) | u32), draw(st.just(len(body)) | u64)]
        pieces.append(
            struct.pack("=QIQQQBQQIQ", draw(u64), draw(u32), draw(u64), lo, lo + rows, outcome, 1, 2, *numbers)
        )
        pieces.append(struct.pack(f"={len(sizes)}I", *sizes) + body)
    return b"".join(pieces)


@given(st.binary(max_size=200) | results() | st.binary(max_size=100).map(lambda rest: b"\3\1\0\0\0" + rest))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    try:
        message = read_by_agent(memoryview(data))
    except MalformedMessage:
        return
    assert from_worker(message)[0] == data[0]
    assert read_by_agent(memoryview(from_worker(message))) == message
    if isinstance(message, wm.Results):
        for ended in message.ended:
            assert ended.lo < ended.hi
            assert sum(ended.sizes) == len(ended.body)
