"""Structures, unions, arrays, pointers, libraries and functions of `ctypes` that a script defines or opens.

`cloudpickle` would copy what `ctypes` makes of the fields of a structure, which can't be; and knows no classes that
have no name, as `c_int * 3` has none. A library is opened there by the name it was opened by here.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any

#: what has to be known as a class is made, before it has fields
_FIRST = ("_type_", "_length_", "_pack_", "_align_", "_anonymous_", "_layout_")
_SWAPPED = "__ctype_be__" if sys.byteorder == "little" else "__ctype_le__"
_FIELD: Any = type(type("_", (ctypes.Structure,), {"_fields_": [("field", ctypes.c_int)]}).field)  # type: ignore[attr-defined]
_FUNCTION: Any = ctypes.CFUNCTYPE(None).__base__
#: classes of classes, which have no names that lead to them, and a class of each
_METACLASSES: dict[type, type] = {
    type(kind): kind
    for kind in (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._Pointer, ctypes.c_int, _FUNCTION)
}
_VALUE: Any = ctypes.Structure.__base__
_WITH_PYTHON, _WITH_ERRNO = 4, 8  # of `_flags_`


def reduced(obj: Any) -> Any:
    """How a class without a name, a library or a function is pickled; NotImplemented for all else."""
    if isinstance(obj, type):
        return _reduced_class(obj)
    if isinstance(obj, ctypes.CDLL):
        functions = {name: _settings(each) for name, each in vars(obj).items() if isinstance(each, _FUNCTION)}
        return _library, (type(obj), obj._name, obj._FuncPtr._flags_, functions)
    if isinstance(obj, _FUNCTION):
        library = (obj._objects or {}).get("0")
        if isinstance(library, ctypes.CDLL):
            return _function, (library, obj.__name__, _settings(obj))
        for part in gc.get_referents(obj):
            if callable(part) and not isinstance(part, type):
                return type(obj), (part,)
    return NotImplemented


def _reduced_class(kind: Any) -> Any:
    if kind in _METACLASSES:
        return type, (_METACLASSES[kind],)
    named = getattr(ctypes, kind.__name__, None)
    if named is not kind and getattr(named, _SWAPPED, None) is kind:
        return getattr, (named, _SWAPPED)
    item, length = getattr(kind, "_type_", None), getattr(kind, "_length_", None)
    if isinstance(item, type):
        if kind.__bases__ == (ctypes._Pointer,) and kind.__name__ == f"LP_{item.__name__}":
            return ctypes.POINTER, (item,)
        if kind.__bases__ == (ctypes.Array,) and kind.__name__ == f"{item.__name__}_Array_{length}":
            return _array, (item, length)
    if kind.__bases__ == (_FUNCTION,) and kind.__module__ == "ctypes" and hasattr(kind, "_argtypes_"):
        return _prototype, (kind._flags_, kind._restype_, *kind._argtypes_)
    return NotImplemented


def is_c_type(kind: type) -> bool:
    """Whether it is a structure, or another class whose objects are values of C."""
    return issubclass(kind, _VALUE)


def with_fields(arguments: tuple[Any, ...], state: tuple[Any, Any]) -> tuple[tuple[Any, ...], tuple[Any, Any]]:
    """What makes such a class on arrival, and the state for `set_up`, of those that `cloudpickle` has."""
    metaclass, name, bases, namespace, *others = arguments
    set_state, (attributes, slots) = state
    first = {each: attributes[each] for each in _FIRST if each in attributes}
    later = {each: value for each, value in attributes.items() if each not in first and type(value) is not _FIELD}
    return (metaclass, name, bases, {**namespace, **first}, *others), (set_state, (later, slots))


def set_up(kind: Any, state: tuple[Any, tuple[dict[str, Any], Any]]) -> None:
    """Give a structure its attributes; its fields only once."""
    set_state, (attributes, slots) = state
    if "_fields_" in vars(kind):
        attributes = {name: value for name, value in attributes.items() if name != "_fields_"}
    set_state(kind, (attributes, slots))


def _settings(function: Any) -> dict[str, Any]:
    settings = {name: getattr(function, name) for name in ("argtypes", "errcheck")}
    return {"restype": function.restype, **{name: value for name, value in settings.items() if value is not None}}


def _array(kind: Any, length: int) -> Any:
    return kind * length


def _prototype(flags: int, restype: Any, *argtypes: Any) -> Any:
    if flags & _WITH_PYTHON:
        return ctypes.PYFUNCTYPE(restype, *argtypes)
    return ctypes.CFUNCTYPE(restype, *argtypes, use_errno=bool(flags & _WITH_ERRNO))


def _library(kind: Any, name: str | None, flags: int, functions: dict[str, dict[str, Any]]) -> Any:
    library = kind(name, use_errno=True) if flags & _WITH_ERRNO else kind(name)
    for each, settings in functions.items():
        _function(library, each, settings)
    return library


def _function(library: Any, name: str, settings: dict[str, Any]) -> Any:
    function = getattr(library, name)
    for each, value in settings.items():
        setattr(function, each, value)
    return function
