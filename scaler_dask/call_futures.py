"""From calls to futures: the same call, made again while a future of it is held, is the same future's."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from dask.base import tokenize
from dask.utils import funcname

from scaler import Client as Engine
from scaler.extension import Future as EngineFuture
from scaler.extension import submit_call
from scaler_dask.future_arguments import find_futures, submit_call_of_futures
from scaler_dask.future_state import FutureState
from scaler_dask.keyed_future import Future, registered
from scaler_dask.plugins import Plugins
from scaler_dask.registry import Registry
from scaler_dask.sources import TaskValue
from scaler_dask.worker_functions import awaited


def future_of_call(
    registry: Registry,
    plugins: Plugins,
    session: Engine,
    key: Any,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Future:
    """The future of a call: the one that its key stands for, or of one that is submitted to this session.

    Blocks only while a large argument is written to a store.
    """
    known = registry.get(key)
    if known is not None and known.status != "cancelled":
        return Future(known.key, registry.owner, known)
    found = find_futures(args, kwargs)

    def submit() -> EngineFuture:
        called, wrap = awaited(function), plugins.wrap
        if wrap is not None:
            called = wrap(called)
        if found is None:
            return submit_call(session, called, args, kwargs)
        return submit_call_of_futures(session, key, called, found)

    arguments = () if found is None else found.states
    return registered(registry, FutureState(key, TaskValue(submit()), submit, arguments))


def key_of_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], pure: bool) -> str:
    """A key for a call: with `pure` the same one for the same call."""
    return f"{funcname(function)}-{_token(function, kwargs, *args) if pure else uuid.uuid4()}"


def keys_of_map(
    function: Callable[..., Any], rows: Sequence[tuple[Any, ...]], kwargs: dict[str, Any], pure: bool, key: Any
) -> list[Any]:
    """Keys for the calls of a map. `key`: a list of them, or how they begin, or None. Raises ValueError."""
    if isinstance(key, list):
        if len(key) != len(rows):
            raise ValueError(f"map() got {len(key)} keys for {len(rows)} calls")
        return key
    prefix = key or funcname(function)
    if not pure:
        common = uuid.uuid4()
        return [f"{prefix}-{common}-{number}" for number in range(len(rows))]
    token = _token(function, kwargs)
    return [f"{prefix}-{_token(token, *row)}" for row in rows]


def _token(*values: Any) -> str:
    try:
        return str(tokenize(*values))
    except Exception:  # what can't be told apart from others is its own
        return uuid.uuid4().hex
