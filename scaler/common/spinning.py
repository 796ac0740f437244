"""Looking without sleeping for a moment: waking a processor that sleeps takes as long as a short task.

A program that waits for each result before it submits the next task asks again after 0.1 ms. Whoever sleeps in between
is woken by way of the kernel, on a virtual machine also of its host, and finds its caches cold: of 0.38 ms for such a
task that was a quarter. So who has nothing to do looks for a moment first, if what came last came within one. A program
that asks now and then is not waited for so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

#: seconds of looking, at most, and within which an answer was quick: about what sleeping and waking costs
MOMENT = 0.0002

Ready = list[tuple[int, int]]


def is_possible() -> bool:
    """Others can go on while this process looks."""
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) > 1


class Spinner:
    """Waits by a function that takes the seconds to wait for, and returns what is ready. One thread."""

    def __init__(self, poll: Callable[[float], Ready], clock: Callable[[], float] = time.monotonic) -> None:
        self._poll = poll
        self._clock = clock
        #: what came last came within a moment
        self._was_quick = False

    def poll(self, timeout: float) -> Ready:
        """What is ready; waits at most `timeout` seconds for that, the first moment without sleep if that may help."""
        clock = self._clock
        began = now = clock()
        ready: Ready = []
        if self._was_quick:
            until = began + min(MOMENT, timeout)
            while not ready and now < until:
                ready = self._poll(0.0)
                now = clock()
        if not ready:
            ready = self._poll(max(0.0, began + timeout - now))
            now = clock()
        self._was_quick = bool(ready) and now - began < MOMENT
        return ready
