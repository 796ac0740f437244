"""Planning a graph: which rows it becomes, in which order, and what travels with each.

A graph is a dict of key to node. What the wanted keys do not need is culled. Constants are written into the calls that
use them, aliases vanish, and a chain of calls in which each is needed by the next alone becomes one row, unless a
link of it is wanted by the user. The rest is numbered from 0 in an order where every row comes after those it depends
on: depth first, or as `order` says. Runs of consecutive rows are pickled together, so they share functions and keys.

A value too large to be copied into rows (over `LARGE` bytes) is taken out into `Plan.shared`, to be sent once as an
object. Rows name it as a dependency with a negative number: -1 is shared[0], -2 is shared[1], and so on.

Nothing here recurses over the graph: a chain may be as long as memory allows. Plain code, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scaler.client.binding import Binder
from scaler.client.nodes import Alias, Call, Constant, Key, Node, from_tuples
from scaler.errors import CycleError
from scaler.serialize.entry import call_node

__all__ = ["Plan", "Run", "from_tuples", "plan"]


@dataclass(slots=True)
class Run:
    """Consecutive rows that travel as one batch."""

    #: one per row, for `encode_entries`
    entries: list[tuple[Any, ...]]
    #: one list per row, in the order in which its entry wants the values: row numbers of the plan, smaller than the
    #: row's own, or negative for a shared value
    dependencies: list[list[int]]

    @property
    def names(self) -> str:
        """The functions that the rows call, for messages; at most three of them."""
        functions: dict[str, None] = {}
        for entry in self.entries:
            function = entry[1] or entry[2][-1][1]
            name = getattr(function, "__name__", None) or type(function).__name__
            functions[name] = None
            if len(functions) > 3:
                return ", ".join(list(functions)[:3]) + ", ..."
        return ", ".join(functions)


@dataclass(slots=True)
class Plan:
    """What to send for a graph, and where the wanted values will be."""

    runs: list[Run]
    #: the row of each wanted key that has to be computed; several keys may share one
    rows_of_keys: dict[Key, int]
    #: the value of each wanted key that is there already
    constants: dict[Key, Any]
    #: large values, to be sent once as objects; shared[i] is the dependency -1 - i
    shared: list[Any]


def plan(
    nodes: Mapping[Any, Node], keys: Iterable[Any], order: Mapping[Any, Any] | None = None, run_length: int = 64
) -> Plan:
    """Return the plan that computes `keys`.

    `order` maps every key that is needed to its priority, the lowest first; where it contradicts the dependencies, it
    is ignored. Raises KeyError for a key that is needed and not there, CycleError naming the cycle.

    >>> made = plan(from_tuples({"a": 2, "b": (abs, "a"), "c": (abs, "b"), "d": (sum, ["b", "c"])}), ["d"])
    >>> [run.dependencies for run in made.runs], made.rows_of_keys
    ([[[], [0], [0, 1]]], {'d': 2})
    """
    wanted = dict.fromkeys(keys)
    calls = None if order is None else _resolve(nodes, _sorted_by(nodes, wanted, order), wanted)
    if calls is None:
        calls = _resolve(nodes, _depth_first(nodes, wanted), wanted)
        assert calls is not None, "depth first is an order in which all dependencies come first"
    return _number(calls, wanted, run_length)


@dataclass(slots=True)
class _Resolved:
    """The nodes that are needed, by kind, dependencies first."""

    calls: list[tuple[Key, Call]]
    constants: dict[Key, Any]
    #: alias -> the call or constant that it stands for in the end
    targets: dict[Key, Key]
    #: of each call, how many others need its value, and one more where the user wants it
    users: dict[Key, int]


def _sorted_by(nodes: Mapping[Any, Node], wanted: Iterable[Any], order: Mapping[Any, Any]) -> list[Key]:
    """Return the keys that are needed, by priority."""
    needed = set(wanted)
    todo = list(needed)
    while todo:
        for key in nodes[todo.pop()].dependencies:
            if key not in needed:
                needed.add(key)
                todo.append(key)
    return sorted(needed, key=order.__getitem__)


def _depth_first(nodes: Mapping[Any, Node], wanted: Iterable[Any]) -> list[Key]:
    """Return the keys that are needed, each right after the dependencies that were still missing."""
    done: dict[Key, None] = {}
    path: dict[Key, None] = {}
    for root in wanted:
        if root in done:
            continue
        path[root] = None
        branches = [(root, iter(nodes[root].dependencies))]
        while branches:
            key, rest = branches[-1]
            for needed in rest:
                if needed in path:
                    raise CycleError(_describe_cycle(list(path), needed))
                if needed not in done:
                    path[needed] = None
                    branches.append((needed, iter(nodes[needed].dependencies)))
                    break
            else:
                branches.pop()
                del path[key]
                done[key] = None
    return list(done)


def _describe_cycle(path: list[Key], closing: Key) -> str:
    cycle = [*path[path.index(closing) :], closing]
    names = [str(key) for key in cycle]
    if len(names) > 20:
        names[10:-9] = ["..."]
    return f"the graph depends on itself: {' -> '.join(names)}"


def _resolve(nodes: Mapping[Any, Node], sequence: list[Key], wanted: Mapping[Any, Any]) -> _Resolved | None:
    """Sort the nodes by kind and count who uses which; None if a node comes before one that it depends on."""
    calls: list[tuple[Key, Call]] = []
    constants: dict[Key, Any] = {}
    targets: dict[Key, Key] = {}
    users: dict[Key, int] = {}
    for key in sequence:
        node = nodes[key]
        kind = type(node)
        if kind is Constant:
            constants[key] = node.value  # type: ignore[attr-defined]
            continue
        if kind is Alias:
            target = node.target  # type: ignore[attr-defined]
            target = targets.get(target, target)
            if target in constants:
                constants[key] = constants[target]
            elif target in users:
                targets[key] = target
                users[target] += 1 if key in wanted else 0
            else:
                return None
            continue
        call = node if isinstance(node, Call) else _wrap(node)
        for needed in call.dependencies:
            if needed in users:
                users[needed] += 1
            elif needed in targets:
                users[targets[needed]] += 1
            elif needed not in constants:
                return None
        users[key] = 1 if key in wanted else 0
        calls.append((key, call))
    return _Resolved(calls, constants, targets, users)


def _wrap(node: Node) -> Call:
    """Return a call of a node that the planner cannot see through."""
    keys = tuple(node.dependencies)
    fill = [number for index in range(len(keys)) for number in (index + 2, index)]
    return Call(call_node, keys, (node, keys, *[None] * len(keys)), fill)


def _number(resolved: _Resolved, wanted: Mapping[Any, Any], run_length: int) -> Plan:
    """Give each call a row of its own, or make it the next link of the chain that it continues."""
    users, constants, targets = resolved.users, resolved.constants, resolved.targets
    rows: dict[Key, int] = {}
    outputs: list[Key] = []  # the key whose value is the row's, that of the last link so far
    entries: list[tuple[Any, ...]] = []
    chains: dict[int, list[tuple[Any, ...]]] = {}
    dependencies: list[list[int]] = []
    binder = Binder(rows, constants, targets)
    for key, call in resolved.calls:
        step: tuple[Any, ...]
        try:
            needed = [rows[name] for name in call.dependencies]
            plain = not call.has_large
        except KeyError:  # a constant, or an alias
            plain = False
        if not plain:
            step, needed = binder.bind(key, call)
        elif call.args is None:
            step = (key, call.function)
        else:
            step = (key, call.function, call.args, call.fill, call.inner)
        if len(needed) == 1 and (row := needed[0]) >= 0 and users[outputs[row]] == 1:
            if row not in chains:
                chains[row] = [entries[row]]
            chains[row].append(step)
            outputs[row] = key
        else:
            row = len(entries)
            entries.append(step)
            outputs.append(key)
            dependencies.append(needed)
        rows[key] = row
    for row, steps in chains.items():
        entries[row] = (outputs[row], None, steps)
    starts = range(0, len(entries), run_length)
    return Plan(
        [Run(entries[start : start + run_length], dependencies[start : start + run_length]) for start in starts],
        {key: rows[targets.get(key, key)] for key in wanted if key not in constants},
        {key: constants[key] for key in wanted if key in constants},
        binder.shared,
    )
