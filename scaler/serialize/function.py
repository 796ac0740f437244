"""Capturing functions: a payload and a token for each, the same ones for as long as nothing about it has changed.

A client captures a function each time it is submitted and sends it only when the token is new. Three cases:

* it travels by reference (a module-level function of an importable module, a builtin): known by its identity, for good,
  unless its module is loaded again;
* a function or class that travels by value (`__main__`, a lambda, a closure): known by its identity as long as its
  code, its defaults, its closure and the globals it names are bound as they were and have in them what they had (see
  `watch`); so is a partial of any function, if its arguments are plain numbers, strings and bytes;
* one whose globals have much or something in them that changes unseen, and any other callable (an instance, a bound
  method, another partial): pickled each time. Whoever does so with much of it is warned, once for each function.

In every case equal bytes give the token they had before, so a function that changes back, a lambda made anew in a loop
or a bound method costs the pickling and no message. All is bounded, by number and by bytes: what was not used lately is
forgotten, and gets a new token if it comes back.

Functions are referred to weakly, so that what only they have goes with them. What was watched of one goes, too: it is
values that the function takes along, and some lead back to it (it calls itself, or belongs to an object that it
names), which would keep it for good. Of such there are only a `FEW`.

What takes `large` bytes or more is not kept here: it is packed each time, with its buffers left where they are, and has
no payload; whoever stores it recognises it.
"""

from __future__ import annotations

import itertools
import reprlib
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from types import FunctionType
from typing import Any

from scaler.common.utf8 import written_out
from scaler.errors import SerializationError
from scaler.protocol.codes import LONGEST_NAME
from scaler.serialize import payload
from scaler.serialize.call import AnySerializer, encode_function, pack_function
from scaler.serialize.outofband import Incomplete, Packed
from scaler.serialize.plain import LruCache
from scaler.serialize.recent import Recent
from scaler.serialize.watch import MISSING, Binding, bindings, is_current, traced, travels_by_reference

#: pickled bytes of large functions of one name after which the user is told what that takes; about a second's worth
WARN_BYTES = 1 << 27

#: functions recognised whose values lead back to them, and which are kept by that
FEW = 64
#: bytes of payloads that are known again, in each of two generations
PAYLOAD_BYTES = 8 << 20
#: bytes of the payloads of functions that are recognised, in each of two generations: what these take along may be ten
#: times as large as its pickle, and may be kept by being watched
WATCHED_BYTES = 4 << 20

#: packages that are between what is warned of and the user's program
_OURS = ("scaler", "scaler_dask")


class Captured:
    """A function as it was when it was submitted."""

    __slots__ = ("by_reference", "name", "packed", "payload", "size", "token")

    def __init__(self, token: int, payload: bytes, name: str, by_reference: bool, packed: Packed | None = None) -> None:
        #: unique among the captures of one cache; another one as soon as the payload is another
        self.token = token
        #: what `decode_function` reads; empty if it is large
        self.payload = payload
        #: a large function, until it is stored
        self.packed = packed
        #: bytes of what is kept
        self.size = len(payload)
        #: module and qualified name, for messages
        self.name = name
        #: whether the payload only names the function
        self.by_reference = by_reference


class _Known:
    """A function that can be recognised, with what has to be as it was."""

    __slots__ = ("captured", "code", "defaults", "has_attributes", "kwdefaults", "reference", "size", "watched")

    def __init__(self, function: Any, reference: object, captured: Captured, watched: list[Binding]) -> None:
        #: weak, and drops this before the function's id is another's; the function itself if that can't be
        self.reference = reference
        self.captured = captured
        self.size = captured.size
        #: what it takes along; nothing if it travels by reference
        self.watched = watched
        #: of a function by value, checked without a detour, which would keep it; of one by reference where IPython's
        #: `autoreload` may put another one in its place; else None
        is_checked = type(function) is FunctionType and (watched or "IPython" in sys.modules)
        self.code = function.__code__ if is_checked else None
        #: such a one had some, which are watched
        self.has_attributes = bool(self.code and function.__dict__)
        self.defaults = function.__defaults__ if self.code else None
        self.kwdefaults = function.__kwdefaults__ if self.code else None
        if self.code:
            del watched[:3]  # these three


