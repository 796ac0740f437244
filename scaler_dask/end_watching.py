"""Watching several keys for their ends, in threads and in event loops, and ceasing to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial

from scaler_dask.future_state import FutureState


def watch_all(states: Sequence[FutureState], return_when: str, announce: Callable[[], None]) -> Callable[[], None]:
    """Call `announce` when enough of them have ended; what is returned ends the watch: it is called no more.

    `return_when`: ALL_COMPLETED, FIRST_COMPLETED, or FIRST_EXCEPTION, for which one that was cancelled counts, too.
    """
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
    watched = [(state, partial(ended, state)) for state in states]
    for state, callback in watched:
        state.watch(callback)

    def end() -> None:
        for state, callback in watched:
            state.unwatch(callback)

    return end


async def until_ended(states: Sequence[FutureState], return_when: str = "ALL_COMPLETED") -> None:
    """Wait, in an event loop, until enough of them have ended."""
    loop = asyncio.get_running_loop()
    enough = loop.create_future()

    def announce() -> None:
        try:
            loop.call_soon_threadsafe(wake, enough)
        except RuntimeError:  # the loop is closed
            pass

    end_watch = watch_all(states, return_when, announce)
    try:
        await enough
    finally:
        end_watch()


def wake(waiter: asyncio.Future[None]) -> None:
    """End the wait of a coroutine, unless it has ended. Called in its event loop."""
    if not waiter.done():
        waiter.set_result(None)
