"""Joining rows of a graph: a value that one row alone needs is made by that row, and never leaves its worker.

Handing a row out costs tens of microseconds, whatever it does. Where a graph has many more rows than the cluster has
workers, small subtrees become one row each: a *bundle*, the steps of several rows, run one after the other. There are
always enough bundles left to keep all workers busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: rows that are left for each worker at least
PER_WORKER = 32
#: steps in a bundle, at most
LARGEST = 32

#: (key, function, ...) or a chain: see `scaler.serialize.entry`
Entry = tuple[Any, ...]


def bundle_size(rows: int, workers: int) -> int:
    """How many steps a bundle may have, for a graph of so many rows; 1: none are made.

    >>> bundle_size(100, 2), bundle_size(1_000, 2), bundle_size(1_000_000, 2)
    (1, 15, 32)
    """
    return max(1, min(LARGEST, rows // (PER_WORKER * max(1, workers))))


def bundled(
    entries: Sequence[Entry], dependencies: Sequence[tuple[int, ...]], needed_once: Sequence[bool], limit: int
) -> tuple[list[Entry], list[tuple[int, ...]], list[int]]:
    """Join rows whose value is `needed_once` to the row that needs it, up to `limit` steps each.

    Returns entries and dependencies of the rows that are left, and of each old row the new one (of a joined one: that
    of the row it was joined to). Dependencies count in rows, and come first.
    """
    sizes = [len(entry[2]) if entry[1] is None else 1 for entry in entries]
    joined = [False] * len(entries)
    #: of each row, those that are joined to it
    members: dict[int, list[int]] = {}
    for row, needs in enumerate(dependencies):
        size = sizes[row]
        if size >= limit:
            continue
        mine = []
        for need in needs:
            if need >= 0 and needed_once[need] and size + sizes[need] <= limit:
                size += sizes[need]
                joined[need] = True
                mine.append(need)
        if mine:
            members[row] = mine
            sizes[row] = size
    if not members:
        return list(entries), list(dependencies), list(range(len(entries)))
    left = [row for row, is_joined in enumerate(joined) if not is_joined]
    numbers = [0] * len(entries)
    for number, row in enumerate(left):
        numbers[row] = number
    new_entries: list[Entry] = []
    new_dependencies: list[tuple[int, ...]] = []
    for number, row in enumerate(left):
        if row in members:
            entry, needs = _join(row, entries, dependencies, members, numbers, number)
        else:
            entry, needs = entries[row], dependencies[row]
        new_entries.append(entry)
        new_dependencies.append(tuple([need if need < 0 else numbers[need] for need in needs]))
    return new_entries, new_dependencies, numbers


def _join(
    root: int,
    entries: Sequence[Entry],
    dependencies: Sequence[tuple[int, ...]],
    members: dict[int, list[int]],
    numbers: list[int],
    number: int,
) -> tuple[Entry, tuple[int, ...]]:
    """Return a bundle and the old rows, or shared values, that it needs."""
    order: list[int] = []
    stack = [root]
    while stack:  # a row before those that are joined to it: turned round below
        row = stack.pop()
        order.append(row)
        stack += members.get(row, ())
    order.reverse()
    steps: list[Entry] = []
    sources: list[tuple[int, ...]] = []
    needed: dict[int, int] = {}
    #: of each row of the bundle, which step makes its value
    made: dict[int, int] = {}
    for row in order:
        numbers[row] = number
        sources.append(
            tuple([~made[need] if need in made else needed.setdefault(need, len(needed)) for need in dependencies[row]])
        )
        entry = entries[row]
        links = entry[2] if entry[1] is None else (entry,)
        steps += links
        sources += [(~step,) for step in range(len(steps) - len(links), len(steps) - 1)]
        made[row] = len(steps) - 1
    return (entries[root][0], None, steps, sources), tuple(needed)
