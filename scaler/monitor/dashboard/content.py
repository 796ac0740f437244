"""What the pages show of a snapshot, as text: the cells of `scaler.monitor.tables`, with links and bars. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from scaler.monitor import tables
from scaler.monitor.blocks import blocks, hosts
from scaler.monitor.dashboard.layout import Card, Column, Shown, View, part_of
from scaler.monitor.formats import UNKNOWN, count, ending, inert, size
from scaler.monitor.output import LastOutput, place_of
from scaler.monitor.snapshot import Snapshot
from scaler.monitor.totals import STATES, Totals

Cells = dict[str, list[str]]
#: for the rows of these indices: more cells, by the keys of their columns
More = Callable[[Snapshot, Totals, list[int]], Cells]

PAIRS = (Column("name"), Column("value", kind="number"))
PROGRESS = Column(
    "progress", "done, failed, canceled, with an agent (placed) and waiting, as shares of all", "bar",
    shares=("done", "failed", "canceled", "placed", "waiting"),
)  # fmt: skip
#: of a client it is not known how its rows have ended
ENDED = Column(
    "progress", "ended in any way, with an agent (placed) and waiting, as shares of all", "bar",
    shares=("ended", "placed", "waiting"),
)  # fmt: skip
BUSY = Column("busy", "which share of its workers has a task", "bar", shares=("busy", "free"))


@dataclass(frozen=True)
class Listing:
    """A table of the terminal as a page shows it: parted, sorted, and with something more."""

    table: tables.Table
    card: Card
    more: More

    def fill(self, snapshot: Snapshot, totals: Totals, view: View) -> tuple[Cells, str, int]:
        """Cells, what is said beside the title, and how many parts there are."""
        table = self.table
        order = view.sort if view.sort in {column.name for column in table.columns} else table.order
        rows = table.sorted(snapshot, order, upwards=view.is_upwards, text=view.find)
        if view.client and table is tables.FUNCTIONS:
            rows = [row for row in rows if snapshot.functions.clients[row] == view.client]
        first, end, parts = part_of(len(rows), view)
        chosen = rows[first:end]
        written = table.rows(snapshot, chosen)
        cells: Cells = {
            column.name: [cells[at] for cells in written] for at, column in enumerate(table.columns)
        } | self.more(snapshot, totals, chosen)
        whole = table.length(snapshot)
        note = f"{count(whole)}" if len(rows) == whole else f"{count(len(rows))} of {count(whole)}"
        return cells, f"{note} {table.name.removesuffix('s') if whole == 1 else table.name}, by {order}", parts


def bar(**parts: int) -> str:
    """Shares of a whole, for a bar; empty if there is nothing.

    >>> bar(done=3, failed=0, waiting=1)
    'done:75.00,waiting:25.00'
    """
    whole = sum(parts.values())
    return ",".join(f"{name}:{100 * part / whole:.2f}" for name, part in parts.items() if part) if whole else ""


def _of_workers(snapshot: Snapshot, _totals: Totals, rows: list[int]) -> Cells:
    names = [snapshot.function_of(row) for row in rows]
    return {
        "worker_link": [View().link("workers", find=snapshot.worker_id(row)) for row in rows],
        "function_link": [View().link("functions", find=name) if name else "" for name in names],
    }


def _of_agents(snapshot: Snapshot, totals: Totals, rows: list[int]) -> Cells:
    numbers, counts = snapshot.agents.numbers, snapshot.agents.worker_counts
    busy = [totals.agents[row].busy for row in rows]
    return {
        "agent_link": [View().link("workers", find=f"{numbers[row]}.") for row in rows],
        "busy": [bar(busy=each, free=counts[row] - each) for row, each in zip(rows, busy, strict=True)],
    }


def _of_functions(snapshot: Snapshot, _totals: Totals, rows: list[int]) -> Cells:
    of, at_work = snapshot.functions, set(snapshot.view.worker_names)
    return {
        "function_link": [View().link("workers", find=of.names[i]) if of.names[i] in at_work else "" for i in rows],
        "client_link": [View().link("functions", client=of.clients[i]) if of.clients[i] else "" for i in rows],
        "progress": [
            bar(done=of.done[i], failed=of.failed[i], canceled=of.cancelled[i], placed=of.running[i],
                waiting=of.waiting[i]) for i in rows
        ],
    }  # fmt: skip


def _of_clients(snapshot: Snapshot, _totals: Totals, rows: list[int]) -> Cells:
    of = snapshot.clients
    return {
        "client_link": [View().link("functions", client=of.numbers[i]) for i in rows],
        "progress": [bar(ended=of.done[i], placed=of.running[i], waiting=of.queued[i]) for i in rows],
    }


def _of_objects(snapshot: Snapshot, _totals: Totals, rows: list[int]) -> Cells:
    return {"client_link": [View().link("functions", client=snapshot.objects.clients[row]) for row in rows]}


def _kind(column: tables.Column) -> str:
    if not column.is_text:
        return "number"
    return "tail" if column.shorten is ending else "text"


def _card(table: tables.Table, title: str, empty: str, *bars: Column) -> Card:
    """The card of a terminal's table; bars stand behind the first column."""
    columns = [Column(column.name, column.help, _kind(column), True) for column in table.columns]
    return Card(table.name, title, (columns[0], *bars, *columns[1:]), empty)


