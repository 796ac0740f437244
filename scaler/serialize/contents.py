"""What is in a value that a function takes along, so that it is seen if the value is changed in place.

Lists, dicts, sets and the attributes of objects are compared item by item, by identity, and what is in them in turn; so
is what modules have that travel by value. Objects of C code that pickle as a call are what that call is given. What
can't be looked into like that (arrays, tensors, random generators) may change unseen.
"""

from __future__ import annotations

import copyreg
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Sequence
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

from scaler.serialize.enums import GIVEN
from scaler.serialize.importable import is_importable
from scaler.serialize.plain import SCALARS

#: fields of classes that `namedtuple` makes
_FIELD = type(vars(namedtuple("_", "field"))["field"])
#: what never changes, or travels by name
_CONSTANT = SCALARS | {range, slice, type(...), type(NotImplemented), object, _FIELD}
_BY_NAME = (
    type, FunctionType, CodeType, staticmethod, classmethod, property, GetSetDescriptorType, MappingProxyType,
    MemberDescriptorType, MethodDescriptorType, ClassMethodDescriptorType, WrapperDescriptorType,
)  # fmt: skip
#: modules whose objects can't be changed, or travel by name
_CONSTANT_MODULES = frozenset(
    {
        "_abc", "_thread", "dataclasses", "datetime", "decimal", "fractions", "ipaddress", "numpy.dtypes", "operator",
        "pathlib", "pathlib._local", "re", "typing", "uuid", "weakref", "zoneinfo",
    }
)  # fmt: skip
#: names of the classes of these modules whose objects can be changed
_NOT_CONSTANT = frozenset({"Context", "VoidDType", "WeakKeyDictionary", "WeakValueDictionary", "methodcaller"})
#: classes of objects that travel by name, or have values that are each process's own
_FAMILIES = frozenset({("logging", "Logger"), ("_thread", "_local")})
#: containers whose items are all that they have
_CONTAINERS = (list, dict, set, defaultdict, OrderedDict, Counter, deque)
#: set in `type.__flags__` of each class that Python code made, and of some that C code made
HEAP_TYPE = 1 << 9


class Contents:
    """What a container has in it; called as a binding is read, it gives itself if that is all the same yet."""

    __slots__ = ("_container", "_keys", "items")

    def __init__(self, container: Any) -> None:
        self._container = container
        is_dict = isinstance(container, dict)
        self._keys = list(container) if is_dict else None
        self.items: list[Any] = list(container.values() if is_dict else container)

    def changing_keys(self) -> list[Any]:
        """Those of a dict that may have something in them."""
        return [key for key in self._keys or () if type(key) not in SCALARS]

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


