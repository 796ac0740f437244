"""Large arguments that several rows of a map have: each is stored once, and is the very same object in those rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scaler.client.values.remembered import StoredValue
from scaler.client.values.uploads import Uploads
from scaler.protocol.messages import INLINE_LIMIT
from scaler.serialize.payload import SCALARS


class SharedArguments:
    """Of one map, whose items it looks at once."""

    def __init__(self, items: Sequence[Any], spread: bool | None, uploads: Uploads, name: str) -> None:
        """`spread` as in `MapSender.send`; `name` is the function's.

        Blocks while values are written. Raises `SerializationError`, `StoreFull`, `ConnectionFailed`.
        """
        #: by the `id()` of the argument, which the items keep
        self._stored: dict[int, StoredValue] = {}
        for value in _repeated(_arguments_in(items, spread)):
            stored = uploads.keep_large(value, f"an argument of {name}")
            if stored is not None:
                self._stored[id(value)] = stored

    def in_row(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row's arguments, with what is stored in the place of those that are."""
        return tuple([self._stored.get(id(value), value) for value in args])

    def are_in(self, rows: Iterable[Any], spread: bool) -> bool:
        """Whether any of these rows has one."""
        return bool(self._stored) and any(id(value) in self._stored for value in _arguments_in(rows, spread))


def _arguments_in(items: Iterable[Any], spread: bool | None) -> Iterable[Any]:
    for item in items:
        if spread or type(item) is not tuple:
            yield item
        else:
            yield from item


def _repeated(values: Iterable[Any]) -> list[Any]:
    """Those that are there several times and may be large, each once."""
    seen: set[int] = set()
    repeated: dict[int, Any] = {}
    for value in values:
        kind = type(value)
        if kind not in SCALARS or ((kind is str or kind is bytes) and len(value) >= INLINE_LIMIT):
            if id(value) in seen:
                repeated[id(value)] = value
            else:
                seen.add(id(value))
    return list(repeated.values())
