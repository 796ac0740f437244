"""dask graphs as they are, without optimisation: what a task costs when it does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench import work
from bench.cases.clock import Clock
from bench.engines import opened
from bench.results import Sample

Graph = dict[Any, Any]


def wide(tasks: int) -> tuple[Graph, list[Any], list[int]]:
    """Tasks that don't know each other: the graph, the keys wanted, their values."""
    graph = {("wide", i): (work.noop, i) for i in range(tasks)}
    return graph, list(graph), list(range(tasks))


def chain(tasks: int) -> tuple[Graph, list[Any], list[int]]:
    """Each task needs the one before it."""
    graph: Graph = {("chain", 0): (work.increment, 0)}
    for i in range(1, tasks):
        graph["chain", i] = (work.increment, ("chain", i - 1))
    return graph, [("chain", tasks - 1)], [tasks]


def tree(leaves: int) -> tuple[Graph, list[Any], list[int]]:
    """Leaves, summed up eight by eight until one is left, and a task that takes that one: 11,432 tasks for 10,000."""
    graph: Graph = {("leaf", i): (work.noop, 1) for i in range(leaves)}
    level, depth = list(graph), 0
    while len(level) > 1:
        depth += 1
        sums = {("sum", depth, i): (work.total, level[8 * i : 8 * i + 8]) for i in range(-(-len(level) // 8))}
        graph.update(sums)
        level = list(sums)
    graph["result"] = (work.noop, level[0])
    return graph, ["result"], [leaves]


#: figure: shape, its size; and a size for the engine that takes milliseconds a task
SHAPES = {"graph_wide": (wide, 10_000, 1_000), "graph_chain": (chain, 1_000, 300), "graph_tree": (tree, 10_000, 1_000)}


def graphs(name: str, repetitions: int) -> Iterator[Sample]:
    """Microseconds a task."""
    with opened(name) as engine:
        for figure, (shape, many, few) in SHAPES.items():
            small, keys, values = shape(50)
            engine.get(small, keys)
            graph, keys, values = shape(few if name == "distributed" else many)
            for _ in range(1 if name == "distributed" else repetitions):
                with Clock() as clock:
                    results = engine.get(dict(graph), keys)
                if list(results) != values:
                    raise AssertionError(f"wrong results of {figure}")
                yield Sample(figure, name, clock.seconds / len(graph) * 1e6, len(graph))