class _Attributes(Contents):
    """What an object has in its `__dict__`, which may be replaced."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any, attributes: dict[str, Any]) -> None:
        super().__init__(attributes)
        self._owner = owner

    def __call__(self, _: str, default: Any) -> Any:
        try:
            attributes = _attribute(self._owner, "__dict__")
            is_same = [*attributes] == self._keys and all(map(is_, attributes.values(), self.items))
            return self if is_same else default
        except (RuntimeError, AttributeError):
            return default


class _Slots:
    """What an object has in its slots, and in its `__dict__` if it has one."""

    __slots__ = ("_attributes", "_filled", "_owner", "_vacant", "_values", "items")

    def __init__(self, owner: Any, attributes: dict[str, Any] | None, slots: Sequence[Any]) -> None:
        self._owner = owner
        self._attributes = None if attributes is None else _Attributes(owner, attributes)
        #: what reads each slot
        self._filled: list[Callable[[Any], Any]] = []
        self._vacant: list[Callable[[Any], Any]] = []
        self._values: list[Any] = []
        for slot in slots:
            try:
                self._values.append(slot.__get__(owner))
                self._filled.append(slot.__get__)
            except AttributeError:
                self._vacant.append(slot.__get__)
        self.items = [*self._values, *(() if self._attributes is None else self._attributes.items)]

    def __call__(self, name: str, default: Any) -> Any:
        """Compare."""
        owner, attributes = self._owner, self._attributes
        if attributes is not None and attributes(name, default) is not attributes:
            return default
        try:
            if not all(map(is_, [read(owner) for read in self._filled], self._values)):
                return default
        except AttributeError:  # one is vacant now
            return default
        return self if all(_is_vacant(read, owner) for read in self._vacant) else default


def _is_vacant(read: Callable[[Any], Any], owner: Any) -> bool:
    try:
        read(owner)
    except AttributeError:
        return True
    return False


class _Call:
    """An object of C code that pickles as a call without a state is all that this call is given."""

    __slots__ = ("_parts", "_reduce")

    def __init__(self, reduce: Any, parts: Sequence[Any]) -> None:
        self._reduce = reduce
        self._parts = parts

    def __call__(self, _: str, default: Any) -> Any:
        """Compare."""
        try:
            parts = _parts_of_call(self._reduce())
        except Exception:
            return default
        is_same = parts is not None and len(parts) == len(self._parts) and all(map(is_, parts, self._parts))
        return self if is_same else default


#: called as a binding is read, it gives itself if all is the same yet
Comparison = Contents | _Slots | _Call


def contents_of(value: Any, room: int) -> tuple[Comparison | None, Sequence[Any], bool]:
    """What to compare, what is to be looked into in turn, and whether that is all there is to see of a value.

    Nothing is looked into that has more items than there is `room` for. Calls nothing of the value's own class but a
    `__reduce__` of C code, and raises whatever odd classes bring about.
    """
    kind = type(value)
    if _is_constant(kind) or (issubclass(kind, ModuleType) and _has_a_name(value)):
        return None, (), True
    if issubclass(kind, (MethodType, BuiltinFunctionType)):
        return None, (value.__self__,), True
    if kind is frozenset:
        return (None, tuple(value), True) if len(value) <= room else _TOO_MUCH
    attributes = _attributes_of(value)
    if kind is tuple or (issubclass(kind, tuple) and (hasattr(kind, "_fields") or _only_adds_attributes(kind, tuple))):
        if tuple.__len__(value) + len(attributes or ()) > room:
            return _TOO_MUCH
        items = tuple.__getitem__(value, slice(None))
        if attributes is None:
            return None, items, True
        own = _Attributes(value, attributes)
        return own, (*items, *own.items), True
    if kind in _CONTAINERS:
        container, is_whole = value, not attributes
    elif issubclass(kind, Enum):
        if attributes is None or is_importable(kind.__module__):
            return None, (), True
        if attributes.keys() <= GIVEN:
            return None, tuple(attributes.values()), True
        container, is_whole = attributes, True
    elif (slots := _slots_of(kind)) and all(map(_has_nothing_else, kind.__mro__)):
        inside = _Slots(value, attributes, slots)
        return (inside, inside.items, True) if len(inside.items) <= room else _TOO_MUCH
    elif attributes is None:
        return _contents_of_reduction(value, room)
    else:
        container, is_whole = attributes, issubclass(kind, ModuleType) or all(map(_has_nothing_else, kind.__mro__))
    if len(container) > room:
        return _TOO_MUCH
    contents = Contents(container) if container is value else _Attributes(value, container)
    if issubclass(kind, ModuleType):
        return contents, [part for name, part in container.items() if not name.startswith("__")], is_whole
    return contents, [*contents.items, *contents.changing_keys()], is_whole


#: reads what an object has, whatever its class says
_attribute = object.__getattribute__
#: bytes by which objects grow with a `__dict__`, and with weak references to them
_POINTER = tuple.__itemsize__

_TOO_MUCH: tuple[None, Sequence[Any], bool] = None, (), False


def _attributes_of(value: Any) -> dict[str, Any] | None:
    try:
        found = _attribute(value, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict and all(type(name) is str for name in found) else None


def _slots_of(kind: type) -> list[Any]:
    """What reads the slots that a class and its bases give their objects."""
    made = [base for base in kind.__mro__ if base.__flags__ & HEAP_TYPE]
    return [slot for base in made for slot in vars(base).values() if type(slot) is MemberDescriptorType]


def _contents_of_reduction(value: Any, room: int) -> tuple[Comparison | None, Sequence[Any], bool]:
    """The same of an object of C code that shows nothing: a name, or a call that makes it when it is unpickled."""
    kind: Any = type(value)
    reduce = getattr(kind, "__reduce__", None)
    is_asked = kind.__reduce_ex__ is object.__reduce_ex__ and kind not in copyreg.dispatch_table
    if not is_asked or type(reduce) is not MethodDescriptorType or reduce is object.__reduce__ or room <= 0:
        return _TOO_MUCH
    bound = reduce.__get__(value)
    reduced = bound()
    if type(reduced) is str:
        return None, (), True
    parts = _parts_of_call(reduced)
    if parts is None or len(parts) > room:
        return _TOO_MUCH
    contents = _Call(bound, parts)
    return (contents, parts, True) if contents("", None) is contents else _TOO_MUCH  # made anew each time


def _parts_of_call(reduced: Any) -> Sequence[Any] | None:
    """What is called and given, if a reduction is no more than a call."""
    return (reduced[0], *reduced[1]) if type(reduced) is tuple and len(reduced) == 2 else None


def _has_a_name(module: ModuleType) -> bool:
    """A module is not copied to where it is used."""
    return module.__name__ == "__main__" or is_importable(module.__name__)


def _is_constant(kind: type) -> bool:
    """Objects of this class never change, travel by name, or are no concern of the user's."""
    if kind in _CONSTANT or issubclass(kind, _BY_NAME):
        return True
    if kind.__module__ in _CONSTANT_MODULES:
        return kind.__name__ not in _NOT_CONSTANT
    if any((base.__module__, base.__name__) in _FAMILIES for base in kind.__mro__):
        return True
    return kind.__module__.startswith("scaler.") or _is_scalar(kind)


def _is_scalar(kind: type) -> bool:
    """A number of NumPy's, or one of its functions."""
    if kind.__module__ != "numpy" or kind.__name__ in ("void", "record"):
        return False
    return kind.__name__ == "ufunc" or any(base.__name__ == "generic" for base in kind.__mro__)


def _only_adds_attributes(kind: type, base: type) -> bool:
    """Objects have what a base gives them, and a `__dict__` at most."""
    return all(
        each.__flags__ & HEAP_TYPE and "__slots__" not in vars(each)
        for each in kind.__mro__[: kind.__mro__.index(base)]
    )


def _has_nothing_else(kind: type) -> bool:
    """Instances have what a class gives them in their `__dict__` and slots alone."""
    if kind in (object, SimpleNamespace):
        return True
    base, own = kind.__base__, vars(kind)
    if base is None or not kind.__flags__ & HEAP_TYPE:
        return False
    slots = sum(type(each) is MemberDescriptorType for each in own.values())
    known = _POINTER * (("__dict__" in own) + ("__weakref__" in own) + slots)
    return kind.__basicsize__ - base.__basicsize__ <= known and kind.__itemsize__ == base.__itemsize__
