"""What a durable executor works with: its client, and a job at the scheduler that its calls belong to."""

from __future__ import annotations

import concurrent.futures
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from scaler.client import Client
from scaler.extension import durable_calls, leave_at_once

#: rows of a map that are added at a time
BLOCK = 16_384


class DurableRunner:
    """As `Runner`. Any thread may call its methods."""

    #: no worker is prepared for it, and none can break it
    has_initializer = False
    broken: str | None = None

    def __init__(self, client: Client, name: str) -> None:
        """Blocks until the scheduler has answered. Raises `JobError` and `ConnectionFailed`."""
        self.client = client
        self._calls = durable_calls(client, name)
        self._is_closed = False

    def submit(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> concurrent.futures.Future[Any]:
        """See `Executor.submit`."""
        return self._calls.submit(fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., Any],
        rows: Iterable[tuple[Any, ...]],
        deadline: float | None,
        buffersize: int | None,
    ) -> Iterator[Any]:
        """See `Executor.map`; without `buffersize` all rows are added before this returns."""
        blocks = iter(rows)
        if buffersize is None:
            futures: deque[concurrent.futures.Future[Any]] = deque()
            while block := list(itertools.islice(blocks, BLOCK)):
                futures.extend(self._calls.map(fn, block))
            return _results(futures, iter(()), deadline)
        more = (future for row in blocks for future in self._calls.map(fn, [row]))
        return _results(deque(itertools.islice(more, buffersize)), more, deadline)

    def end(self, cancel_futures: bool) -> None:
        """Calls that are made stay made: they belong to the job."""

    def finish(self) -> None:
        """Wait until all calls have ended, then leave; blocks as long as that takes."""
        try:
            self._close(wait=True)
        except KeyboardInterrupt:
            self.abandon()
            raise

    def finish_in_background(self) -> None:
        """Leave; what has not ended goes on at the cluster."""
        self._close(wait=False)

    def abandon(self) -> None:
        """The program was interrupted: leave at once. Calls that were not sent yet are no part of the job."""
        if not self._is_closed:
            self._is_closed = True
            self._calls.abandon()
            leave_at_once(self.client)

    def _close(self, wait: bool) -> None:
        if not self._is_closed:
            self._is_closed = not wait
            self._calls.close(wait)
            self._is_closed = True
            self.client.disconnect()


def _results(
    futures: deque[concurrent.futures.Future[Any]],
    more: Iterator[concurrent.futures.Future[Any]],
    deadline: float | None,
) -> Iterator[Any]:
    while futures:
        future = futures.popleft()
        yield future.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
        futures.extend(itertools.islice(more, 1))
