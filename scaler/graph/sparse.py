"""The survey of a very large graph with sparse matrices, by GraphBLAS: what is needed, and in which levels.

The graph becomes a matrix with a row for each key and, in it, an entry for each dependency. What the wanted keys need
is found by multiplying a vector with it again and again; the levels by doing so with its transpose, beginning with the
keys that depend on nothing: each time those are found that depend on nothing else any more. What is done in Python is
making the matrix, and then a few operations for each level: the graph has to be wide.

`python-graphblas` (the extra `graphblas`) is optional, and imported when it is first needed.
See docs/decisions/graphblas.md for what it is worth.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from scaler.common.records import record
from scaler.graph.nodes import Alias, Call, Constant, Key, Node

#: nodes from which a survey takes less time than a walk, with the import of python-graphblas, which takes 0.3 s
FROM = 500_000
#: steps after which a graph counts as too deep for this; one takes about 0.1 ms and more
DEEPEST = 1_000

#: nodes whose `dependencies` have each key once
_KNOWN = frozenset({Alias, Call, Constant})


@record
class Survey:
    """What wanted keys need, themselves included."""

    #: each after those it depends on
    keys: list[Key]
    #: of each of them, the number of keys in the longest chain of dependencies below it
    levels: list[int]


def is_available() -> bool:
    """Say whether python-graphblas can be imported; does not import it."""
    return importlib.util.find_spec("graphblas") is not None


def survey(nodes: Mapping[Any, Node], wanted: Iterable[Any]) -> Survey | None:
    """Return what `wanted` needs of a graph.

    None where something that is needed is missing, where the graph has a cycle, or is deeper than `DEEPEST`: a walk
    will find out.
    """
    import numpy

    size = len(nodes)
    places = dict(zip(nodes, range(size), strict=True))
    if not all(map(places.__contains__, wanted)):
        return None
    dependencies: list[Any] = [node.dependencies for node in nodes.values()]
    if not _KNOWN.issuperset(map(type, nodes.values())):
        dependencies = [dict.fromkeys(needed) for needed in dependencies]
    counts = numpy.fromiter(map(len, dependencies), numpy.int64, size)
    flat = map(places.get, itertools.chain.from_iterable(dependencies), itertools.repeat(-1))
    columns = numpy.fromiter(flat, numpy.int64, int(counts.sum()))
    lacking: Any = numpy.unique(numpy.repeat(numpy.arange(size), counts)[columns < 0])
    if lacking.size:  # rows that had better not be needed: without dependencies
        columns = columns[~numpy.isin(numpy.repeat(numpy.arange(size), counts), lacking)]
        counts[lacking] = 0
    levels = _levels(counts, columns, numpy.fromiter(map(places.__getitem__, wanted), numpy.int64), lacking)
    if levels is None:
        return None
    found = numpy.flatnonzero(levels >= 0)
    if not (columns < numpy.repeat(numpy.arange(size), counts)).all():
        found = found[numpy.argsort(levels[found], kind="stable")]
    keys = list(nodes)
    return Survey(list(map(keys.__getitem__, found.tolist())), levels[found].tolist())


def _levels(counts: Any, columns: Any, roots: Any, lacking: Any) -> Any:
    """Return the level of each row, -1 if it is not needed. `counts`: the entries of each; `columns`: their places."""
    import numpy
    from graphblas import Matrix, Vector, semiring

    size = counts.size
    ends = numpy.zeros(size + 1, numpy.uint64)
    ends[1:] = numpy.cumsum(counts)
    indices = columns.astype(numpy.uint64)
    true = numpy.ones(1, bool)
    needs = Matrix.ss.import_csr(nrows=size, ncols=size, indptr=ends, col_indices=indices, values=true, is_iso=True)
    needed = Vector(bool, size=size)
    found = Vector.from_coo(numpy.unique(roots), True, size=size)
    for _ in range(DEEPEST):
        needed(found.S) << True
        found = found.vxm(needs, semiring.any_pair).new(mask=~needed.S)
        if not found.nvals:
            break
    else:
        return None
    is_needed = numpy.zeros(size, bool)
    is_needed[needed.to_coo(values=False)[0].astype(numpy.int64)] = True
    if is_needed[lacking].any():
        return None

    users = needs.T.new()
    waits_for = counts.copy()
    levels = numpy.full(size, -1)
    ready = numpy.flatnonzero(is_needed & (counts == 0))
    for level in range(DEEPEST):
        if not ready.size:
            break
        levels[ready] = level
        made = Vector.from_coo(ready, 1, size=size, dtype=numpy.int64)
        served, times = made.vxm(users, semiring.plus_pair).new(mask=needed.S).to_coo()
        served = served.astype(numpy.int64)
        waits_for[served] -= times
        ready = served[waits_for[served] == 0]
    return levels if (levels[is_needed] >= 0).all() else None
