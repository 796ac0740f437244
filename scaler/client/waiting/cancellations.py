"""Cancelling futures, and waiting until the scheduler has said of each what became of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from scaler.client.core import events as ev
from scaler.client.future import Future
from scaler.client.io.driver import SessionDriver

#: seconds that a cancellation waits for its answers; twice as long if workers are to be ended
ANSWER_TIMEOUT = 5.0


class _Wait:
    """Until every one of some futures has ended or is known to run."""

    def __init__(self, futures: Iterable[Future]) -> None:
        self.left = {id(future): future for future in futures}
        self.is_over = threading.Event()

    def end(self, futures: Iterable[Any]) -> None:
        """These futures need no answer any more."""
        for future in futures:
            self.left.pop(id(future), None)
        if not self.left:
            self.is_over.set()


class Cancellations:
    """Those of one client. Any thread."""

    def __init__(self, driver: SessionDriver) -> None:
        self._driver = driver
        #: held by threads that begin to wait
        self._lock = threading.Lock()
        #: those that have not ended, or not long ago
        self.waits: list[_Wait] = []

    def cancel(self, futures: Iterable[Future], force: bool) -> None:
        """Take back the tasks of these futures, with `force` also those that run. Blocks until that is answered."""
        wait = _Wait(futures)
        with self._lock:
            self.waits = [*(other for other in self.waits if other.left), wait]
        wait.end([future for future in wait.left.copy().values() if future.done()])
        self._driver.tell(ev.Cancel(list(futures), force))
        wait.is_over.wait(2 * ANSWER_TIMEOUT if force else ANSWER_TIMEOUT)

    def answer(self, tokens: Iterable[Any]) -> None:
        """These have ended, or are known to run."""
        for wait in self.waits:
            wait.end(tokens)
