"""What somebody at a terminal looks at, and what keys make of it: pure, without a terminal.

A key comes with its name ("down", "slash", "c") and with the character that it types, if it types one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from scaler.monitor.snapshot import Snapshot
from scaler.monitor.tables import TABLES, Column, Table, worker_at
from scaler.monitor.worker_table import WORKERS

#: what `press` answers when it is time to go
QUIT = "quit"
#: the longest text to filter by
_LONGEST = 200
_NO_ROWS: list[int] = []


@dataclass
class Looking:
    """One user's view: a table with its order, what is chosen in it, and the page over it if one is open."""

    table: Table = WORKERS
    #: only rows whose names hold this
    text: str = ""
    #: the text is being typed
    is_typing: bool = False
    #: the keys are explained
    is_help: bool = False
    #: the worker whose page is open, as snapshots call it; empty if none is
    worker: str = ""
    #: the chosen row and the first one that is shown, counted from the first of the order
    cursor: int = 0
    first: int = 0
    #: how many lines of the help are above the screen
    scroll: int = 0
    #: how many rows fit
    room: int = 1
    #: for each table by its name: the column that it is sorted by, and whether the smallest come first
    orders: dict[str, tuple[str, bool]] = field(default_factory=dict)
    #: of what `_order` is the order
    _of: tuple[object, ...] = ()
    _order: list[int] = field(default_factory=list)

    @property
    def by(self) -> str:
        """The name of the column that the table is sorted by."""
        return self.orders.get(self.table.name, (self.table.order, False))[0]

    @property
    def is_upwards(self) -> bool:
        """The smallest come first."""
        return self.orders.get(self.table.name, (self.table.order, False))[1]

    def order(self, snapshot: Snapshot | None) -> list[int]:
        """The rows of the table, as they are sorted and filtered; sorted again only when something has changed."""
        if snapshot is None:
            return _NO_ROWS
        of = (snapshot, self.table, self.by, self.is_upwards, self.text)
        if len(of) != len(self._of) or any(a is not b for a, b in zip(of, self._of, strict=True)):
            self._of = of
            self._order = self.table.sorted(snapshot, self.by, upwards=self.is_upwards, text=self.text)
        return self._order

    def fit(self, rows: int, room: int) -> range:
        """There are so many rows, of which so many fit: which of them are shown. The chosen one is among them."""
        self.room = max(1, room)
        self.cursor = max(0, min(self.cursor, rows - 1))
        self.first = max(0, min(self.first, self.cursor, rows - self.room))
        self.first = max(self.first, self.cursor - self.room + 1)
        return range(self.first, min(rows, self.first + self.room))

    def press(self, key: str, character: str | None, snapshot: Snapshot | None) -> str:
        """What a key does; `QUIT` if the user wants to go."""
        if self.is_typing:
            self._type(key, character)
        elif character == "Q" or key in ("ctrl+c", "ctrl+q"):
            return QUIT
        elif key in _MOVES:
            self.move(_MOVES[key](self))
        elif key == "escape":
            self._back()
        elif character == "?" or key == "f1":
            self.is_help, self.worker = not self.is_help, ""
        elif character == "/":
            self.is_typing, self.is_help, self.worker = True, False, ""
        elif character is not None and character.isascii() and character.isdigit():
            self.show(int(character) - 1)
        elif key in ("tab", "shift+tab"):
            self.show((TABLES.index(self.table) + (1 if key == "tab" else -1)) % len(TABLES))
        elif key == "enter":
            self._open(snapshot)
        elif character is not None and not self.worker:
            self._sort(character)
        return ""

    def move(self, rows: int) -> None:
        """Choose another row; in the help, another line."""
        if self.is_help:
            self.scroll = max(0, self.scroll + rows)
        else:
            self.cursor = max(0, self.cursor + rows)

    def show(self, number: int, text: str = "") -> None:
        """Another table."""
        if 0 <= number < len(TABLES):
            self.table, self.text = TABLES[number], text
            self.cursor = self.first = 0
            self.is_help, self.worker = False, ""

    def sort(self, column: Column) -> None:
        """By this column: largest first, texts from a to z; the other way round if it is sorted so already."""
        upwards = column.is_text
        if self.by == column.name:
            upwards = not self.is_upwards
        self.orders[self.table.name] = (column.name, upwards)
        self.cursor = self.first = 0

    def _sort(self, character: str) -> None:
        for column in self.table.columns:
            if character in column.keys:
                self.sort(column)

    def _type(self, key: str, character: str | None) -> None:
        if key in ("escape", "ctrl+c"):
            self.is_typing, self.text = False, ""
        elif key == "enter":
            self.is_typing = False
        elif key == "backspace":
            self.text = self.text[:-1]
        elif key == "ctrl+u":
            self.text = ""
        elif character is not None and character.isprintable():
            self.text = (self.text + character)[:_LONGEST]
        self.cursor = self.first = 0

    def _back(self) -> None:
        """One step: out of a page, or to all rows."""
        if self.is_help or self.worker:
            self.is_help, self.worker = False, ""
        elif self.text:
            self.text, self.cursor, self.first = "", 0, 0

    def _open(self, snapshot: Snapshot | None) -> None:
        """What is behind the chosen row: a worker's page, or the workers of a host, or those that run a function."""
        order = self.order(snapshot)
        if snapshot is None or self.worker or self.is_help or not self.cursor < len(order):
            return
        row = order[self.cursor]
        if self.table is WORKERS:
            self.worker = snapshot.worker_id(row)
        elif self.table.name == "agents":
            name, number = snapshot.agents.names[row], snapshot.agents.numbers[row]
            self.show(0, name if snapshot.agents.names.count(name) == 1 else f"{number}.")
        elif self.table.name == "functions" and snapshot.functions.clients[row]:  # not all others together
            self.show(0, snapshot.functions.names[row])

    def worker_in(self, snapshot: Snapshot) -> int | None:
        """The index of the worker whose page is open; None if it is gone."""
        return worker_at(snapshot, self.worker)


_MOVES: dict[str, Callable[[Looking], int]] = {
    "up": lambda looking: -1,
    "down": lambda looking: 1,
    "pageup": lambda looking: -looking.room,
    "pagedown": lambda looking: looking.room,
    "home": lambda looking: -looking.cursor,
    "end": lambda looking: 1 << 40,
}
