"""Functions made by `functools.singledispatch` that travel by value: what is registered does, and they are made anew.

Their closure can't: it remembers the classes that were dispatched on by weak references.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

_ONE: Any = functools.singledispatch(lambda _: None)
#: those of their attributes that are parts of the closure
_INNER = vars(_ONE).keys() - {"__wrapped__"}
#: what they have of their first implementation, besides what is in `__dict__`
_NAMES = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")


def is_dispatcher(value: Any) -> bool:
    """Whether `functools.singledispatch` has made it."""
    return type(value) is FunctionType and value.__code__ is _ONE.__code__


def reduced(value: Any) -> tuple[Any, ...]:
    """How such a function is pickled, as `Pickler.reducer_override` returns it.

    What it has comes after it, as its implementations may call it.
    """
    own = [name for name in vars(value) if name not in _INNER]
    attributes = {name: getattr(value, name) for name in (*_NAMES, *own)}
    return _empty, (value.__name__,), (dict(value.registry), attributes), None, None, _fill


def reduced_method(method: functools.singledispatchmethod[Any]) -> tuple[Any, ...]:
    """As `reduced`, of what `functools.singledispatchmethod` has made: Python 3.13 adds weak references of its own."""
    attributes = {name: attribute for name, attribute in vars(method).items() if name != "_method_cache"}
    return functools.singledispatchmethod, (_nothing,), attributes


def _nothing(_: Any) -> None: ...


def _empty(name: str) -> Any:
    def implementation(_: Any) -> None: ...

    implementation.__name__ = name  # it is in the error of a call without arguments
    return functools.singledispatch(implementation)


def _fill(dispatcher: Any, state: tuple[dict[type, Any], dict[str, Any]]) -> None:
    implementations, attributes = state
    for kind, implementation in implementations.items():
        dispatcher.register(kind, implementation)
    for name, attribute in attributes.items():
        setattr(dispatcher, name, attribute)
