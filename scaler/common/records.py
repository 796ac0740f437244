"""Dataclasses with slots, at a quarter of what it costs to define one.

Each dataclass has its methods compiled when its module is loaded, and a cluster has more than a hundred of them before
its first task. These share one way to be compared and shown, and a constructor is compiled when the first one is made:
most messages are of no use to most programs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(eq_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a dataclass with slots of a class; what it is like is what `dataclass(slots=True)` says.

    Fields with `init=False` have no default, and none is `kw_only`.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), Point(1) == Point(2)
    (Point(x=1, y=0), True, False)
    """
    made = entity(cls)
    for name, method in (("__repr__", _shown), ("__eq__", _is_equal)):
        if name not in cls.__dict__:
            setattr(made, name, method)
    made.__hash__ = None  # type: ignore[assignment]
    return made


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def entity(cls: type[T]) -> type[T]:
    """The same, but compared and shown as any object: two are never equal."""
    made = dataclass(slots=True, init=False, repr=False, eq=False)(cls)
    if "__init__" not in cls.__dict__:
        made.__init__ = _first_of(made)  # type: ignore[method-assign]
    return made


def _first_of(made: type[Any]) -> Callable[..., None]:
    """What constructs the first one."""

    def construct(self: object, *args: Any, **kwargs: Any) -> None:
        made.__init__ = constructor = _constructor(made)
        constructor(self, *args, **kwargs)

    return construct


def _constructor(made: type[Any]) -> Callable[..., None]:
    """Compile what a dataclass has for `__init__`."""
    known: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = ["self"], []
    for each in fields(made):
        if not each.init:
            continue
        name, value = each.name, each.name
        if each.default_factory is not MISSING:
            known[f"_made_{name}"] = each.default_factory
            parameters.append(f"{name}=MISSING")
            value = f"_made_{name}() if {name} is MISSING else {name}"
        elif each.default is not MISSING:
            known[f"_default_{name}"] = each.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        lines.append(f"self.{name} = {value}")
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), known)
    constructor: Callable[..., None] = known["__init__"]
    constructor.__qualname__ = f"{made.__qualname__}.__init__"
    return constructor


def _values(self: object) -> list[tuple[str, object]]:
    return [(name, getattr(self, name)) for name in self.__dataclass_fields__]  # type: ignore[attr-defined]


def _shown(self: object) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in _values(self))
    return f"{type(self).__qualname__}({shown})"


def _is_equal(self: object, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return _values(self) == _values(other)
