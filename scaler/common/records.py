"""Dataclasses, at a quarter of what it costs to define one.

Each dataclass has its methods compiled when its module is loaded, and a cluster has more than a hundred of them before
its first task. These share one way to be compared and shown. A constructor is compiled where many are made: that takes
as long as making `FEW` without, most messages are of no use to most programs, and of most states there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from inspect import Parameter, Signature
from typing import Any, TypeVar, dataclass_transform

from scaler.common.compiled import compiled

T = TypeVar("T")

#: of a class, that are made without a constructor of its own
FEW = 32


@dataclass_transform(eq_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a dataclass with slots of a class; what it is like is what `dataclass(slots=True)` says.

    Fields with `init=False` have no default.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), Point(1) == Point(2)
    (Point(x=1, y=0), True, False)
    """
    made = entity(cls)
    _share(cls, made, __repr__=_shown, __eq__=_is_equal)
    made.__hash__ = None  # type: ignore[assignment]
    return made


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def entity(cls: type[T]) -> type[T]:
    """The same, but compared and shown as any object: two are never equal."""
    made = dataclass(slots=True, init=False, repr=False, eq=False)(cls)
    _share(cls, made, __init__=_first_of(made, is_frozen=False))
    return made


@dataclass_transform(eq_default=True, frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a dataclass of a class whose instances don't change, as `dataclass(frozen=True)` does."""
    made = dataclass(init=False, repr=False, eq=False)(cls)
    _share(
        cls, made, __init__=_first_of(made, is_frozen=True), __signature__=_Parameters(), __repr__=_shown,
        __eq__=_is_equal, __hash__=_hash, __setattr__=_refuse, __delattr__=_refuse,
    )  # fmt: skip
    return made


def _share(cls: type, made: type, **methods: object) -> None:
    """Give a class the methods that were not written in it."""
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(made, name, method)


def _first_of(made: type[Any], is_frozen: bool) -> Callable[..., None]:
    """What constructs the first ones."""
    left = FEW
    put = object.__setattr__ if is_frozen else setattr

    def construct(self: object, *args: Any, **kwargs: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0 or not _is_filled(self, made, put, args, kwargs):
            made.__init__ = constructor = _constructor(made, is_frozen)
            constructor(self, *args, **kwargs)  # which also says what is wrong with the arguments

    return construct


def _is_filled(
    self: object, made: type[Any], put: Callable[..., None], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Give an object its values, as its constructor would; False if these are no arguments of that."""
    taken = named = 0
    for each in fields(made):
        name = each.name
        if not each.init:
            continue
        if taken < len(args) and not each.kw_only:
            value = args[taken]
            taken += 1
        elif name in kwargs:
            value = kwargs[name]
            named += 1
        elif each.default_factory is not MISSING:
            value = each.default_factory()
        elif each.default is not MISSING:
            value = each.default
        else:
            return False
        put(self, name, value)
    if taken < len(args) or named < len(kwargs):
        return False
    if hasattr(made, "__post_init__"):
        self.__post_init__()  # type: ignore[attr-defined]
    return True


def _constructor(made: type[Any], is_frozen: bool) -> Callable[..., None]:
    """Compile what a dataclass has for `__init__`."""
    assign = "set(self, {0!r}, {1})" if is_frozen else "self.{0} = {1}"
    known: dict[str, Any] = {"MISSING": MISSING, "set": object.__setattr__}
    parameters, keywords, lines = ["self"], ["*"], []
    for each in fields(made):
        if not each.init:
            continue
        name, value, default = each.name, each.name, ""
        if each.default_factory is not MISSING:
            known[f"_made_{name}"] = each.default_factory
            value, default = f"_made_{name}() if {name} is MISSING else {name}", "=MISSING"
        elif each.default is not MISSING:
            known[f"_default_{name}"] = each.default
            default = f"=_default_{name}"
        (keywords if each.kw_only else parameters).append(name + default)
        lines.append(assign.format(name, value))
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    listed = ", ".join(parameters + keywords if len(keywords) > 1 else parameters)
    place = f"<constructor of {made.__qualname__}>"
    constructor: Callable[..., None] = compiled(f"__init__({listed})", lines or ["pass"], known, place)
    constructor.__qualname__ = f"{made.__qualname__}.__init__"
    return constructor


class _Parameters:
    """What `inspect` says that a class is constructed with, from its fields."""

    def __get__(self, _: object, owner: type[Any]) -> Signature:
        parameters = []
        for each in fields(owner):
            kind = Parameter.KEYWORD_ONLY if each.kw_only else Parameter.POSITIONAL_OR_KEYWORD
            default = Parameter.empty if each.default is MISSING else each.default
            parameters.append(Parameter(each.name, kind, default=default, annotation=each.type))
        return Signature(sorted(parameters, key=lambda each: each.kind), return_annotation=None)


def _compared(self: object) -> list[object]:
    known = self.__dataclass_fields__  # type: ignore[attr-defined]
    return [getattr(self, name) for name, each in known.items() if each.compare]


def _shown(self: object) -> str:
    known = fields(self)  # type: ignore[arg-type]
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in known if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _is_equal(self: object, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return _compared(self) == _compared(other)


def _hash(self: object) -> int:
    return hash(tuple(_compared(self)))


def _refuse(self: object, name: str, *_: object) -> None:
    raise FrozenInstanceError(
        f"{type(self).__qualname__}.{name} can't be changed: dataclasses.replace makes another one"
    )
