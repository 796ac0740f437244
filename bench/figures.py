"""What each figure is called, its unit, and which way is better; the tables are made from this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    label: str
    #: a Python format of the value
    form: str
    #: more of it is better
    more: bool = False


FIGURES: dict[str, Figure] = {
    "submit": Figure("submit, tasks/s", "{:,.0f}", more=True),
    "submit_cpu": Figure("submit, client's CPU, µs a task", "{:,.1f}"),
    "map": Figure("map, tasks/s", "{:,.0f}", more=True),
    "map_chunked": Figure("map, chunksize=1000 where it needs one, tasks/s", "{:,.0f}", more=True),
    "latency_p50": Figure("one task, p50, µs", "{:,.0f}"),
    "latency_p99": Figure("one task, p99, µs", "{:,.0f}"),
    "efficiency_100us": Figure("tasks of 0.1 ms, cores busy with them", "{:.1%}", more=True),
    "efficiency_1ms": Figure("tasks of 1 ms, cores busy with them", "{:.1%}", more=True),
    "efficiency_10ms": Figure("tasks of 10 ms, cores busy with them", "{:.1%}", more=True),
    "startup": Figure("constructor to first result, ms", "{:,.0f}"),
    "startup_import": Figure("the same with the import, ms", "{:,.0f}"),
    "replace": Figure("worker killed to next answer, ms", "{:,.0f}"),
    "graph_wide": Figure("wide, µs a task", "{:,.0f}"),
    "graph_chain": Figure("chain, µs a task", "{:,.0f}"),
    "graph_tree": Figure("tree, µs a task", "{:,.0f}"),
    "memory_empty": Figure("resident, empty, MB", "{:,.0f}"),
    "memory_queued": Figure("resident, a million tasks queued, MB", "{:,.0f}"),
    "memory_peak": Figure("resident, at most, MB", "{:,.0f}"),
    "memory_after": Figure("resident, after their client left, MB", "{:,.0f}"),
    "core_10": Figure("core, 10 agents, µs a task", "{:,.2f}"),
    "core_10000": Figure("core, 10,000 agents, µs a task", "{:,.2f}"),
}

#: title, figures, engines: the first engine is what the others are compared with
TABLES: list[tuple[str, list[str], list[str]]] = [
    (
        "Tasks",
        [name for name in FIGURES if not name.startswith(("graph", "memory", "core"))],
        ["scaler", "daemons", "processpool", "pool", "distributed", "threads"],
    ),
    (
        "dask graphs",
        [name for name in FIGURES if name.startswith("graph")],
        ["scaler", "distributed", "dask-threads", "dask-sync"],
    ),
    ("Scheduler", [name for name in FIGURES if name.startswith("memory")], ["daemons"]),
    ("Scheduler, large cluster", [name for name in FIGURES if name.startswith("core")], ["scaler"]),
]
