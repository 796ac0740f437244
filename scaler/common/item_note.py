"""A note for the error of one item of a map: which one it was, and what it looked like."""

from __future__ import annotations

import contextlib
import reprlib
from typing import Any

#: characters of an item that are shown, about
SHOWN = 100
#: bytes of an item that is not kept for the sake of its note
LARGE = 1 << 16
_TEXTS = frozenset({str, bytes, bytearray})


class _Short(reprlib.Repr):
    """Short texts of objects, in short time as far as they are builtin ones."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = SHOWN

    def repr_bytes(self, value: bytes | bytearray, level: int) -> str:
        return repr(value) if len(value) <= SHOWN else f"{value[:SHOWN]!r}..."

    repr_bytearray = repr_bytes


_short = _Short()


class _Looks:
    """In the place of an item: what it looked like."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def kept_for_note(item: Any) -> Any:
    """What to keep of an item until it may have to be noted: itself, or what a large text or array looked like.

    >>> kept_for_note("short"), kept_for_note(b"x" * 100_000)
    ('short', <a bytes of 100,000>)
    """
    kind = type(item)
    if kind in _TEXTS:
        return _Looks(f"<a {kind.__name__} of {len(item):,}>") if len(item) >= LARGE else item
    if hasattr(kind, "nbytes"):
        with contextlib.suppress(Exception):  # of a class with a mind of its own
            if item.nbytes >= LARGE:  # its elements are not looked at, which may take long
                return _Looks(f"<a {kind.__qualname__} of shape {tuple(item.shape)}>")
    return item


def note_item(error: BaseException, index: int, item: Any) -> None:
    """Add a note to an error that says for which item of a map it was raised. Whatever the item does, raises nothing.

    >>> error = ValueError("too large")
    >>> note_item(error, 17, (3, "x" * 1000))
    >>> error.__notes__[0][:50]
    "while mapping item [17]: (3, 'xxxxxxxxxxxxxxxxxxxx"
    """
    try:
        shown = " ".join(_short.repr(item).split())
        shown = shown if len(shown) <= 2 * SHOWN else f"{shown[: 2 * SHOWN]}..."
    except BaseException:  # whatever the user's class raises
        shown = f"<a {type(item).__qualname__}>"
    try:
        error.add_note(f"while mapping item [{index}]: {shown}")
    except Exception:  # the error matters more than its note
        pass
