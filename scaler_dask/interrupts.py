"""What is done when a user presses Ctrl-C, or interrupts a notebook's kernel, while something is waited for."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from scaler import Client as Engine
from scaler.extension import Future as EngineFuture
from scaler.extension import abandon
from scaler_dask.keyed_future import Future


@contextlib.contextmanager
def taken_back_at_interrupt(futures: Callable[[], Iterable[Future]]) -> Iterator[None]:
    """Within this context the thread waits for these; an interrupt takes their tasks back, those that run too."""
    try:
        yield
    except KeyboardInterrupt:
        for engine, tasks in tasks_under_way(futures()).items():
            abandon(engine, tasks)
        raise


def tasks_under_way(futures: Iterable[Future]) -> dict[Engine, list[EngineFuture]]:
    """The tasks of those that have not ended, by the engine's clients that they belong to."""
    tasks: dict[Engine, list[EngineFuture]] = defaultdict(list)
    for future in futures:
        task = None if future.done() else future.state.task
        if task is not None and future.client is not None:
            tasks[future.client.engine].append(task)
    return tasks
