"""dask's arrays and data frames, as their users write them: what moving blocks between tasks costs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from bench.cases.attempt import attempt
from bench.cases.clock import Clock
from bench.engines import Engine, opened
from bench.results import Sample


def array(name: str, repetitions: int) -> Iterator[Sample]:
    """Seconds for a transposition and for products of matrices; smaller ones with one repetition."""
    import dask.array

    side = 4_000 if repetitions == 1 else 8_000
    with opened(name) as engine:
        engine.compute(dask.array.random.default_rng(0).random((160, 160), chunks=(10, 10)).sum())  # they import numpy
        measure = functools.partial(_transpose, name, engine, side, repetitions)
        yield from attempt("array_transpose", name, measure)
        for chunk in (1_000, 500):
            measure = functools.partial(_dot, name, engine, 2_000, chunk, repetitions)
            yield from attempt(f"array_dot_{chunk}", name, measure)


def _transpose(name: str, engine: Engine, side: int, repetitions: int) -> Iterator[Sample]:
    import dask.array

    for _ in range(_few(name, repetitions)):
        x = dask.array.random.default_rng(0).random((side, side), chunks=(1_000, 1_000))
        collection = (x + x.T).mean()
        with Clock() as clock:
            mean = engine.compute(collection)
        if abs(mean - 1.0) > 0.01:
            raise AssertionError(f"the mean is 1, not {mean}")
        yield Sample("array_transpose", name, clock.seconds, side * side)


def _dot(name: str, engine: Engine, side: int, chunk: int, repetitions: int) -> Iterator[Sample]:
    import dask.array

    for _ in range(_few(name, repetitions)):
        x = dask.array.ones((side, side), chunks=(chunk, chunk))
        collection = x.dot(x)
        with Clock() as clock:
            product = engine.compute(collection)
        if product.shape != (side, side) or product[0, 0] != side or product[-1, -1] != side:
            raise AssertionError("a wrong product")
        yield Sample(f"array_dot_{chunk}", name, clock.seconds, side * side)


def _few(name: str, repetitions: int) -> int:
    return 1 if name == "distributed" else repetitions


# ---- data frames -----------------------------------------------------------------------------------------------------
ROWS, KEYS, PARTITIONS = 5_000_000, 1_000_000, 20


def left(number: int, rows: int, keys: int) -> Any:
    """A part of the large table: keys, in no order, and a value."""
    import numpy
    import pandas

    generator = numpy.random.default_rng(number)
    return pandas.DataFrame({"key": generator.integers(0, keys, rows), "value": numpy.ones(rows)})


def right(number: int, rows: int) -> Any:
    """A part of the small table: each key once."""
    import numpy
    import pandas

    keys = numpy.arange(number * rows, (number + 1) * rows)
    return pandas.DataFrame({"key": keys, "weight": numpy.full(rows, 2.0)})


def dataframe(name: str, repetitions: int) -> Iterator[Sample]:
    """Seconds to group, to join and to shuffle a table of 5 million rows; of half a million with one repetition."""
    import dask
    import dask.dataframe as frames

    scale = 10 if repetitions == 1 else 1
    rows, keys = ROWS // scale, KEYS // scale
    part = rows // PARTITIONS
    table = frames.from_map(left, range(PARTITIONS), rows=part, keys=keys, meta=left(0, 0, keys))
    other = frames.from_map(right, range(PARTITIONS // 5), rows=keys // (PARTITIONS // 5), meta=right(0, 0))
    with dask.config.set({"dataframe.shuffle.method": "tasks"}), opened(name) as engine:
        little = frames.from_map(left, range(20), rows=10, keys=10, meta=left(0, 0, 10))
        engine.compute(little.shuffle("key").groupby("key").value.sum())  # workers import pandas
        wanted = {
            "dataframe_groupby": (lambda: table.groupby("key").value.sum().sum(), float(rows)),
            "dataframe_merge": (lambda: table.merge(other, on="key").weight.sum(), 2.0 * rows),
            "dataframe_shuffle": (lambda: table.shuffle("key").map_partitions(len, meta=int).sum(), rows),
        }
        for figure, (make, value) in wanted.items():
            measure = functools.partial(_frame, figure, name, engine, make, value, rows, repetitions)
            yield from attempt(figure, name, measure)


def _frame(
    figure: str, name: str, engine: Engine, make: Callable[[], Any], value: Any, rows: int, repetitions: int
) -> Iterator[Sample]:
    for _ in range(_few(name, repetitions)):
        collection = make()
        with Clock() as clock:
            result = engine.compute(collection)
        if result != value:
            raise AssertionError(f"{result} is not {value}")
        yield Sample(figure, name, clock.seconds, rows)
