"""What is in a value that a function takes along, so that it is seen if the value is changed in place.

Lists, dicts, sets and the attributes of objects are compared item by item, by identity, and what is in them in turn.
What can't be looked into like that (arrays, tensors, objects with slots) may change unseen.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Sequence
from enum import Enum
from operator import is_
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

from scaler.serialize.payload import SCALARS

#: fields of classes that `namedtuple` makes
_FIELD = type(vars(namedtuple("_", "field"))["field"])
#: what never changes, or travels by name
_CONSTANT = SCALARS | {range, slice, type(...), type(NotImplemented), object, _FIELD}
_BY_NAME = (
    type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, Enum, staticmethod, classmethod, property,
    GetSetDescriptorType, MappingProxyType, MemberDescriptorType, MethodDescriptorType, ClassMethodDescriptorType,
    WrapperDescriptorType,
)  # fmt: skip
#: modules whose objects can't be changed, or travel by name
_CONSTANT_MODULES = frozenset(
    {
        "_abc", "_collections", "_thread", "dataclasses", "datetime", "decimal", "fractions", "ipaddress", "logging",
        "numpy.dtypes", "operator", "pathlib", "re", "typing", "uuid", "weakref", "zoneinfo",
    }
)  # fmt: skip
#: containers whose items are all that they have
_CONTAINERS = (list, dict, set, defaultdict, OrderedDict, Counter, deque)
#: set in `type.__flags__` of a class that Python code made
HEAP_TYPE = 1 << 9


class Contents:
    """What a container has in it; called as a binding is read, it gives itself if that is all the same yet."""

    __slots__ = ("_container", "_keys", "items")

    def __init__(self, container: Any) -> None:
        self._container = container
        is_dict = isinstance(container, dict)
        self._keys = list(container) if is_dict else None
        self.items: list[Any] = list(container.values() if is_dict else container)

    def __call__(self, _: str, default: Any) -> Any:
        """Compare."""
        container, items, keys = self._container, self.items, self._keys
        try:
            if len(container) != len(items):
                return default
            if keys is None:
                return self if all(map(is_, container, items)) else default
            return self if all(map(is_, container, keys)) and all(map(is_, container.values(), items)) else default
        except RuntimeError:  # another thread changes it at this moment
            return default


def contents_of(value: Any, room: int) -> tuple[Contents | None, Sequence[Any], bool]:
    """What to compare, what is to be looked into in turn, and whether that is all there is to see of a value.

    Nothing is looked into that has more items than there is `room` for. Calls nothing of the value's own class, but
    raises whatever odd classes bring about.
    """
    kind = type(value)
    if _is_constant(kind):
        return None, (), True
    if issubclass(kind, MethodType):
        return None, (value.__self__,), True
    if kind is frozenset:
        return (None, tuple(value), True) if len(value) <= room else _TOO_MUCH
    if kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return (None, tuple.__getitem__(value, slice(None)), True) if tuple.__len__(value) <= room else _TOO_MUCH
    container, is_whole = value, True
    if kind not in _CONTAINERS:
        try:
            container = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return _TOO_MUCH
        is_whole = all(map(_has_nothing_else, kind.__mro__))
        if type(container) is not dict:
            return _TOO_MUCH
    if len(container) > room:
        return _TOO_MUCH
    contents = Contents(container)
    return contents, contents.items, is_whole


_TOO_MUCH: tuple[None, Sequence[Any], bool] = None, (), False


def _is_constant(kind: type) -> bool:
    """Objects of this class never change, travel by name, or are no concern of the user's."""
    if kind in _CONSTANT or issubclass(kind, _BY_NAME):
        return True
    return kind.__module__ in _CONSTANT_MODULES or kind.__module__.startswith("scaler.") or _is_scalar(kind)


def _is_scalar(kind: type) -> bool:
    """A number of NumPy's, or one of its functions."""
    if kind.__module__ != "numpy" or kind.__name__ in ("void", "record"):
        return False
    return kind.__name__ == "ufunc" or any(base.__name__ == "generic" for base in kind.__mro__)


def _has_nothing_else(kind: type) -> bool:
    """Instances have what a class gives them in their `__dict__` alone."""
    return kind in (object, SimpleNamespace) or (bool(kind.__flags__ & HEAP_TYPE) and not vars(kind).get("__slots__"))
