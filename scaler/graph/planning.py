"""Planning a graph: which rows it becomes, in which order, and what travels with each.

A graph is a dict of key to node. What the wanted keys do not need is culled. Constants are written into the calls that
use them, aliases vanish, and a chain of calls in which each is needed by the next alone becomes one row, unless a
link of it is wanted by the user. The rest is numbered from 0 in an order where every row comes after those it depends
on. Runs of consecutive rows are pickled together, so they share functions and keys.

The order decides how many values are kept at a time; `scaler.graph.order` finds it, unless the caller knows a
better one.

A value too large to be copied into rows (over `LARGE` bytes) is taken out into `Plan.shared`, to be sent once as an
object, and so is what stands for a value that is in the cluster (`RemoteValue`). Rows name it as a dependency with a
negative number: -1 is shared[0], -2 is shared[1], and so on.

Nothing here recurses over the graph: a chain may be as long as memory allows. Plain code, no I/O.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from scaler.common.collector import collector_paused
from scaler.common.records import record
from scaler.graph import sparse
from scaler.graph.binding import Binder
from scaler.graph.culling import NeededCalls, depth_first, needed_calls
from scaler.graph.fusing import fuse, fusion_limit
from scaler.graph.nodes import Key, Node
from scaler.graph.order import fewest_kept, heaviest_first, is_order

#: the priority of each key
Order = Mapping[Any, Any]


@record
class Run:
    """Consecutive rows that travel as one batch."""

    #: one per row, for `encode_entries`
    entries: list[tuple[Any, ...]]
    #: one tuple per row, in the order in which its entry wants the values: row numbers of the plan, smaller than the
    #: row's own, or negative for a shared value
    dependencies: list[tuple[int, ...]]
    #: what the caller of `plan` said of all its rows
    options: Any = None

    @property
    def names(self) -> str:
        """The functions that the rows call, for messages; at most three of them."""
        names: dict[str, None] = {}
        last: Any = None
        for entry in self.entries:
            function = entry[1] or entry[2][-1][1]
            if function is last:
                continue
            last = function
            names[getattr(function, "__name__", None) or type(function).__name__] = None
            if len(names) > 3:
                return ", ".join(list(names)[:3]) + ", ..."
        return ", ".join(names)


@record
class Plan:
    """What to send for a graph, and where the wanted values will be."""

    runs: list[Run]
    #: the row of each wanted key that has to be computed; several keys may share one
    rows_of_keys: dict[Key, int]
    #: the value of each wanted key that is there already
    constants: dict[Key, Any]
    #: large values, to be sent once as objects, and such as are elsewhere; shared[i] is the dependency -1 - i
    shared: list[Any]


@collector_paused
def plan(
    nodes: Mapping[Any, Node],
    keys: Iterable[Any],
    order: Order | None = None,
    run_length: int = 64,
    workers: int | None = None,
    options: Mapping[Key, Any] | None = None,
    lone: Container[Key] = (),
) -> Plan:
    """Return the plan that computes `keys`; nothing is sent.

    Rows are fused as far as that leaves enough for so many `workers`; None: not at all.

    `options` has something for some keys: only calls with equal options share a row, or a run, which is given them.
    The calls of `lone` keys share their row with none.

    `order` maps every key that is needed to its priority, the lowest first; one that contradicts the dependencies is
    ignored. Without it calls are put into an order in which few values are kept at a time.
    Raises KeyError for a key that is needed and not there, CycleError naming the cycle.

    >>> from scaler.graph import from_tuples
    >>> made = plan(from_tuples({"a": 2, "b": (abs, "a"), "c": (abs, "b"), "d": (sum, ["b", "c"])}), ["d"])
    >>> [run.dependencies for run in made.runs], made.rows_of_keys
    ([[(), (0,), (0, 1)]], {'d': 2})
    """
    wanted = dict.fromkeys(keys)
    survey = None
    if order is not None and len(nodes) >= sparse.FROM and sparse.is_available():
        survey = sparse.survey(nodes, wanted)
    calls = needed_calls(nodes, survey.keys if survey else depth_first(nodes, wanted), wanted)
    try:
        arranged = _arrange(calls, order)
    except _Contradiction:
        return plan(nodes, wanted, None, run_length, workers, options, lone)
    return _number(calls, arranged, wanted, run_length, workers, options or {}, lone)


def _arrange(found: NeededCalls, order: Order | None) -> list[int] | None:
    """Return the places of the calls in the order in which they are to be numbered; None: as they are.

    Raises _Contradiction if in the order given a call comes before one that it needs.
    """
    keys, needs = found.keys, found.needs
    if order is None:
        return heaviest_first(needs) if max(found.users, default=0) <= 1 else fewest_kept(needs, found.kept)
    priorities = [order[key] for key in keys]
    arranged = sorted(range(len(keys)), key=priorities.__getitem__)
    if not is_order(arranged, needs):
        raise _Contradiction
    return arranged


class _Contradiction(Exception):
    """The order given is none of the graph's."""


