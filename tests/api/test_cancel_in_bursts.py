"""A cancellation that follows a burst of submits at once concerns all of them, sent or not."""

from __future__ import annotations

import time

from scaler import Client


def test_a_cancel_right_after_a_burst_reaches_every_task(client: Client) -> None:
    for _ in range(20):
        futures = [client.submit(time.sleep, 0.01) for _ in range(300)]
        cancelled = client.cancel(futures)
        assert all(future.done() or future.running() for future in futures), "each was answered"
        assert cancelled > 200, "two workers can't have begun more in the time that this takes"
        assert client.submit(abs, -1).result(5) == 1
