"""The results of `Executor.map`, one after the other."""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from scaler.client import Client, Future
from scaler.extension import MapJob


def in_order(
    client: Client,
    submit: Callable[..., Future],
    rows: Iterator[tuple[Any, ...]],
    deadline: float | None,
    ahead: int | None,
) -> Iterator[Any]:
    """Submit rows, at once or only so many (`ahead`) before the results that were taken; what yields these.

    What has not ended when that ends early is cancelled. Raises TimeoutError after `deadline` (of `time.monotonic`).
    """
    futures = collections.deque(itertools.starmap(submit, itertools.islice(rows, ahead)))

    def results() -> Iterator[Any]:
        try:
            while futures:
                row = next(rows, None)
                if row is not None:
                    futures.append(submit(*row))
                yield _first_of(futures, deadline)
        finally:
            unfinished = [future for future in futures if not future.done()]
            if unfinished and not client.closed:
                client.cancel(unfinished)

    return results()


def _first_of(futures: collections.deque[Future], deadline: float | None) -> Any:
    """Return the first future's result, and take it out. Nothing keeps it, as a variable of a generator would."""
    result = futures[0].result(None if deadline is None else max(0.0, deadline - time.monotonic()))
    futures.popleft()
    return result


def rest_of(job: MapJob, deadline: float | None) -> Iterator[Any]:
    """Yield the results of rows that were sent in blocks."""
    yield from job.iterate(None if deadline is None else max(0.0, deadline - time.monotonic()))


def chunked(rows: Iterator[tuple[Any, ...]], size: int) -> Iterator[tuple[list[tuple[Any, ...]]]]:
    """Yield rows in lists of a length, each as the argument of `call_each`."""
    while chunk := list(itertools.islice(rows, size)):
        yield (chunk,)


def flat(chunks: Iterator[list[Any]]) -> Iterator[Any]:
    """Yield the items of lists, and keep none that was yielded."""
    for chunk in chunks:
        chunk.reverse()
        while chunk:
            yield chunk.pop()
