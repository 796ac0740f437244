"""All workers as one picture: a cell for each, or for as many neighbours as it takes to stay readable. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scaler.monitor.snapshot import Snapshot

#: cells of a picture, at most
CELLS = 2400
#: columns and lines that there is always room for: few workers are not drawn huge
COLUMNS, LINES = 16, 4
#: how much wider than high a picture is, in cells
_ASPECT = 6
#: what can be shown of workers: what a cell's colour means, and its unit
FIGURES = {
    "cpu": ("use of processors", "% of one processor"),
    "rss": ("resident memory", "MiB"),
    "queued": ("rows that were handed over and have not begun", "rows"),
    "elapsed": ("time that the row has run for", "seconds"),
}


@dataclass(frozen=True)
class Grid:
    """Where cells are and what they are: the same for as long as the workers are."""

    columns: int
    lines: int
    #: workers in a cell
    each: int
    x: NDArray[np.int16]
    y: NDArray[np.int16]
    #: "host-0003, workers 3.0 to 3.15", and what the address of its agent's workers holds
    labels: tuple[str, ...]
    agents: tuple[int, ...]


def grid_of(snapshot: Snapshot) -> Grid:
    """The cells for the workers of a snapshot."""
    agents = snapshot.agents
    return _grid(tuple(agents.numbers), agents.names, tuple(agents.worker_counts), tuple(snapshot.workers.slots))


@lru_cache(maxsize=2)
def _grid(numbers: tuple[int, ...], names: tuple[str, ...], counts: tuple[int, ...], slots: tuple[int, ...]) -> Grid:
    workers = len(slots)
    each = max(1, -(-workers // CELLS))
    cells = -(-workers // each)
    columns = min(cells, max(COLUMNS, round((cells * _ASPECT) ** 0.5))) if cells else 1
    of_worker = np.repeat(np.arange(len(counts)), counts)
    labels, agents = [], []
    for first in range(0, workers, each):
        last = min(workers, first + each) - 1
        one, other = int(of_worker[first]), int(of_worker[last])
        words = f"{names[one]}, worker {numbers[one]}.{slots[first]}"
        labels.append(words if first == last else f"{words} to {numbers[other]}.{slots[last]}")
        agents.append(numbers[one])
    at = np.arange(cells, dtype=np.int16)
    lines = max(1, -(-cells // columns))
    return Grid(columns, lines, each, at % columns, at // columns, tuple(labels), tuple(agents))


def values_of(snapshot: Snapshot, by: str, each: int) -> NDArray[np.generic]:
    """The mean of a figure over the workers of each cell, as exact as a colour is: this is most of what is sent."""
    workers = snapshot.workers
    columns: dict[str, tuple[Sequence[int], float]] = {
        "cpu": (workers.cpus, 0.1),
        "rss": (workers.memory, 2.0**-20),
        "queued": (workers.queued, 1.0),
        "elapsed": (workers.elapsed, 0.001),
    }
    column, factor = columns[by]
    values = np.asarray(column, dtype=np.float64) * factor
    if each > 1 and len(values):
        firsts = np.arange(0, len(values), each)
        sizes = np.diff(np.append(firsts, len(values)))
        values = np.add.reduceat(values, firsts) / sizes
    if by == "cpu":  # of a worker with many threads it is many processors
        return np.minimum(np.rint(values), 65535).astype(np.uint16)
    return np.rint(values).astype(np.uint32) if by == "rss" else np.round(values, 1).astype(np.float32)
