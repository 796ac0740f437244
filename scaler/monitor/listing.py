"""What commands and programs list of a cluster: one record for each agent, worker, client, function or object.

    chosen = listed("workers", snapshot, Filters(host="node-7"))
    chosen.records                    # what `--json` prints and `client.cluster.workers()` returns
    chosen.cells()                    # what people read: the columns of the screens

A record has `"v": 1`, and figures with their units in their names as in `scaler.monitor.records`. Tasks, clients and
agents are named as `scaler tasks` names them. Fields may come to a version; none goes or means something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scaler.errors import ScalerError
from scaler.monitor import records, tables
from scaler.monitor.blocks import tasks
from scaler.monitor.columns import Table
from scaler.monitor.snapshot import Snapshot

#: of the records: the same as those of tasks
SCHEMA = 1

Record = dict[str, Any]


@dataclass(frozen=True)
class Filters:
    """Which rows of a list are meant, and in which order; what is empty or 0 says nothing."""

    #: names that must be the same
    host: str = ""
    function: str = ""
    #: number of a client
    client: int = 0
    #: a part of a name, whatever its case, as `/` takes it in `scaler_top`
    find: str = ""
    #: name of the column to sort by, largest first, or by names upwards; the table's own order if empty
    sort: str = ""
    #: so many at most; None: all
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise ValueError(f"limit says how many rows at most: it can't be {self.limit}")


@dataclass(frozen=True)
class Listed:
    """Rows of one table that were chosen."""

    table: Table
    snapshot: Snapshot
    #: their indices in the snapshot, and the records of the same
    rows: list[int]
    records: list[Record]

    def cells(self) -> list[tuple[str, ...]]:
        """The headings, and the cells of each row."""
        return [tuple(column.name for column in self.table.columns), *self.table.rows(self.snapshot, self.rows)]


def check_sort(kind: str, by: str) -> None:
    """Raises `ScalerError` if rows of this kind can't be sorted by this; they can by nothing in particular."""
    names = [column.name for column in _KINDS[kind][0].columns]
    if by and by not in names:
        raise ScalerError(f"{kind} have no column {by!r} to sort by: they have {', '.join(names)}")


def listed(kind: str, snapshot: Snapshot, filters: Filters) -> Listed:
    """Those rows of `kind` (agents, workers, clients, functions, objects) that are meant. Raises `ScalerError`."""
    check_sort(kind, filters.sort)
    table, make = _KINDS[kind]
    by = filters.sort or table.order
    made = make(snapshot)
    order = table.sorted(snapshot, by, upwards=table.column(by).is_text, text=filters.find)
    rows = [row for row in order if _is_meant(made[row], filters)][: filters.limit]
    return Listed(table, snapshot, rows, [{"v": SCHEMA, **made[row]} for row in rows])


def status(snapshot: Snapshot) -> Record:
    """The cluster in one record: its scheduler, how many of what, tasks by where they are and how they ended."""
    whole, agents, objects = records.head(snapshot), snapshot.agents, snapshot.objects
    return {
        "v": SCHEMA, "time": whole["time"],
        "scheduler": {name: whole["scheduler"][name] for name in _OF_SCHEDULER},
        "agents": len(agents), "workers": sum(agents.workers), "free": sum(agents.free),
        "clients": len(snapshot.clients), "tasks": tasks(snapshot),
        "objects": objects.count, "stored_bytes": objects.stored, "spilled_bytes": objects.spilled,
        "fetched_bytes": objects.fetched, "hosts": records.fleets(snapshot),
    }  # fmt: skip


_OF_SCHEDULER = (
    "address", "version", "pid", "epoch", "uptime_s", "cpu_thousandths", "rss_bytes", "monitors", "partner", "roster",
    "stands_by", "partner_silence_s", "trouble", "awaited", "insecure",
)  # fmt: skip


def _is_meant(record: Record, filters: Filters) -> bool:
    return (
        filters.host in ("", record.get("host"))
        and filters.function in ("", record.get("function"))
        and filters.client in (0, record.get("client"))
    )


def _agents(snapshot: Snapshot) -> list[Record]:
    return [_renamed(record, name="host") for record in records.agents(snapshot)]


def _workers(snapshot: Snapshot) -> list[Record]:
    """With the number of the agent, and the task by the name that questions take."""
    made, ids, agents = records.workers(snapshot), snapshot.workers.ids, snapshot.agents.numbers
    for record, task, agent in zip(made, ids, snapshot.agent_of_worker, strict=True):
        record["agent"] = agents[agent]
        record["task"] = f"{record['client']}:{task}" if record["function"] else ""
    return made


def _clients(snapshot: Snapshot) -> list[Record]:
    return [_renamed(record, number="client") for record in records.clients(snapshot)]


def _functions(snapshot: Snapshot) -> list[Record]:
    return [_renamed(record, name="function") for record in records.functions(snapshot)]


def _objects(snapshot: Snapshot) -> list[Record]:
    return [
        {"object": f"{record['client']}:{record['id']}"} | {k: v for k, v in record.items() if k != "id"}
        for record in records.largest_objects(snapshot)
    ]


def _renamed(record: Record, **names: str) -> Record:
    return {names.get(key, key): value for key, value in record.items()}


_KINDS: dict[str, tuple[Table, Callable[[Snapshot], list[Record]]]] = {
    "agents": (tables.AGENTS, _agents),
    "workers": (tables.WORKERS, _workers),
    "clients": (tables.CLIENTS, _clients),
    "functions": (tables.FUNCTIONS, _functions),
    "objects": (tables.OBJECTS, _objects),
}
KINDS = tuple(_KINDS)
