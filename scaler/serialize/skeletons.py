"""Classes that travel by value, as they are made on arrival: with bases and slots, and nothing else yet.

What a program has Python call when it makes a class (`__init_subclass__` of its bases, `__new__` and `__init__` of its
metaclass) is not called again. What that has set comes with the class, and what it has noted elsewhere, a registry of
plug-ins say, with whatever uses that: a bare class has no attributes that it could go by, and would take the place of
the real one. A class that is here already isn't made again at all. So the classes of a program are left alone where
they come back to, too.

Of bases and metaclasses that are imported these methods are called: others than the program may rely on that.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from contextvars import ContextVar
from types import FunctionType
from typing import Any

from cloudpickle import cloudpickle

_HOOK = "__init_subclass__"

#: a bare class is being made here
_is_making = ContextVar("_is_making", default=False)


def with_slots(kind: type, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a class is made of on arrival, for a pickler, so that it has its qualified name and its slots then.

    `cloudpickle` only gives the class the names of these, and instances a `__dict__`: those could not come back.
    Metaclasses in C have their own way with slots (msgspec's refuses them).
    """
    metaclass, name, bases, namespace, *others = arguments
    if kind.__qualname__ != name:
        namespace = {**namespace, "__qualname__": kind.__qualname__}
    slots, new = vars(kind).get("__slots__"), type(kind).__new__
    if kind.__bases__ == (tuple,):
        slots = None  # typing.NamedTuple sees to its own, and a tuple can have none
    if slots is not None and (new is type.__new__ or type(new) is FunctionType):
        namespace = {**namespace, "__slots__": slots}
    return metaclass, name, bases, namespace, *others


def known(tracker: str) -> type | None:
    """The class that came or went with this tracker, if it is here."""
    found: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker)
    return found


def made(metaclass: Any, name: str, bases: tuple[Any, ...], namespace: dict[str, Any], tracker: str, _: Any) -> Any:
    """The class that is known by this tracker; part of pickles, in the place of what `cloudpickle` does."""
    found = known(tracker)
    if found is not None:
        return found
    resolved = types.resolve_bases(bases)
    maker = _imported(metaclass)
    scope = maker.__prepare__(name, resolved)
    scope.update({sys.intern(key): value for key, value in namespace.items()})
    if resolved is not bases:
        scope["__orig_bases__"] = bases
    with _without_hooks(resolved) as silenced:
        if maker is metaclass:
            kind = metaclass(name, resolved, scope)
        else:
            kind = maker.__new__(metaclass, name, resolved, scope)
            maker.__init__(kind, name, resolved, scope)
    if silenced:
        _call_imported_hook(kind)
    return cloudpickle._lookup_class_or_track(tracker, kind)


def set_up(kind: type, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Give a class its attributes, as `cloudpickle` does, whatever the program's metaclass has to say to that."""
    if type(kind).__setattr__ is _imported(type(kind)).__setattr__:
        cloudpickle._class_setstate(kind, state)
        return
    attributes, _ = state
    for name, value in attributes.items():
        if name != "_abc_impl":
            set_attribute(kind, name, value)
    for each in attributes.get("_abc_impl") or ():
        type(kind).register(kind, each)  # type: ignore[attr-defined]


def set_attribute(kind: type, name: str, value: Any) -> None:
    """Set an attribute of a class, though the program's metaclass may refuse that."""
    _imported(type(kind)).__setattr__(kind, name, value)


def delete_attribute(kind: type, name: str) -> None:
    """Remove an attribute of a class, though the program's metaclass may refuse that."""
    _imported(type(kind)).__delattr__(kind, name)


def _is_by_value(kind: type) -> bool:
    return kind in cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS


def _imported(metaclass: type) -> Any:
    """What the program's metaclass derives from that is not the program's."""
    return next(each for each in metaclass.__mro__ if not _is_by_value(each))


@contextlib.contextmanager
def _without_hooks(bases: tuple[type, ...]) -> Iterator[list[type]]:
    """This thread makes subclasses of these without the hooks of those that travel by value, which are given."""
    ours = {each: None for base in bases for each in base.__mro__ if _HOOK in vars(each) and _is_by_value(each)}
    if not ours:
        yield []
        return
    hooks: dict[type, Any] = {}
    for each in ours:
        hook = vars(each)[_HOOK]
        hooks[each] = hook.hook if type(hook) is _Silent else hook
    token = _is_making.set(True)
    for each, hook in hooks.items():
        set_attribute(each, _HOOK, _Silent(hook))
    try:
        yield list(ours)
    finally:
        for each, hook in hooks.items():
            set_attribute(each, _HOOK, hook)
        _is_making.reset(token)


class _Silent(classmethod):  # type: ignore[type-arg]
    """A hook that does nothing where a bare class is made: other threads may make classes at this moment."""

    def __init__(self, hook: Any) -> None:
        def call(cls: Any, /, **options: Any) -> None:
            if not _is_making.get():
                hook.__get__(None, cls)(**options)

        super().__init__(call)
        self.hook = hook


def _call_imported_hook(kind: type) -> None:
    for each in kind.__mro__[1:]:
        if _HOOK in vars(each) and not _is_by_value(each):
            with contextlib.suppress(Exception):  # it was given more where the class was made
                vars(each)[_HOOK].__get__(None, kind)()
            return
