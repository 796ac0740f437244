"""Which version of a class that travels by value is pickled: a text for what is in it, the same for the same.

A program may change its classes while tasks that use them are queued. Whoever has such a class from others tells by the
version whether what came with one function is what came with another, and what it has to do if it is not (see
`class_states`). It is a digest of the class pickled by itself: the other classes that it names have versions of their
own. That is made once, and again when something that the class takes along has changed, as of functions (`watch`); of a
class with much in it, or with something that may change unseen, each time that it is pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

from scaler.common.digest import blake2b
from scaler.serialize.recent import Recent
from scaler.serialize.watch import Binding, is_current, made_and_watched

#: items of the values of a class that are compared, at most: to pickle these takes two to five times as long
MOST_ITEMS = 4_000
#: bytes of a class, some of which may change unseen, that are pickled each time for its version, at most
MOST_BYTES = 1 << 16
#: classes of which versions are known, and versions that are known as such, at most
_LIMIT = 512
#: bytes of the pickles of classes of which versions are known, in each of two generations
_CLASS_BYTES = 4 << 20

#: what pickles a class by itself: gives the parts of its pickle, and the values that could not be part of it
Contents = Callable[[type], tuple[Sequence[Any], Sequence[Any]]]


class _Known:
    """A class that can be recognised, with what has to be as it was."""

    __slots__ = ("kind", "size", "version", "watched")

    def __init__(self, kind: type, version: str | None, size: int, watched: list[Binding]) -> None:
        #: kept alive so that its id stays its own
        self.kind = kind
        self.version = version
        #: bytes of its pickle
        self.size = size
        self.watched = watched


#: by id of the class
_known: Recent[int, _Known] = Recent(_LIMIT, _CLASS_BYTES, attrgetter("size"))
#: those of which not all is seen, which may be large; whether they have versions, which are made each time
_unseen: WeakKeyDictionary[type, bool] = WeakKeyDictionary()
#: those made here lately
_made: Recent[str, bool] = Recent(_LIMIT)


def version_of(kind: type, contents: Contents) -> str | None:
    """The version of a class as it is now, 32 characters; None if it has none. Any thread may call it."""
    known = _known.fresh.get(id(kind)) or _known.get(id(kind))
    if known is not None and is_current(known.watched):
        return known.version
    make = partial(_version, contents)
    has_version = _unseen.get(kind)
    if has_version is not None:
        return make(kind)[0][0] if has_version else None
    (version, size), watched, is_all = made_and_watched(kind, make, MOST_ITEMS, is_alone=True)
    if is_all:
        _known.put(id(kind), _Known(kind, version, size, watched))
        return version
    _known.forget(id(kind))
    _unseen[kind] = size <= MOST_BYTES
    return version if size <= MOST_BYTES else None


def note(version: str) -> None:
    """A text of 32 characters that was made of a class as it is."""
    _made.put(version, True)


def is_version(text: str) -> bool:
    """Whether a text is a version that was made here lately."""
    return _made.get(text) is not None


def _version(contents: Contents, kind: type) -> tuple[tuple[str | None, int], Sequence[Any]]:
    """The version and its bytes, and the values that could not be part of it."""
    try:
        parts, absent = contents(kind)
    except Exception:  # then it can't be pickled with others either, and whoever does so is told why
        return (None, 0), ()
    digest, size = blake2b(digest_size=16), 0
    for part in parts:
        digest.update(part)
        size += len(part)
    version = digest.hexdigest()
    note(version)
    return (version, size), absent
