"""Large values: an argument and a result of a hundred megabytes, and one that several tasks use."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy

from bench import work
from bench.cases.attempt import attempt
from bench.engines import Engine, opened
from bench.results import Sample

MB = 1_000_000
#: trips of one measurement, and fewer for engines that take seconds
TRIPS = {"scaler": 5, "daemons": 3, "other": 1}
#: trips of a small value, and of a large one that the engine has already
AGAIN = {"scaler": 20, "daemons": 20, "distributed": 10, "other": 3}


def argument(name: str, repetitions: int) -> Iterator[Sample]:
    """MB/s of a large argument and of a large result; milliseconds more for a task on an object that is there.

    With one repetition the largest are left out.
    """
    quick = repetitions == 1
    arrays = {"argument_100": 100} if quick else {"argument_100": 100, "argument_500": 500}
    texts = {"argument_bytes_100": 100} if quick else {"argument_bytes_100": 100, "argument_bytes_500": 500}
    if name not in TRIPS:
        texts.pop("argument_bytes_500", None)  # as slow as the array, and nothing new
    with opened(name) as engine:
        _trips(engine, numpy.zeros(1), 20)
        for figure, size in arrays.items():
            yield from attempt(figure, name, functools.partial(_argument, figure, name, engine, _array(size)))
        for figure, size in texts.items():
            yield from attempt(figure, name, functools.partial(_argument, figure, name, engine, _bytes(size)))
        yield from attempt("argument_result", name, functools.partial(_result, name, engine))
        yield from attempt("argument_again", name, functools.partial(_again, name, engine, _array(100)))


def _array(size: int) -> Any:
    """An array of doubles of this many MB that nothing compresses."""
    return numpy.random.default_rng(0).random(size * MB // 8)


def _bytes(size: int) -> bytes:
    return numpy.random.default_rng(0).bytes(size * MB)


def _trips(engine: Engine, value: Any, trips: int) -> list[float]:
    """Seconds of each of some tasks one by one, all on the same value."""
    times = []
    for _ in range(trips):
        start = time.perf_counter()
        [answer] = engine.collect([engine.submit(work.first, value)])
        times.append(time.perf_counter() - start)
        if isinstance(value, (numpy.ndarray, bytes)) and answer != float(value[0]):
            raise AssertionError(f"the first item is {value[0]}, not {answer}")
    return times


def _of(table: dict[str, int], name: str) -> int:
    return table.get(name, table["other"])


def _argument(figure: str, name: str, engine: Engine, value: Any) -> Iterator[Sample]:
    size = value.nbytes if isinstance(value, numpy.ndarray) else len(value)
    for trip in range(_of(TRIPS, name)):
        if isinstance(value, numpy.ndarray):
            value[0] = trip  # not what was sent before
        else:
            value = value[1:] + value[:1]
        [seconds] = _trips(engine, value, 1)
        yield Sample(figure, name, size / MB / seconds, 1)


def _result(name: str, engine: Engine) -> Iterator[Sample]:
    for trip in range(_of(TRIPS, name)):
        start = time.perf_counter()
        [array] = engine.collect([engine.submit(work.block, trip)])
        seconds = time.perf_counter() - start
        if array.nbytes != 100 * MB or array[0] != trip or array[-1] != 1.0:
            raise AssertionError("a wrong result")
        yield Sample("argument_result", name, 100 / seconds, 1)


def _again(name: str, engine: Engine, array: Any) -> Iterator[Sample]:
    """The difference of two medians: a task on an object that tasks have used, and one on a small value."""
    shared = engine.put(array)
    _trips(engine, shared, 2)
    few = _of(AGAIN, name)
    again, without = _trips(engine, shared, few), _trips(engine, numpy.zeros(1), few)
    yield Sample("argument_again", name, max(0.01, (statistics.median(again) - statistics.median(without)) * 1e3), few)
