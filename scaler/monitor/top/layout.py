"""Fitting blocks and tables into the columns of a terminal. Pure: texts with the names of their styles come out.

A line is a list of spans, each a text and the name of its style; `app` knows what styles look like.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaler.monitor.blocks import Block
from scaler.monitor.columns import Column
from scaler.monitor.formats import ending, padded, width

Span = tuple[str, str]
Line = list[Span]

PLAIN, TITLE, DIM, HEAD, CHOSEN, SORTED, ALERT, RULE = (
    "plain", "title", "dim", "head", "chosen", "sorted", "alert", "rule",
)  # fmt: skip
BETWEEN = " | "
#: the least room for a value in a block: blocks keep their places while counters are small
_VALUE = 6


def plain_text(line: Line) -> str:
    """A line without its styles."""
    return "".join(text for text, _ in line)


def fitted(line: Line, columns: int) -> Line:
    """A line in exactly so many columns."""
    out: Line = []
    left = columns
    for text, style in line:
        if left <= 0:
            break
        taken = width(text)
        out.append((text, style) if taken <= left else (padded(text, left, left=True), style))
        left -= min(taken, left)
    return [*out, (" " * left, PLAIN)] if left > 0 else out


def block_lines(block: Block, height: int) -> list[Line]:
    """A block: its title, and so many lines of names and values, in several columns if they don't fit in one."""
    per_column = max(1, min(height, len(block.lines)))
    parts = [block.lines[at : at + per_column] for at in range(0, len(block.lines), per_column)] or [()]
    columns = []
    for number, part in enumerate(parts):
        title = block.title if number == 0 else ""
        names = max([len(title), *(width(name) for name, _ in part)])
        values = max([_VALUE, *(width(value) for _, value in part)])
        lines: list[Line] = [[(padded(title, names), TITLE), (" " * (values + 1), PLAIN)]]
        lines += [[(padded(name, names), PLAIN), (" " + padded(value, values), HEAD)] for name, value in part]
        columns.append(_filled(lines, per_column + 1))
    between: Span = ("  ", PLAIN)
    return [
        [span for n, line in enumerate(row) for span in ([between] if n else []) + line]
        for row in zip(*columns, strict=True)
    ]


def side_by_side(blocks: Sequence[Block], columns: int, height: int, whole: int) -> list[Line]:
    """Blocks beside each other, the first ones that fit, with lines between them.

    The first `whole` are shown with all that they have; others are cut to so many lines where one of those behind them
    would have no room.
    """
    shown: list[list[Line]] = []
    left = columns + len(BETWEEN)
    cut = [block_lines(Block(block.title, block.lines[:height]), height) for block in blocks]
    for number, block in enumerate(blocks):
        behind = 0 if number < whole else sum(_width(lines) + len(BETWEEN) for lines in cut[number + 1 :])
        lines = block_lines(block, height)
        least, most = _width(cut[number]) + len(BETWEEN), _width(lines) + len(BETWEEN)
        if most > left or least + behind <= left < most + behind:
            lines, most = cut[number], least
        if most > left:
            break
        shown.append(lines)
        left -= most
    tall = max([len(lines) for lines in shown], default=0)
    filled = [_filled(lines, tall) for lines in shown]
    return [
        [span for n, line in enumerate(row) for span in ([(BETWEEN, RULE)] if n else []) + line]
        for row in zip(*filled, strict=True)
    ]


def stacked(blocks: Sequence[Block], columns: int, height: int) -> list[Line]:
    """Blocks one below the other in so many columns and lines; the longest are cut first, or the last ones left out."""
    blocks = blocks[: max(1, (height + 1) // 3)]  # a title without a line says nothing
    lengths = [len(block.lines) for block in blocks]
    while sum(lengths) + 2 * len(blocks) - 1 > height and max(lengths, default=0) > 0:
        lengths[lengths.index(max(lengths))] -= 1
    lines: list[Line] = []
    for block, length in zip(blocks, lengths, strict=True):
        shown = block.lines[:length]
        # a name has a third of the room at least; what has none is a sentence, and has all of it
        values = min(columns * 2 // 3, max([0, *(width(value) for name, value in shown if name)]))
        names = max(1, columns - values - 1)
        lines += [[("", PLAIN)]] if lines else []
        lines.append([(padded(block.title, columns, left=True), TITLE)])
        lines += [
            [(padded(ending(name, names), names, left=True), PLAIN), (" " + padded(value, values), HEAD)]
            if name
            else [(padded(value, columns, left=True), PLAIN)]
            for name, value in shown
        ]
    return [fitted(line, columns) for line in lines[:height]]


def heading_of(column: Column, by: str) -> str:
    """What stands over a column: in brackets if the table is sorted by it."""
    return f"[{column.name}]" if column.name == by else column.name


def choose(columns: Sequence[Column], by: str, room: int) -> list[Column]:
    """The columns that there is room for: those of the highest rank go first, the one that is sorted by stays."""
    chosen = list(columns)
    while len(chosen) > 1 and least(chosen, by) > room:
        gone = max(
            (column for column in chosen[1:] if column.name != by), key=lambda each: each.rank, default=chosen[-1]
        )
        chosen.remove(gone)
    return chosen


def least(columns: Sequence[Column], by: str) -> int:
    """How much room columns take at least."""
    return sum(max(column.room, len(heading_of(column, by))) + 1 for column in columns) - 1


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], by: str, room: int, chosen: int | None
) -> list[Line]:
    """The headings and so many rows, in exactly so many columns of a terminal; texts take what is left."""
    headings = [heading_of(column, by) for column in columns]
    widths = [max(column.room, len(heading)) for column, heading in zip(columns, headings, strict=True)]
    needs = [max([w, *(width(row[n]) for row in rows)]) for n, w in enumerate(widths)]
    left = room - sum(widths) - len(widths) + 1
    # figures before texts, and of texts the first before the others
    for n in sorted(range(len(columns)), key=lambda n: (columns[n].is_text, n)):
        more = max(0, min(left, needs[n] - widths[n]))
        widths[n] += more
        left -= more

    def cells(texts: Sequence[str]) -> list[str]:
        return [padded(text, w, left=column.is_text) for text, w, column in zip(texts, widths, columns, strict=True)]

    head: Line = []
    for text, column in zip(cells(headings), columns, strict=True):
        head += [(" ", HEAD)] if head else []
        head.append((text, SORTED if column.name == by else HEAD))
    lines = [fitted(head, room)]
    for n, row in enumerate(rows):
        row = [column.shorten(text, w) for text, w, column in zip(row, widths, columns, strict=True)]
        lines.append(fitted([(" ".join(cells(row)), CHOSEN if n == chosen else PLAIN)], room))
    return lines


def _filled(lines: list[Line], height: int) -> list[Line]:
    """With empty lines below, all of one width."""
    columns = _width(lines)
    return [fitted(line, columns) for line in [*lines, *([[("", PLAIN)]] * (height - len(lines)))]]


def _width(lines: list[Line]) -> int:
    return max([sum(width(text) for text, _ in line) for line in lines], default=0)
