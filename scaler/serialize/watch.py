"""What a function that travels by value was made of, as a flat list that tells cheaply whether any of it has changed.

A function travels by value with its code, defaults, closure and the globals that it names, and with the functions and
classes among those that travel by value themselves, and so on. Each of these bindings is one `Binding`: how to read
it, its name, and the value it had. They are compared by identity. What is in these values is compared, too, as far as
it can be looked into and is little (`contents.py`). New attributes of a class are seen, and of the function itself, if
it had none; not those of the functions that it uses, as for each of them a comparison would cost every call more.
"""

from __future__ import annotations

import dis
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from scaler.serialize.contents import HEAP_TYPE, contents_of
from scaler.serialize.importable import is_importable
from scaler.serialize.plain import LruCache
from scaler.serialize.subclasses import binding_of_subclasses

#: what reading a binding gives where there is none
MISSING: Any = object()

#: read(name, MISSING) gives the value bound now; the name; the value at capture
Binding = tuple[Callable[[str, Any], Any], str, Any]

#: items of values that are compared, at most
MOST_ITEMS = 100

#: attributes that Python gives a class when it is first asked for them, or an object of it is pickled
_LAZY = frozenset({"__annotations__", "__annotations_cache__", "__slotnames__"})

_Made = TypeVar("_Made")

_names: WeakKeyDictionary[CodeType, tuple[str, ...]] = WeakKeyDictionary()


def travels_by_reference(obj: Any) -> bool:
    """Say whether "module, qualified name" leads another process to this very function, class or other named object."""
    module = getattr(obj, "__module__", None)
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if not isinstance(name, str) or not is_importable(module):
        return False
    found: Any = sys.modules[str(module)]
    for part in name.split("."):
        found = getattr(found, part, MISSING)
    return found is obj


def bindings(
    root: Any, absent: Sequence[Any] = (), most: int = MOST_ITEMS, is_alone: bool = False
) -> tuple[list[Binding], bool]:
    """Return everything that a function or class which travels by value takes along by name; whether that is all.

    If it isn't, something may be changed in place without a change of these. Nothing of what is in the `absent` values
    is taken along. A class that `is_alone` comes without what other classes take along. At most so many items of values
    are compared.
    """
    return traced(root, absent, most, is_alone)[:2]


def traced(
    root: Any, absent: Sequence[Any] = (), most: int = MOST_ITEMS, is_alone: bool = False
) -> tuple[list[Binding], bool, bool]:
    """The same, and whether who keeps these bindings may keep the root by that, the own code of a function apart."""
    left_out = set(map(id, absent))
    found: list[Binding] = []
    todo = [root]
    seen: set[int] = set()
    items, is_all, leads_back = 0, True, not _lets_go(root)
    while todo:
        obj = todo.pop()
        if id(obj) in seen:
            leads_back = leads_back or obj is root
            continue
        seen.add(id(obj))
        if is_alone and obj is not root and issubclass(type(obj), type):
            continue
        for binding in _bindings_of(obj):
            found.append(binding)
            todo.append(binding[2])
        todo.extend(_parts_of(obj))
        if obj is root or obj is MISSING or issubclass(type(obj), (LruCache, partial)):
            continue
        try:
            contents, inner, is_whole = contents_of(obj, most - items)
        except Exception:  # of a class with a mind of its own
            is_all = False
            continue
        items += len(inner)
        if contents is not None:
            found.append((contents, "__contents__", contents))
        if id(obj) in left_out:
            continue
        is_all = is_all and is_whole
        todo.extend(inner)
    return found, is_all, leads_back


def _lets_go(root: Any) -> bool:
    """Whether a root is not among what it has the names of: a class is, and so are functions of what `exec` has run."""
    if not isinstance(root, FunctionType):
        return not isinstance(root, type)
    names: Any = root.__globals__
    module: Any = root.__module__
    if isinstance(module, str) and getattr(sys.modules.get(module), "__dict__", None) is names:
        return True
    return not names_of_globals(root.__code__)


