"""All that stores, and clients without one, say to each other: one struct a message, and an object's bytes behind it.

    one that asks                                       one that has
    HELLO   (address where it can be asked, too)
    READ    key, offset ("referred"; other stores)      CHUNK key, offset, size, tag; bytes
                                                        ELSEWHERE key, offset; address
                                                        MISSING key, offset; reason
                                                        WAIT key: it is being made ready, be patient
    DONE    key: I have all of it
    BEGIN   key, size, tag                              TAKEN key, bytes that are here (all: it is complete)
    PIECE   key, offset; bytes                          TAKEN
                                                        FULL key, bytes wanted, free, in all or of a file; path
                                                        REFUSED key; reason

An object's file is read in chunks of 1 MiB. Every READ says how many answers have arrived on this connection, so that
whoever answers knows how many are under way; more than were sent can't have. Size and tag are those of the file: pieces
of different versions are never mixed. What isn't one of these messages ends the connection.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from scaler.errors import ProtocolError
from scaler.store.layout import Key

VERSION = 1
#: bytes in a chunk; the last one of an object may have less
CHUNK = 1 << 20
#: what people can do where no store listens that is said to
IF_REFUSED = "its agent has ended, or a firewall lets nobody reach the port, which --store-port can fix"
#: seconds for which a store may say WAIT of one object: longer than an honest one does, see `serving`
LONGEST_WAIT = 60.0
#: a READ that a store was named for: it answers by itself
REFERRED = 1
#: the stores that a READ lists are the only ones to be named; without this flag: those not to be named
ONLY = 2
#: the number of a FULL is of the bytes that the store's process may write to a file, which are too few
LIMITED = 4

_HEADER = Struct("<BB6xQQQQQ")
_MAX_TEXT = 1 << 16
_MAX_SIZE = 1 << 62
_MAX_PIECES = 64


class Kind(IntEnum):
    """Of a message."""

    HELLO = 1
    READ = 2
    CHUNK = 3
    ELSEWHERE = 4
    MISSING = 5
    WAIT = 6
    DONE = 7
    BEGIN = 8
    PIECE = 9
    TAKEN = 10
    FULL = 11
    REFUSED = 12


class Note(NamedTuple):
    """One message."""

    kind: Kind
    key: Key = (0, 0)
    #: bytes; the version in a HELLO
    offset: int = 0
    #: bytes of the object's file
    size: int = 0
    #: READ: answers that have arrived on this connection; CHUNK, BEGIN: the object's tag; FULL: bytes of the whole file
    #: system, 0 if they are not known, or of a file, at most
    number: int = 0
    flags: int = 0
    #: an address, a reason, or addresses, one a line
    text: str = ""
    #: bytes of a chunk or piece
    data: Sequence[bytes | memoryview] = ()


_WITH_DATA = (Kind.CHUNK, Kind.PIECE)
_FROM_ASKING = (Kind.HELLO, Kind.READ, Kind.DONE, Kind.BEGIN, Kind.PIECE)


def pack(note: Note) -> list[bytes | memoryview]:
    """The frames of a message."""
    head = _HEADER.pack(note.kind, note.flags, *note.key, note.offset, note.size, note.number)
    if note.kind in _WITH_DATA:
        return [head, *note.data]
    return [head, note.text.encode()] if note.text else [head]


def unpack(frames: Sequence[bytes | memoryview], *, asking: bool) -> Note:
    """The message in these frames, from one that asks, or from one that answers. Raises `ProtocolError`."""
    try:
        code, flags, client, object_id, offset, size, number = _HEADER.unpack(frames[0])
        kind = Kind(code)
        if (kind in _FROM_ASKING) != asking or max(offset, size) > _MAX_SIZE:
            raise ProtocolError(f"a store said {kind.name} with {offset}, {size}")
        text, data = "", frames[1:]
        if kind in _WITH_DATA:
            length = sum(map(len, data))
            if not 0 < length <= CHUNK or offset + length > size or len(data) > _MAX_PIECES:
                raise ProtocolError(f"a store sent {length} bytes at {offset} of {size}")
        else:
            if len(data) > 1 or len(b"".join(data)) > _MAX_TEXT:
                raise ProtocolError(f"a store said {kind.name} with {len(data)} frames")
            text, data = str(b"".join(data), "utf-8"), ()
    except (error, ValueError, IndexError) as caught:
        if isinstance(caught, ProtocolError):
            raise
        raise ProtocolError(f"a store sent bytes that are no message: {caught}") from None
    return Note(kind, (client, object_id), offset, size, number, flags, text, data)


def chunks_of(size: int) -> int:
    """How many chunks a file of `size` bytes has."""
    return -(-size // CHUNK)
