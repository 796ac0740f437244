"""Cancelling futures, and waiting until the scheduler has said of each what became of it."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from scaler.client.core import events as ev
from scaler.client.future import Future
from scaler.client.io.driver import SessionDriver
from scaler.common.gate import Gate
from scaler.common.interrupts import ends_event_loop

_log = logging.getLogger("scaler.client")

#: seconds that a cancellation waits for its answers; twice as long if workers are to be ended
ANSWER_TIMEOUT = 5.0
#: seconds that one waits for them which somebody who pressed Ctrl-C waits for
INTERRUPTED_TIMEOUT = 1.0
#: seconds between two cancellations, at most, that come one right after the other
SOON = 0.05


class _Wait:
    """Until every one of some futures has ended or is known to run."""

    def __init__(self, futures: Iterable[Future]) -> None:
        self.left = {id(future): future for future in futures}
        self.is_over = Gate()

    def end(self, futures: Iterable[Any]) -> None:
        """These futures need no answer any more."""
        for future in futures:
            self.left.pop(id(future), None)
        if not self.left:
            self.is_over.open()


class Cancellations:
    """Those of one client. Any thread."""

    def __init__(self, driver: SessionDriver) -> None:
        self._driver = driver
        #: held by threads that begin to wait or have done so; a signal's handler may cancel, too
        self._lock = threading.RLock()
        #: those of threads that wait now; replaced, never changed. They hold them: a signal's handler may raise where a
        #: thread has stopped waiting, before it is left out here
        self.waits: list[weakref.ref[_Wait]] = []
        #: `id()`s of what tasks of this process run in their own stacks: nobody can take that back
        self.here: set[int] = set()
        #: when the last one was over, seconds, and how many of one future each came right before it
        self._last, self._streak = 0.0, 0

    def cancel(self, futures: Iterable[Future], force: bool, tell: Callable[[ev.Event], None]) -> None:
        """Take back the tasks of these futures, with `force` also those that run.

        `tell` tells the session, and may carry out here what follows. Blocks until that is answered, and says in the
        log if that took too long; not after Ctrl-C in an event loop: asyncio cancels what is awaited one by one.
        """
        if ends_event_loop():
            self._driver.tell(ev.Cancel(list(futures), force))
        else:
            patience = 2 * ANSWER_TIMEOUT if force else ANSWER_TIMEOUT
            unanswered = self._cancel(list(futures), force, patience, tell)
            if unanswered:
                words = "scaler: the scheduler did not answer within %g s: %d tasks may yet be cancelled"
                _log.warning(words, patience, unanswered)

    def _cancel(self, futures: list[Future], force: bool, patience: float, tell: Callable[[ev.Event], None]) -> int:
        """How many of them there was no answer for."""
        is_next = len(futures) == 1 and time.monotonic() - self._last < SOON
        self._streak = self._streak + 1 if is_next else 0
        wait = _Wait(futures)
        try:
            with self._lock:
                self.waits = [*(each for each in self.waits if each() is not None), weakref.ref(wait)]
            wait.end([each for each in wait.left.copy().values() if each.done() or id(each) in self.here])
            tell(ev.Cancel(futures, force, self._streak))
            wait.is_over.wait(patience)
            return len(wait.left)
        finally:  # each result that comes looks at all of them
            self._last = time.monotonic()
            with self._lock:
                self.waits = [each for each in self.waits if each() is not wait]

    def abandon(self, futures: Iterable[Future]) -> None:
        """`cancel` what an interrupted thread has waited for, also if it runs: blocks for a moment at most."""
        self._cancel(list(futures), True, INTERRUPTED_TIMEOUT, self._driver.tell)

    def answer(self, tokens: Iterable[Any]) -> None:
        """These have ended, or are known to run."""
        for each in self.waits:
            wait = each()
            if wait is not None:
                wait.end(tokens)
