"""Classes of a script that have objects of themselves among their attributes, as flyweights and registries do.

Such an object is read before its class has its attributes. That is no matter to most; but one that is made by the
class's own `__new__` or by a class method needs these, and the table that they look into. So such a class is given what
has code in it, and tables that are empty yet, as soon as it is there. What was noted in those is dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from scaler.serialize import class_states

#: items of each attribute that are looked at, at most
MOST_ITEMS = 1_000

_TABLES = frozenset({dict, list, set, OrderedDict, WeakSet, WeakValueDictionary})

SetUp = Callable[[Any, Any], object]


def has_own_objects(kind: type) -> bool:
    """Whether an object of a class is one of its attributes, or in a table that is one."""
    return any(
        kind in type(each).__mro__  # the program's metaclass is not asked
        for value in vars(kind).values()
        for each in islice(_items(value), MOST_ITEMS)
    )


def _items(value: Any) -> Iterable[Any]:
    if type(value) not in _TABLES:
        return (value,)
    return list(value.values() if isinstance(value, Mapping) else value)


class BegunBefore:
    """What sets up a class, for a pickler that has this before all attributes of the class."""

    def __init__(self, kind: type, set_up: SetUp, attributes: Mapping[str, Any]) -> None:
        #: `attributes` are those that are pickled
        own = vars(kind)
        first = {name: value for name, value in attributes.items() if isinstance(own.get(name), class_states.CODE)}
        tables = {name: type(own[name]) for name in attributes if type(own.get(name)) in _TABLES}
        self._parts = kind, set_up, first, tables

    def __reduce__(self) -> Any:
        return _begun, self._parts


def _begun(kind: type, set_up: SetUp, attributes: Mapping[str, Any], tables: Mapping[str, type]) -> SetUp:
    class_states.here.begin(kind, {**attributes, **{name: make() for name, make in tables.items()}})
    return set_up
