"""Classes that travel by value, as pickles by themselves: one is made once, as long as what it takes along is the same.

An argument or a result that is an instance of a script's class has that class in its pickle. To pickle the class takes
a hundred times as long as the instance, and so does reading it, for each of a million results. So values have the
pickle of their class in them as bytes, with a digest: whoever has had these bytes, or whose class it is, does not read
them (`class_states.inner`).

A value with a function that travels by value has its classes in the same pickle: both are to share globals there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from cloudpickle import cloudpickle

from scaler.common.digest import blake2b
from scaler.serialize import class_states, class_versions
from scaler.serialize.recent import Recent
from scaler.serialize.watch import Binding, is_current, made_and_watched

#: bytes of a class that goes along in each pickle, at most
MOST_BYTES = 1 << 16
#: classes whose pickles are kept, at most, and bytes of these, in each of two generations
_LIMIT, _KEPT_BYTES = 128, 4 << 20

#: what pickles a class by value: gives the pickle, and the values that could not be part of it. Raises anything
Dump = Callable[[type], tuple[bytes, Sequence[Any]]]
#: what a pickler makes of a class
Reduced = tuple[Callable[..., Any], tuple[str, str, bytes]]


class _Known:
    """A class that can be recognised, with what has to be as it was."""

    __slots__ = ("kind", "reduced", "watched")

    def __init__(self, kind: type, reduced: Reduced, watched: list[Binding]) -> None:
        #: kept alive so that its id stays its own
        self.kind = kind
        self.reduced = reduced
        self.watched = watched


def _size(known: _Known) -> int:
    return len(known.reduced[1][2])


#: by id of the class
_known: Recent[int, _Known] = Recent(_LIMIT, _KEPT_BYTES, _size)
#: those of which not all is seen, or which are large
_unfit: WeakSet[type] = WeakSet()


def reduced(kind: type, dump: Dump) -> Reduced | None:
    """How values have a class in their pickles that travels by value, as it is now; None if it has to be part of each.

    Any thread may call it.
    """
    known = _known.get(id(kind))
    if known is not None and is_current(known.watched):
        return known.reduced
    if kind in _unfit:
        return None
    try:
        data, watched, is_all = made_and_watched(kind, dump, class_versions.MOST_ITEMS)
    except Exception:  # then it can't be part of another pickle either, and whoever tries is told why
        return None
    if not is_all or len(data) > MOST_BYTES:
        _unfit.add(kind)
        _known.forget(id(kind))
        return None
    digest = blake2b(data, digest_size=16).hexdigest()
    class_versions.note(digest)
    made: Reduced = class_states.inner, (cloudpickle._get_or_create_tracker_id(kind), digest, data)
    _known.put(id(kind), _Known(kind, made, watched))
    return made
