"""The arguments of calls as they travel: what is large by itself is stored, and a need of the call.

Small arguments are pickled together. One that takes `INLINE_LIMIT` bytes or more becomes an object of its own, with a
Slot in its place; given again, it is recognised and not sent again. Where there is no store, everything travels inside
the message as far as that may be long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scaler.client.core.task_template import check_size
from scaler.client.values.uploads import Uploads
from scaler.client.values.value_codec import ValueCodec
from scaler.errors import SerializationError
from scaler.protocol.messages import INLINE_LIMIT
from scaler.serialize.call import Slot, encode_call
from scaler.serialize.outofband import pack_large
from scaler.serialize.payload import SCALARS

_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})


class Arguments:
    """Any thread, the I/O thread too."""

    def __init__(self, codec: ValueCodec, uploads: Uploads) -> None:
        self._codec = codec
        self._serializer = codec.serializer
        self._uploads = uploads

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, needs: list[Any], limit: int) -> bytes:
        """The payload of a row; `needs` gets what was stored. `name` is the function's.

        Blocks while a large argument is written. Raises `SerializationError`, `StoreFull`, `ObjectTooLarge`, which name
        the argument, and `ConnectionFailed`.
        """
        size = _size_of((*args, *kwargs.values()) if kwargs else args)
        payload = self._small(args, kwargs, name, size) if size < INLINE_LIMIT else None
        if payload is None:
            args, kwargs = self._take_out(args, kwargs, name, needs)
            payload = encode_call(args, kwargs, self._serializer, name)
            check_size(len(payload), limit, f"the arguments of {name} ")
        return payload

    def _small(self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, size: int) -> bytes | None:
        """The payload if it is small; `size` as far as it is known, else negative."""
        if size >= 0 or self._serializer is not None:
            encoded = encode_call(args, kwargs, self._serializer, name)
            return encoded if len(encoded) < INLINE_LIMIT else None
        try:
            payload = pack_large((args, kwargs), INLINE_LIMIT, b"P")
        except SerializationError:
            return encode_call(args, kwargs, None, name)  # names the argument
        return payload if isinstance(payload, bytes) else None

    def _take_out(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, needs: list[Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        slots: dict[int, Slot] = {}

        def stand_in(place: int | str, value: Any) -> Any:
            slot = slots.get(id(value))
            if slot is not None:
                return slot
            stored = self._uploads.keep_large(value, f"argument {place!r} of {name}")
            if stored is None:
                return value
            slot = slots[id(value)] = Slot(len(needs))
            needs.append(stored)
            return slot

        return (
            tuple([stand_in(place, value) for place, value in enumerate(args)]),
            {key: stand_in(key, value) for key, value in kwargs.items()},
        )


def _size_of(values: Iterable[Any]) -> int:
    """About the bytes that texts and arrays take; negative if there are small values that one has to look into."""
    total, known = 0, True
    for value in values:
        kind = type(value)
        if kind is bytes or kind is str:
            total += len(value)
        elif kind in _CONTAINERS:
            known = False
            if len(value) >= INLINE_LIMIT // 2:  # rarely less than two bytes an item
                total += INLINE_LIMIT
        elif kind not in SCALARS:
            try:
                size = getattr(value, "nbytes", None)
            except Exception:  # of a class with a mind of its own
                size = None
            if type(size) is int:
                total += size
            else:
                known = False
    return total if known or total >= INLINE_LIMIT else -1
