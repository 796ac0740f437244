"""What an executor says of functions and arguments that can't be pickled, where it sends something around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from scaler.errors import SerializationError
from scaler.executor.worker_calls import InitializedCall, load_what_is_raised
from scaler.extension import name_of, pickled_if_small


def initialized_call(
    key: str, initializer: Callable[..., Any], initargs: tuple[Any, ...], custom: bool
) -> InitializedCall:
    """What is called in the place of each function; `custom`: the user's serializer writes it. Raises
    `SerializationError` naming what can't be pickled.
    """
    load_what_is_raised()
    name, given = name_of(initializer), (initializer, initargs)
    if custom:
        return InitializedCall(key, name, given)
    try:
        return InitializedCall(key, name, pickled_if_small(given) or given)
    except SerializationError as error:
        parts = [(f"initargs[{place}] of the initializer {name}", value) for place, value in enumerate(initargs)]
        raise _named([(f"the initializer {name}", initializer), *parts], error) from error.__cause__


def error_of_call(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: SerializationError
) -> SerializationError:
    """The error of a call of `fn` that was sent as an argument of something else."""
    name = name_of(fn)
    parts = [(f"argument {place!r} of {name}", value) for place, value in [*enumerate(args), *kwargs.items()]]
    return _named([(f"function {name}", fn), *parts], error)


def _named(parts: Iterable[tuple[str, Any]], whole: SerializationError) -> SerializationError:
    """The error of the first of these that can't be pickled alone, with its name."""
    for name, value in parts:
        try:
            pickled_if_small(value)
        except SerializationError as error:
            return SerializationError(f"{name}: {error}")
    return whole
