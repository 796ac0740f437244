"""What a process settles for that lives for weeks and runs no code of users: an agent, also with a scheduler.

Of memory that is freed glibc keeps what it may need again, and learns how much that is: once a block of 8 MB was freed,
blocks of that size come from arenas, of which there are eight for each processor if there are so many threads, and each
keeps up to 16 MB free at its end from then on; up to 64 MB after larger ones. An agent that had moved objects to disk
for a moment kept 30 MB more ever after. So it is told how much: more than what passes all the time (a batch of rows, a
chunk of an object), for which memory would be taken anew each time otherwise. Few of its threads do anything at once,
so there are few arenas.

What is freed in the middle of an arena stays there all the same: of results that wait to be read, and go in another
order than they came, an agent kept 200 MB. So it gives that back when there is nothing to do for a moment, and if there
never is, now and then all the same: that takes a millisecond for each 4 MB or so that are there.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import sys
import threading
from collections.abc import Callable
from math import inf

#: objects made and not gone since the collector last looked at young ones, at which it does: tables let go of their own
COLLECT_AFTER = 50_000
#: bytes that an arena keeps free at its end, at most; larger blocks are of no arena, and given back at once
KEEP_BYTES = 5 << 20
#: arenas of a process
ARENAS = 2
#: seconds without anything to do after which memory that is free is given back, and from one time to the next at least
PAUSE, TRIM_SECONDS = 2.0, 30.0
#: seconds after which it is given back though there was something to do all the time
BUSY_SECONDS = 300.0

#: as malloc.h has them
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_little_memory() -> bool:
    """Give back what is freed but for a few MB; False where malloc can't be told, as without glibc.

    To be called when the process that workers are forked from is there, as it should not have this, and before there
    are threads, which have arenas of their own.
    """
    mallopt = _of_libc("mallopt") if sys.platform == "linux" else None
    options = ((_M_TRIM_THRESHOLD, KEEP_BYTES), (_M_MMAP_THRESHOLD, KEEP_BYTES), (_M_ARENA_MAX, ARENAS))
    return mallopt is not None and all(mallopt(*option) for option in options)


@functools.cache  # what a library and its functions are made of refers to itself
def _of_libc(name: str) -> Callable[..., int] | None:
    """A function of the C library; None if it has none of that name."""
    return getattr(ctypes.CDLL(None), name, None)


def collect_rarely() -> None:
    """Let the collector pass over all that is there, and look rarely. To be called when all is loaded."""
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


class HeapTrim:
    """Gives back what is free in the middle of the heap, in a pause after something was done. One thread calls it."""

    def __init__(self, pause: float = PAUSE, busy: float = BUSY_SECONDS) -> None:
        """A pause is one of so many seconds; without any, it is given back after `busy` seconds."""
        self._pause, self._busy = pause, busy
        #: when to look next at the latest, seconds; None: nothing is to be given back
        self.due: float | None = None
        self._last = -TRIM_SECONDS
        #: since when there has been something to do without a pause, and when that was seen last; None: not since
        self._since = 0.0
        self._seen: float | None = None

    def look(self, is_busy: bool, now: float) -> None:
        """Whether there is something to do. Does not block: a thread of its own takes the few ms that it takes."""
        if is_busy:
            if self._seen is None:
                self._since = now
            self._seen = now
        if self._seen is None:
            return
        at_latest = self._since + self._busy
        due = min(max(self._seen + self._pause, self._last + TRIM_SECONDS), at_latest)
        if now < due:
            self.due = due if not is_busy else at_latest if at_latest < inf else None
            return
        self.due, self._seen, self._last = None, None, now
        trim = _of_libc("malloc_trim")
        if trim is not None:
            with contextlib.suppress(RuntimeError):  # there can be no more threads
                threading.Thread(target=trim, args=(0,), name="scaler-heap", daemon=True).start()
