"""Looking without sleeping for a moment: waking a processor that sleeps takes as long as a short task.

A program that waits for each result before it submits the next task asks again after some tenths of a millisecond.
Whoever sleeps in between is woken by way of the kernel, on a virtual machine also of its host, and finds its caches
cold: of 0.38 ms for such a task that was a quarter. So who has nothing to do looks for a moment first, if what came
last came within one. Who asks now and then is not waited for so; and looks in vain become rare, as they keep
others from a processor where there are few.

Between two looks others are let go first: a scheduler of processes (EEVDF) has who wakes wait for the rest of a slice
of 3 ms, however idle what runs there is. Without that one task in a hundred took twice as long where client,
scheduler, agent and worker share two processors.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

#: seconds of looking, at most, and within which an answer was quick: what a program may do between two tasks
MOMENT = 0.0005
#: seconds that a look takes if something else has run meanwhile
INTERRUPTED = 0.0001
#: quick answers in a row that are wanted before a look, at most: each look in vain doubles them, each other one halves
#: them, so where most are in vain they are rare
MOST_WANTED = 64

Ready = list[tuple[int, int]]


def _nobody() -> None:
    """There is no way to let others go first."""


#: has those run first who wait for this processor
LET_GO: Callable[[], None] = getattr(os, "sched_yield", _nobody)


class Spinner:
    """Decides how to wait. One thread at a time.

    Looks for `moment` seconds at most, and not on when it was kept from it for `interrupted` seconds.
    """

    def __init__(
        self,
        moment: float = MOMENT,
        interrupted: float = INTERRUPTED,
        clock: Callable[[], float] = time.monotonic,
        give_way: Callable[[], None] = LET_GO,
    ) -> None:
        self._moment = moment
        self._interrupted = interrupted
        self._clock = clock
        self._give_way = give_way
        #: answers in a row that came within a moment, and how many make it worth while to look
        self._quick = 0
        self._wanted = 1

    def poll(self, poll: Callable[[float], Ready], timeout: float) -> Ready:
        """What is ready, as `poll` finds it, which takes the seconds to wait for.

        Waits at most `timeout` seconds, the first moment without sleep if that may help. Who was kept from looking goes
        to sleep: somebody else needs this processor, and who wakes may be given another.
        """
        clock, moment, interrupted = self._clock, self._moment, self._interrupted
        began = now = clock()
        ready: Ready = []
        if self._quick >= self._wanted:
            until = began + min(moment, timeout)
            while not ready and now < until:
                before = now
                ready = poll(0.0)
                if not ready:
                    self._give_way()
                now = clock()
                if now - before > interrupted:
                    break
            self._wanted = max(1, self._wanted // 2) if ready else min(2 * self._wanted + 2, MOST_WANTED)
        if not ready:
            ready = poll(max(0.0, began + timeout - now))
            now = clock()
        self._quick = self._quick + 1 if ready and now - began < moment else 0
        return ready
