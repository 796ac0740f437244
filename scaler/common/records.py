"""Records: dataclasses with slots, at half of what it costs to define one.

Each dataclass has its methods compiled when its module is loaded, and a cluster has more than a hundred of them before
its first task. Records share one way to be compared and shown, so that only their constructors are compiled.
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(eq_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a dataclass with slots of a class; what it is like is what `dataclass(slots=True)` says.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), Point(1) == Point(2)
    (Point(x=1, y=0), True, False)
    """
    made = dataclass(slots=True, repr=False, eq=False)(cls)
    for name, method in (("__repr__", _shown), ("__eq__", _is_equal)):
        if name not in cls.__dict__:
            setattr(made, name, method)
    made.__hash__ = None  # type: ignore[assignment]
    return made


def _values(self: object) -> list[tuple[str, object]]:
    return [(name, getattr(self, name)) for name in self.__dataclass_fields__]  # type: ignore[attr-defined]


def _shown(self: object) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in _values(self))
    return f"{type(self).__qualname__}({fields})"


def _is_equal(self: object, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return _values(self) == _values(other)