WORKERS = Listing(
    tables.WORKERS, _card(tables.WORKERS, "Workers", "no worker: start some with scaler_cluster"), _of_workers
)
AGENTS = Listing(
    tables.AGENTS, _card(tables.AGENTS, "Agents", "no agent: start one on each host with scaler_cluster", BUSY),
    _of_agents,
)  # fmt: skip
FUNCTIONS = Listing(
    tables.FUNCTIONS, _card(tables.FUNCTIONS, "Functions", "nobody has submitted anything yet", PROGRESS), _of_functions
)
CLIENTS = Listing(tables.CLIENTS, _card(tables.CLIENTS, "Clients", "no client is connected", ENDED), _of_clients)
OBJECTS = Listing(
    tables.OBJECTS, _card(tables.OBJECTS, "Largest objects", "no objects: small values travel inside of messages"),
    _of_objects,
)  # fmt: skip
#: the four of the terminal, by the names that it gives them
BLOCKS = tuple(
    Card(name, title, PAIRS, "none yet", is_pairs=True)
    for name, title in (
        ("scheduler", "scheduler"), ("task_manager", "task_manager"), ("scheduler_sent", "scheduler_sent (messages)"),
        ("scheduler_received", "scheduler_received (messages)"),
    )
)  # fmt: skip
ALL_OBJECTS = Card("all_objects", "All objects", PAIRS, is_pairs=True)
HOSTS = Card("hosts", "Hosts that are asked for", PAIRS, "nobody asks a batch system for hosts", is_pairs=True)
LAST_OUTPUT = Card(
    "last_output", "Last lines of output", (Column("name"), Column("value")),
    "open one worker, by its name in the table, to see what its tasks have printed", is_pairs=True, is_lines=True,
)  # fmt: skip
WORKER_STATES = Card("worker_states", "Workers by state", PAIRS, is_pairs=True)


def blocks_of(snapshot: Snapshot) -> dict[str, Cells]:
    """The four blocks over the table."""
    return {
        block.title: {"name": [name for name, _ in block.lines], "value": [value for _, value in block.lines]}
        for block in blocks(snapshot)
    }


def all_objects(snapshot: Snapshot) -> Cells:
    """Objects together."""
    of, bandwidth = snapshot.objects, snapshot.scheduler.bandwidth
    lines = {
        "objects": count(of.count),
        "looked at for the largest": count(of.looked_at),
        "stored": size(of.stored),
        "in memory": size(max(0, of.stored - of.spilled)),
        "on disk": size(of.spilled),
        "fetched between hosts": size(of.fetched),
        # before the first transfer it is the scheduler's guess
        "bandwidth between hosts": f"{size(bandwidth)}/s" if bandwidth and of.fetched else UNKNOWN,
    }
    return {"name": list(lines), "value": list(lines.values())}


def last_output(snapshot: Snapshot, find: str, outputs: Mapping[tuple[int, int], LastOutput]) -> Cells:
    """The last lines of output of the one worker that a page shows."""
    place = place_of(find)
    if place is None or tables.worker_at(snapshot, find) is None:
        return {"name": [], "value": []}
    output = outputs.get(place)
    if output is None:
        lines: tuple[tuple[str, str], ...] = (("", "asked; while native code runs it cannot answer"),)
    elif output.error:
        lines = (("", output.error),)
    else:
        lines = output.lines or (("", "none: its tasks have printed nothing by Python yet"),)
    return {"name": [stream for stream, _ in lines], "value": [text for _, text in lines]}


def worker_states(totals: Totals) -> Cells:
    """How many workers do what."""
    return {"name": list(STATES), "value": [count(totals.states[state]) for state in STATES]}


def hosts_of(snapshot: Snapshot) -> Cells:
    """Hosts that are asked for, and what the batch system says."""
    lines = hosts(snapshot).lines
    return {"name": [name for name, _ in lines], "value": [value for _, value in lines]}


def _small(
    snapshot: Snapshot, totals: Totals, view: View, outputs: Mapping[tuple[int, int], LastOutput]
) -> dict[str, Cells]:
    """The cells of all small cards, by their names."""
    return blocks_of(snapshot) | {
        ALL_OBJECTS.name: all_objects(snapshot),
        WORKER_STATES.name: worker_states(totals),
        HOSTS.name: hosts_of(snapshot),
        LAST_OUTPUT.name: last_output(snapshot, view.find, outputs),
    }


def headline(snapshot: Snapshot) -> str:
    """Which cluster this is."""
    scheduler = snapshot.scheduler
    workers = f"{_many(len(snapshot.workers), 'worker')} on {_many(len(snapshot.agents), 'agent')}"
    return f"{inert(scheduler.address)} · Scaler {inert(scheduler.version)} · {workers}"


def _many(number: int, what: str) -> str:
    return f"{count(number)} {what}{'' if number == 1 else 's'}"


def shown(
    snapshot: Snapshot,
    totals: Totals,
    view: View,
    listing: Listing,
    *cards: Card,
    outputs: Mapping[tuple[int, int], LastOutput] = MappingProxyType({}),
) -> Shown:
    """All tables of a page that has this listing and these small cards."""
    cells, note, parts = listing.fill(snapshot, totals, view)
    small = _small(snapshot, totals, view, outputs)
    chosen = {card.name: small[card.name] for card in cards}
    return Shown(chosen | {listing.card.name: cells}, {listing.card.name: note}, parts)
