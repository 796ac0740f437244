"""Pickles whose large buffers stay where they are: arrays, Arrow tables, tensors and bytes are not copied into them.

A value is *packed* to an in-band pickle and the raw buffers that belong to it (PEP 574). Whoever writes it somewhere
writes the buffers straight from the value's own memory; whoever reads it lends the reader's memory to the new value.
"""

import io
import pickle
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from scaler.serialize.payload import PROTOCOL, ReferencePickler, StatelessPickler, ValuePickler, dumps, refusal
from scaler.serialize.script_names import ScriptNames, tried

#: smaller buffers are copied into the pickle: each of the others has an entry in a table and an aligned place
SMALL = 8_192

_BYTES = frozenset({bytes, bytearray})


class Packed(NamedTuple):
    """A value as bytes, in parts."""

    #: the pickle, with the prefix it was asked to have
    inband: bytes
    #: contiguous, format "B"; they keep the value's memory alive, and change with it
    buffers: list[memoryview]

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return len(self.inband) + sum([buffer.nbytes for buffer in self.buffers])


class Incomplete(Packed):
    """A function that names values nothing of which is in it: they can't be pickled."""

    absent: Sequence[Any] = ()


class _Plain:
    """Stands for a bytes or bytearray object, whose pickle would otherwise be a copy of it."""

    def __init__(self, value: bytes | bytearray) -> None:
        self._value = value

    def __reduce__(self) -> tuple[type, tuple[pickle.PickleBuffer]]:
        return type(self._value), (pickle.PickleBuffer(self._value),)


def pack(value: Any, prefix: bytes = b"") -> Packed:
    """Return a value in parts; raise SerializationError where that cannot be.

    >>> inband, buffers = pack(b"x" * 100_000)
    >>> len(inband) < 100, buffers[0].nbytes
    (True, 100000)
    """
    if type(value) in _BYTES and len(value) >= SMALL:
        value = _Plain(value)
    buffers: list[memoryview] = []
    stream = io.BytesIO()
    if prefix:
        stream.write(prefix)
    try:
        # by position, which is faster: fix_imports, buffer_callback
        ReferencePickler(stream, PROTOCOL, True, partial(keep_in, buffers)).dump(value)
    except Exception:
        return _parts_by_value(value, prefix)
    return Packed(stream.getvalue(), buffers)


def pickles_of(values: Iterable[Any]) -> list[bytes] | None:
    """A pickle for each of these values; None if that would repeat what is large, travels by value or has a state."""
    pickles: list[bytes] = []
    buffers: list[memoryview] = []
    stream = io.BytesIO()
    pickler = StatelessPickler(stream, PROTOCOL, True, partial(keep_in, buffers))
    try:
        for value in values:
            pickler.dump(value)
            pickler.clear_memo()
            if buffers or stream.tell() >= SMALL:
                return None
            pickles.append(stream.getvalue())
            stream.seek(0)
            stream.truncate()
    except Exception:
        return None
    return pickles


def pickled_plainly(value: Any, prefix: bytes) -> bytes | None:
    """`prefix` and the pickle of a value; None if something in it travels by value or has a state."""
    stream = io.BytesIO()
    stream.write(prefix)
    try:
        StatelessPickler(stream, PROTOCOL).dump(value)
    except Exception:
        return None
    return stream.getvalue()


def pack_large(value: Any, limit: int, prefix: bytes = b"") -> bytes | Packed:
    """Return a value whose parts take less than `limit` bytes as one pickle, a larger one as `pack` does.

    >>> pack_large([1, 2], 100) == dumps([1, 2])
    True
    """
    packed = pack(value, prefix)
    if not packed.buffers and len(packed.inband) < limit:
        return packed.inband
    return packed if packed.size >= limit else dumps(value, prefix)


def unpack(inband: bytes | memoryview, buffers: Iterable[Any] = ()) -> Any:
    """Return the value; it uses the memory of `buffers`, and can change it if that can be changed."""
    return pickle.loads(inband, buffers=buffers)


def joined(packed: Packed, value: Any) -> bytes:
    """Return one pickle without buffers of a value that is small after all."""
    return dumps(value) if packed.buffers else packed.inband


def _parts_by_value(value: Any, prefix: bytes) -> Packed:
    def dump(names: ScriptNames | None) -> Packed:
        buffers: list[memoryview] = []
        stream = io.BytesIO()
        stream.write(prefix)
        pickler = ValuePickler(stream, PROTOCOL, buffer_callback=partial(keep_in, buffers))
        pickler.names = names
        pickler.dump(value)
        if names is None or not names.absent:
            return Packed(stream.getvalue(), buffers)
        packed = Incomplete(stream.getvalue(), buffers)
        packed.absent = names.absent
        return packed

    try:
        return tried(dump)
    except Exception as error:
        raise refusal(value, error) from error


def keep_in(buffers: list[memoryview], buffer: pickle.PickleBuffer) -> bool:
    """Say whether the buffer is to be copied into the pickle; if not, it is added to `buffers`."""
    try:
        raw = buffer.raw()
    except BufferError:  # not contiguous
        return True
    if raw.nbytes < SMALL:
        return True
    buffers.append(raw)
    return False
