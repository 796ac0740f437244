"""From values to futures of them: `Client.scatter`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from scaler import Client as Engine
from scaler_dask.future_state import FutureState
from scaler_dask.keyed_future import Future, registered
from scaler_dask.registry import Registry
from scaler_dask.sources import SentValue


def scattered(registry: Registry, engine: Engine, data: Any) -> Any:
    """Futures of values that are sent, in a list, tuple or set, or in a dict by key; or one future. A range is a list.

    Blocks while large values are written to a store. Raises TypeError for an iterator, and like `send_object`.
    """
    if isinstance(data, Iterator):
        raise TypeError("scatter() takes values, not an iterator: give list(iterator)")
    if type(data) is range:
        data = list(data)
    if type(data) is dict:
        return {key: _sent(registry, engine, value, key) for key, value in data.items()}
    if type(data) in (list, tuple, set, frozenset):
        return type(data)(_sent(registry, engine, value) for value in data)
    return _sent(registry, engine, data)


def _sent(registry: Registry, engine: Engine, value: Any, key: Any = None) -> Future:
    if isinstance(value, Future):
        return value
    if key is None:
        key = f"{type(value).__name__}-{uuid.uuid4().hex}"
    return registered(registry, FutureState(key, SentValue(engine, engine.send_object(value))))
