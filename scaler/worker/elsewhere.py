"""Where the functions of rows run, if not in the worker itself: a worker may stand for a process of another engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaler.common.records import record
from scaler.serialize.entry import PortionedEntries
from scaler.serialize.fresh_functions import FreshFunction

#: calls a function with these arguments somewhere else and returns its value; raises what it raises, or Failed
Forward = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

_forward: Forward | None = None


def install(forward: Forward) -> None:
    """Have `forward` call the functions of all rows from now on."""
    global _forward
    _forward = forward


def bound(function: Any) -> Any:
    """Return what is to be called, or of a graph the entries to be run, in the place of those given."""
    forward = _forward
    if forward is None:
        return function
    if isinstance(function, (list, PortionedEntries)):
        return _Entries(function, forward)
    if type(function) is FreshFunction:
        return lambda *args, **kwargs: forward(function.made(), args, kwargs)
    return lambda *args, **kwargs: forward(function, args, kwargs)


@record
class _Entries:
    """Entries that run elsewhere; each is decoded when it is needed."""

    entries: Any
    forward: Forward

    def __getitem__(self, row: int) -> _Entry:
        """That of a row; raises like the entries."""
        return _Entry(self.entries[row], self.forward)


@record
class _Entry:
    """A graph's entry that runs elsewhere."""

    entry: Any
    forward: Forward

    def run(self, values: Any) -> Any:
        """The row's value."""
        return self.forward(self.entry.run, (list(values),), {})
