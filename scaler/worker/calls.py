"""What is called for one row of each form of batch, and how its result becomes bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaler.protocol.messages import GRAPH, SPREAD, TOGETHER
from scaler.serialize import payload
from scaler.serialize.call import AnySerializer, decode_call
from scaler.serialize.record import encode_error
from scaler.worker import context
from scaler.worker.handout import Handout
from scaler.worker.ledger import too_large
from scaler.worker.objects import Failed, Objects, undecodable

Encode = Callable[[Any], bytes]


def caller(handout: Handout, objects: Objects, function: Any, serializer: AnySerializer | None) -> Callable[[int], Any]:
    """Return what calls the function for one row. Raises Failed."""
    name = handout.name
    if handout.form == TOGETHER:
        items = objects.arguments(handout)
        if handout.flags & SPREAD:
            return lambda row: function(items[row])
        return lambda row: function(*items[row])
    if handout.form == GRAPH:
        return lambda row: function[row].run(objects.values(handout.dependencies(row), None, name))

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


def encoder(name: str, serializer: AnySerializer | None) -> Encode:
    """Return what turns a result into bytes, or raises Failed."""
    write: Callable[[Any], bytes] = payload.dumps if serializer is None else serializer.serialize

    def encode(value: Any) -> bytes:
        try:
            data = bytes(write(value))
        except Exception as error:
            text = f"the result of {name}: {error}"
            raise Failed(encode_error("serialization", type(error).__qualname__, text, "", name)) from None
        if len(data) > context.largest_result():
            raise too_large(len(data))
        return data

    return encode


def failing(record: bytes) -> Callable[[int], Any]:
    """Return what fails in the place of a call."""

    def call(row: int) -> Any:
        raise Failed(record)

    return call
