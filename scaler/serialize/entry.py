"""What one row of a graph runs: plain tuples that pickle at C speed, and the object a worker makes of them.

A *step* is a call written out:

    (key, function)                        function(*values)
    (key, function, args, fill, inner)     args with some places filled, then function(*args)

`fill` is flat: place, index of a value, place, index, ... `inner` holds (place, (function, args, fill, inner)): an
argument that is a call itself, such as a list of values or a nested task.

An *entry* is a step, or (key, None, steps) for a chain in which each step after the first is called with the result
of the one before as its only value, or (key, None, steps, sources) for a fused row: each step has a source for each of
its values, the number of one of the row's values or ~i for the result of step i, which no other step needs. The last
step makes the row's value. `key` is the graph's, kept for the note that an error gets.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any


class Entry:
    """One row of a graph, ready to run."""

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[Any, ...]) -> None:
        #: the tuple described above
        self._parts = parts

    @property
    def key(self) -> Any:
        """The key in the user's graph; of a chain, that of its last step."""
        return self._parts[0]

    def run(self, values: Sequence[Any]) -> Any:
        """Return the row's value; `values` are those of its dependencies, in order.

        Raises what the user's function raises, with a note that names the key.
        """
        parts = self._parts
        if parts[1] is None:
            if len(parts) == 4:
                return _run_fused(parts[2], parts[3], values)
            for step in parts[2]:
                values = (_run_step(step, values),)
            return values[0]
        return _run_step(parts, values)


class PortionedEntries:
    """Entries that are decoded when they are needed, a portion of so many at a time. One thread."""

    __slots__ = ("_decoded", "_portions", "_size")

    def __init__(self, size: int, portions: list[bytes]) -> None:
        self._size = size
        #: pickles, and the entries of those that were needed
        self._portions = portions
        self._decoded: dict[int, list[Entry]] = {}

    def __getitem__(self, row: int) -> Entry:
        """The entry of a row; raises whatever its functions' modules raise while imported, and IndexError."""
        number, place = divmod(row, self._size)
        entries = self._decoded.get(number)
        if entries is None:
            entries = self._decoded[number] = [Entry(parts) for parts in pickle.loads(self._portions[number])]
        return entries[place]


def with_parts_replaced(
    parts: tuple[Any, ...], function_for: Callable[[Any], Any], value_for: Callable[[Any], Any]
) -> tuple[Any, ...]:
    """Return an entry with something else in the place of each function, and of each argument that is written in it."""
    if parts[1] is None:
        return parts[0], None, [_replaced_step(step, function_for, value_for) for step in parts[2]], *parts[3:]
    return _replaced_step(parts, function_for, value_for)


def _replaced_step(
    step: tuple[Any, ...], function_for: Callable[[Any], Any], value_for: Callable[[Any], Any]
) -> tuple[Any, ...]:
    if len(step) == 2:
        return step[0], function_for(step[1])
    return step[0], *_replaced_call(step[1:], function_for, value_for)


def _replaced_call(
    call: tuple[Any, ...], function_for: Callable[[Any], Any], value_for: Callable[[Any], Any]
) -> tuple[Any, ...]:
    function, args, fill, inner = call
    kept = {*fill[::2], *[place for place, _ in inner]}
    if function is with_keywords or function is call_node:
        kept.add(1)  # names of keywords, or keys
    replaced = [arg if place in kept else value_for(arg) for place, arg in enumerate(args)]
    if function is with_keywords and 0 not in kept:
        replaced[0] = function_for(args[0])
    calls = tuple([(place, _replaced_call(deeper, function_for, value_for)) for place, deeper in inner])
    return function_for(function), tuple(replaced), fill, calls


def functions_of(entries: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The functions that entries call, each once; the loops over all steps are C's, as most call few functions."""
    steps: list[tuple[Any, ...]] = []
    for entry in entries:
        if entry[1] is not None:
            steps.append(entry)
        else:
            steps += entry[2]
    found = _each_once([step for step in steps if len(step) == 2], 1)
    calls = [step[1:] for step in steps if len(step) > 2]
    while calls:
        found |= _each_once(calls, 0)
        if id(with_keywords) in found:
            found |= _each_once([args for function, args, _, _ in calls if function is with_keywords], 0)
        calls = [deeper for call in calls for _, deeper in call[3]]
    return [*found.values()]


def _each_once(tuples: Sequence[tuple[Any, ...]], place: int) -> dict[int, Any]:
    """What tuples have at a place, by id: functions need not be hashable."""
    found = [*map(itemgetter(place), tuples)]
    return dict(zip(map(id, found), found, strict=True))


def fill_in(
    function: Callable[..., Any], args: Sequence[Any], fill: Sequence[int], inner: Any, values: Sequence[Any]
) -> Any:
    """Call `function` with `args`, in which some places are filled by values and by inner calls."""
    filled = list(args)
    places = iter(fill)
    for place in places:
        filled[place] = values[next(places)]
    for place, (inner_function, inner_args, inner_fill, deeper) in inner:
        filled[place] = fill_in(inner_function, inner_args, inner_fill, deeper, values)
    return function(*filled)


def _run_fused(steps: Sequence[Any], sources: Sequence[tuple[int, ...]], values: Sequence[Any]) -> Any:
    results: list[Any] = []
    for step, source in zip(steps, sources, strict=True):
        needed = [values[i] if i >= 0 else results[~i] for i in source]
        for i in source:
            if i < 0:
                results[~i] = None  # its only use
        value = _run_step(step, needed)
        del needed
        results.append(value)
    return results[-1]


def _run_step(step: tuple[Any, ...], values: Sequence[Any]) -> Any:
    try:
        if len(step) == 2:
            return step[1](*values)
        _, function, args, fill, inner = step
        return fill_in(function, args, fill, inner, values)
    except BaseException as error:
        try:
            error.add_note(f"while computing {step[0]!r}")
        except Exception:  # the error matters more than its note
            pass
        raise


# The functions of steps that the user did not write. They live here since they travel by reference.


def as_list(*items: Any) -> list[Any]:
    """Return the arguments as a list."""
    return list(items)


def as_tuple(*items: Any) -> tuple[Any, ...]:
    """Return the arguments as a tuple."""
    return items


def as_set(*items: Any) -> set[Any]:
    """Return the arguments as a set."""
    return set(items)


def as_frozenset(*items: Any) -> frozenset[Any]:
    """Return the arguments as a frozenset."""
    return frozenset(items)


def as_dict(*items: Any) -> dict[Any, Any]:
    """Return a dict of the arguments: key, value, key, value, ..."""
    return dict(zip(items[::2], items[1::2], strict=True))


def itself(value: Any) -> Any:
    """Return the argument."""
    return value


def with_keywords(function: Callable[..., Any], names: tuple[str, ...], *args: Any) -> Any:
    """Call `function` with the last arguments as keyword arguments of these names."""
    split = len(args) - len(names)
    return function(*args[:split], **dict(zip(names, args[split:], strict=True)))


def call_node(node: Callable[[Mapping[Any, Any]], Any], keys: tuple[Any, ...], *values: Any) -> Any:
    """Call a node object with a mapping of its dependencies' values."""
    return node(dict(zip(keys, values, strict=True)))


def is_own(function: Any) -> bool:
    """Whether it is one of these functions."""
    return any(function is own for own in _OWN)


_OWN = (as_list, as_tuple, as_set, as_frozenset, as_dict, itself, with_keywords, call_node)