def _number(
    found: NeededCalls,
    arranged: Sequence[int] | None,
    wanted: Iterable[Key],
    run_length: int,
    workers: int | None,
    options: Mapping[Key, Any],
    lone: Container[Key],
) -> Plan:
    """Give each call a row of its own, or make it the next link of the chain that it continues; fuse small subtrees."""
    #: of each call, by its place
    rows = [0] * len(found.keys)
    row_of = rows.__getitem__
    entries: list[tuple[Any, ...]] = []
    #: of each row, whether the value of its last link so far is needed by one call alone, which may be the next link
    is_needed_once: list[bool] = []
    #: of each row, if there are any
    row_options: list[Any] = []
    chains: dict[int, list[tuple[Any, ...]]] = {}
    dependencies: list[tuple[int, ...]] = []
    binder = Binder(found.places, rows, found.targets, found.constants)
    columns: list[Sequence[Any]] = [found.keys, found.calls, found.needs, found.is_plain, found.users]
    if arranged is None:
        arranged = range(len(rows))
    else:
        columns = [[column[place] for place in arranged] for column in columns]
    for place, key, call, needs, is_plain, users in zip(arranged, *columns, strict=True):
        step: tuple[Any, ...]
        if not is_plain:
            step, needed = binder.bind(key, call)
        else:
            needed = tuple(map(row_of, needs)) if needs else ()
            step = (key, call.function) if call.args is None else (key, call.function, call.args, call.fill, call.inner)
        if (
            len(needed) == 1
            and (row := needed[0]) >= 0
            and is_needed_once[row]
            and not (options and options.get(key) != row_options[row])
            and key not in lone
        ):
            if row not in chains:
                chains[row] = [entries[row]]
            chains[row].append(step)
            is_needed_once[row] = users == 1
        else:
            row = len(entries)
            entries.append(step)
            is_needed_once.append(users == 1 and key not in lone)
            dependencies.append(needed)
            if options:
                row_options.append(options.get(key))
        rows[place] = row
    for row, steps in chains.items():
        entries[row] = (steps[-1][0], None, steps)
    limit = fusion_limit(len(entries), workers)
    if limit > 1 and not options:
        entries, dependencies, numbers = fuse(entries, dependencies, is_needed_once, limit)
        rows = [numbers[row] for row in rows]
    targets, constants, places = found.targets, found.constants, found.places
    return Plan(
        [
            Run(entries[start:end], dependencies[start:end], row_options[start] if options else None)
            for start, end in _runs(len(entries), row_options, run_length)
        ],
        {key: rows[places[targets.get(key, key)]] for key in wanted if key not in constants},
        {key: constants[key] for key in wanted if key in constants},
        binder.shared,
    )


def _runs(rows: int, options: Sequence[Any], length: int) -> Iterable[tuple[int, int]]:
    """Yield where runs begin and end: they have at most `length` rows, of the same options."""
    start = 0
    while start < rows:
        end = min(start + length, rows)
        if options:
            end = next((row for row in range(start + 1, end) if options[row] != options[start]), end)
        yield start, end
        start = end