class _Reference(weakref.ref[Any]):
    """A weak reference to a function that knows where it is kept."""

    __slots__ = ("key",)

    key: int


#: asks nothing of this module, whose names may be gone when a function goes as Python ends
_size_of = attrgetter("size")


class FunctionCache:
    """Captures functions, and recognises those it captured before. Any thread may call it.

    >>> cache = FunctionCache()
    >>> cache.capture(len).token == cache.capture(len).token, cache.capture(len).name
    (True, 'builtins.len')
    """

    def __init__(self, serializer: AnySerializer | None = None, limit: int = 1024, large: float = float("inf")) -> None:
        self._serializer = serializer
        #: bytes
        self._large = large
        self._tokens = itertools.count(1)
        #: by id of the function
        self._known: Recent[int, _Known] = Recent(limit, WATCHED_BYTES, _size_of)
        #: ids of those that what is watched may lead back to, the oldest first
        self._bound: dict[int, None] = {}
        #: those of which not all is seen, by id
        self._unseen: Recent[int, Any] = Recent(limit)
        self._gone_too = self._gone  # made once
        #: bytes pickled of large ones, by name
        self._repeated: Recent[str, int] = Recent(limit)
        #: by payload
        self._captured: Recent[bytes, Captured] = Recent(limit, PAYLOAD_BYTES, _size_of)

    def capture(self, function: Callable[..., Any]) -> Captured:
        """Return the function as it is now; raises SerializationError naming what cannot be pickled.

        Raises TypeError for what can't be called.
        """
        known = self._known.fresh.get(id(function)) or self._known.get(id(function))
        if known is not None:
            code = known.code
            if code is None:
                if not known.watched or is_current(known.watched):
                    return known.captured
            elif (
                function.__code__ is code
                and function.__defaults__ is known.defaults
                and function.__kwdefaults__ is known.kwdefaults
                and (not function.__dict__ or known.has_attributes)
                and (not known.watched or is_current(known.watched))
            ):
                return known.captured
        return self._capture_anew(function)

    def _capture_anew(self, function: Callable[..., Any]) -> Captured:
        if not callable(function):
            raise TypeError(f"a function is wanted, or what else can be called, not {_shown(function)}")
        if self._unseen.get(id(function)) is not None:
            captured, _ = self._captured_as(function, False)
            if captured.packed is not None:
                self._unseen.forget(id(function))  # it is not kept here any more
            return captured
        by_reference = travels_by_reference(function)
        watched: list[Binding] = []
        is_all, leads_back = by_reference, False
        if not by_reference and _is_recognisable(function):
            # before it is pickled: what changes meanwhile is seen next time
            watched, is_all, leads_back = traced(function)
        captured, absent = self._captured_as(function, by_reference)
        if absent and not is_all:
            watched, is_all, leads_back = traced(function, absent)
            captured, _ = self._captured_as(function, by_reference)
        if captured.packed is not None or not (is_all or watched):
            return captured
        reference = self._reference_to(function)
        if is_all:
            self._known.put(id(function), _Known(function, reference, captured, watched))
            if leads_back:
                self._bind(id(function))
        else:
            self._unseen.put(id(function), reference)
        return captured

    def _reference_to(self, function: Any) -> object:
        """A weak reference that has the function forgotten; the function itself if it takes none."""
        try:
            reference = _Reference(function, self._gone_too)
        except TypeError:
            return function
        reference.key = id(function)
        return reference

    def _gone(self, reference: _Reference) -> None:
        """A function has died: its id may be another's as soon as this returns. Called at any point, by any thread."""
        self._known.forget(reference.key)
        self._unseen.forget(reference.key)
        self._bound.pop(reference.key, None)

    def _bind(self, key: int) -> None:
        """What is watched of this function keeps it."""
        self._bound.pop(key, None)
        self._bound[key] = None
        while len(self._bound) > FEW:
            oldest = next(iter(self._bound))
            self._bound.pop(oldest, None)
            self._known.forget(oldest)

    def _captured_as(self, function: Callable[..., Any], by_reference: bool) -> tuple[Captured, Sequence[Any]]:
        """The function as it is now, and the values that could not come along."""
        name = name_of(function)
        try:
            packed = self.pack(function)
        except SerializationError as error:
            culprit = _culprit(bindings(function)[0]) if not by_reference and _is_recognisable(function) else None
            raise SerializationError(f"function {name}: {culprit or error}") from error.__cause__
        absent = packed.absent if isinstance(packed, Incomplete) else ()
        if packed.size >= self._large:
            self._count(name, len(packed.inband))
            return Captured(next(self._tokens), b"", name, by_reference, packed), absent
        return self._recognised(self._in_one(packed, function), name, by_reference), absent

    def _count(self, name: str, size: int) -> None:
        before = self._repeated.get(name) or 0
        self._repeated.put(name, before + size)
        if before < WARN_BYTES <= before + size:
            warnings.warn(
                f"function {name} takes {size:,} bytes of globals, of a closure or of its object along, which are "
                "pickled each time it is submitted, in case they have changed: use map, or pass them as an argument "
                "(send_object)",
                RuntimeWarning,
                stacklevel=_level_of_user(),
            )

    def in_message(self, captured: Captured, function: Callable[..., Any]) -> Captured:
        """A large function as one that has a payload all the same: there is nowhere to store it."""
        assert captured.packed is not None
        payload = self._in_one(captured.packed, function)
        return self._recognised(payload, captured.name, captured.by_reference)

    def _recognised(self, encoded: bytes, name: str, by_reference: bool) -> Captured:
        captured = self._captured.get(encoded)
        if captured is None:
            captured = Captured(next(self._tokens), encoded, name, by_reference)
            self._captured.put(encoded, captured)
        return captured

    def _in_one(self, packed: Packed, function: Callable[..., Any]) -> bytes:
        return encode_function(function, self._serializer) if packed.buffers else packed.inband

    def pack(self, function: Callable[..., Any]) -> Packed:
        """A function in parts, as `decode_function` reads them; raises SerializationError."""
        return pack_function(function, self._serializer)


