"""Planning a graph before anything of it is sent: the plain way, and with GraphBLAS."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Mapping
from typing import Any

from bench.cases.clock import Clock
from bench.cases.graphs import Graph
from bench.results import Sample

#: figure: tasks
SIZES = {"planning_10k": 10_000, "planning_100k": 100_000, "planning_1m": 1_000_000}


def planning(name: str, repetitions: int) -> Iterator[Sample]:
    """Microseconds a task to find what is needed and in which levels, and for the whole plan.

    The largest graph is left out with one repetition.
    """
    if name == "graphblas" and importlib.util.find_spec("graphblas") is None:
        yield from (Sample(figure, name, None, 0, "not installed") for figure in SIZES)
        return
    from scaler.graph import collector_paused, depth_first, from_tuples, plan, sparse

    @collector_paused
    def find_levels(nodes: Mapping[Any, Any], keys: list[Any]) -> Mapping[Any, int]:
        if name == "graphblas":
            survey = sparse.survey(nodes, keys)
            assert survey is not None
            return dict(zip(survey.keys, survey.levels, strict=True))
        return _levels(nodes, depth_first(nodes, keys))

    imported = _import_graphblas() if name == "graphblas" else 0.0
    sparse.FROM = 0 if name == "graphblas" else 1 << 60
    for figure, size in SIZES.items():
        if size > 100_000 and repetitions == 1:
            break
        graph, keys = transposition(size)
        nodes = from_tuples(graph)
        order = {key: number for number, key in enumerate(depth_first(nodes, keys))}
        for _ in range(3 if size < 1_000_000 else 1):
            with Clock() as clock:
                levels = find_levels(nodes, keys)
            if len(levels) != len(graph):
                raise AssertionError(f"{len(levels)} of {len(graph)} tasks were found")
            yield Sample(figure, name, clock.cpu / len(graph) * 1e6, len(graph))
            with Clock() as clock:
                plan(nodes, keys, order)
            yield Sample(f"{figure}_plan", name, clock.cpu / len(graph) * 1e6, len(graph))
    yield Sample("planning_import", name, imported * 1e3, 0)


def transposition(tasks: int) -> tuple[Graph, list[Any]]:
    """The sum of a matrix and its transpose, in blocks, added up by eights: a graph of about so many tasks; its key."""
    side = int((tasks / 3.15) ** 0.5)
    cells = [(row, column) for row in range(side) for column in range(side)]
    graph: Graph = {("x", *cell): (abs, 1) for cell in cells}
    graph |= {("turned", row, column): (abs, ("x", column, row)) for row, column in cells}
    graph |= {("both", *cell): (max, ("x", *cell), ("turned", *cell)) for cell in cells}
    level, depth = [("both", *cell) for cell in cells], 0
    while len(level) > 1:
        depth += 1
        sums: Graph = {("sum", depth, i): (sum, level[8 * i : 8 * i + 8]) for i in range(-(-len(level) // 8))}
        graph |= sums
        level = list(sums)
    return graph, level


def _levels(nodes: Mapping[Any, Any], keys: list[Any]) -> dict[Any, int]:
    levels: dict[Any, int] = {}
    for key in keys:
        below = nodes[key].dependencies
        levels[key] = max(map(levels.__getitem__, below)) + 1 if below else 0
    return levels


def _import_graphblas() -> float:
    """Seconds."""
    start = time.perf_counter()
    import graphblas

    graphblas.Matrix.from_coo([0], [0], True)  # some of it is imported when it is first used
    return time.perf_counter() - start
