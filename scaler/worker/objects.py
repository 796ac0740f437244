"""The objects this worker was given, and what they were decoded to."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from scaler.serialize import payload
from scaler.serialize.call import AnySerializer, decode_function
from scaler.serialize.record import encode_error
from scaler.worker.handout import Handout, Key

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
    """Bytes by key until they are dropped; functions, argument lists and lists of results also decoded, once."""

    def __init__(self) -> None:
        self._bytes: dict[Key, bytes] = {}
        self._functions: dict[Key, tuple[Any, AnySerializer | None]] = {}
        #: lists of arguments, and of results of which rows need elements (builtin scalars, so that sharing is safe)
        self._lists: dict[Key, list[Any]] = {}

    def add(self, objects: list[tuple[Key, bytes]]) -> None:
        """Keep objects until they are dropped."""
        self._bytes.update(objects)

    def drop(self, keys: list[Key]) -> None:
        """Forget objects; keys that are not here do not matter."""
        for key in keys:
            self._bytes.pop(key, None)
            self._functions.pop(key, None)
            self._lists.pop(key, None)

    def knows(self, handout: Handout) -> bool:
        """Say whether the function has been decoded."""
        return handout.function in self._functions

    def function(self, handout: Handout) -> tuple[Any, AnySerializer | None]:
        """Return (function or list of graph entries, serializer). Raises Failed."""
        return self._decoded(self._functions, handout.function, decode_function, "the function", handout.name)

    def arguments(self, handout: Handout) -> list[Any]:
        """Return the list of argument tuples of a TOGETHER batch. Raises Failed."""
        return self._decoded(self._lists, handout.arguments, payload.loads, "the arguments of", handout.name)

    def touched(self, handout: Handout) -> None:
        """Decode the arguments anew when they are needed again: a row that failed may have changed its own."""
        if handout.arguments is not None:
            self._lists.pop(handout.arguments, None)

    def values(self, needed: list[tuple[Key, int]], serializer: AnySerializer | None, name: str) -> list[Any]:
        """Return the values of dependencies: fresh copies, except elements of result lists. Raises Failed."""
        values = []
        for key, index in needed:
            if index >= 0:
                values.append(self._decoded(self._lists, key, payload.loads, "an argument of", name)[index])
                continue
            try:
                data = self._here(key, name)
                values.append(payload.loads(data) if serializer is None else serializer.deserialize(data))
            except Failed:
                raise
            except Exception as error:
                raise undecodable("an argument of", name, error) from None
        return values

    def _decoded(
        self, cache: dict[Key, Value], key: Key, decode: Callable[[bytes], Value], what: str, name: str
    ) -> Value:
        value = cache.get(key)
        if value is None:
            data = self._here(key, name)
            try:
                value = cache[key] = decode(data)
            except Exception as error:
                raise undecodable(what, name, error) from None
        return value

    def _here(self, key: Key, name: str) -> bytes:
        try:
            return self._bytes[key]
        except KeyError:
            text = f"object {key[1]} of {name} is not on {socket.gethostname()}"
            raise Failed(encode_error("object", "ObjectLost", text, "", name)) from None
