"""Threads that wait for futures by the standard library's `wait` and `as_completed`: Ctrl-C takes their tasks back.

Both of these put a waiter into the list of them that each future has, and wait for the waiter's event.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from scaler.common.interrupts import wait_in_steps


class Owner(Protocol):
    """The client that made some futures. Any thread."""

    def abandon(self, futures: Iterable[Any], waiter: object = None) -> None:
        """The thread that waited for these, by this waiter, was interrupted: take their tasks back, also what runs.

        Not of futures that another thread waits for.
        """

    def check_process(self) -> None:
        """Raise `ForkedClient` in a child of the process that made the client: there no future of it ends any more."""


#: in a process that was forked off another one
_is_child = False


def check_process(futures: Iterable[Any]) -> None:
    """Raise `ForkedClient` if one of these has not ended, and never will in this process. Does not block."""
    if not _is_child:
        return
    checked = None
    for future in futures:
        if future.owner is not checked and not future.has_ended():
            checked = future.owner
            checked.check_process()


#: called for each future of each `wait`: `super()` takes longer than the rest
_append = list.append


class Waiters(list[Any]):
    """Those of one future."""

    __slots__ = ("_future",)

    def __init__(self, future: Any) -> None:
        self._future = weakref.ref(future)

    def append(self, waiter: Any) -> None:
        """A thread is going to wait; called before anybody can have set the event."""
        event = waiter.event
        if type(event) is threading.Event:
            event = waiter.event = _WatchedEvent(weakref.ref(waiter))
        if type(event) is _WatchedEvent:
            event.futures.append(self._future)
        _append(self, waiter)


class _WatchedEvent(threading.Event):
    """What a thread waits for that waits for futures."""

    def __init__(self, waiter: Callable[[], object]) -> None:
        super().__init__()
        self.futures: list[Callable[[], Any]] = []
        self._waiter = waiter
        #: the forked process that has looked whether the futures can end in it: one may go on with an `as_completed`
        self._checked_in = 0

    def wait(self, timeout: float | None = None) -> bool:
        """As that of any event. Raises `ForkedClient`."""
        if _is_child and self._checked_in != os.getpid():
            if not self.is_set():
                check_process(self._live())
            self._checked_in = os.getpid()
        try:
            return wait_in_steps(super().wait, timeout)
        except KeyboardInterrupt:
            self._abandon()
            raise

    def _abandon(self) -> None:
        futures = self._live()
        owners: set[Owner] = {future.owner for future in futures}
        for owner in owners:
            owner.abandon([future for future in futures if future.owner is owner], self._waiter())

    def _live(self) -> list[Any]:
        return [future for known in self.futures if (future := known()) is not None]


def _note_child() -> None:
    global _is_child
    _is_child = True


os.register_at_fork(after_in_child=_note_child)
