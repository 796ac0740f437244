"""Sees to it that a client goes on while a callback of the user's takes long.

Callbacks are called by the I/O thread. One that computes or sleeps says nothing before it does, as what may wait does
(`IOThread.step_aside`), and in the meantime nothing would be received, nor a heartbeat sent: the scheduler would take
the client for gone, and rows would run again. So while callbacks are called another thread looks now and then.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable

#: seconds that the I/O thread may be in callbacks until another one goes on: much less than any heartbeat is waited for
PATIENCE = 0.5
#: seconds between two looks, and looks at nothing after which the thread ends: starting one for each callback costs
LOOK, IDLE_LOOKS = 0.25, 40


class CallbackWatch:
    """Calls `look` now and then, from the first `begin` on until nothing was to be seen for some seconds.

    `begin` is for the I/O thread, of which there may be another one each time; `end` for any.
    """

    def __init__(self, look: Callable[[float], bool]) -> None:
        """`look` is given `PATIENCE`, may be called by any thread, and says whether callbacks are being called."""
        self._look = look
        self._lock = threading.Lock()
        #: whether there is a thread that will look once more
        self._is_watching = False
        self._ended = threading.Event()

    def begin(self) -> None:
        """Callbacks are about to be called. Does not block; without a thread they are watched by nobody."""
        with self._lock:
            if self._is_watching or self._ended.is_set():
                return
            try:
                _thread.start_new_thread(self._watch, ())  # `threading` waits until it runs, and callbacks as long
            except RuntimeError:  # there can be no more threads
                return
            self._is_watching = True

    def end(self) -> None:
        """Look no more."""
        self._ended.set()

    def _watch(self) -> None:
        idle = 0
        while not self._ended.wait(LOOK):
            if self._look(PATIENCE):
                idle = 0
                continue
            idle += 1
            if idle >= IDLE_LOOKS:
                with self._lock:
                    if not self._look(PATIENCE):  # whoever begins after that starts another one
                        self._is_watching = False
                        return
