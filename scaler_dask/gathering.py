"""Values that have futures in them: finding these, and putting their values in their places."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from dask import _task_spec as spec
from dask.base import is_dask_collection

from scaler_dask.end_watching import until_ended
from scaler_dask.interrupts import taken_back_at_interrupt
from scaler_dask.keyed_future import CancelledError, Future
from scaler_dask.registry import find
from scaler_dask.sources import request


def futures_of(value: Any, client: Any = None) -> list[Future]:
    """The futures in a value: lists, tuples, sets and dicts are looked into, and collections that were persisted.

    Each is there once, and of collections each key. Does not block; `client` is ignored, since a future knows its own.
    """
    found: dict[Future, None] = {}
    keys: set[Any] = set()
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Future):
            found[item] = None
            keys.add(item.key)
        elif type(item) in (list, tuple, set, frozenset):
            stack.extend(reversed(list(item)))
        elif type(item) is dict:
            stack.extend(reversed(list(item.values())))
        elif is_dask_collection(item):
            stack.extend({f.key: f for f in _of_graph(dict(item.__dask_graph__())) if f.key not in keys}.values())
    return list(found)


def _of_graph(graph: dict[Any, Any]) -> Iterator[Future]:
    for value in graph.values():
        if isinstance(value, Future):
            yield value
        elif isinstance(value, spec.DataNode) and isinstance(value.value, Future):
            yield value.value
        elif isinstance(value, spec.Alias):
            known = find(next(iter(value.dependencies)))
            if known is not None:
                owner, state = known
                yield Future(state.key, owner, state)


def fire_and_forget(obj: Any) -> None:
    """Let tasks run to their ends although nobody keeps their futures, and their client is closed. Does not block.

    Closing it waits for them, unless the cluster is the client's own, which ends. Those that a task has submitted end
    with the program whose task it is.
    """
    for future in futures_of(obj):
        if future.client is not None:
            future.client.wait_at_close(future.state)


def gathered(value: Any, read: Callable[[Future], Any], skip: bool) -> Any:
    """The value with each future in it, at any depth of lists, tuples, sets and dicts, replaced by what `read` gives.

    With `skip` there is None for those for which it raises, as with dask.distributed; where the value itself is a list,
    it is without them.
    """
    if not skip:
        return _replaced(value, read)

    def read_or(otherwise: Any, future: Future) -> Any:
        try:
            return read(future)
        except (Exception, CancelledError):
            return otherwise

    or_none = partial(read_or, None)
    if type(value) is list:
        items = [read_or(_SKIPPED, item) if isinstance(item, Future) else _replaced(item, or_none) for item in value]
        return [item for item in items if item is not _SKIPPED]
    return _replaced(value, or_none)


def gather(value: Any, skip: bool) -> Any:
    """The value with each future in it replaced by its value. Blocks; raises what tasks raised unless `skip`."""
    with taken_back_at_interrupt(lambda: futures_of(value)):
        known = (future.state.sent for future in futures_of(value) if not future.cancelled())
        requested: dict[Any, Any] = request(source for source in known if source is not None)

        def read(future: Future) -> Any:
            state = future.state
            brought = requested.get(state.sent)
            return state.value() if brought is None else brought.fresh_result()

        return gathered(value, read, skip)


async def gather_later(value: Any, skip: bool) -> Any:
    """`gather` for event loops: raises the first error as soon as it is known."""
    states = [future.state for future in futures_of(value)]
    await until_ended(states, "ALL_COMPLETED" if skip else "FIRST_EXCEPTION")
    if not skip:
        for state in states:
            if state.status in ("error", "cancelled"):
                state.value(0)
    return await asyncio.to_thread(gather, value, skip)


_SKIPPED = object()


def _replaced(value: Any, read: Callable[[Future], Any]) -> Any:
    if isinstance(value, Future):
        return read(value)
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind([read(item) if isinstance(item, Future) else _replaced(item, read) for item in value])
    if kind is dict:
        return {key: _replaced(item, read) for key, item in value.items()}
    return value
