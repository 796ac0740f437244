"""Pickling exceptions so that they come back as their own type: with cause, context, notes and attributes.

Plain pickle loses `__cause__` and `__context__`, and rebuilds an exception by calling its class with `args`, which
fails, or silently garbles the text, for every class whose `__init__` takes something else. So each exception, also
within an ExceptionGroup, is rebuilt on trial; where the way of pickle does not give the same text, it is made by
`__new__`, with `__init__` left out. Attributes and args that cannot be pickled are replaced by their repr, in a second
attempt.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

from scaler.errors import SerializationError
from scaler.serialize import payload
from scaler.serialize.payload import PROTOCOL, ValuePickler
from scaler.serialize.script_names import ScriptNames, tried


def dumps_exception(error: BaseException) -> bytes | None:
    """Return an exception as bytes that `pickle.loads` makes the same type of again, or None if there is no way."""
    for tolerant in (False, True):
        try:
            pickled = tried(partial(_dumps, error, tolerant))
            if type(pickle.loads(pickled)) is type(error):
                return pickled
        except KeyboardInterrupt:
            raise
        except BaseException:  # the user's class may do anything; the second attempt, or the text, is what is left
            continue
    return None


def _dumps(error: BaseException, tolerant: bool, names: ScriptNames | None) -> bytes:
    buffer = io.BytesIO()
    pickler = _ExceptionPickler(buffer, tolerant)
    pickler.names = names
    pickler.dump(error)
    return buffer.getvalue()


class _ExceptionPickler(ValuePickler):
    """cloudpickle with a way of its own for exceptions."""

    def __init__(self, file: io.BytesIO, tolerant: bool) -> None:
        super().__init__(file, PROTOCOL)
        #: whether what cannot be pickled is replaced by its repr
        self._tolerant = tolerant

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, BaseException):
            return self._reduce_exception(obj)
        return super().reducer_override(obj)

    def _reduce_exception(self, error: BaseException) -> Any:
        make, args, state = _recipe(error)
        if self._tolerant:
            args = tuple(_portable(arg) for arg in args)
            if isinstance(state, dict):
                state = {name: _portable(value) for name, value in state.items()}
        links = (error.__cause__, error.__context__, error.__suppress_context__)
        return make, args, (state, links), None, None, _finish


def _recipe(error: BaseException) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
    """Return (callable, args, state) that make an equal exception: those of pickle if they work."""
    own = error.args
    try:
        reduced = error.__reduce_ex__(PROTOCOL)
        if isinstance(reduced, tuple) and len(reduced) <= 3:
            make, args, state = (*reduced, None, None)[:3]
            own = args if make is type(error) else own
            twin = make(*args)
            _apply_state(twin, state)
            if type(twin) is type(error) and str(twin) == str(error) and repr(twin.args) == repr(error.args):
                return make, args, state
    except Exception:
        pass  # its constructor wants something else than its args
    return _without_init, (type(error), own), dict(error.__dict__)


def _without_init(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """Make an exception by the `__init__` of the builtin exception that its class derives from."""
    builtin: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    error: BaseException = builtin.__new__(kind, *args)
    builtin.__init__(error, *args)
    return error


def _finish(error: BaseException, state: tuple[Any, tuple[BaseException | None, BaseException | None, bool]]) -> None:
    """Give a rebuilt exception its attributes and its place in the chain."""
    own, (cause, context, suppress) = state
    _apply_state(error, own)
    error.__cause__ = cause
    error.__context__ = context
    error.__suppress_context__ = suppress


def _apply_state(error: BaseException, state: Any) -> None:
    if state is not None:
        error.__setstate__(state)


def _portable(value: Any) -> Any:
    """Return `value`, or its repr if it cannot be pickled; exceptions are left to their own way."""
    if isinstance(value, BaseException):
        return value
    if isinstance(value, (list, tuple)) and any(isinstance(item, BaseException) for item in value):
        return type(value)(_portable(item) for item in value) if type(value) in (list, tuple) else repr(value)
    try:
        payload.loads(payload.dumps(value))
        return value
    except SerializationError:
        return repr(value)
