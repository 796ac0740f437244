"""What each process has for itself, where functions and classes of a script use it: locks, and values of each thread.

None of it can be pickled, and a child that was forked has its own. So what a function takes along from its module
arrives with new ones: locks that nobody holds, and no values. In each process one stands for one, whichever functions
use it. Elsewhere they remain an error: a lock that is given as an argument is meant to be shared.

A pickler comes to a lock without a word about what it is part of. So what may have locks is put between two edges, and
it counts these: the items of a tuple are pickled in their order.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from cloudpickle import cloudpickle

#: classes of values that have no locks, or see to theirs
_WITHOUT = frozenset({int, float, str, bytes, bool, type(None), complex, type, BuiltinFunctionType, ModuleType})

#: the variables that were pickled or unpickled here
_variables: dict[ContextVar[Any], _Variable] = {}


class _Variable:
    """A variable, to which itself there can be no weak reference."""

    def __init__(self, variable: ContextVar[Any]) -> None:
        self.variable = variable


class Edge:
    """Where what a script's functions use begins, and where it ends."""

    def __init__(self, step: int) -> None:
        #: what it adds to the number of those that were begun and have not ended
        self.step = step


class Own:
    """A value that has locks of its own wherever it arrives."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _second, (Edge(1), self._value, Edge(-1))


def with_own_locks(scope: Any, values: Iterable[Any]) -> Any:
    """What is to be pickled in the place of `scope`, in which these values are."""
    return scope if all(map(_has_no_locks, values)) else Own(scope)


def give_own_locks(function: FunctionType, state: tuple[Any, Any]) -> Any:
    """What is to be pickled in the place of a function's state, as `cloudpickle` has it.

    Of a function that its module has by its name all is part of the module, also what a decorator keeps in a closure.
    """
    attributes, slots = state
    has_more = function.__closure__ or function.__defaults__ or function.__kwdefaults__ or attributes
    if has_more and _is_in_module(function):
        return Own(state)
    scope = slots["__globals__"]
    slots["__globals__"] = with_own_locks(scope, scope.values())
    return state


def wrapped_in(function: Any) -> Any:
    """What is to be pickled in the place of what a function wraps."""
    return Own(function.__wrapped__) if _is_in_module(function) else function.__wrapped__


def reduced(obj: Any) -> Any:
    """How an object is pickled of which each process has its own; NotImplemented for all others."""
    kind = type(obj)
    if kind is ContextVar:
        known = _variables.setdefault(obj, _Variable(obj))
        return _variable, (cloudpickle._get_or_create_tracker_id(known), obj.name, *_default_of(obj))
    threads = sys.modules["_thread"]
    if kind.__module__ == "_thread" and kind.__name__ == "lock":
        make: Any = threads.allocate_lock
    elif (
        (kind.__module__, kind.__name__) == ("_thread", "RLock")
        or (isinstance(obj, threads._local) and _needs_no_arguments(kind))
        or ((kind.__module__, kind.__name__) == ("_queue", "SimpleQueue") and obj.empty())
    ):
        make = kind
    else:
        return NotImplemented
    return _own, (cloudpickle._get_or_create_tracker_id(obj), make)


def _has_no_locks(value: Any) -> bool:
    return type(value) in _WITHOUT or (type(value) is FunctionType and value.__closure__ is None)


def _is_in_module(function: Any) -> bool:
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _needs_no_arguments(kind: Any) -> bool:
    try:
        inspect.signature(kind.__init__).bind(None)
    except (TypeError, ValueError):
        return False
    return True


def _default_of(variable: ContextVar[Any]) -> tuple[Any, ...]:
    try:
        return (Context().run(variable.get),)
    except LookupError:
        return ()


def _second(_: Any, value: Any, __: Any) -> Any:
    return value


def _own(tracker: str, make: Callable[[], Any]) -> Any:
    return cloudpickle._lookup_class_or_track(tracker, make())


def _variable(tracker: str, name: str, *default: Any) -> ContextVar[Any]:
    made = ContextVar(name, default=default[0]) if default else ContextVar(name)
    known: _Variable = cloudpickle._lookup_class_or_track(tracker, _Variable(made))
    return _variables.setdefault(known.variable, known).variable
