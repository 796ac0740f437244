"""What an executor says of an initializer and arguments for it that can't be pickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaler.errors import SerializationError
from scaler.executor.worker_calls import Initializer, load_what_is_raised
from scaler.extension import name_of, pickled_if_small


def packed_initializer(
    key: str, initializer: Callable[..., Any], initargs: tuple[Any, ...], custom: bool
) -> Initializer:
    """What workers run first; `custom`: the user's serializer writes it. Raises `SerializationError` naming what can't
    be pickled.
    """
    load_what_is_raised()
    name, given = name_of(initializer), (initializer, initargs)
    if custom:
        return Initializer(key, name, given)
    try:
        return Initializer(key, name, pickled_if_small(given) or given)
    except SerializationError as error:
        parts = [(f"initargs[{place}] of the initializer {name}", value) for place, value in enumerate(initargs)]
        raise _named([(f"the initializer {name}", initializer), *parts], error) from error.__cause__


def _named(parts: list[tuple[str, Any]], whole: SerializationError) -> SerializationError:
    """The error of the first of these that can't be pickled alone, with its name."""
    for name, value in parts:
        try:
            pickled_if_small(value)
        except SerializationError as error:
            return SerializationError(f"{name}: {error}")
    return whole
