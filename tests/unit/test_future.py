"""Waiting for a future, without a client."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import Mock

from scaler.client.future import Future


class Gate:
    """A waiter's lock; when it opens, the waiter takes it out at once, as a thread that is quick to wake does."""

    def __init__(self, gates: list[Any]) -> None:
        self._gates = gates
        self._lock = threading.Lock()
        self._lock.acquire()
        gates.append(self)

    def locked(self) -> bool:
        return self._lock.locked()

    def release(self) -> None:
        self._lock.release()
        self._gates.remove(self)


def test_every_thread_that_waits_is_woken_however_fast_the_others_go() -> None:
    future = Future(Mock())
    gates = [Gate(future._gates) for _ in range(3)]
    future.fulfil(1)
    assert [gate.locked() for gate in gates] == [False, False, False]
