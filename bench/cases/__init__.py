"""What is measured. A case is a function that yields samples; it runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from bench.cases import collections, core, data, faults, graphs, large, memory, planning, tasks
from bench.results import Sample


@dataclass(frozen=True)
class Case:
    """A measurement and the engines that it is for."""

    #: called with the engine's name and how often to repeat; yields samples. With one repetition sizes may be smaller
    measure: Callable[[str, int], Iterator[Sample]]
    engines: tuple[str, ...]
    #: rounds in which an engine takes part, when fewer than all: its figures are no close call, and they take long
    rounds: Mapping[str, int] = field(default_factory=dict)
    #: seconds for one engine
    limit: float = 60.0
    #: measured only when it is named
    on_demand: bool = False


ALL = ("scaler", "processpool", "daemons", "pool", "distributed", "threads")
TASKS = ("scaler", "processpool", "pool", "distributed", "threads")
CASES: dict[str, Case] = {
    "submit": Case(tasks.submit, TASKS, {"distributed": 2}),
    "map": Case(tasks.map_, TASKS, {"distributed": 2}),
    "latency": Case(tasks.latency, ALL, {"distributed": 2}),
    "efficiency": Case(tasks.efficiency, TASKS[:4], {"processpool": 2, "pool": 2, "distributed": 1}),
    "startup": Case(tasks.startup, ALL[:5], {"distributed": 2}),
    "replace": Case(faults.replace, TASKS[:4], {"scaler": 2, "processpool": 1, "pool": 1, "distributed": 1}),
    "graphs": Case(graphs.graphs, ("scaler", "distributed", "dask-threads", "dask-sync"), {"distributed": 1}),
    "argument": Case(
        data.argument,
        ("scaler", "processpool", "daemons", "distributed"),
        {"daemons": 1, "processpool": 1, "distributed": 1},
    ),
    "array": Case(
        collections.array,
        ("scaler", "dask-threads", "dask-processes", "distributed"),
        {"scaler": 2, "dask-threads": 2, "dask-processes": 1, "distributed": 1},
    ),
    "dataframe": Case(
        collections.dataframe,
        ("scaler", "dask-threads", "distributed"),
        {"scaler": 2, "dask-threads": 2, "distributed": 1},
    ),
    "million": Case(large.million, ("daemons",), {"daemons": 1}, limit=120),
    "planning": Case(planning.planning, ("plain", "graphblas"), {"plain": 1, "graphblas": 1}, on_demand=True),
    "spill": Case(large.spill, ("daemons",), {"daemons": 1}, limit=600, on_demand=True),
    "memory": Case(memory.memory, ("daemons",), {"daemons": 1}),
    "core": Case(core.core, ("scaler",), {"scaler": 1}),
}
