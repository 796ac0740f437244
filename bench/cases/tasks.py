"""Independent tasks: how many, how soon, and how much of the cores' time is theirs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from bench import work
from bench.cases.clock import Clock
from bench.engines import ENGINES, WORKERS, Engine, opened
from bench.results import Sample

#: tasks of a measurement, and fewer for engines that would take minutes: rates are compared
SUBMITS = {"processpool": 20_000, "pool": 30_000, "distributed": 1_000, "other": 100_000}
MAPS = {"processpool": 20_000, "distributed": 1_000, "other": 100_000}
TRIPS = {"distributed": 300, "other": 1_000}
#: seconds a task, the function, tasks of an engine
SPINS: dict[str, tuple[float, Callable[[int], None], dict[str, int]]] = {
    "efficiency_100us": (0.0001, work.spin_100us, {"scaler": 20_000, "distributed": 500, "other": 10_000}),
    "efficiency_1ms": (0.001, work.spin_1ms, {"distributed": 500, "other": 2_000}),
    "efficiency_10ms": (0.01, work.spin_10ms, {"distributed": 200, "other": 400}),
}


def _rows(of: dict[str, int], engine: str) -> int:
    return of.get(engine, of["other"])


def _run(engine: Engine, function: Callable[[int], Any], rows: int) -> list[Any]:
    submit = engine.submit
    return engine.collect([submit(function, i) for i in range(rows)])


def _check(results: list[Any], rows: int) -> None:
    if results != list(range(rows)):
        raise AssertionError("wrong results")


def submit(name: str, repetitions: int) -> Iterator[Sample]:
    """Submit all, then collect all results."""
    rows = _rows(SUBMITS, name)
    with opened(name) as engine:
        _run(engine, work.noop, min(rows, 2_000) // 2)
        for _ in range(repetitions):
            with Clock() as clock:
                results = _run(engine, work.noop, rows)
            _check(results, rows)
            yield Sample("submit", name, rows / clock.seconds, rows)
            yield Sample("submit_cpu", name, clock.cpu / rows * 1e6, rows)


def map_(name: str, repetitions: int) -> Iterator[Sample]:
    """One map over a range, as it comes; and once more with a chunk size, for the engine that wants one."""
    rows = _rows(MAPS, name)
    with opened(name) as engine:
        engine.map(work.noop, range(min(rows, 2_000) // 2))
        for _ in range(repetitions):
            with Clock() as clock:
                results = engine.map(work.noop, range(rows))
            _check(list(results), rows)
            yield Sample("map", name, rows / clock.seconds, rows)
            if name in ("scaler", "processpool"):
                with Clock() as clock:
                    results = engine.map_chunked(work.noop, range(100_000))
                yield Sample("map_chunked", name, 100_000 / clock.seconds, 100_000)


def latency(name: str, repetitions: int) -> Iterator[Sample]:
    """Tasks one by one, each submitted when the last one's result is there."""
    trips = _rows(TRIPS, name)
    with opened(name) as engine:
        for i in range(trips // 5):
            engine.collect([engine.submit(work.noop, i)])
        for _ in range(repetitions):
            times = []
            for i in range(trips):
                start = time.perf_counter()
                engine.collect([engine.submit(work.noop, i)])
                times.append(time.perf_counter() - start)
            times.sort()
            yield Sample("latency_p50", name, times[trips // 2] * 1e6, trips)
            yield Sample("latency_p99", name, times[trips * 99 // 100] * 1e6, trips)


def efficiency(name: str, _repetitions: int) -> Iterator[Sample]:
    """The share of the workers' time that submitted tasks of a known duration get."""
    with opened(name) as engine:
        for figure, (seconds, function, sizes) in SPINS.items():
            rows = _rows(sizes, name)
            _run(engine, function, rows // 20)
            with Clock() as clock:
                _run(engine, function, rows)
            yield Sample(figure, name, rows * seconds / (WORKERS * clock.seconds), rows)


def startup(name: str, _repetitions: int) -> Iterator[Sample]:
    """From the constructor to the first result; and the same with the import before it. Once: this process is fresh."""
    engine = ENGINES[name]()
    imported = time.perf_counter()
    engine.load()
    start = time.perf_counter()
    engine.open(WORKERS)
    try:
        engine.collect([engine.submit(work.noop, 0)])
        end = time.perf_counter()
    finally:
        engine.close()
    yield Sample("startup", name, (end - start) * 1e3, 1)
    yield Sample("startup_import", name, (end - imported) * 1e3, 1)
