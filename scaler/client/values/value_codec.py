"""How the values of one client become bytes, and bytes values: by pickling, or by the serializer it was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaler.errors import SerializationError
from scaler.serialize import payload as pickling
from scaler.serialize.call import AnySerializer, serialized
from scaler.serialize.outofband import Packed, pack, unpack
from scaler.store.layout import StoredObject


class ValueCodec:
    """Any thread."""

    def __init__(self, serializer: AnySerializer | None) -> None:
        #: the user's; None: values are pickled
        self.serializer = serializer
        #: makes a value of what came in a message
        self.load: Callable[[Any], Any] = pickling.loads if serializer is None else self._deserialize

    def _deserialize(self, data: Any) -> Any:
        assert self.serializer is not None
        return self.serializer.deserialize(bytes(data))

    def pack(self, value: Any) -> Packed:
        """A value by itself, as it is stored. Raises `SerializationError`."""
        if self.serializer is None:
            return pack(value)
        try:
            return Packed(serialized(self.serializer, value), [])
        except Exception as error:
            kind = type(value).__qualname__
            raise SerializationError(f"a {kind} cannot be serialised: {type(error).__name__}: {error}") from error

    def unpack(self, found: StoredObject) -> Any:
        """The value of a stored object."""
        if self.serializer is not None:
            return self.serializer.deserialize(bytes(found.inband))
        return unpack(found.inband, found.buffers)
