"""A cancellation that follows a burst of submits at once concerns all of them, sent or not."""

from __future__ import annotations

import math
import time

from support import within

from scaler import Client


def test_a_cancel_right_after_a_burst_reaches_every_task(client: Client) -> None:
    for _ in range(20):
        futures = [client.submit(time.sleep, 0.01) for _ in range(300)]
        cancelled = client.cancel(futures)
        assert all(future.done() or future.running() for future in futures), "each was answered"
        assert cancelled > 200, "two workers can't have begun more in the time that this takes"
        assert client.submit(abs, -1).result(5) == 1


def maybe_long(number: int) -> int:
    return 1 if number == 0 or math.factorial(number) else 0  # in C, and no other thread of the worker runs meanwhile


def test_a_task_that_keeps_the_interpreter_to_itself_can_be_cancelled(client: Client) -> None:
    assert client.map(maybe_long, [0] * 300) == [1] * 300  # its tasks are handed out several at a time from now on
    for _ in range(3):
        futures = [client.submit(maybe_long, number) for number in (0, 0, 0, 0, 1_000_000)]
        with within(3.0, "it would have run for six seconds"):
            assert futures[-1].cancel(force=True) or futures[-1].done()
        assert [future.result(10) for future in futures[:-1]] == [1] * 4
