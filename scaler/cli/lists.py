"""`scaler status`, `agents`, `workers`, `clients`, `functions`, `objects`: a cluster now, as text or lines of JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from scaler.cli.asking import ADDRESS, asking_command, quietly, session
from scaler.errors import ScalerError

if TYPE_CHECKING:
    from scaler.monitor.listing import Listed

#: columns of a terminal that a text has at least, also where a row does not fit then
SHORTEST = 12


def _status(address: str, as_json: bool, key_file: str | None, insecure: bool) -> int:
    with session(address, key_file, insecure) as questions:
        found = questions.status()
    return quietly(lambda: print(json.dumps(found) if as_json else _whole(found)))


def _whole(found: dict[str, Any]) -> str:
    """The cluster as people read it: a name and a line each."""
    from scaler.monitor.formats import count, duration, inert, padded, share, size
    from scaler.monitor.insecure import exposure_at

    scheduler = found["scheduler"]
    address, version = inert(scheduler["address"]), inert(scheduler["version"])
    lines = {
        "scheduler": f"{address}, process {scheduler['pid']}, version {version}",
        "up for": duration(int(1e6 * scheduler["uptime_s"])),
        "uses": f"{share(scheduler['cpu_thousandths'])} of a processor, {size(scheduler['rss_bytes'])} of memory",
        "agents": count(found["agents"]),
        "workers": f"{count(found['workers'])}, {count(found['free'])} free",
        "clients": count(found["clients"]),
        "tasks": ", ".join(f"{count(number)} {inert(state)}" for state, number in found["tasks"].items()),
        "objects": f"{count(found['objects'])}, {size(found['stored_bytes'])} stored, "
        f"{size(found['spilled_bytes'])} of it on disk, {size(found['fetched_bytes'])} fetched between hosts",
    }
    if scheduler["partner"]:
        lines["pair"] = _pair(scheduler)
    if scheduler["trouble"]:
        lines["trouble"] = f"nothing is handed out: {inert(scheduler['trouble'])}"
    if scheduler["awaited"]:
        lines["awaited"] = inert(scheduler["awaited"])
    hosts = list[str]()
    for fleet in found["hosts"]:
        wanted = ", ".join(f"{count(fleet[what])} {what}" for what in ("desired", "pending", "running", "draining"))
        hosts += [f"of {inert(fleet['provider'])}: {wanted}", *(f"  {inert(line)}" for line in fleet["lines"])]
    if hosts:
        lines["hosts"] = f"\n{'':10}".join(hosts)
    if scheduler["insecure"]:
        exposure = exposure_at(scheduler["address"])
        warning = {"insecure": exposure.words}
        lines = lines | warning if exposure.is_quiet else warning | lines
    return "\n".join(f"{padded(name, 10, left=True)}{line}" for name, line in lines.items())


def _pair(scheduler: dict[str, Any]) -> str:
    """What the other one of a pair does, and how many agents decide who leads."""
    from scaler.monitor.formats import count, duration, inert

    other, agents = f"with the scheduler at {inert(scheduler['partner'])}", count(scheduler["roster"])
    if scheduler["partner_silence_s"]:
        silent = duration(int(1e6 * scheduler["partner_silence_s"]))
        consequence = "" if scheduler["stands_by"] else ": nobody stands by"
        return f"{other}, which has not been heard for {silent}{consequence}; {agents} agents count"
    role = "leads, and this one stands by" if scheduler["stands_by"] else "stands by"
    return f"{other}, which {role}; {agents} agents that both count"


def _table(listed: Listed, screen: int | None) -> str:
    """Columns as wide as they have to be: texts at the left of them, figures at the right.

    Where it goes to a `screen` of so many columns, the longest texts are cut to what there is room for.
    """
    from scaler.monitor.formats import padded, width
    from scaler.monitor.sayable import sayable

    columns = listed.table.columns
    cells = [list(row) for row in sayable(tuple(listed.cells()), sys.stdout.encoding)]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lefts = [column.is_text for column in columns]
    longest = None if screen is None else _room_for_texts(widths, lefts, screen)
    if longest is not None:
        cells = [[column.shorten(cell, longest) for column, cell in zip(columns, row, strict=True)] for row in cells]
        widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(padded(cell, room, left=left) for cell, room, left in zip(row, widths, lefts, strict=True)).rstrip()
        for row in cells
    )


def _room_for_texts(widths: list[int], are_texts: list[bool], screen: int) -> int | None:
    """How long a text may be so that a row fits the screen, as far as that is possible; None if all of them do."""
    of_texts = [wide for wide, is_text in zip(widths, are_texts, strict=True) if is_text]
    room = screen - 2 * (len(widths) - 1) - (sum(widths) - sum(of_texts))
    if sum(of_texts) <= room or not of_texts:
        return None
    fitting = (most for most in range(max(of_texts), SHORTEST, -1) if sum(min(most, each) for each in of_texts) <= room)
    return next(fitting, SHORTEST)


def _screen() -> int | None:
    """Columns of the terminal that reads this; None if it is a file or a program, for which nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _listing(kind: str) -> Callable[..., int]:
    def run(address: str, as_json: bool, key_file: str | None, insecure: bool, **filters: Any) -> int:
        from scaler.monitor.listing import Filters, check_sort

        try:
            check_sort(kind, filters["sort"])
        except ScalerError as error:
            raise click.UsageError(str(error)) from error
        with session(address, key_file, insecure) as questions:
            listed = questions.listed(kind, Filters(**filters))

        def write() -> None:
            if not as_json:
                print(_table(listed, _screen()))
                return
            for record in listed.records:
                print(json.dumps(record))

        return quietly(write)

    return run


_HOST = click.Option(["--host"], default="", help="only those of the host, or agent, with this name")
_FUNCTION = click.Option(["--function"], default="", help="only those of the function with this name")
_CLIENT = click.Option(
    ["--client"], type=click.IntRange(0, 2**31), default=0, help="only those of this client, a number"
)
_OF_ALL = (
    click.Option(["--find"], default="", help="only rows whose names hold this text, as / in scaler_top"),
    click.Option(["--sort"], default="", metavar="COLUMN", help="by this column: figures largest first, names upwards"),
    click.Option(["--limit"], type=click.IntRange(1), default=None, help="so many at most"),
)
status = asking_command("status", "Say how a cluster is, in a few lines.", _status, ADDRESS)
agents = asking_command(
    "agents", "List the agents of a cluster, one for each host.", _listing("agents"), ADDRESS, _HOST, *_OF_ALL
)
workers = asking_command(
    "workers", "List the workers of a cluster and what they run.", _listing("workers"), ADDRESS,
    _HOST, _FUNCTION, _CLIENT, *_OF_ALL,
)  # fmt: skip
clients = asking_command("clients", "List the clients of a cluster.", _listing("clients"), ADDRESS, _CLIENT, *_OF_ALL)
functions = asking_command(
    "functions", "List the functions of clients: their rows, and how long they take.", _listing("functions"), ADDRESS,
    _FUNCTION, _CLIENT, *_OF_ALL,
)  # fmt: skip
objects = asking_command(
    "objects", "List the largest objects of a cluster among those that came last.", _listing("objects"), ADDRESS,
    _CLIENT, *_OF_ALL,
)  # fmt: skip
