"""The whole screen as lines: the documents' blocks, shortcuts and table, and where to go from there. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from scaler.monitor.blocks import blocks, panel
from scaler.monitor.formats import clipped, count, duration, inert, moment, size, width
from scaler.monitor.insecure import exposure_of
from scaler.monitor.notices import notice_of
from scaler.monitor.output import place_of
from scaler.monitor.snapshot import Snapshot
from scaler.monitor.tables import OBJECTS, TABLES
from scaler.monitor.top.layout import (
    ALERT,
    BETWEEN,
    CHOSEN,
    DIM,
    PLAIN,
    RULE,
    TITLE,
    Line,
    choose,
    fitted,
    least,
    plain_text,
    side_by_side,
    stacked,
    table_lines,
)
from scaler.monitor.top.looking import Looking
from scaler.monitor.top.pages import help_page, worker_page
from scaler.monitor.watcher import Seen
from scaler.monitor.worker_table import WORKERS

#: the smallest terminal that a screen is made for
WIDTH, HEIGHT = 60, 15
#: columns of a terminal for what stands beside the table of workers: at least, and at most
_PANEL, _WIDEST = 24, 50
#: lines of a terminal in which a page has room below the blocks; in others it takes their place
_ROOM_FOR_PAGES = 36
#: room for a worker's name beyond the least: with it hosts of ten letters are whole
_WORKER = 10
#: room for a function's name beyond the least, in a wide terminal
_FUNCTION = 40
#: what stands behind the shortcuts where there is no room for all
_ALL_KEYS = " ?: all"
#: columns of the table of workers that the documents do not have, and that come only beside the panel
_BEYOND = ("function",)


def draw(
    looking: Looking, seen: Seen, address: str, columns: int, lines: int, now: float, *, views: bool = True
) -> list[Line]:
    """A screen of so many columns and lines. `now` in seconds since 1970. On paper there are no `views` to go to."""
    if columns < WIDTH or lines < HEIGHT:
        return _too_small(columns, lines)
    snapshot = seen.snapshot
    is_page = looking.is_help or bool(looking.worker)
    out = [] if is_page and lines < _ROOM_FOR_PAGES else _blocks(snapshot, columns, lines)
    out.append([("-" * columns, RULE)])
    out += _shortcuts(looking, columns, 1 if lines < 24 else 2)
    out.append(_status(looking, seen, columns, now))
    out.append(_total(looking, seen, address, columns))
    room = lines - len(out) - views
    if looking.is_help:
        body = help_page(looking.table)
        looking.scroll = max(0, min(looking.scroll, len(body) - room))
        body = body[looking.scroll :]
        if len(body) > room:
            body[room - 1] = [(f"{len(body) - room + 1} more lines: arrows, pages", DIM)]
    elif snapshot is None:
        body = [[("waiting for the first snapshot", DIM)]]
    elif looking.worker:
        place = place_of(looking.worker)
        output = seen.outputs.get(place) if place is not None else None
        body = worker_page(snapshot, looking.worker, looking.worker_in(snapshot), columns, room, output)
    else:
        body = _table(looking, snapshot, columns, room)
    out += body[:room] + [[("", PLAIN)]] * (room - len(body))
    if views:
        out.append(_views(looking, columns))
    return [fitted(line, columns) for line in out]


def _too_small(columns: int, lines: int) -> list[Line]:
    """One line that says what to do, in as few words as the terminal has room for."""
    words = (
        f"scaler_top needs {WIDTH}x{HEIGHT}, this terminal is {columns}x{lines}: enlarge it",
        f"needs {WIDTH}x{HEIGHT}: enlarge",
    )
    text = next((each for each in words if len(each) <= columns), clipped(words[-1], columns))
    return [fitted([(text, ALERT)], columns), *([fitted([], columns)] * (lines - 1))]


def _blocks(snapshot: Snapshot | None, columns: int, lines: int) -> list[Line]:
    """A third of the screen at most."""
    if snapshot is None:
        return []
    height = 3 if lines < 20 else 6 if lines < 30 else lines // 3
    return side_by_side(blocks(snapshot), columns, height, whole=2)  # the table of messages has them all


def _shortcuts(looking: Looking, columns: int, most: int) -> list[Line]:
    """The keys that sort, in so many lines; if those are too few, of what is seen, and where all of them are."""
    words = [f"{column.name}[{column.keys[0]}]" for column in looking.table.columns]
    out = _wrapped(words, columns)
    if len(out) > most:
        seen = [f"{column.name}[{column.keys[0]}]" for column in choose(looking.table.columns, looking.by, columns)]
        out = _wrapped(seen, columns - len(_ALL_KEYS))[:most]
        out[-1] += _ALL_KEYS
    return [[(line, DIM)] for line in out]


def _wrapped(words: list[str], columns: int) -> list[str]:
    out = ["Shortcuts:"]
    for word in words:
        if len(out[-1]) + 1 + len(word) > columns:
            out.append(" " * len("Shortcuts:"))
        out[-1] += " " + word
    return out


class _Said(NamedTuple):
    """Something that has to be said: as much as there is of it, and in how few words before others."""

    whole: Line
    short: Line
    #: nothing is wrong: it is said if there is nothing else to say
    is_quiet: bool = False


def _status(looking: Looking, seen: Seen, columns: int, now: float) -> Line:
    """What has to be said: nothing, most of the time. However long the filter is, it hides nothing that is wrong."""
    said = [*_sayings(looking, seen, columns, now)]
    said = [each for each in said if not each.is_quiet] or said[-1:]
    line: Line = []
    for each in said[:-1]:
        line += [*each.short, ("  ", PLAIN)]
    return line + said[-1].whole if said else line


def _sayings(looking: Looking, seen: Seen, columns: int, now: float) -> Iterator[_Said]:
    """All that there is to say, in this order."""
    if not seen.is_connected:
        since = (f"no scheduler since {moment(seen.since, now)}", ALERT)
        yield _Said([since, (f" ({inert(seen.reason)})" if seen.reason else "", DIM)], [since])
    elif seen.silence:
        whole = f"the scheduler has not been heard for {seen.silence} s"
        yield _Said([(whole, ALERT)], [(f"not heard for {seen.silence} s", ALERT)])
    if seen.is_connected and seen.snapshot is not None:
        scheduler = seen.snapshot.scheduler
        exposure, notice = exposure_of(scheduler), notice_of(scheduler)
        if exposure is not None:
            style = DIM if exposure.is_quiet else ALERT
            yield _Said([(exposure.line(columns), style)], [("insecure", style)], exposure.is_quiet)
        if notice is not None:
            style = DIM if notice.is_quiet else ALERT
            yield _Said([(notice.words, style)], [(notice.shorter, style)], notice.is_quiet)
    if looking.is_typing or looking.text:
        keys = "_  (Enter: done, Esc: all)" if looking.is_typing else "  (Esc: all)"
        filtered = [(f"filter: {inert(looking.text)}", TITLE), (keys, DIM)]
        yield _Said(filtered, filtered)


def _total(looking: Looking, seen: Seen, address: str, columns: int) -> Line:
    snapshot = seen.snapshot
    if snapshot is None:
        return [(f"{'connected to' if seen.is_connected else 'looking for'} {inert(address)}", DIM)]
    table = looking.table
    total = table.length(snapshot)
    what = f"Total {count(total)} {table.name.removesuffix('s')}(s)"
    if table is OBJECTS:
        each = snapshot.objects
        what = f"Total {count(each.count)} object(s), {size(each.stored)} in stores, {size(each.spilled)} of it on disk"
    if looking.text:
        what += f", {count(len(looking.order(snapshot)))} shown"
    scheduler = snapshot.scheduler
    at, up = inert(scheduler.address), duration(int(1e6 * scheduler.uptime))
    for right in (f"{at}  up {up}  {moment(scheduler.time, scheduler.time)}", f"up {up}", ""):
        room = columns - width(what) - width(right)
        if room >= 2 or not right:
            break
    return [(what, TITLE), (" " * max(0, room), PLAIN), (right, DIM)]


def _table(looking: Looking, snapshot: Snapshot, columns: int, room: int) -> list[Line]:
    order = looking.order(snapshot)
    shown = looking.fit(len(order), room - 1)
    all_columns, beside = looking.table.columns, 0
    if looking.table is WORKERS:
        documented = [column for column in all_columns if column.name not in _BEYOND]
        beside = min(_WIDEST, columns - least(documented, looking.by) - len(BETWEEN) - _WORKER)
        beside = beside if beside >= _PANEL else 0
    place = columns - (beside + len(BETWEEN) if beside else 0)
    if beside:  # what stands beside it is not far away
        place = min(place, least(all_columns, looking.by) + _FUNCTION)
    chosen = choose(all_columns, looking.by, place)
    rows = [[column.form(column.at(snapshot, order[n])) for column in chosen] for n in shown]
    lines = table_lines(chosen, rows, looking.by, place, looking.cursor - looking.first)
    if not order:
        lines.append([("nothing has such a name" if looking.text else "there are none", DIM)])
        lines[-1] = fitted(lines[-1], place)
    if not beside:
        return lines
    right = stacked(panel(snapshot, room), beside, room)
    lines += [fitted([], place)] * (room - len(lines))
    right += [fitted([], beside)] * (room - len(right))
    return [[*left, (BETWEEN, RULE), *other] for left, other in zip(lines[:room], right, strict=True)]


def _views(looking: Looking, columns: int) -> Line:
    """The other tables, and what else can be done."""
    wide, middle = columns >= 104, columns >= 80
    line: Line = []
    for number, table in enumerate(TABLES, 1):
        is_here = table is looking.table
        line.append((f"{number} {table.name}" if middle else f"{number}{table.name}", CHOSEN if is_here else PLAIN))
        line.append(("  " if wide else " ", PLAIN))
    words = "/ filter  Enter more  ? help  Q quit" if wide else " ? help Q quit" if middle else "? Q"
    line.append((words, DIM))
    return line


def text_of(screen: list[Line]) -> str:
    """A screen as plain text."""
    return "\n".join(plain_text(line).rstrip() for line in screen)
