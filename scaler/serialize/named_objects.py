"""Objects that pickle as a name in a module that others can't import: a script's sentinels and curried functions.

They tell the pickler that whoever reads it shall look the name up. Workers have no such name, so the object travels by
value: a curried function with the one that it calls, any other with what it has. Of these others there is one in each
process, whichever functions and arguments have it, and what comes back to where it is from is itself.
"""

from __future__ import annotations

import copyreg
import sys
import weakref
from collections.abc import Callable
from enum import Enum
from typing import Any

from cloudpickle import cloudpickle

from scaler.serialize.importable import is_importable

#: modules whose `curry` pickles the name of what it calls
_CURRYING = ("toolz.functoolz", "cytoolz.functoolz")
#: what it sets itself
_OF_CURRY = frozenset({"_partial", "_sigspec"})
_PYTHON_MADE = 1 << 9


class _Known:
    """Stands for an object among what `cloudpickle` knows again: it may have no hash, and no weak references."""

    def __init__(self, value: Any, is_own: bool) -> None:
        key = id(value)
        #: the object, None if it is gone
        self.read: Callable[[], Any] = lambda: value
        try:
            self.read = weakref.ref(value, lambda _: _known.pop(key, None))
        except TypeError:  # it has slots
            pass
        #: whether it is from here; others are as they were when they came last
        self.is_own = is_own


#: by id
_known: dict[int, _Known] = {}


def may_be_a_name(kind: Any) -> bool:
    """Whether objects of a class may pickle as their name, as far as the class says at little cost."""
    return kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__


def reduced(obj: Any, protocol: int) -> Any:
    """How such an object is pickled, or how it says itself if it gives no name; NotImplemented for all others."""
    kind = type(obj)
    if not may_be_a_name(kind):
        return NotImplemented
    try:
        module = getattr(obj, "__module__", None)
    except Exception:  # a proxy that stands for nothing here
        return NotImplemented
    if not isinstance(module, str) or is_importable(module) or kind in cloudpickle.Pickler.dispatch_table:
        return NotImplemented
    if (curry := _curry_of(kind)) is not None:
        if kind.__reduce__ is not curry.__reduce__:
            return NotImplemented
        own = {name: value for name, value in getattr(obj, "__dict__", {}).items() if name not in _OF_CURRY}
        return _curried, (kind, obj.func, obj.args, obj.keywords or {}, own)
    how = obj.__reduce_ex__(protocol)
    return _by_value(obj, how) if isinstance(how, str) else how


def _curry_of(kind: type) -> Any:
    for module in _CURRYING:
        curry = getattr(sys.modules.get(module), "curry", None)
        if curry is not None and issubclass(kind, curry):
            return curry
    return None


def _curried(kind: Any, function: Any, args: tuple[Any, ...], keywords: dict[str, Any], own: dict[str, Any]) -> Any:
    made = kind(function, *args, **keywords)
    if own:
        vars(made).update(own)
    return made


def _by_value(obj: Any, name: str) -> Any:
    """What makes an object anew; the name if nothing does, or if the object is not what has that name here."""
    kind = type(obj)
    if isinstance(obj, Enum):
        return getattr, (kind, obj.name)
    known = _known.get(id(obj))
    if known is None:
        if found(obj.__module__, name) is not obj:
            return name
        known = _known[id(obj)] = _Known(obj, True)
    base: Any = next(base for base in kind.__mro__ if not base.__flags__ & _PYTHON_MADE)
    if base is kind:
        return name
    value = None if base is object else base(obj)
    tracker = cloudpickle._get_or_create_tracker_id(known)
    return _made, (tracker, kind, base, value), (obj.__getstate__(),), None, None, _set_up


def found(module: str, name: str) -> Any:
    """What a qualified name leads to in a loaded module; None if it leads nowhere."""
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _made(tracker: str, kind: type, base: Any, value: Any) -> Any:
    # by the class that C code made: the user's own `__new__` may allow one object alone
    made = copyreg._reconstructor(kind, base, value)  # type: ignore[attr-defined]
    known = cloudpickle._lookup_class_or_track(tracker, _Known(made, False))
    one = known.read()
    if one is None:  # it is gone at this moment
        return made
    _known[id(one)] = known
    return one


def _set_up(obj: Any, state: tuple[Any]) -> None:
    """Give an object its state, unless it is from here and only comes back."""
    known = _known.get(id(obj))
    if known is not None and known.is_own:
        return
    (given,) = state
    if given is None:
        return
    if hasattr(obj, "__setstate__"):
        obj.__setstate__(given)
        return
    attributes, slots = given if isinstance(given, tuple) else (given, None)
    if attributes:
        vars(obj).update(attributes)
    for name, value in (slots or {}).items():
        object.__setattr__(obj, name, value)
