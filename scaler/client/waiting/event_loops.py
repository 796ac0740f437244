"""The main thread's event loop, if it waits for futures: woken now and then, so that it hears of Ctrl-C.

A signal that comes at the moment when a thread goes to sleep does not wake it. What waits here looks now and then
(`common.interrupts.wait_in_steps`); asyncio's loop does not, and would sleep until the next task ends.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from threading import get_ident, main_thread
from typing import Any

#: the last one that a future was watched in; a process has one main thread, which alone hears of signals
_last: weakref.ref[Any] | None = None


def running_loop() -> Any | None:
    """The event loop that the calling thread runs at this moment, or None."""
    asyncio = sys.modules.get("asyncio")
    return asyncio._get_running_loop() if asyncio is not None else None


def note_event_loop() -> None:
    """The calling thread is going to watch a future: remember the event loop that it is in, if it is the main one."""
    global _last
    loop = running_loop()
    if loop is not None and get_ident() == main_thread().ident:
        _last = weakref.ref(loop)


def wake_event_loop() -> None:
    """Have that loop look, if it still runs. Any thread."""
    loop = _last() if _last is not None else None
    if loop is not None and loop.is_running():
        with contextlib.suppress(RuntimeError):  # closed since
            loop.call_soon_threadsafe(_look)


def _look() -> None:
    """Nothing: being called is enough."""
