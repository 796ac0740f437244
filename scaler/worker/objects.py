"""The objects this worker was given, and what they were decoded to."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from scaler.serialize.call import AnySerializer, decode_function
from scaler.serialize.outofband import unpack
from scaler.serialize.payload import loads
from scaler.serialize.record import encode_error
from scaler.store import ObjectMissing
from scaler.store.segments import open_object
from scaler.worker import context
from scaler.worker.handout import Handout, Key
from scaler.worker.live import LiveValues

Value = TypeVar("Value")


class Failed(Exception):
    """A row has failed, and its error record is made already."""

    def __init__(self, record: bytes) -> None:
        super().__init__()
        self.record = record


def undecodable(what: str, name: str, error: BaseException) -> Failed:
    """Return the failure of rows whose function or arguments raised `error` while they were unpickled."""
    missing = isinstance(error, (ImportError, AttributeError))
    kind = type(error).__qualname__
    text = f"{what} {name} cannot be unpickled on {socket.gethostname()}: {kind}: {error}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        text += f" (install {error.name.partition('.')[0]} there)"
    lines = "".join(traceback.format_exception(error)) if not missing else ""
    return Failed(encode_error("function" if missing else "serialization", kind, text, lines, name))


class Objects:
    """What rows need: bytes by key until they are dropped, values that stayed here, and files in the store.

    Functions, argument lists and lists of results are decoded once. The main thread uses objects; any may drop them.
    """

    def __init__(self, live: LiveValues) -> None:
        self._live = live
        self._bytes: dict[Key, bytes] = {}
        self._functions: dict[Key, tuple[Any, AnySerializer | None]] = {}
        #: lists of arguments, and of results of which rows need elements (builtin scalars, so that sharing is safe)
        self._lists: dict[Key, list[Any]] = {}
        #: how often something was dropped
        self._drops = 0

    def add(self, objects: list[tuple[Key, bytes]]) -> None:
        """Keep objects until they are dropped."""
        self._bytes.update(objects)

    def drop(self, keys: list[Key]) -> None:
        """Forget objects; keys that are not here do not matter. Files stay."""
        self._drops += 1
        for key in keys:
            self._bytes.pop(key, None)
            self._functions.pop(key, None)
            self._lists.pop(key, None)
        self._live.drop(keys)

    def knows(self, handout: Handout) -> bool:
        """Say whether the function has been decoded."""
        return handout.function in self._functions

    def function(self, handout: Handout) -> tuple[Any, AnySerializer | None]:
        """Return (function or list of graph entries, serializer). Raises Failed."""
        return self._decoded(self._functions, handout.function, decode_function, "the function", handout.name)

    def arguments(self, handout: Handout) -> list[Any]:
        """Return the list of argument tuples of a TOGETHER batch. Raises Failed."""
        return self._decoded(self._lists, handout.arguments, unpack, "the arguments of", handout.name)

    def touched(self, handout: Handout) -> None:
        """Decode the arguments anew when they are needed again: a row that failed may have changed its own."""
        if handout.arguments is not None:
            self._lists.pop(handout.arguments, None)

    def values(self, needed: list[tuple[Key, int]], serializer: AnySerializer | None, name: str) -> list[Any]:
        """Return the values of dependencies. Raises Failed.

        Values that stayed here, and elements of result lists, are shared with other rows. The others are fresh: those
        of files use private memory that is not copied unless it is written to. What is needed twice is one value.
        """
        if len(needed) == 1:
            return [self._value(*needed[0], serializer, name)]
        seen: dict[tuple[Key, int], Any] = {}
        for need in needed:
            if need not in seen:
                seen[need] = self._value(*need, serializer, name)
        return [seen[need] for need in needed]

    def _value(self, key: Key, index: int, serializer: AnySerializer | None, name: str) -> Any:
        if index >= 0:
            return self._decoded(self._lists, key, unpack, "an argument of", name)[index]
        try:
            data = self._bytes.get(key)
            if data is not None:
                return loads(data) if serializer is None else serializer.deserialize(data)
            live = self._live.get(key)
            if live is not None:
                return live.value
            inband, buffers = self._parts(key, name)
            return unpack(inband, buffers) if serializer is None else serializer.deserialize(bytes(inband))
        except Failed:
            raise
        except Exception as error:
            raise undecodable("an argument of", name, error) from None

    def _decoded(
        self,
        cache: dict[Key, Value],
        key: Key,
        decode: Callable[[bytes | memoryview, Sequence[memoryview]], Value],
        what: str,
        name: str,
    ) -> Value:
        value = cache.get(key)
        if value is None:
            drops = self._drops
            try:
                data, buffers = self._parts(key, name)
                value = cache[key] = decode(data, buffers)
            except Failed:
                raise
            except Exception as error:
                raise undecodable(what, name, error) from None
            if self._drops != drops:  # it may be what was dropped meanwhile
                cache.pop(key, None)
        return value

    def _parts(self, key: Key, name: str) -> tuple[bytes | memoryview, Sequence[memoryview]]:
        """Return an object's pickle and the buffers beside it, in the memory of its file. Raises Failed, OSError."""
        data = self._bytes.get(key)
        if data is not None:
            return data, ()
        store = context.store()
        if store is not None:
            try:
                stored = open_object(store, key)
                return stored.inband, stored.buffers
            except ObjectMissing:
                pass
        text = f"object {key[1]} of {name} is not on {socket.gethostname()}"
        raise Failed(encode_error("object", "ObjectLost", text, "", name))
