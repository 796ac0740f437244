"""What a durable executor works with: its client, and a job at the scheduler that its calls belong to."""

from __future__ import annotations

import _thread
import concurrent.futures
import contextlib
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from scaler.client import Client
from scaler.errors import ScalerError
from scaler.executor.ending import forget, wait_for_at_exit
from scaler.extension import durable_calls, lifetime_of

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
        #: of the process that may end it: children that are forked may not
        self._owner = os.getpid()
        #: held by the thread that waits for the last call and leaves; a signal's handler may do so, too
        self._closing = threading.RLock()
        self._is_closed = False
        wait_for_at_exit(self)

    def submit(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> concurrent.futures.Future[Any]:
        """See `Executor.submit`."""
        return self._calls.submit(fn, args, kwargs)

    def map(
        self, fn: Callable[..., Any], rows: Iterable[tuple[Any, ...]], deadline: float | None, buffersize: int | None
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
        """Take no more calls; with `cancel_futures` nobody waits for them. They stay made: they belong to the job."""
        if os.getpid() == self._owner:
            self._calls.take_no_more(cancel_futures)

    def take_no_more(self) -> None:
        """Refuse all further calls."""
        self._calls.take_no_more()

    @property
    def calls_under_way(self) -> int:
        """Calls that have not ended."""
        return self._calls.waited_for

    def finish(self) -> None:
        """Wait until all calls have ended, then leave; blocks as long as that takes."""
        if os.getpid() != self._owner:
            return
        with self._closing:
            if self._is_closed:
                return
            try:
                self._calls.close()
            except KeyboardInterrupt:
                self.abandon()
                raise
            finally:
                self._is_closed = True
                forget(self)
                self.client.disconnect()

    def finish_in_background(self) -> None:
        """Have another thread `finish`. The garbage collector may call it: takes no lock, and makes no `Thread`."""
        if os.getpid() == self._owner and not self._is_closed:
            try:
                _thread.start_new_thread(self._finish_quietly, ())
            except RuntimeError:  # the interpreter ends, and has waited already
                pass

    def _finish_quietly(self) -> None:
        with contextlib.suppress(ScalerError):  # which the futures have told
            self.finish()

    def abandon(self) -> None:
        """The program was interrupted: leave at once. Calls that were not sent yet are no part of the job."""
        if os.getpid() == self._owner and not self._is_closed:
            self._is_closed = True
            forget(self)
            self._calls.abandon()
            lifetime_of(self.client).leave_at_once()


def _results(
    futures: deque[concurrent.futures.Future[Any]],
    more: Iterator[concurrent.futures.Future[Any]],
    deadline: float | None,
) -> Iterator[Any]:
    while futures:
        future = futures.popleft()
        yield future.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
        futures.extend(itertools.islice(more, 1))
