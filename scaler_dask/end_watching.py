"""Watching several keys for their ends, in threads and in event loops, and ceasing to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial

from scaler_dask.future_state import FutureState


class Watch:
    """Callbacks that can be taken back. Used by one thread; the callbacks are called by any."""

    def __init__(self) -> None:
        self._callbacks: list[tuple[FutureState, Callable[[], None]]] = []

    def add(self, state: FutureState, callback: Callable[[], None]) -> None:
        """Call this when that has ended; at once if it has."""
        self._callbacks.append((state, callback))
        state.watch(callback)

    def end(self) -> None:
        """Call none any more."""
        for state, callback in self._callbacks:
            state.unwatch(callback)


def watch_all(states: Sequence[FutureState], return_when: str, announce: Callable[[], None]) -> Watch:
    """Call `announce` when enough of them have ended, unless the watch is ended before.

    `return_when`: ALL_COMPLETED, FIRST_COMPLETED, or FIRST_EXCEPTION, for which one that was cancelled counts, too.
    """
    watch = Watch()
    left = len(states)
    lock = threading.Lock()

    def ended(state: FutureState) -> None:
        nonlocal left
        with lock:
            left -= 1
        is_enough = return_when == "FIRST_COMPLETED" or (
            return_when == "FIRST_EXCEPTION" and state.status != "finished"
        )
        if is_enough or not left:
            announce()

    if not states:
        announce()
    for state in states:
        watch.add(state, partial(ended, state))
    return watch


async def until_ended(states: Sequence[FutureState], return_when: str = "ALL_COMPLETED") -> None:
    """Wait, in an event loop, until enough of them have ended."""
    loop = asyncio.get_running_loop()
    enough = loop.create_future()

    def announce() -> None:
        try:
            loop.call_soon_threadsafe(wake, enough)
        except RuntimeError:  # the loop is closed
            pass

    watch = watch_all(states, return_when, announce)
    try:
        await enough
    finally:
        watch.end()


def wake(waiter: asyncio.Future[None]) -> None:
    """End the wait of a coroutine, unless it has ended. Called in its event loop."""
    if not waiter.done():
        waiter.set_result(None)
