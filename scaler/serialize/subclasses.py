"""Subclasses that a script's functions find by `__subclasses__`, as plug-ins are found: they go along.

Nothing names them but their base class, which knows them weakly. So what a function carries of its globals has them,
too: those of the classes that it names, or whose method it is; of a function that names none, which is given one, those
of all classes of its module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from scaler.serialize.importable import is_importable
from scaler.serialize.named_objects import found

_NAME = "__subclasses__"

_asking: WeakKeyDictionary[CodeType, bool] = WeakKeyDictionary()


def subclasses_for(function: FunctionType, names: Callable[[CodeType], Iterable[str]]) -> tuple[type, ...]:
    """Those that a function that travels by value may ask for; `names` gives those of the globals that its code has."""
    if not _asks(function.__code__):
        return ()
    scope = function.__globals__
    wanted = [scope.get(name) for name in (*names(function.__code__), function.__qualname__.partition(".")[0])]
    todo: list[Any] = list(filter(_is_by_value, wanted)) or list(filter(_is_by_value, list(scope.values())))
    classes: dict[Any, None] = {}
    while todo:
        for kind in type.__subclasses__(todo.pop()):
            if kind not in classes and _is_by_value(kind) and found(kind.__module__, kind.__qualname__) is kind:
                classes[kind] = None
                todo.append(kind)
    return tuple(classes)


def add_subclasses(function: FunctionType, names: Callable[[CodeType], Iterable[str]], reduced: Any) -> None:
    """Add them to a function's reduction."""
    classes = subclasses_for(function, names)
    if classes:
        reduced[2][1]["__globals__"].setdefault(_NAME, classes)


def binding_of_subclasses(
    function: FunctionType, names: Callable[[CodeType], Iterable[str]]
) -> tuple[Callable[[str, Any], Any], str, Any] | None:
    """What tells whether they are still the same; see `watch`. None if the function asks for none."""
    if not _asks(function.__code__):
        return None
    classes = subclasses_for(function, names)

    def read(_: str, default: Any) -> Any:
        return classes if subclasses_for(function, names) == classes else default

    return read, _NAME, classes


def _asks(code: CodeType) -> bool:
    asks = _asking.get(code)
    if asks is None:
        asks = _NAME in code.co_names or any(_asks(each) for each in code.co_consts if isinstance(each, CodeType))
        _asking[code] = asks
    return asks


def _is_by_value(value: Any) -> bool:
    return issubclass(type(value), type) and not is_importable(value.__module__)
