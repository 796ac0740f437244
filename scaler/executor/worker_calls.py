"""What an executor has called in workers. Imports little: workers do without clients."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from functools import partial
from itertools import starmap
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from scaler.extension import made_function, note_item, run_once


class InitializedCall:
    """Calls a function in a worker that has run the initializer first, once."""

    def __init__(self, key: str, name: str, given: bytes | tuple[Callable[..., Any], tuple[Any, ...]]) -> None:
        #: of the executor: unique, whoever else uses these workers
        self.key = key
        #: the initializer's, for messages
        self._name = name
        #: the initializer and its arguments, pickled by themselves unless they are large: what fails is known then
        self._given = given

    def named(self, name: str) -> InitializedCall:
        """The same, for calls of one function: by its name they are told of, and their durations are known."""
        call = InitializedCall(self.key, self._name, self._given)
        call.__module__ = None  # type: ignore[assignment]  # it is part of the name
        call.__qualname__ = name  # type: ignore[attr-defined]
        return call

    def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        run_once(self.key, self._initialize)
        failure = _failures.get(self.key)
        if failure is not None:
            what, text = failure
            from scaler.executor.initializer_failed import InitializerFailed

            message = f"the initializer {self._name} {what}, and its executor takes no more calls: "
            raise InitializerFailed(message + text.splitlines()[-1], self.key, text)
        fn = made_function(fn)
        self._share_globals(fn)
        return fn(*args, **kwargs)

    def _initialize(self) -> None:
        what = "or its initargs cannot be unpickled in a worker"
        load_what_is_raised()
        try:
            function, args = pickle.loads(self._given) if isinstance(self._given, bytes) else self._given
            _initializers[self.key] = function
            what = "has raised in a worker"
            function(*args)
        except BaseException:
            _failures[self.key] = what, traceback.format_exc()

    def _share_globals(self, fn: Any) -> None:
        """Let a function see what the initializer has made of the globals of the module that they are both of.

        Functions of a script travel by value, each with globals of its own; in one module they would share them.
        """
        made, theirs = _function_of(_initializers[self.key]), _function_of(fn)
        if made is None or theirs is None or made.__module__ != theirs.__module__:
            return
        if made.__globals__ is not theirs.__globals__:
            theirs.__globals__.update(
                (name, value)
                for name, value in made.__globals__.items()
                if not (name.startswith("__") or isinstance(value, (FunctionType, ModuleType, type)))
            )


def load_what_is_raised() -> None:
    """Slow, and only for executors with an initializer: before that may have left no descriptor or path to load it by,
    and in the program before its end, when nothing can be loaded any more that registers a function to be called then.
    """
    import scaler.executor.initializer_failed  # noqa: F401


def _function_of(called: Any) -> FunctionType | None:
    """The Python function behind a partial, a method, or an object that can be called."""
    called = called_by(called)
    while isinstance(called, partial):
        called = called.func
    called = getattr(called, "__func__", called)
    if not isinstance(called, (FunctionType, BuiltinFunctionType, type)):
        called = getattr(type(called), "__call__", None)  # noqa: B004
    return called if isinstance(called, FunctionType) else None


#: the initializers that were called here, by the executor's key
_initializers: dict[str, Callable[..., Any]] = {}
#: of those that have failed here, what they did and the traceback
_failures: dict[str, tuple[str, str]] = {}


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
