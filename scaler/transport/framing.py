"""Messages on a byte stream, without I/O: u32 number of frames, u64 size of each, then the frames (little endian).

The reader hands over whatever `recv` gave to `feed`. Small messages are cut out of it. When a large one is incomplete,
`wanted` is the memory where the rest of it belongs, for the kernel to fill: a large message is copied once. Its header
says how large it is, and anybody can say that: of more than `MAPPED` bytes only addresses are set aside, and the kernel
gives memory for what really arrives.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from scaler.errors import ObjectTooLarge, ProtocolError
from scaler.transport.port import SLACK_BYTES, Frame, Message, Sendable

#: More frames than any message of ours has.
MAX_FRAMES = 1 << 16
#: An incomplete message from this size on gets memory of its own, and frames from here on are not copied.
LARGE = 1 << 16
#: Bytes of a message, with what says its sizes, from whoever has not been welcomed.
GREETING_BYTES = 1 << 16
#: An incomplete message from this size on gets memory page by page, as it arrives.
MAPPED = 1 << 20

_COUNT = Struct("<I")


@lru_cache(maxsize=64)
def _sizes_struct(count: int) -> Struct:
    return Struct(f"<{count}Q")


@lru_cache(maxsize=64)
def _header_struct(count: int) -> Struct:
    return Struct(f"<I{count}Q")


def size_of(frame: Sendable) -> int:
    """Bytes of one frame, whatever the item size of a view."""
    return frame.nbytes if isinstance(frame, memoryview) else len(frame)


def check_size(total: int, limit: int) -> None:
    """Raises `ObjectTooLarge` for a message that every peer would refuse."""
    if total > limit + SLACK_BYTES:
        raise ObjectTooLarge(
            f"a message of {total:,} bytes is over max_message_bytes ({limit:,}): raise it on both sides"
        )


def encode(frames: Sequence[Sendable], limit: int) -> list[Sendable]:
    """Buffers to write one after another."""
    sizes = [size_of(frame) for frame in frames]
    total = sum(sizes)
    check_size(total, limit)
    count = len(sizes)
    if not 0 < count <= MAX_FRAMES:
        raise ValueError(f"a message has 1 to {MAX_FRAMES} frames, not {count}")
    header = _header_struct(count).pack(count, *sizes)
    if total <= LARGE:
        return [b"".join((header, *frames))]
    return [header, *(frame for frame, size in zip(frames, sizes, strict=True) if size)]


class Decoder:
    """Turns the bytes of one stream into messages. Raises `ProtocolError` at the first that cannot be right."""

    __slots__ = ("_bytes", "_filled", "_greeting", "_limit", "_sizes", "_tail", "wanted")

    def __init__(self, limit: int, is_welcome: bool = True) -> None:
        """Until `welcome` is called, if not `is_welcome`, a message is short: it says who somebody is."""
        #: Largest sum of frame sizes that is accepted.
        self._limit = limit + SLACK_BYTES
        #: Largest message until the other side is welcome; None: it is.
        self._greeting: int | None = None if is_welcome else GREETING_BYTES
        #: Bytes of an incomplete header or an incomplete small message.
        self._tail = b""
        #: Memory of the large message that is being received, its frame sizes, and how many bytes of it are there.
        self._bytes: bytearray | mmap.mmap = bytearray()
        self._sizes: tuple[int, ...] = ()
        self._filled = 0
        #: Where the next bytes of the stream belong; None: give them to `feed`.
        self.wanted: memoryview | None = None

    def welcome(self) -> None:
        """The other side has said who it is."""
        self._greeting = None

    def feed(self, data: bytes) -> list[Message]:
        """Messages completed by `data`, the next bytes of the stream. Only while `wanted` is None."""
        if self._tail:
            data = self._tail + data
            self._tail = b""
        messages: list[Message] = []
        position, end = 0, len(data)
        while end - position >= 4:
            (count,) = _COUNT.unpack_from(data, position)
            if not 0 < count <= MAX_FRAMES:
                raise ProtocolError(f"a message cannot have {count} frames")
            start = position + 4 + 8 * count
            if self._greeting is not None and start - position > self._greeting:
                raise ProtocolError(f"a greeting of {count:,} frames")
            if end < start:
                break
            sizes = _sizes_struct(count).unpack_from(data, position + 4)
            total = sum(sizes)
            if total > self._limit:
                raise ProtocolError(f"a message of {total:,} bytes is over the limit of {self._limit:,}")
            if self._greeting is not None and start - position + total > self._greeting:
                raise ProtocolError(f"a greeting of {total:,} bytes")
            if end - start < total:
                if total < LARGE:
                    break
                self._begin_large(sizes, total, memoryview(data)[start:])
                return messages
            messages.append(_cut(data, start, sizes))
            position = start + total
        self._tail = data[position:]
        return messages

    def filled(self, count: int) -> Message | None:
        """`count` bytes were written into `wanted`; the message, if that was all of it."""
        assert self.wanted is not None
        self._filled += count
        if self._filled < len(self._bytes):
            self.wanted = self.wanted[count:]
            return None
        message = _views(memoryview(self._bytes).toreadonly(), self._sizes)
        self.wanted, self._bytes, self._sizes, self._filled = None, bytearray(), (), 0
        return message

    def _begin_large(self, sizes: tuple[int, ...], total: int, beginning: memoryview) -> None:
        self._bytes = bytearray(total) if total < MAPPED else mmap.mmap(-1, total, mmap.MAP_PRIVATE)
        self._filled = len(beginning)
        self._sizes = sizes
        view = memoryview(self._bytes)
        view[: self._filled] = beginning
        self.wanted = view[self._filled :]


def _cut(data: bytes, start: int, sizes: tuple[int, ...]) -> Message:
    message: Message = []
    for size in sizes:
        end = start + size
        message.append(data[start:end] if size < LARGE else memoryview(data)[start:end])
        start = end
    return message


def _views(data: memoryview, sizes: tuple[int, ...]) -> Message:
    message: Message = []
    start = 0
    for size in sizes:
        frame: Frame = data[start : start + size]
        message.append(bytes(frame) if size < LARGE else frame)
        start += size
    return message
