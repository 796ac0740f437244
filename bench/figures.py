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

    def times_better(self, value: float, base: float) -> float:
        """How many times better a value is than another one: above 1 it is better, whichever way the figure counts."""
        return value / base if self.more else base / value


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
    "argument_100": Figure("array of 100 MB as an argument, MB/s", "{:,.0f}", more=True),
    "argument_500": Figure("array of 500 MB as an argument, MB/s", "{:,.0f}", more=True),
    "argument_bytes_100": Figure("100 MB of bytes as an argument, MB/s", "{:,.0f}", more=True),
    "argument_bytes_500": Figure("500 MB of bytes as an argument, MB/s", "{:,.0f}", more=True),
    "argument_result": Figure("array of 100 MB as a result, MB/s", "{:,.0f}", more=True),
    "argument_again": Figure("a further task on an array of 100 MB, ms more than on a small one", "{:,.2f}"),
    "array_transpose": Figure("array: (x + x.T).mean(), s", "{:,.2f}"),
    "array_dot_1000": Figure("array: x.dot(x), chunks of 1000², s", "{:,.2f}"),
    "array_dot_500": Figure("array: x.dot(x), chunks of 500², s", "{:,.2f}"),
    "dataframe_groupby": Figure("data frame: groupby and sum, s", "{:,.2f}"),
    "dataframe_merge": Figure("data frame: merge, s", "{:,.2f}"),
    "dataframe_shuffle": Figure("data frame: shuffle by tasks, s", "{:,.2f}"),
    "large_submit": Figure("a million tasks, until submit_graph returns, µs a task", "{:,.1f}"),
    "large_graph": Figure("a million tasks, until the result, µs a task", "{:,.1f}"),
    "large_scheduler": Figure("  scheduler's memory at most, MB", "{:,.0f}"),
    "large_client": Figure("  client's memory at most, MB", "{:,.0f}"),
    "planning_10k": Figure("levels of 10,000 tasks, µs a task", "{:,.2f}"),
    "planning_100k": Figure("levels of 100,000, µs a task", "{:,.2f}"),
    "planning_1m": Figure("levels of a million, µs a task", "{:,.2f}"),
    "planning_10k_plan": Figure("whole plan of 10,000 with a given order, µs a task", "{:,.2f}"),
    "planning_100k_plan": Figure("whole plan of 100,000, µs a task", "{:,.2f}"),
    "planning_1m_plan": Figure("whole plan of a million, µs a task", "{:,.2f}"),
    "planning_import": Figure("once: import, ms", "{:,.0f}"),
    "spill": Figure("20 GB of objects with 2 GB of memory, MB/s", "{:,.0f}", more=True),
    "memory_empty": Figure("resident, empty, MB", "{:,.0f}"),
    "memory_queued": Figure("resident, a million tasks queued, MB", "{:,.0f}"),
    "memory_peak": Figure("resident, at most, MB", "{:,.0f}"),
    "memory_after": Figure("resident, after their client left, MB", "{:,.0f}"),
    "core_10": Figure("core, 10 agents, µs a task", "{:,.2f}"),
    "core_10000": Figure("core, 10,000 agents, µs a task", "{:,.2f}"),
}


def _of(*cases: str) -> list[str]:
    return [name for name in FIGURES if name.split("_")[0] in cases]


#: title, figures, engines: the first engine is what the others are compared with
TABLES: list[tuple[str, list[str], list[str]]] = [
    (
        "Tasks",
        _of("submit", "map", "latency", "efficiency", "startup", "replace"),
        ["scaler", "daemons", "processpool", "pool", "distributed", "threads"],
    ),
    ("Large values", _of("argument"), ["scaler", "daemons", "processpool", "distributed"]),
    ("dask graphs", _of("graph"), ["scaler", "distributed", "dask-threads", "dask-sync"]),
    ("dask collections", _of("array", "dataframe"), ["scaler", "distributed", "dask-threads", "dask-processes"]),
    ("Large graphs", _of("large"), ["daemons"]),
    ("Planning a graph", _of("planning"), ["plain", "graphblas"]),
    ("Out of memory", _of("spill"), ["daemons"]),
    ("Scheduler", _of("memory"), ["daemons"]),
    ("Scheduler, large cluster", _of("core"), ["scaler"]),
]
