"""What an executor has called in workers. Imports little: workers do without clients."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple

from scaler.extension import InSpace, SpaceBegins, begin_in_space, note_item, run_once

#: names that came with something, by their module
Brought = dict[str, dict[str, Any]]


class Initializer(NamedTuple):
    """What workers run first, once."""

    #: of the executor: unique, whoever else uses these workers
    key: str
    #: for messages
    name: str
    #: it and its arguments, pickled by themselves unless they are large: what fails is known then
    given: bytes | tuple[Callable[..., Any], tuple[Any, ...]]


class InitializedCall:
    """Stands for a function that is called after the initializer; arrives as an `InitializedFunction`."""

    def __init__(
        self, initializer: Initializer, function: bytes | Callable[..., Any], name: str, is_each: bool = False
    ) -> None:
        self.initializer = initializer
        #: pickled by itself unless it is large
        self.function = function
        #: a chunk of rows is given to each call
        self.is_each = is_each
        #: it is told of by the function's name, by which durations are known
        self.__module__ = None  # type: ignore[assignment]  # it is part of the name
        self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from scaler.extension import pickled  # for tasks that run inside others; few workers need it

        function: InitializedFunction = pickle.loads(pickled(self))
        return function(*args, **kwargs)

    def __reduce__(self) -> Any:
        initializer = self.initializer
        key, name, given = initializer.key, initializer.name, initializer.given
        # in this order: what comes with the initializer and with the function is caught as it is unpickled
        parts = key, name, SpaceBegins(key), given, SpaceBegins(key), self.function, self.__qualname__, self.is_each
        return _initialized, parts


class InitializedFunction(InSpace):
    """A function in a worker that has run the initializer first, once."""

    def __init__(
        self, call: InitializedCall, with_initializer: Brought, function: Callable[..., Any], brought: Brought
    ) -> None:
        super().__init__(call.initializer.key, brought)
        #: as it came
        self._call = call
        #: what has come with the initializer, unless it is pickled yet
        self._with_initializer = with_initializer
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        initializer = self._call.initializer
        run_once(initializer.key, self._initialize)
        failure = _failures.get(initializer.key)
        if failure is not None:
            what, text = failure
            from scaler.executor.initializer_failed import InitializerFailed

            message = f"the initializer {initializer.name} {what}, and its executor takes no more calls: "
            raise InitializerFailed(message + text.splitlines()[-1], initializer.key, text)
        self.enter()
        return self._function(*args, **kwargs)

    def __reduce__(self) -> Any:
        return self._call.__reduce__()

    def _initialize(self) -> None:
        key, given = self._call.initializer.key, self._call.initializer.given
        what = "or its initargs cannot be unpickled in a worker"
        load_what_is_raised()
        try:
            brought = begin_in_space(key)
            function, args = pickle.loads(given) if isinstance(given, bytes) else given
            self.keep(self._with_initializer)
            self.keep(brought)
            what = "has raised in a worker"
            function(*args)
        except BaseException:
            _failures[key] = what, traceback.format_exc()


#: of the initializers that have failed here, by the executor's key: what they did and the traceback
_failures: dict[str, tuple[str, str]] = {}


def _initialized(
    key: str,
    name: str,
    with_initializer: Brought,
    given: Any,
    brought: Brought,
    function: bytes | Callable[..., Any],
    qualname: str,
    is_each: bool,
) -> InitializedFunction:
    call = InitializedCall(Initializer(key, name, given), function, qualname, is_each)
    loaded = pickle.loads(function) if isinstance(function, bytes) else function
    made = InitializedFunction(call, with_initializer, partial(call_each, loaded) if is_each else loaded, brought)
    made.enter()
    return made


def load_what_is_raised() -> None:
    """Slow, and only for executors with an initializer: before that may have left no descriptor or path to load it by,
    and in the program before its end, when nothing can be loaded any more that registers a function to be called then.
    """
    import scaler.executor.initializer_failed  # noqa: F401


class PickledFunction:
    """Stands for a callable without keeping it: what was submitted may be kept for long, and the user's object not."""

    def __init__(self, payload: bytes, name: str) -> None:
        self._payload = payload
        #: for messages, in the place of a function's
        self.__module__, _, self.__qualname__ = name.rpartition(".")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return pickle.loads(self._payload)(*args, **kwargs)

    def __reduce__(self) -> Any:
        return pickle.loads, (self._payload,)


def call_each(function: Callable[..., Any], rows: list[tuple[Any, ...]], first: int) -> list[Any]:
    """Call a function, in a worker, with each row of a chunk; `first` says where in its map that begins."""
    results: list[Any] = []
    try:
        results.extend(starmap(function, rows))
    except Exception as error:
        note_item(error, first + len(results), item_of(rows[len(results)]))
        raise
    return results


def called_by(function: Any) -> Any:
    """The user's function: a chunk's is a partial of `call_each` of it."""
    return function.args[0] if isinstance(function, partial) and function.func is call_each else function


def item_of(row: tuple[Any, ...]) -> Any:
    """The item of a map that a row of arguments was made of, for messages."""
    return row[0] if len(row) == 1 else row
