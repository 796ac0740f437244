"""Error records: why a row has no value, in a form that every language reads.

All numbers are little-endian; a text is u32 bytes of UTF-8 behind their number.

    u8      VERSION of this layout
    u8      kind: `ErrorKind`
    u8      how the exception is encoded: `Encoding`, or OMITTED
    text    type name of the exception, for people; message; traceback; name of the function
    u32     and as many bytes: the exception, opaque but to those who know its encoding; none if it could not travel;
            if it was omitted, as it is too large, the bytes that it takes, u64
    u32     number of notes, and for each a text

The texts say all there is to say, so a record is understood without the exception itself, which is left to clients.
Whoever makes a record keeps to `largest_exception`, and texts are cut: so each fits into a message, whatever its limit.
"""

from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple, Self

from scaler.errors import ProtocolError
from scaler.protocol.codes import Encoding

VERSION = 1

#: the encoding of an exception that is too large to be brought
OMITTED = 255
#: bytes that an exception may take in any message, and in one that is large enough
SMALL_EXCEPTION, LARGEST_EXCEPTION = 1 << 19, 8 << 20
#: characters that are kept of a text, and of a name
LONGEST_TEXT, LONGEST_NAME = 1 << 15, 1000

#: characters of what says that a text was cut, at most
_CUT = 64

_HEAD = Struct("<BBB")
_OMITTED = Struct("<Q")
_SIZE = Struct("<I")


class ErrorKind(IntEnum):
    """What kept a row from a value."""

    #: its function raised an exception, which comes with the record if it can be encoded
    RAISED = 0
    #: its worker died, too often
    LOST = 1
    #: it ran longer than its timeout
    TIMEOUT = 2
    #: its function, an argument or its result cannot be encoded or decoded
    SERIALIZATION = 3
    #: its function is not importable where it was to run
    FUNCTION = 4
    #: an object that it needs is gone
    OBJECT = 5
    #: its result is larger than a message can be
    SIZE = 6
    #: its worker took more memory than it may
    MEMORY = 7
    #: there is no room for its result
    FULL = 8
    #: something that it depends on was cancelled
    CANCELLED = 9
    #: no worker could start where it was to run: what each is to call first has failed, or a limit is reached
    PRELOAD = 10


def kind_of(record: bytes | memoryview) -> int:
    """The kind that an error record names, 255 if these bytes are none."""
    return record[1] if len(record) >= _HEAD.size and record[0] == VERSION else 255


class ErrorRecord(NamedTuple):
    """Why a row has no value."""

    #: an `ErrorKind`, or one of a later version
    kind: int
    message: str = ""
    #: name of the function that the row called
    function: str = ""
    #: qualified name of the exception's class
    type_name: str = ""
    traceback: str = ""
    #: the exception itself, empty if it can't travel
    exception: bytes = b""
    #: how that is encoded, an `Encoding`, or OMITTED
    encoding: int = Encoding.PICKLE.value
    #: what else there is to know, say what happened to the row; each is shown below the error
    notes: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """The record as bytes; what of a text is no UTF-8 is written as escapes, and long ones are cut."""
        parts = [_HEAD.pack(VERSION, self.kind, self.encoding)]
        _put(parts, _encoded(self.type_name, LONGEST_NAME))
        _put(parts, _encoded(self.message))
        _put(parts, _encoded(self.traceback))
        _put(parts, _encoded(self.function, LONGEST_NAME))
        _put(parts, self.exception)
        parts.append(_SIZE.pack(len(self.notes)))
        for note in self.notes:
            _put(parts, _encoded(note))
        return b"".join(parts)

    @classmethod
    def decode(cls, record: bytes | memoryview) -> Self:
        """The record in these bytes, ProtocolError if they hold none."""
        data = bytes(record)
        try:
            version, kind, encoding = _HEAD.unpack_from(data)
            if version != VERSION:
                raise ProtocolError(f"an error record of version {version}; this is version {VERSION}")
            at, parts = _HEAD.size, []
            for _ in range(5):
                part, at = _get(data, at)
                parts.append(part)
            (count,) = _SIZE.unpack_from(data, at)
            at += _SIZE.size
            notes = []
            for _ in range(count):
                note, at = _get(data, at)
                notes.append(note.decode())
            exception = parts.pop()
            type_name, message, traceback, function = (part.decode() for part in parts)
        except (error, UnicodeDecodeError) as problem:
            raise ProtocolError(f"no error record: {problem}") from None
        if at != len(data):
            raise ProtocolError(f"no error record: {len(data) - at} bytes behind it")
        return cls(kind, message, function, type_name, traceback, exception, encoding, tuple(notes))

    def with_note(self, note: str) -> Self:
        """The same with one more note."""
        return self._replace(notes=(*self.notes, note))

    def with_exception(self, encoded: bytes, most: int = SMALL_EXCEPTION) -> Self:
        """The same with the exception itself, or with the bytes that it takes if those are more than that."""
        if len(encoded) <= most:
            return self._replace(exception=encoded)
        return self._replace(exception=_OMITTED.pack(len(encoded)), encoding=OMITTED)

    @property
    def omitted(self) -> int:
        """The bytes that an exception takes which is too large to be here; 0: that is not so."""
        is_omitted = self.encoding == OMITTED and len(self.exception) == _OMITTED.size
        return int(_OMITTED.unpack(self.exception)[0]) if is_omitted else 0


def largest_exception(limit: int) -> int:
    """How many bytes an exception may take where a message may have `limit` bytes.

    >>> largest_exception(1 << 16), largest_exception(1 << 22), largest_exception(1 << 30)
    (524288, 2097152, 8388608)
    """
    return max(SMALL_EXCEPTION, min(limit // 2, LARGEST_EXCEPTION))


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text, or its beginning and its end if it has more characters than `longest`, which are not few.

    >>> cut("a" * 500 + "b" * 500, 70)
    'aaa\\n... 994 characters are left out ...\\nbbb'
    """
    if len(text) <= longest:
        return text
    half = (longest - _CUT) // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters are left out ...\n{text[-half:]}"


def _encoded(text: str, longest: int = LONGEST_TEXT) -> bytes:
    return cut(text, longest).encode("utf-8", "backslashreplace")


def _put(parts: list[bytes], data: bytes) -> None:
    parts.append(_SIZE.pack(len(data)))
    parts.append(data)


def _get(data: bytes, at: int) -> tuple[bytes, int]:
    """What is at a place behind its size, and the place behind it."""
    (size,) = _SIZE.unpack_from(data, at)
    start = at + _SIZE.size
    if size > len(data) - start:
        raise ProtocolError("no error record: it is cut short")
    return data[start : start + size], start + size