def _is_recognisable(function: Any) -> bool:
    """Say whether all that such a callable takes along is seen by `bindings`."""
    if type(function) is partial:
        values = (*function.args, *function.keywords.values())
        return all(type(value) in payload.SCALARS for value in values) and (
            _is_recognisable(function.func) or travels_by_reference(function.func)
        )
    return isinstance(function, (FunctionType, LruCache, type))


def name_of(function: Any) -> str:
    """Return module and qualified name of a callable, for messages; of an instance, those of its class.

    >>> from functools import partial
    >>> name_of(partial(len)), name_of([].append)
    ('builtins.len', 'list.append')
    """
    function = getattr(function, "func", function)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None)
    return written_out(f"{module}.{name}" if isinstance(module, str) else str(name))[:LONGEST_NAME]


def _level_of_user() -> int:
    """The `stacklevel` by which a warning of the calling function names the line of the user's program."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    return level


def _shown(value: object) -> str:
    """A value in a message.

    >>> _shown(None), _shown("abs")
    ('None', "'abs' (str)")
    """
    return "None" if value is None else f"{reprlib.repr(value)} ({type(value).__name__})"


def _culprit(watched: list[Binding]) -> str | None:
    """Return which of the names that a function takes along cannot be pickled."""
    for _, name, value in watched:
        if value is MISSING or name.startswith("__") or isinstance(value, (FunctionType, type)):
            continue
        try:
            payload.dumps(value)
        except SerializationError as error:
            return f"{'a value in its closure' if name == 'cell_contents' else f'its {name!r}'}: {error}"
    return None
