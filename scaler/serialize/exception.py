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

#: an exception, its cause, its context, and whether the context is not to be shown
_Link = tuple[BaseException, BaseException | None, BaseException | None, bool]


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
        #: ids of the exceptions whose links are part of the pickle
        self._linked: set[int] = set()

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
        return make, args, (state, self._links_from(error)), None, None, _finish

    def _links_from(self, error: BaseException) -> list[_Link]:
        """The links of an exception's whole chain, but for those told before.

        Were they told one inside the other, a chain of some hundred would be too deep to pickle: a function that calls
        itself, and raises another error from each, makes one.
        """
        links: list[_Link] = []
        ahead: list[BaseException | None] = [error]
        while ahead:
            each = ahead.pop()
            if each is not None and id(each) not in self._linked:
                self._linked.add(id(each))
                links.append((each, each.__cause__, each.__context__, each.__suppress_context__))
                ahead += (each.__context__, each.__cause__)
        return links


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
            if type(twin) is type(error) and str(twin) == str(error) and _look_alike(twin.args, error.args):
                return make, args, state
    except Exception:
        pass  # its constructor wants something else than its args
    return _without_init, (type(error), own), dict(error.__dict__)


def _look_alike(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """Whether they have the same text. A group has the texts of all that is in it: what is the same is not asked."""
    return len(some) == len(others) and all(
        one is other or repr(one) == repr(other) for one, other in zip(some, others, strict=True)
    )


def _without_init(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """Make an exception by the `__init__` of the builtin exception that its class derives from."""
    builtin: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    error: BaseException = builtin.__new__(kind, *args)
    builtin.__init__(error, *args)
    return error


def _finish(error: BaseException, state: tuple[Any, list[_Link]]) -> None:
    """Give a rebuilt exception its attributes, and each of its chain its place there."""
    own, links = state
    _apply_state(error, own)
    for each, cause, context, suppress in links:
        each.__cause__ = cause
        each.__context__ = context
        each.__suppress_context__ = suppress


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