def made_and_watched(
    root: type, make: Callable[[type], tuple[_Made, Sequence[Any]]], most: int, is_alone: bool = False
) -> tuple[_Made, list[Binding], bool]:
    """Return what is made of a class, with the `bindings` that it stands for, and whether those are all.

    `make` gives the values that could not be part of it, too. Raises what that raises.
    """
    watched, is_all = bindings(root, most=most, is_alone=is_alone)  # first: what changes meanwhile is seen next time
    made, absent = make(root)
    if absent and not is_all:
        watched, is_all = bindings(root, absent, most=most, is_alone=is_alone)
        made, _ = make(root)
    return made, watched, is_all


def is_current(watched: list[Binding]) -> bool:
    """Say whether all is still bound as it was."""
    try:
        for read, name, value in watched:
            if read(name, MISSING) is not value:
                return False
    except ValueError:  # a closure cell that was emptied
        return False
    return True


def names_of_globals(code: CodeType) -> tuple[str, ...]:
    """Return the names of the globals that a piece of code, or a function or class body inside it, reads or writes."""
    names = _names.get(code)
    if names is None:
        found = dict.fromkeys(
            str(step.argval)
            for step in dis.get_instructions(code)
            if step.opname.endswith(("_GLOBAL", "_GLOBALS", "_NAME"))
        )
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                found.update(dict.fromkeys(names_of_globals(inner)))
        names = _names[code] = tuple(found)
    return names


def _bindings_of(obj: Any) -> Iterator[Binding]:
    """Yield what the object itself binds, if it travels by value."""
    kind = type(obj)  # isinstance would ask proxies what they stand for
    if issubclass(kind, FunctionType):
        if travels_by_reference(obj):
            return
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            yield partial(getattr, obj), name, getattr(obj, name)
        for scope in (obj.__kwdefaults__ or {}, obj.__dict__):
            for name, value in scope.items():
                yield scope.get, name, value
        for cell in obj.__closure__ or ():
            yield _binding_of_cell(cell)
        read = obj.__globals__.get
        for name in names_of_globals(obj.__code__):
            yield read, name, read(name, MISSING)
        subclasses = binding_of_subclasses(obj, names_of_globals)
        if subclasses is not None:
            yield subclasses
    elif issubclass(kind, partial):
        for name, value in obj.keywords.items():
            yield obj.keywords.get, name, value
    elif issubclass(kind, defaultdict):
        yield partial(getattr, obj), "default_factory", obj.default_factory
    elif issubclass(kind, type) and obj.__flags__ & HEAP_TYPE and not travels_by_reference(obj):
        attributes = vars(obj)
        for name, value in list(attributes.items()):
            if name not in ("__dict__", "__weakref__"):  # which are never bound anew
                yield attributes.get, name, value
        yield _binding_of_names(attributes)


def _binding_of_names(attributes: Mapping[str, Any]) -> Binding:
    """A class has no more attributes than it had, and those have bindings of their own."""
    names, size = frozenset(attributes), len(attributes)

    def read(_: str, default: Any) -> Any:
        nonlocal size
        if len(attributes) != size:
            if attributes.keys() - names - _LAZY:
                return default
            size = len(attributes)
        return True

    return read, "__dict__", True


def _binding_of_cell(cell: CellType) -> Binding:
    try:
        return partial(getattr, cell), "cell_contents", cell.cell_contents
    except ValueError:
        return partial(_read_empty, cell), "cell_contents", MISSING


def _read_empty(cell: CellType, _: str, default: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return default


def _parts_of(obj: Any) -> tuple[Any, ...]:
    """Return what an object is made of that cannot be rebound, but may itself bind things."""
    kind = type(obj)
    if issubclass(kind, type):
        return *obj.__bases__, kind
    if issubclass(kind, FunctionType) or obj is MISSING:
        return ()
    if issubclass(kind, LruCache):
        return (obj.__wrapped__,)
    if issubclass(kind, partial):
        return obj.func, *obj.args
    if issubclass(kind, (MethodType, staticmethod, classmethod)):
        return obj.__func__, getattr(obj, "__self__", None)
    if issubclass(kind, property):
        return obj.fget, obj.fset, obj.fdel
    return (kind,) if kind.__flags__ & HEAP_TYPE else ()  # nobody changes other classes
