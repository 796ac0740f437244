"""Figures and names as people read them: `0.5%`, `111.8m`, `0.7ms`, `53,704`; one way for all that shows snapshots.

What others have named (functions, hosts, clients) is hostile until it went through `inert`.
"""

from __future__ import annotations

import unicodedata
from datetime import datetime

#: shown where nothing is known
UNKNOWN = "-"
#: what stands for a character that a terminal might obey, or that has no place of its own
_INERT = "?"
_SECOND, _MINUTE, _HOUR, _DAY = 10**6, 60 * 10**6, 3600 * 10**6, 86400 * 10**6


def count(number: int) -> str:
    """With a comma between thousands.

    >>> count(53704)
    '53,704'
    """
    return f"{number:,}"


def share(thousandths: int) -> str:
    """A share of one processor.

    >>> share(5), share(1000)
    ('0.5%', '100.0%')
    """
    return f"{thousandths / 10:.1f}%"


def size(number: int) -> str:
    """Bytes in units of 1024: k, m, g, t, p, e.

    >>> size(117231616), size(0), size(700), size(3 << 30)
    ('111.8m', '0', '700b', '3.0g')
    """
    if number < 1000:
        return f"{number}b" if number else "0"
    amount, unit = float(number), ""
    units = iter("kmgtpe")
    while amount >= 999.95 or not unit:
        unit = next(units, "e")
        amount /= 1024
    return f"{amount:.1f}{unit}"


def duration(microseconds: int) -> str:
    """A time, with two or three digits that matter.

    >>> [duration(each) for each in (45, 700, 1000, 4_250, 350_000, 1_500_000, 185_000_000, 7_620_000_000)]
    ['45us', '0.7ms', '1ms', '4.2ms', '350ms', '1.5s', '3m05s', '2h07m']
    """
    if microseconds < 100:
        return f"{microseconds}us" if microseconds else "0"
    if microseconds < 9_950:
        return f"{microseconds / 1000:.1f}".removesuffix(".0") + "ms"
    if microseconds < _SECOND:
        return f"{min(999, round(microseconds / 1000))}ms"
    if microseconds < _MINUTE:
        return f"{microseconds // 100_000 / 10:.1f}s"
    if microseconds < _HOUR:
        return f"{microseconds // _MINUTE}m{microseconds % _MINUTE // _SECOND:02}s"
    if microseconds < _DAY:
        return f"{microseconds // _HOUR}h{microseconds % _HOUR // _MINUTE:02}m"
    return f"{microseconds // _DAY}d{microseconds % _DAY // _HOUR:02}h"


def moment(then: float, now: float) -> str:
    """When something was, in local time: with its day if that is not within the last 12 hours; both since 1970."""
    form = "%H:%M:%S" if abs(now - then) < 12 * 3600 else "%Y-%m-%d %H:%M:%S"
    return datetime.fromtimestamp(then).strftime(form)


def inert(text: str) -> str:
    r"""A name without what a terminal would obey (escape sequences, line ends, changes of direction) or pile up.

    >>> inert("f\x1b[31m\n"), inert("[bold]f[/]")
    ('f?[31m?', '[bold]f[/]')
    """
    if text.isascii() and text.isprintable():
        return text
    composed = unicodedata.normalize("NFC", text)
    return "".join(c if c.isprintable() and not unicodedata.category(c).startswith("M") else _INERT for c in composed)


def width(text: str) -> int:
    """How many columns of a terminal an `inert` text takes.

    >>> width("worker"), width("工人")
    (6, 4)
    """
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def filled(text: str, columns: int) -> str:
    """An `inert` text at the left of so many columns of a terminal, or of as many as it takes.

    >>> filled("工人", 5) + "|", filled("worker", 5) + "|"
    ('工人 |', 'worker|')
    """
    return text + " " * (columns - width(text))


def clipped(text: str, columns: int) -> str:
    """An `inert` text in at most so many columns; a `+` says that there was more.

    >>> clipped("d26f9a", 4), clipped("d26f", 4)
    ('d26+', 'd26f')
    """
    if width(text) <= columns:
        return text
    if text.isascii():
        return text[: columns - 1] + "+" if columns > 0 else ""
    kept, left = [], columns - 1
    for c in text:
        left -= width(c)
        if left < 0:
            break
        kept.append(c)
    return "".join(kept) + "+" if columns > 0 else ""


def ending(text: str, columns: int) -> str:
    """The end of an `inert` text, in at most so many columns: of a dotted name that says most.

    >>> ending("pandas.DataFrame.groupby", 10), ending("groupby", 10)
    ('+e.groupby', 'groupby')
    """
    return text if width(text) <= columns else clipped(text[::-1], columns)[::-1]


def padded(text: str, columns: int, *, left: bool = False) -> str:
    """An `inert` text in exactly so many columns, at their right end unless `left`.

    >>> padded("cpu", 5), padded("worker", 4), padded("f", 3, left=True)
    ('  cpu', 'wor+', 'f  ')
    """
    shown = clipped(text, columns)
    blanks = " " * (columns - width(shown))
    return shown + blanks if left else blanks + shown
