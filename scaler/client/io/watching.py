"""Watching the connection while waiting: a thread that waits for the only task under way receives the result itself.

That saves waking the I/O thread, and waking the thread from there.
"""

from __future__ import annotations

import contextlib
import select
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from scaler.client.core import events as ev
from scaler.client.io.driver import SessionDriver
from scaler.client.io.line import Line
from scaler.client.io.polling import ConnectionPoller
from scaler.common.interrupts import Heed, Uninterrupted
from scaler.common.processors import available_cores
from scaler.common.spinning import Spinner
from scaler.transport import Connection

#: seconds between looks at the time while nothing happens
IDLE = 0.5
#: seconds for which the thread looks without sleeping, at most, and within which an answer was quick: more than one
#: takes while all sleep in between, on a slow machine too, or nobody would ever look
SPIN = 0.002
#: seconds that a look takes if something else has run meanwhile: scheduler and agent take less for a task
INTERRUPTED = 0.001
#: only epoll can be changed by one thread while another waits in it
IS_POSSIBLE = sys.platform == "linux"
#: raised where a connection was closed meanwhile: the I/O thread sees to that
_CLOSED = (OSError, ValueError, KeyError)
#: what is ready after at most so many seconds, as `select.poll` says it
_Look = Callable[[float], list[tuple[int, int]]]


class QuickEffects(Protocol):
    """Carries out effects in a thread that waits."""

    def is_quick(self, effect: ev.Effect) -> bool:
        """Whether it takes little time, and calls nothing of the user's."""

    def carry_out(self, effects: list[ev.Effect]) -> None:
        """Do what they say, in order."""


class Watcher:
    """Any thread may wait; one at a time watches."""

    def __init__(
        self, driver: SessionDriver, line: Line, poller: ConnectionPoller, quick_effects: QuickEffects
    ) -> None:
        self._driver = driver
        self._line = line
        self._poller = poller
        self._quick_effects = quick_effects
        #: None where others can't go on while a thread looks
        self._spinner = Spinner(SPIN, INTERRUPTED) if available_cores() > 1 else None
        #: what was watched last, its descriptor, and how
        self._watched: tuple[Connection, int, _Look] | None = None

    def watch_while_waiting(self, is_done: Callable[[], bool], timeout: float | None) -> None:
        """Wait for the only task under way by watching the connection here, in the stead of the I/O thread.

        Returns when `is_done()`, after `timeout` seconds, or when the I/O thread should go on: the caller then waits
        as usual.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        heed = Heed()
        while IS_POSSIBLE and self._driver.is_lone and not is_done():
            # Handlers of signals are called when the I/O thread watches again: they may wait for other tasks.
            with Uninterrupted(self._poller.nudge.wake) as block:
                self._borrow_and_watch(lambda: bool(block.came) or is_done(), deadline, heed)
            if not block.came:
                return
            heed()

    def _borrow_and_watch(self, is_over: Callable[[], bool], deadline: float | None, heed: Heed) -> None:
        connection = self._line.connection
        if connection is None:
            return
        try:
            fd = connection.fileno()
            if not self._poller.borrow(fd):
                return
        except _CLOSED:
            return
        try:
            self._watch(connection, is_over, deadline, heed)
        finally:
            try:
                self._poller.give_back(fd)
            except _CLOSED:
                pass  # it is lost, and forgotten

    def tell(self, event: ev.Event) -> None:
        """Tell the session something, and carry out here what follows from it, if that is quick."""
        with Uninterrupted():
            self._quick_effects.carry_out(self._driver.tell_here(event, self._quick_effects.is_quick))

    def recover(self) -> None:
        """The calling thread was interrupted while it waited: the I/O thread watches the connection again."""
        connection, fd = self._line.connection, -1
        if connection is not None:
            with contextlib.suppress(*_CLOSED):
                fd = connection.fileno()
        self._poller.recover(fd)
        self._driver.wake()

    def _looking_at(self, fd: int) -> _Look:
        """What waits until something comes at this descriptor, or the I/O thread is nudged."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.register(self._poller.nudge.fileno(), select.POLLIN)

        def wait(seconds: float) -> list[tuple[int, int]]:
            return poll.poll(seconds * 1000)

        return wait if self._spinner is None else partial(self._spinner.poll, wait)

    def _watch(self, connection: Connection, is_over: Callable[[], bool], deadline: float | None, heed: Heed) -> None:
        nudge = self._poller.nudge
        if self._watched is None or self._watched[0] is not connection:
            try:
                fd = connection.fileno()
                self._watched = connection, fd, self._looking_at(fd)
            except _CLOSED:
                return
        _, fd, look = self._watched
        while not is_over() and self._line.connection is connection and not self._line.is_lost:
            left = IDLE if deadline is None else min(IDLE, deadline - time.monotonic())
            if left <= 0:
                return
            ready = look(left)
            if not ready:
                heed()
                continue
            if len(ready) > 1 or ready[0][0] != fd:
                nudge.clear()
            driver = self._driver
            with driver.lock:
                driver.receive()
                effects = driver.take_effects()
                if not all(map(self._quick_effects.is_quick, effects)):
                    driver.put_back(effects)
                    driver.wake()
                    return
            self._quick_effects.carry_out(effects)
            if connection.is_closed:
                self._watched = None
                driver.wake()
            if connection.is_closed or driver.is_queued:
                return
