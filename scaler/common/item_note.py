"""A note for the error of one item of a map: which one it was, and what it looked like."""

from __future__ import annotations

import reprlib
from typing import Any

#: characters of an item that are shown, about
SHOWN = 100


class _Short(reprlib.Repr):
    """Short texts of objects, in short time as far as they are builtin ones."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = SHOWN

    def repr_bytes(self, value: bytes | bytearray, level: int) -> str:
        return repr(value) if len(value) <= SHOWN else f"{value[:SHOWN]!r}..."

    repr_bytearray = repr_bytes


_short = _Short()


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
