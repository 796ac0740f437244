"""Globals that the functions of one module share in a worker, as they do where that module is.

A function that travels by value arrives with a dict of globals of its own, of the names that it uses: what it rebinds
there, no other function sees. An executor's initializer, though, is to prepare what later functions use. So an executor
is a *space*, in which all functions of one module share one dict of globals, however they arrive: as what is called, in
a closure, as methods, in arguments. A name in it is bound to, in this order:

* what the initializer or a task has bound it to here, which is seen by its not being what arrived;
* the value that came with the initializer, which may have filled it; but not to functions, classes, modules, plain
  numbers and texts, which a program may define anew;
* what the function that runs, or one of its arguments, has brought.

A function that runs again brings nothing again: what it keeps in a dict or a cache is there for its next call.

Functions are caught where `cloudpickle` makes them: its pickles name two functions of its own that do so, which are
replaced in a worker as soon as there is a space.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from cloudpickle import cloudpickle

from scaler.serialize.plain import SCALARS, LruCache

#: what a program may bind anew, though the initializer names it
_DEFINED: Any = (FunctionType, BuiltinFunctionType, LruCache, ModuleType, type, *SCALARS)

_MISSING: Any = object()


class ModuleGlobals:
    """Those of one module."""

    def __init__(self) -> None:
        #: the `__globals__` of its functions
        self.names: dict[str, Any] = {}
        #: what was bound on arrival, and is bound yet unless something here has bound another value
        self._arrived: dict[str, Any] = {}

    def bring(self, names: dict[str, Any]) -> None:
        """Bind names, but for those that were bound here."""
        bound, arrived = self.names, self._arrived
        for name, value in names.items():
            if bound.get(name, _MISSING) is arrived.get(name, _MISSING):
                bound[name] = arrived[name] = value

    def keep(self, names: dict[str, Any]) -> None:
        """Let values that have come with the initializer count as bound here."""
        for name, value in names.items():
            if not issubclass(type(value), _DEFINED):  # a proxy may fail to say its class
                self.names[name] = value
                self._arrived.pop(name, None)


#: the names that came with something, by their module
Brought = dict[str, dict[str, Any]]


class Space:
    """The modules of which functions came for one purpose, an executor's say."""

    def __init__(self) -> None:
        #: by name
        self.modules: dict[str, ModuleGlobals] = {}

    def module(self, name: str) -> ModuleGlobals:
        """The globals of a module; there are none in them at first."""
        found = self.modules.get(name)
        if found is None:
            found = self.modules[name] = ModuleGlobals()
        return found

    def bring(self, brought: Brought) -> None:
        """Bind what came with something, but for names that were bound here."""
        for name, names in brought.items():
            self.module(name).bring(names)

    def keep(self, brought: Brought) -> None:
        """Let values that have come with the initializer count as bound here."""
        for name, names in brought.items():
            self.module(name).keep(names)


class InSpace:
    """What is called in a space; entered before its arguments are decoded and it runs."""

    def __init__(self, key: str, brought: Brought) -> None:
        self.space = space_of(key)
        #: with what is called
        self.brought = brought

    def enter(self) -> None:
        """It runs from now on, in place of what ran before."""
        enter(self)

    def keep(self, brought: Brought) -> None:
        """Let values that have come with an initializer stay, as those that it binds."""
        self.space.keep(brought)


class _Now:
    """The space in which things are decoded and run at the moment."""

    __slots__ = ("brought", "running", "space")

    def __init__(self, space: Space, brought: Brought, running: InSpace | None) -> None:
        self.space = space
        #: with the function that is decoded, or runs
        self.brought = brought
        #: what runs; None while a function is decoded
        self.running = running


_now: _Now | None = None
#: by key; as long as the process, as what was made in them is made once
_spaces: dict[str, Space] = {}


def space_of(key: str) -> Space:
    """The space of an executor or the like in this process."""
    _catch_functions()
    return _spaces.setdefault(key, Space())


def space_here() -> Space | None:
    """That of what is decoded now, or runs."""
    return _now.space if _now is not None else None


def begin_in_space(key: str) -> Brought:
    """Until something is entered, what is decoded belongs to this space; the dict fills with the names it brings."""
    global _now
    brought: Brought = {}
    _now = _Now(space_of(key), brought, None)
    return brought


def enter(function: Any) -> None:
    """This function runs from now on, in place of the one before; in no space unless it is an `InSpace`."""
    global _now
    if not isinstance(function, InSpace):
        _now = None
    elif _now is None or _now.running is not function:
        function.space.bring(function.brought)
        _now = _Now(function.space, function.brought, function)


class SpaceBegins:
    """Where in a pickle something begins that belongs to a space; arrives as what that brings."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __reduce__(self) -> tuple[Callable[[str], Brought], tuple[str]]:
        return begin_in_space, (self._key,)


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """A function runs inside another one, which goes on in the end."""
    outer = _now
    enter(None)
    try:
        yield
    finally:
        enter(outer.running if outer is not None else None)


def _shared_by(names: dict[str, Any]) -> ModuleGlobals | None:
    """The globals in the present space of the module that these are of."""
    name = names.get("__name__")
    return _now.space.module(name) if _now is not None and isinstance(name, str) else None


def _arrived(shared: ModuleGlobals, names: dict[str, Any]) -> None:
    """Names have come with one of its functions."""
    assert _now is not None
    module = shared.names["__name__"]
    if _now.running is None:
        _now.brought.setdefault(module, {}).update(names)
    else:  # with a value for the function that runs, which has its own
        own = _now.brought.get(module, {})
        names = {name: value for name, value in names.items() if name not in own}
    shared.bring(names)


@functools.cache
def _catch_functions() -> None:
    """Have `cloudpickle` make functions, from now on, with the globals of the present space, if there is one."""
    make, set_up = cloudpickle._make_function, cloudpickle._function_setstate

    @functools.wraps(make)
    def made(code: Any, names: dict[str, Any], *others: Any) -> Any:
        shared = _shared_by(names)
        if shared is not None:
            for name, value in names.items():
                shared.names.setdefault(name, value)
            names = shared.names
        return make(code, names, *others)

    @functools.wraps(set_up)
    def given(function: Any, state: Any) -> None:
        shared = _shared_by(function.__globals__)
        if shared is not None and shared.names is function.__globals__:
            attributes, slots = state
            _arrived(shared, slots["__globals__"])
            state = attributes, {**slots, "__globals__": {}}
        set_up(function, state)

    cloudpickle._make_function, cloudpickle._function_setstate = made, given
