"""Functions with a state: a method has its object, a partial its arguments. Each row gets it as it was at its submit.

What one row does to that state must not reach the next row, which may run anywhere. So such a function travels in two
parts:

* functions and classes of the user's script are unpickled once, as those of any function are, and keep their globals
  from row to row;
* all else is a pickle that is unpickled for each row, as its arguments are.

Large buffers of the second part stay in their file: each row maps it privately, so that only pages it writes to are
copied.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from scaler.errors import SerializationError
from scaler.serialize import named_objects
from scaler.serialize.contents import contents_of
from scaler.serialize.outofband import keep_in
from scaler.serialize.payload import PROTOCOL, ReferencePickler, ValuePickler
from scaler.serialize.plain import LruCache
from scaler.serialize.watch import travels_by_reference

#: items of a partial's arguments that are looked at, at most
MOST_ITEMS = 1_000

#: maps the buffers of what is being unpickled once more, in memory of their own
Reopen = Callable[[], Sequence[memoryview]]

_CODE = (FunctionType, LruCache, type)

_parts: ContextVar[Sequence[Any]] = ContextVar("_parts")
_opened: ContextVar[tuple[Sequence[memoryview], Reopen] | None] = ContextVar("_opened", default=None)


class NotMade(SerializationError):
    """A function's state could not be unpickled for a row; the cause says why."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"the function cannot be unpickled: {type(error).__qualname__}: {error}")
        self.error = error

    def __reduce__(self) -> tuple[type[SerializationError], tuple[str]]:
        return SerializationError, (str(self),)


class FreshFunction:
    """Calls a function that is made anew for each call."""

    __slots__ = ("__weakref__", "_buffers", "_parts", "_reopen", "_state")

    def __init__(self, parts: Sequence[Any], state: bytes, buffers: Sequence[Any] = ()) -> None:
        #: functions and classes that all calls share
        self._parts = parts
        #: a pickle in which numbers stand for these
        self._state = state
        self._buffers = buffers
        opened = _opened.get() if buffers else None
        #: gives the buffers in memory of their own
        self._reopen = partial(_copies, buffers) if opened is None else partial(_again, buffers, *opened)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Raises `NotMade`, and what the function raises."""
        return self.made()(*args, **kwargs)

    def made(self) -> Callable[..., Any]:
        """The function as it was when this was made. Raises `NotMade`."""
        token = _parts.set(self._parts)
        try:
            function: Callable[..., Any] = pickle.loads(self._state, buffers=self._reopen() if self._buffers else ())
        except Exception as error:
            raise NotMade(error) from error
        finally:
            _parts.reset(token)
        return function

    def __reduce__(self) -> Any:
        return FreshFunction, (self._parts, self._state, list(map(pickle.PickleBuffer, self._buffers)))


def fresh(function: Callable[..., Any]) -> Callable[..., Any]:
    """What is pickled in place of a function: a `FreshFunction`, or itself if it has no state that can be pickled."""
    if type(function) is FunctionType or not has_state(function):
        return function
    for kind in (_StatePickler, _StateByValuePickler):
        buffers: list[memoryview] = []
        stream = io.BytesIO()
        pickler = kind(stream, PROTOCOL, buffer_callback=partial(keep_in, buffers))
        pickler.parts = []
        try:
            pickler.dump(function)
        except Exception:  # whoever pickles the function itself is told why
            continue
        return FreshFunction(pickler.parts, stream.getvalue(), buffers)
    return function


def has_state(function: Any) -> bool:
    """Whether a function may change something that belongs to it alone.

    It can't if it is a function, a class, a builtin of a module, something that pickles as a name, or a partial of such
    whose arguments can't be changed.
    """
    try:
        return not _is_a_name(function) and _may_change(function)
    except Exception:  # of a class with a mind of its own
        return True


def _is_a_name(function: Any) -> bool:
    return named_objects.may_be_a_name(type(function)) and type(function.__reduce_ex__(PROTOCOL)) is str


def _may_change(function: Any) -> bool:
    todo = [function]
    room = MOST_ITEMS
    while todo:
        value = todo.pop()
        kind = type(value)
        if kind is LruCache:
            continue
        if kind is partial and not value.__dict__:
            todo += [value.func, *value.args, *value.keywords.values()]
            continue
        contents, inner, is_whole = contents_of(value, room)
        room -= len(inner)
        if contents is not None or not is_whole:
            return True
        todo.extend(inner)
    return False


class _StatePickler(ReferencePickler):
    """Has numbers in the place of functions and classes that can't be imported elsewhere."""

    parts: list[Any]

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is MethodType and _has_its_name(obj):
            return getattr, (obj.__self__, obj.__func__.__name__)
        return _numbered(self.parts, obj) or super().reducer_override(obj)


class _StateByValuePickler(ValuePickler):
    """The same, for what needs `cloudpickle` by itself."""

    parts: list[Any]

    def reducer_override(self, obj: Any) -> Any:
        return _numbered(self.parts, obj) or super().reducer_override(obj)


def _has_its_name(method: MethodType) -> bool:
    """Whether an object's method is found in it by its name; one with a private name is not."""
    name = method.__func__.__name__
    return bool(getattr(method.__self__, name, None) == method)


def _numbered(parts: list[Any], obj: Any) -> tuple[Callable[[int], Any], tuple[int]] | None:
    if not isinstance(obj, _CODE) or travels_by_reference(obj):
        return None
    parts.append(obj)
    return _part, (len(parts) - 1,)


def _part(number: int) -> Any:
    """A function or class of the function that is being made; part of pickles."""
    return _parts.get()[number]


@contextmanager
def reopened(buffers: Sequence[memoryview], reopen: Reopen) -> Iterator[None]:
    """What this thread unpickles meanwhile has these buffers; `reopen` maps them anew."""
    token = _opened.set((buffers, reopen))
    try:
        yield
    finally:
        _opened.reset(token)


def _copies(buffers: Sequence[Any]) -> list[Any]:
    return [buffer if memoryview(buffer).readonly else bytearray(buffer) for buffer in buffers]


def _again(buffers: Sequence[Any], opened: Sequence[memoryview], reopen: Reopen) -> list[Any]:
    places = {id(buffer): place for place, buffer in enumerate(opened)}
    anew = reopen()
    return [buffer if memoryview(buffer).readonly else anew[places[id(buffer)]] for buffer in buffers]
