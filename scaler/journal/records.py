"""Records of a journal as bytes, and back: pure. No byte of a file is believed before its checksum was looked at.

    segment = header record*             header = magic "scaler-j", version u16, protocol - 1 u16, number u64, crc32 u32
    record  = length u32, crc32 u32, kind u8, 3 bytes 0, term u32, owner u64, frames of `length` bytes
    frames  = count u32, the size of each u32, the bytes of each

All little-endian. The checksum of a record is of all from `kind` on; that of a header, of what is before it. `term`
counts those who have written, so that what a former writer wrote late can be told apart.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from scaler.protocol.messages import PROTOCOL_VERSION

Frame = bytes | memoryview

MAGIC = b"scaler-j"
#: of this form of journals: another one is refused, and left as it is
VERSION = 1

_SEGMENT = struct.Struct("<8sHHQ")
_CRC = struct.Struct("<I")
#: bytes before the first record of a segment
SEGMENT_HEADER = _SEGMENT.size + _CRC.size
_PREFIX = struct.Struct("<II")
_HEAD = struct.Struct("<B3xIQ")
_COUNT = struct.Struct("<I")
#: bytes of a record besides its frames and their sizes
RECORD_HEADER = _PREFIX.size + _HEAD.size
#: where the frame begins in a record that has only one
ONLY_FRAME = RECORD_HEADER + 8
#: bytes of frames that a record has, at most
MOST_BYTES = (1 << 32) - 1


class Record(NamedTuple):
    """One thing that was written."""

    #: what it is; whoever writes it knows
    kind: int
    #: whose it is
    owner: int
    frames: tuple[Frame, ...]
    #: the turn of its writer, counted from 1
    term: int


class Damaged(Exception):
    """From here on nothing is believed. The text says why, without the place."""


class Cut(Damaged):
    """The file ends inside of a record, as it does when a writer was killed."""


class OtherVersion(Exception):
    """The journal was written in another form than this. The text says what has which number."""


def segment_header(number: int) -> bytes:
    """What a segment begins with."""
    head = _SEGMENT.pack(MAGIC, VERSION, PROTOCOL_VERSION - 1, number)
    return head + _CRC.pack(crc32(head))


def check_segment(data: Frame, number: int) -> None:
    """Raise `Cut`, `Damaged` or `OtherVersion` unless this begins as the segment of this number."""
    if len(data) < SEGMENT_HEADER:
        raise Cut("it ends within its header")
    head = bytes(data[: _SEGMENT.size])
    (crc,) = _CRC.unpack_from(data, _SEGMENT.size)
    magic, version, protocol, found = _SEGMENT.unpack(head)
    if magic != MAGIC:
        raise Damaged("it does not begin as a journal does")
    if crc != crc32(head):
        raise Damaged("the checksum of its header is wrong")
    if version != VERSION:
        raise OtherVersion(f"its form has the number {version}, this program knows {VERSION}")
    if protocol + 1 != PROTOCOL_VERSION:  # of the messages in its records
        raise OtherVersion(
            f"its messages are of protocol {protocol + 1}, this program speaks protocol {PROTOCOL_VERSION}"
        )
    if found != number:
        raise Damaged(f"it says that it is segment {found}")


def size_of(frames: Sequence[Frame]) -> int:
    """How many bytes a record of these frames takes.

    >>> size_of([b"abc", b""]) == sum(map(len, pack(Record(1, 2, (b"abc", b""), 3))))
    True
    """
    return RECORD_HEADER + 4 + 4 * len(frames) + sum(map(len, frames))


def frames_of_size(size: int) -> tuple[Frame, ...]:
    """Frames of zeros whose record takes so many bytes, as another record does.

    >>> [size_of(frames_of_size(size)) - size for size in (size_of([]), size_of([b""]), 1000)]
    [0, 0, 0]
    """
    return () if size < ONLY_FRAME else (bytes(size - ONLY_FRAME),)


def pack(record: Record) -> list[Frame]:
    """The bytes of a record, in parts that follow each other; its frames are not copied."""
    frames = record.frames
    sizes = struct.pack(f"<{len(frames) + 1}I", len(frames), *map(len, frames))
    head = _HEAD.pack(record.kind, record.term, record.owner) + sizes
    crc = crc32(head)
    for frame in frames:
        crc = crc32(frame, crc)
    length = len(sizes) + sum(map(len, frames))
    return [_PREFIX.pack(length, crc) + head, *frames]


def read(data: memoryview, at: int) -> tuple[Record, int]:
    """The record that begins here, with views of its frames, and where it ends. Raises `Cut` or `Damaged`."""
    start = at + RECORD_HEADER
    if start > len(data):
        raise Cut("it ends within the head of a record")
    length, crc = _PREFIX.unpack_from(data, at)
    end = start + length
    if end > len(data):
        raise Cut(f"it ends {end - len(data):,} bytes before its last record does")
    if crc32(data[at + _PREFIX.size : end]) != crc:
        raise Damaged("the checksum of a record is wrong")
    kind, term, owner = _HEAD.unpack_from(data, at + _PREFIX.size)
    return Record(kind, owner, _frames(data[start:end]), term), end


class Checker:
    """Looks at records whose bytes come in pieces, from the beginning of one on."""

    def __init__(self) -> None:
        #: bytes of the current record's lengths and checksum that have come, and of what is behind those to come
        self._prefix = b""
        self._left = 0
        self._crc = self._wanted = 0

    @property
    def is_between(self) -> bool:
        """The last record is complete."""
        return not self._prefix

    def take(self, data: Frame) -> int:
        """The next bytes; how many of them belong to records that are complete now. Raises `Damaged`."""
        view, at, whole = memoryview(data), 0, 0
        while at < len(view):
            if len(self._prefix) < _PREFIX.size:
                more = bytes(view[at : at + _PREFIX.size - len(self._prefix)])
                self._prefix, at = self._prefix + more, at + len(more)
                if len(self._prefix) < _PREFIX.size:
                    break
                length, self._wanted = _PREFIX.unpack(self._prefix)
                self._left, self._crc = length + _HEAD.size, 0
            piece = view[at : at + self._left]
            self._crc, self._left, at = crc32(piece, self._crc), self._left - len(piece), at + len(piece)
            if self._left:
                break
            if self._crc != self._wanted:
                raise Damaged("the checksum of a record is wrong")
            self._prefix, whole = b"", at
        return whole


def _frames(data: memoryview) -> tuple[Frame, ...]:
    if len(data) < _COUNT.size:
        raise Damaged("a record has no number of frames")
    (count,) = _COUNT.unpack_from(data)
    begin = _COUNT.size * (count + 1)
    if begin > len(data):
        raise Damaged("a record has fewer frames than it says")
    sizes = struct.unpack_from(f"<{count}I", data, _COUNT.size)
    if begin + sum(sizes) != len(data):
        raise Damaged("the frames of a record don't add up")
    frames = []
    for size in sizes:
        frames.append(data[begin : begin + size])
        begin += size
    return tuple(frames)
