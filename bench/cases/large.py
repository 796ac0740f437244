"""What is larger than usual: a graph of a million tasks, and more objects than a host has memory for."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator

from bench import work
from bench.cases.graphs import Graph, tree
from bench.cases.memory import MB, peak
from bench.engines import PATIENCE, WORKERS, ScalerDaemons
from bench.results import Sample

#: their sums by eights, of sums by eights, ... make a million tasks
LEAVES, LEAVES_QUICK = 875_000, 87_500


def million(name: str, repetitions: int) -> Iterator[Sample]:
    """Seconds for a tree of a million tasks that do nothing, and the most memory of scheduler and client meanwhile.

    A tenth of that with one repetition.
    """
    leaves = LEAVES_QUICK if repetitions == 1 else LEAVES
    graph, keys, values = tree(leaves)
    engine = ScalerDaemons()
    engine.load()
    engine.open(WORKERS)
    try:
        _all_workers(engine)
        gc.collect()
        start = time.perf_counter()
        futures = engine.client.submit_graph(graph, keys)
        submitted = time.perf_counter() - start
        results = [future.result() for future in futures]
        seconds = time.perf_counter() - start
        if results != values:
            raise AssertionError("wrong results")
        yield Sample("large_submit", name, submitted / len(graph) * 1e6, len(graph))
        yield Sample("large_graph", name, seconds / len(graph) * 1e6, len(graph))
        for figure, process in {"large_scheduler": engine.scheduler, "large_client": os.getpid()}.items():
            most = peak(process)
            if most is not None:
                yield Sample(figure, name, most / MB, len(graph))
    finally:
        engine.close()


def _all_workers(engine: ScalerDaemons) -> None:
    """Wait until the client has heard of all workers."""
    deadline = time.monotonic() + PATIENCE
    while engine.client.n_workers < WORKERS:
        if time.monotonic() > deadline:
            raise TimeoutError("the workers don't come")
        time.sleep(0.05)


#: objects, MB of each, and bytes of them that the host may have in memory
OBJECTS, OBJECT, LIMIT = 200, 100, 2_000_000_000


def spill(name: str, _repetitions: int) -> Iterator[Sample]:
    """MB/s of 20 GB of objects that tasks make and others use, on a host that may have 2 GB of them in memory.

    All are made and kept before the first of them is used again.
    """
    graph: Graph = {("block", i): (work.block, i) for i in range(OBJECTS)}
    graph |= {("size", i): (work.nbytes, ("block", i)) for i in range(OBJECTS)}
    graph["made"] = (work.total, [("size", i) for i in range(OBJECTS)])
    graph |= {("first", i): (work.first_after, ("block", i), "made") for i in range(OBJECTS)}
    engine = ScalerDaemons()
    engine.options = ("--memory-limit", str(LIMIT))
    engine.load()
    engine.open(WORKERS)
    try:
        start = time.perf_counter()
        futures = engine.client.submit_graph(graph, [("first", i) for i in range(OBJECTS)])
        results = [future.result() for future in futures]
        seconds = time.perf_counter() - start
        if results != list(range(OBJECTS)):
            raise AssertionError("wrong results")
        yield Sample("spill", name, OBJECTS * OBJECT / seconds, OBJECTS)
    finally:
        engine.close()
