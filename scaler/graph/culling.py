"""Culling a graph: which calls are needed, and what they need of each other when constants and aliases are sorted out.

Nothing here recurses over the graph: a chain may be as long as memory allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scaler.common.records import record
from scaler.errors import CycleError
from scaler.graph.nodes import Alias, Call, Constant, Key, Node
from scaler.serialize.entry import call_node

#: what may have become of a key
LET_GO = "if it is a future's, hold that until the graph is computed"


@record
class NeededCalls:
    """The calls that are needed, each after those it depends on; lists with an item for each."""

    keys: list[Key]
    calls: list[Call]
    #: the places here of the calls whose values it needs
    needs: list[tuple[int, ...]]
    #: whether `needs` are its dependencies: no constants, no aliases
    is_plain: list[bool]
    #: how many calls need its value, and one more where the user wants it
    users: list[int]
    #: the places of those whose values the user wants
    kept: set[int]
    #: key of a call -> its place in the lists
    places: dict[Key, int]
    #: alias -> key of the call that it stands for in the end
    targets: dict[Key, Key]
    constants: dict[Key, Any]


def depth_first(nodes: Mapping[Any, Node], wanted: Iterable[Any]) -> list[Key]:
    """Return the keys that are needed, each right after the dependencies that were still missing.

    Raises KeyError for one that is not there, with a note that says who needs it; CycleError.
    """
    #: False: what it depends on is being looked at
    done: dict[Key, bool] = {}
    sequence: list[Key] = []
    for root in wanted:
        if root in done:
            continue
        done[root] = False
        stack = [(root, iter(nodes[root].dependencies))]
        while stack:
            key, rest = stack[-1]
            for needed in rest:
                state = done.get(needed)
                if state is None:
                    try:
                        dependencies = nodes[needed].dependencies
                    except KeyError as error:
                        error.add_note(f"{key!s:.200} needs this key, which the graph does not have: {LET_GO}")
                        raise
                    if dependencies:
                        done[needed] = False
                        stack.append((needed, iter(dependencies)))
                        break
                    done[needed] = True
                    sequence.append(needed)
                elif not state:
                    path = [open_ for open_, _ in stack]
                    cycle = [*path[path.index(needed) :], needed]
                    raise CycleError(_describe(cycle), cycle)
            else:
                done[key] = True
                sequence.append(key)
                stack.pop()
    return sequence


def _describe(cycle: list[Key]) -> str:
    names = [str(key) for key in cycle]
    if len(names) > 20:
        names[10:-9] = ["..."]
    return f"the graph depends on itself: {' -> '.join(names)}"


def needed_calls(nodes: Mapping[Any, Node], sequence: Sequence[Key], wanted: Iterable[Key]) -> NeededCalls:
    """Sort out the calls and what they need of each other; in `sequence` dependencies come first."""
    found = NeededCalls([], [], [], [], [], set(), {}, {}, {})
    constants, places, targets, users = found.constants, found.places, found.targets, found.users
    calls, all_needs, all_plain = found.calls, found.needs, found.is_plain
    place_of = places.__getitem__
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
            else:
                targets[key] = target
            continue
        call: Call = node if kind is Call or isinstance(node, Call) else _wrap(node)  # type: ignore[assignment]
        needs: tuple[int, ...] = ()
        is_plain = not call.has_large
        dependencies = call.dependencies
        if dependencies:
            try:
                needs = tuple(map(place_of, dependencies))
            except KeyError:
                is_plain = False
                names = [targets.get(name, name) for name in dependencies]
                needs = tuple(dict.fromkeys([places[name] for name in names if name in places]))
            for place in needs:
                users[place] += 1
        places[key] = len(users)
        users.append(0)
        calls.append(call)
        all_needs.append(needs)
        all_plain.append(is_plain)
    found.keys += places
    for key in wanted:
        if key not in constants:
            place = places[targets.get(key, key)]
            users[place] += 1
            found.kept.add(place)
    return found


def _wrap(node: Node) -> Call:
    """Return a call of a node that the planner cannot see through."""
    keys = tuple(node.dependencies)
    fill = [number for index in range(len(keys)) for number in (index + 2, index)]
    return Call(call_node, keys, (node, keys, *[None] * len(keys)), fill)
