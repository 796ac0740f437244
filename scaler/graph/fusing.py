"""Fusing rows of a graph: a value that one row alone needs is made by that row, and never leaves its worker.

Handing a row out costs tens of microseconds, whatever it does. Where a graph has many more rows than the cluster has
workers, small subtrees become one *fused row* each: the steps of several rows, run one after the other. There are
always enough rows left to keep all workers busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: rows that are left for each worker at least
ROWS_PER_WORKER = 32
#: steps in a fused row, at most
MOST_STEPS = 32

#: (key, function, ...) or a chain: see `scaler.serialize.entry`
Entry = tuple[Any, ...]


def fusion_limit(rows: int, workers: int | None) -> int:
    """How many steps a fused row may have, for a graph of so many rows; 1: none are fused, as without `workers`.

    >>> fusion_limit(100, 2), fusion_limit(1_000, 2), fusion_limit(1_000_000, 2), fusion_limit(1_000_000, None)
    (1, 15, 32, 1)
    """
    if workers is None:
        return 1
    return max(1, min(MOST_STEPS, rows // (ROWS_PER_WORKER * max(1, workers))))


def fuse(
    entries: Sequence[Entry], dependencies: Sequence[tuple[int, ...]], needed_once: Sequence[bool], limit: int
) -> tuple[list[Entry], list[tuple[int, ...]], list[int]]:
    """Fuse rows whose value is `needed_once` with the row that needs it, up to `limit` steps each.

    Returns entries and dependencies of the rows that are left, and of each old row the new one (of a fused one: that
    of the row it was fused with). Dependencies count in rows, and come first.
    """
    sizes = [len(entry[2]) if entry[1] is None else 1 for entry in entries]
    is_fused = [False] * len(entries)
    #: of each row, those that are fused with it
    members: dict[int, list[int]] = {}
    for row, needs in enumerate(dependencies):
        size = sizes[row]
        if size >= limit:
            continue
        mine = []
        # those made last go first: what the others need would be kept until this row
        for need in sorted(needs, reverse=True) if len(needs) > 1 else needs:
            if need >= 0 and needed_once[need] and size + sizes[need] <= limit:
                size += sizes[need]
                is_fused[need] = True
                mine.append(need)
        if mine:
            members[row] = mine[::-1]
            sizes[row] = size
    if not members:
        return list(entries), list(dependencies), list(range(len(entries)))
    left = [row for row, fused in enumerate(is_fused) if not fused]
    numbers = [0] * len(entries)
    for number, row in enumerate(left):
        numbers[row] = number
    new_entries: list[Entry] = []
    new_dependencies: list[tuple[int, ...]] = []
    for number, row in enumerate(left):
        if row in members:
            entry, needs = _fused(row, entries, dependencies, members, numbers, number)
        else:
            entry, needs = entries[row], dependencies[row]
        new_entries.append(entry)
        new_dependencies.append(tuple([need if need < 0 else numbers[need] for need in needs]))
    return new_entries, new_dependencies, numbers


def _fused(
    root: int,
    entries: Sequence[Entry],
    dependencies: Sequence[tuple[int, ...]],
    members: dict[int, list[int]],
    numbers: list[int],
    number: int,
) -> tuple[Entry, tuple[int, ...]]:
    """Return a fused row and the old rows, or shared values, that it needs."""
    order: list[int] = []
    stack = [root]
    while stack:  # a row before those that are fused with it: turned round below
        row = stack.pop()
        order.append(row)
        stack += members.get(row, ())
    order.reverse()
    steps: list[Entry] = []
    sources: list[tuple[int, ...]] = []
    needed: dict[int, int] = {}
    #: of each of the rows, which step makes its value
    made: dict[int, int] = {}
    for row in order:
        numbers[row] = number
        needs = dependencies[row]
        if needs:
            needs = tuple([~made[need] if need in made else needed.setdefault(need, len(needed)) for need in needs])
        sources.append(needs)
        entry = entries[row]
        if entry[1] is None:
            steps += entry[2]
            sources += [(~step,) for step in range(len(sources) - 1, len(steps) - 1)]
        else:
            steps.append(entry)
        made[row] = len(steps) - 1
    return (entries[root][0], None, steps, sources), tuple(needed)
