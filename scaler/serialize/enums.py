"""Enumerations that travel by value: each member arrives with its value, its attributes and all of its names.

cloudpickle makes the members of their values alone, by a class that has nothing else yet: what `__init__` or `__new__`
of the user's class have set is missing then, and so are aliases and combined flags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, EnumType
from typing import Any

from cloudpickle import cloudpickle

from scaler.serialize.skeletons import known

#: what an enumeration itself gives its members
GIVEN = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_"})
#: what members may be beside objects, and how their own value of it is read
_DATA: dict[type, Callable[[Any], Any]] = {int: int.__int__, str: str.__str__, float: float.__float__}


def reduced(kind: Any, by_cloudpickle: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
    """What makes the enumeration, with which arguments, and the state that `set_up` gives it."""
    _, arguments, (attributes, slots), _, _, set_state = by_cloudpickle
    bases, name, qualname, _, module, tracker, _ = arguments
    base = _base_of(kind)
    read = _DATA.get(base)
    members: dict[str, tuple[Any, ...]] = {}
    given: dict[str, dict[str, Any]] = {}
    for each, member in kind.__members__.items():
        members[each] = (member.value,) if read is None else (member.value, read(member))
        given[each] = {key: value for key, value in vars(member).items() if key not in GIVEN}
    others = {key: value for key, value in attributes.items() if key not in members}
    return _made, (bases, name, qualname, members, module, tracker), (set_state, (others, slots), given)


def set_up(kind: EnumType, state: tuple[Callable[..., Any], Any, dict[str, dict[str, Any]]]) -> None:
    """Give an enumeration that was made what it has besides members, and these what they have."""
    set_state, attributes, given = state
    set_state(kind, attributes)
    member_of: Mapping[str, Any] = kind.__members__
    for name, own in given.items():
        vars(member_of[name]).update(own)


def _base_of(kind: type) -> type:
    """The class that makes the members: of builtin ones another than object if they are of data as well."""
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")


def _made(
    bases: tuple[Any, ...], name: str, qualname: str, members: dict[str, tuple[Any, ...]], module: str, tracker: str
) -> Any:
    found = known(tracker)
    if found is not None:
        return found
    metaclass: Any = type(bases[-1])
    namespace = metaclass.__prepare__(name, bases)
    if members:
        namespace["__new__"], namespace["__init__"] = _new_member, _leave
    for each, parts in members.items():
        namespace[each] = parts[0] if tuple in bases else parts  # where tuples are not taken apart
    kind = metaclass.__new__(metaclass, name, bases, namespace)
    for helper in ("__new_member__", "__init__"):
        if members and helper in vars(kind):
            delattr(kind, helper)
    kind.__module__, kind.__qualname__ = module, qualname
    return cloudpickle._lookup_class_or_track(tracker, kind)


def _new_member(kind: type[Enum], value: Any, *data: Any) -> Any:
    base: Any = _base_of(kind)
    member = base.__new__(kind, *(data or (value,) if base is not object else ()))
    member._value_ = value
    return member


def _leave(member: Any, *parts: Any) -> None:
    """Nothing: what it has comes later."""
