"""Waiting for a future, without a client."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import Mock

from scaler.client.callbacks import callbacks_collected
from scaler.client.future import Future, fulfil_all


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


def test_callbacks_are_called_when_all_that_came_together_has_ended() -> None:
    futures = [Future(Mock()) for _ in range(3)]
    seen: list[list[bool]] = []
    for future in futures:
        future.add_done_callback(lambda _: seen.append([other.done() for other in futures]))
    with callbacks_collected:
        with callbacks_collected:
            fulfil_all(futures[:2], [1, 2])
        futures[2].mark_cancelled()
        assert seen == []
    assert seen == [[True] * 3] * 3


def test_a_future_that_ends_in_a_callback_calls_its_own_at_once() -> None:
    first, second = Future(Mock()), Future(Mock())
    order: list[str] = []
    second.add_done_callback(lambda _: order.append("second"))

    def end_second(_: Any) -> None:
        second.fulfil(2)
        order.append("first")

    first.add_done_callback(end_second)
    with callbacks_collected:
        first.fulfil(1)
    assert order == ["second", "first"]
