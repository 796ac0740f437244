"""Functions and classes that travel by value: what `cloudpickle` leaves out, or copies though it has to be itself."""

from __future__ import annotations

import copyreg
import dis
import gc
import importlib
import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

import cloudpickle

from scaler.serialize.importable import is_importable
from scaler.serialize.named_objects import may_be_a_name

#: how `numpy.frompyfunc` ends the names of what it makes
_MADE_OF_PYTHON = " (vectorized)"
_READS = frozenset({"LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
#: which argument of `CodeType` is the name of the file
_FILE = 10


def reduced_code(code: CodeType) -> Any:
    """Code with the name of its file, which tracebacks, warnings and `inspect` need.

    `cloudpickle` leaves that out from 3.1.3 on, so that pickles of the same code are the same wherever it stands.
    """
    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return make, (*arguments[:_FILE], code.co_filename, *arguments[_FILE + 1 :])


def add_globals_of_class_bodies(function: FunctionType, reduced: Any) -> None:
    """Add to a function's reduction the globals that only bodies of classes inside of it read.

    `cloudpickle` looks for the instructions of functions: `class C: size = SIZE` has another one.
    """
    carried, scope = reduced[2][1]["__globals__"], function.__globals__
    for name in _names_in_class_bodies(function.__code__):
        if name in scope and not name.startswith("__"):  # those that a body begins with
            carried.setdefault(name, scope[name])


def _names_in_class_bodies(code: CodeType) -> Iterator[str]:
    """The names that bodies of classes in this code read before they bind them."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if not inner.co_flags & inspect.CO_OPTIMIZED:
                bound: set[str] = set()
                for step in dis.get_instructions(inner):
                    if step.opname == "STORE_NAME":
                        bound.add(step.argval)
                    elif step.opname in _READS and step.argval not in bound:
                        yield step.argval
            yield from _names_in_class_bodies(inner)


def reduced_ufunc(function: Any) -> Any:
    """What `numpy.frompyfunc` has made, by the function that it calls; NotImplemented for others, which have a name."""
    if function.__name__.endswith(_MADE_OF_PYTHON):
        for part in gc.get_referents(function):
            if callable(part):
                return _ufunc, (part, function.nin, function.nout, function.identity)
    return NotImplemented


def _ufunc(function: Any, nin: int, nout: int, identity: Any) -> Any:
    numpy = importlib.import_module("numpy")
    return numpy.frompyfunc(function, nin, nout, identity=identity)


def reduced_method(method: MethodType) -> Any:
    """A method that its object has not got by its function's name, as Python writes it; NotImplemented for others.

    Those with a private name are one kind; others are lambdas, have a decorator without `functools.wraps`, or were
    taken by `super()`.
    """
    function, owner = method.__func__, method.__self__
    if getattr(owner, function.__name__, None) == method:
        return NotImplemented
    for kind in (owner if isinstance(owner, type) else type(owner)).__mro__:
        for name, member in vars(kind).items():
            if getattr(member, "__func__", member) is function and getattr(owner, name, None) == method:
                return getattr, (owner, name)
    return MethodType, (function, owner)


def has_sentinels(kind: Any) -> bool:
    """Whether `reduced_sentinel` may have to look at objects of a class, which Python pickles by itself."""
    if may_be_a_name(kind) or kind.__getattribute__ is not object.__getattribute__:
        return False
    return bool(kind.__getstate__ is object.__getstate__)


def may_be_sentinel(obj: Any) -> bool:
    """Whether `reduced_sentinel` has to look at an object: not if it has attributes."""
    return has_sentinels(type(obj)) and not has_attributes(obj)


def has_attributes(obj: Any) -> bool:
    """Whether an object has a state that it shows: something in its `__dict__`, or a slot that is set."""
    if getattr(obj, "__dict__", None):
        return True
    return any(hasattr(obj, name) for name in copyreg._slotnames(type(obj)))  # type: ignore[attr-defined]


def reduced_sentinel(obj: Any) -> Any:
    """An object without any state that is known by a name in the module of its class, if others can import that.

    It arrives as what has the name there. NotImplemented for all others.

    Whoever has such an object, `dataclasses.MISSING` say, asks whether it is that very one: a dataclass that travels by
    value, whose fields have it, was taken for one with defaults.
    """
    kind: Any = type(obj)
    if may_be_a_name(kind) or kind.__getstate__ is not object.__getstate__ or not is_importable(kind.__module__):
        return NotImplemented
    try:
        reduced: Any = object.__reduce_ex__(obj, 4)
        make, *rest = reduced
    except Exception:  # it can't be pickled
        return NotImplemented
    if make is not copyreg.__newobj__ or rest != [(kind,), None, None, None]:  # type: ignore[attr-defined]
        return NotImplemented
    for name, value in list(vars(sys.modules[kind.__module__]).items()):
        if value is obj:
            return _sentinel, (kind, name)
    return NotImplemented


def _sentinel(kind: Any, name: str) -> Any:
    found = getattr(sys.modules[kind.__module__], name, None)
    return found if type(found) is kind else kind.__new__(kind)  # the program may have put another one there
