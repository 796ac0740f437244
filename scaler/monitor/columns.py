"""What a table of a screen is made of: columns that know their value for one row and for all, and how it is written.

Sorting 64,000 workers reads one column; drawing 30 of them reads 30 cells of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from scaler.monitor.formats import UNKNOWN, clipped, inert
from scaler.monitor.snapshot import Snapshot
from scaler.protocol.codes import AgentFlag

#: the value of a figure that nobody has told yet: sorts below all others
UNTOLD = -1


@dataclass(frozen=True)
class Column:
    """One figure of each row of a table."""

    #: its heading
    name: str
    #: the keys that sort by it: the first is shown
    keys: str
    #: its value for one row, and for all of them: numbers, or texts
    at: Callable[[Snapshot, int], Any]
    all: Callable[[Snapshot], Sequence[Any]]
    #: how a value is written
    form: Callable[[Any], str]
    #: what it means, in one line
    help: str
    #: the least room it takes, in columns of a terminal
    room: int = 4
    #: how its text is made to fit into less room than it needs
    shorten: Callable[[str, int], str] = clipped
    #: which go first when there is no room for all: those of the largest number
    rank: int = 0

    @property
    def is_text(self) -> bool:
        """It stands at the left of its place, and sorts upwards."""
        return self.form is inert


@dataclass(frozen=True)
class Table:
    """Rows of one kind."""

    name: str
    columns: tuple[Column, ...]
    #: the name of the column that it is sorted by unless something else is asked for
    order: str
    length: Callable[[Snapshot], int]
    #: what a row is called for as long as it exists
    identity: Callable[[Snapshot, int], str]
    #: rows of which a name holds a text, which is in small letters
    matching: Callable[[Snapshot, str], list[int]]

    def column(self, name: str) -> Column:
        """By its name. Raises `KeyError`."""
        return {column.name: column for column in self.columns}[name]

    def rows(self, snapshot: Snapshot, indices: Iterable[int] | None = None) -> list[tuple[str, ...]]:
        """The cells of some rows, or of all."""
        chosen = range(self.length(snapshot)) if indices is None else indices
        return [tuple([column.form(column.at(snapshot, row)) for column in self.columns]) for row in chosen]

    def sorted(self, snapshot: Snapshot, by: str = "", *, upwards: bool = False, text: str = "") -> list[int]:
        """The indices of rows whose names hold a text, largest first, or smallest; equals stay in their order."""
        rows: Iterable[int] = range(self.length(snapshot))
        if text:
            rows = self.matching(snapshot, text.casefold())
        values = self.column(by or self.order).all(snapshot)
        return sorted(rows, key=values.__getitem__, reverse=not upwards)


def plain(name: str, keys: str, path: str, form: Callable[[Any], str], help: str, **more: Any) -> Column:
    """A column that the snapshot has as it is."""
    values = attrgetter(path)
    return Column(name, keys, lambda snapshot, row: values(snapshot)[row], values, form, help, **more)


def made(
    name: str, keys: str, at: Callable[[Snapshot, int], Any], length: Callable[[Snapshot], int],
    form: Callable[[Any], str], help: str, **more: Any,
) -> Column:  # fmt: skip
    """A column of values that are made row by row."""
    return Column(
        name, keys, at, lambda snapshot: [at(snapshot, row) for row in range(length(snapshot))], form, help, **more
    )


def of_agent(name: str, keys: str, path: str, form: Callable[[Any], str], help: str, **more: Any) -> Column:
    """A figure of agents, for each of their workers."""
    values = attrgetter(path)

    def all_of(snapshot: Snapshot) -> Sequence[Any]:
        column = values(snapshot)
        return [column[agent] for agent in snapshot.agent_of_worker]

    return Column(
        name, keys, lambda snapshot, row: values(snapshot)[snapshot.agent_of_worker[row]], all_of, form, help, **more
    )


def told(name: str, keys: str, path: str, form: Callable[[Any], str], help: str, **more: Any) -> Column:
    """A figure of agents that is not known before they have reported."""
    values = attrgetter(path)

    def at(snapshot: Snapshot, row: int) -> Any:
        return values(snapshot)[row] if snapshot.agents.flags[row] & AgentFlag.REPORTED else UNTOLD

    def written(value: Any) -> str:
        return UNKNOWN if value == UNTOLD else form(value)

    return made(name, keys, at, lambda snapshot: len(snapshot.agents), written, help, **more)
