"""Bytes of values and of functions, as the engine makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaler.protocol.messages import INLINE_LIMIT
from scaler.serialize.fresh_functions import fresh
from scaler.serialize.outofband import pack_large
from scaler.serialize.payload import SCALARS, dumps

#: exact types whose values are immutable and pickled in no time, if they are short: not worth an argument of their own
SCALAR_TYPES = SCALARS


def pickled_if_small(value: Any) -> bytes | None:
    """The pickle of a value as tasks are given it, for `pickle.loads`; None if it is too large to be part of a message.

    What a worker can't import is pickled by value. Raises `SerializationError` naming what can't be pickled.
    """
    pickled = pack_large(value, INLINE_LIMIT)
    return pickled if isinstance(pickled, bytes) else None


def pickled(value: Any) -> bytes:
    """The pickle of a value of any size, as tasks are given it, for `pickle.loads`. Errors as of `pickled_if_small`."""
    return dumps(value)


def fresh_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """What an adapter pickles in the place of a function that it sends as part of something else.

    It calls a method whose object is as it is now each time, a partial likewise; other functions are returned as they
    are, and so is what can't be pickled. What is submitted needs none of this.
    """
    return fresh(function)
