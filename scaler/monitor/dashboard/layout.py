"""What a page is asked for and what it has: its query, tables in cards, and their cells. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from scaler.protocol.codes import MAX_NAME

#: rows of a table that are on a page: more would be neither read nor sent
PART_ROWS = 50
#: characters of a text in a query, at most: a link has a whole name
_LONGEST = MAX_NAME


@dataclass(frozen=True)
class Column:
    """A column of a table. A bar's cells are shares of a whole, as "name:percent,..."."""

    key: str
    #: what it means, shown when the pointer rests on its title
    hint: str = ""
    #: text, tail (a text of which the end is kept where there is no room for all), number or bar
    kind: str = "text"
    #: the table can be sorted by it
    is_sortable: bool = False
    #: of a bar: what its cells are shares of, in the order of its colours
    shares: tuple[str, ...] = ()


@dataclass(frozen=True)
class Card:
    """A table whose cells come as they change, in a source of the same name; what a cell links to is in KEY_link."""

    name: str
    title: str
    columns: tuple[Column, ...]
    #: shown instead of rows when there are none
    empty: str = ""
    #: names and values without a head, in a small card
    is_pairs: bool = False
    #: such pairs, of which the values are lines of text
    is_lines: bool = False


@dataclass(frozen=True)
class View:
    """What a page was asked to show."""

    page: str = ""
    #: the column that the table is sorted by, largest first unless `is_upwards`; its own choice if empty
    sort: str = ""
    is_upwards: bool = False
    #: which part of the table is shown, from 1
    part: int = 1
    #: a text that rows have to hold
    find: str = ""
    #: the client whose functions are shown; 0 for all
    client: int = 0
    #: what the heat map shows
    by: str = "cpu"
    theme: str = "light"

    @classmethod
    def of(cls, page: str, arguments: Mapping[str, Sequence[bytes]]) -> View:
        """From a query; what is wrong in it counts as not said."""
        said = {name: values[-1].decode("utf-8", "replace")[:_LONGEST] for name, values in arguments.items() if values}
        theme = "dark" if said.get("theme") == "dark" else "light"
        return cls(
            page, said.get("sort", ""), said.get("up") == "1", max(1, _number(said.get("part", ""))),
            said.get("find", "").strip(), _number(said.get("client", "")), said.get("by", "") or "cpu", theme,
        )  # fmt: skip

    def link(self, page: str | None = None, **changes: object) -> str:
        """The address of a page, relative: of this one with these changes if none is named.

        >>> View("workers", sort="rss").link(part=2), View("workers").link("agents"), View("agents").link("")
        ('workers?sort=rss&part=2', 'agents', './')
        """
        query: dict[str, object] = {}
        if page is None:
            page = self.page
            query = {
                "sort": self.sort, "up": "1" if self.is_upwards else "", "part": self.part if self.part > 1 else "",
                "find": self.find, "client": self.client or "", "by": self.by if self.by != "cpu" else "",
            }  # fmt: skip
        kept = {name: value for name, value in (query | changes).items() if value not in ("", None)}
        return (page or "./") + (f"?{urlencode(kept)}" if kept else "")


@dataclass(frozen=True)
class Shown:
    """What a page has at one moment."""

    #: cells of each table, a column for each figure, and beside it KEY_link
    tables: dict[str, dict[str, list[str]]]
    #: what is said beside the title of a table
    notes: dict[str, str] = field(default_factory=dict)
    #: into how many parts the page's long table is divided
    parts: int = 1


def part_of(count: int, view: View) -> tuple[int, int, int]:
    """Of so many rows the first that is shown, the one behind the last, and how many parts there are.

    >>> part_of(120, View(part=3)), part_of(0, View()), part_of(10, View(part=9))
    ((100, 120, 3), (0, 0, 1), (0, 10, 1))
    """
    parts = max(1, -(-count // PART_ROWS))
    first = PART_ROWS * (min(view.part, parts) - 1)
    return first, min(count, first + PART_ROWS), parts


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
