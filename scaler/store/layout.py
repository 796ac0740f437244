"""The form of a file that holds one object, and its name.

    header      64 bytes: magic, format, client, id, length of the in-band part, number of buffers, size, tag
    table       offset and size of each buffer, u64 each
    in-band     the pickle
    buffers     each at a multiple of 64 bytes, large ones at a multiple of 4096 (a page)

The magic is written last: while it is not there, the file is no object. The tag is a random number that all copies
share: a value that was computed twice may have other bytes the second time. All numbers are little endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import TypeAlias

from scaler.store import ObjectMissing

#: names an object: number of the client it belongs to, and id
Key: TypeAlias = tuple[int, int]

MAGIC = b"scalerO\x01"
FORMAT = 1
_HEADER = Struct("<8sQQQQQQQ")
HEADER_BYTES = _HEADER.size
_ENTRY = Struct("<QQ")

_ALIGNMENT = 64
_PAGE = 4096
#: buffers from this size on begin at a page
_LARGE = 1 << 20


def file_name(key: Key) -> str:
    """The name of an object's file in its directory."""
    return f"{key[0]}-{key[1]:x}"


class StoredObject:
    """An object that was read. The memory stays for as long as any of the views does."""

    __slots__ = ("buffers", "inband", "key", "size")

    def __init__(self, key: Key, size: int, inband: memoryview, buffers: list[memoryview]) -> None:
        self.key = key
        #: bytes of the file
        self.size = size
        self.inband = inband
        self.buffers = buffers


def size_of(inband_length: int, buffer_sizes: Sequence[int]) -> int:
    """Bytes of the file for parts of these sizes."""
    end = HEADER_BYTES + _ENTRY.size * len(buffer_sizes) + inband_length
    for size in buffer_sizes:
        end = _aligned(end, size) + size
    return end


def encode(key: Key, tag: int, inband_length: int, buffer_sizes: Sequence[int]) -> tuple[bytes, list[int], int]:
    """Header and table without the magic (8 zero bytes in its place), where each buffer begins, bytes of the file."""
    end = HEADER_BYTES + _ENTRY.size * len(buffer_sizes) + inband_length
    offsets = []
    for size in buffer_sizes:
        offsets.append(_aligned(end, size))
        end = offsets[-1] + size
    header = _HEADER.pack(bytes(8), FORMAT, *key, inband_length, len(buffer_sizes), end, tag)
    table = b"".join(map(_ENTRY.pack, offsets, buffer_sizes))
    return header + table, offsets, end


def check_header(data: bytes | memoryview, key: Key, size: int) -> tuple[int, int]:
    """Length of the in-band part and number of buffers, of a file of `size` bytes that begins with `data`.

    Raises `ObjectMissing` unless it is this object, complete.
    """
    try:
        magic, form, client, number, inband_length, count, expected, _ = _HEADER.unpack_from(data)
    except error:
        raise ObjectMissing(f"the file of {file_name(key)} has no header") from None
    if magic != MAGIC or form != FORMAT:
        raise ObjectMissing(f"the file of {file_name(key)} holds no object")
    if (client, number) != key:
        raise ObjectMissing(f"the file of {file_name(key)} holds {file_name((client, number))}")
    if size != expected or HEADER_BYTES + _ENTRY.size * count + inband_length > size:
        raise ObjectMissing(f"the file of {file_name(key)} is damaged: it says {expected:,} bytes and has {size:,}")
    return inband_length, count


def tag_of(header: bytes | memoryview) -> int:
    """The tag in a header that was checked."""
    return int(_HEADER.unpack_from(header)[-1])


def decode(data: memoryview, key: Key) -> StoredObject:
    """The object in the bytes of a whole file. Raises `ObjectMissing` unless they are this object, complete."""
    size = len(data)
    inband_length, count = check_header(data, key, size)
    start = HEADER_BYTES + _ENTRY.size * count
    end = start + inband_length
    inband = data[start:end]
    buffers = []
    for position in range(HEADER_BYTES, start, _ENTRY.size):
        offset, length = _ENTRY.unpack_from(data, position)
        if offset < end or offset + length > size:
            raise ObjectMissing(f"the file of {file_name(key)} is damaged: a buffer lies outside")
        end = offset + length
        buffers.append(data[offset:end])
    return StoredObject(key, size, inband, buffers)


def _aligned(position: int, size: int) -> int:
    step = _PAGE if size >= _LARGE else _ALIGNMENT
    return -(-position // step) * step
