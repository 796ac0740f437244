"""What is called for one row of each form of batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaler.protocol.messages import GRAPH, SPREAD, TOGETHER
from scaler.serialize.call import AnySerializer, decode_call
from scaler.worker.handout import Handout
from scaler.worker.objects import Failed, Objects, undecodable


def caller(handout: Handout, objects: Objects, function: Any, serializer: AnySerializer | None) -> Callable[[int], Any]:
    """Return what calls the function for one row. Raises Failed."""
    name = handout.name
    if handout.form == TOGETHER:
        items = objects.arguments(handout)
        if handout.flags & SPREAD:
            return lambda row: function(items[row])
        return lambda row: function(*items[row])
    if handout.form == GRAPH:
        return lambda row: function[row].run(objects.shared_values(handout.dependencies(row), name))

    def call(row: int) -> Any:
        try:
            values = objects.values(handout.dependencies(row), serializer, name) if handout.deps else ()
            args, kwargs = decode_call(handout.payload(row), values, serializer)
        except Failed:
            raise
        except Exception as error:
            raise undecodable("an argument of", name, error) from None
        return function(*args, **kwargs)

    return call


def failing(record: bytes) -> Callable[[int], Any]:
    """Return what fails in the place of a call."""

    def call(row: int) -> Any:
        raise Failed(record)

    return call
