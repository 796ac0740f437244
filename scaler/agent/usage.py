"""What workers and the host are busy with, read from /proc every now and then."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from scaler.agent.core.events import Sampled
from scaler.agent.process_state import state_of
from scaler.store.room import take_asked

#: seconds from when workers get rows to the first look, between looks while they run some, and while they don't
FIRST, BUSY, QUIET = 0.05, 0.1, 1.0

#: percent of the store's file system that should be free
FREE = 20

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage:
    """Looks at the memory of workers, and now and then at the processors."""

    def __init__(self) -> None:
        #: when the next look should be taken, seconds
        self.due = 0.0
        #: workers run rows
        self.is_busy = False
        self._looked = 0.0
        #: clients have asked for room in the store lately, and may do so again; when one has last, seconds
        self._is_asked = False
        self._asked = -math.inf
        self._cpu_due = 0.0
        self._cpu = 0.0
        #: clock ticks of all processors: in all, and idle
        self._ticks = (0, 0)

    def note(self, is_busy: bool, now: float) -> None:
        """Workers run rows now, or don't any more: a row that takes long is to be seen soon, a short one not at all."""
        if is_busy != self.is_busy:
            self.is_busy = is_busy
            self.due = min(self.due, now + FIRST) if is_busy or self._is_asked else self._looked + QUIET

    def sample(
        self,
        pids: Mapping[int, int],
        begun: Mapping[int, tuple[int, int]],
        reached: Mapping[int, int],
        now: float,
        directory: str,
    ) -> Sampled:
        """Look now; `pids`, what was `begun` and the dispatch `reached` by slot, and the directory of the store."""
        self._looked = now
        asked = take_asked(directory)
        if asked:
            self._asked = now
        self._is_asked = now < self._asked + QUIET
        self.due = now + (BUSY if self.is_wanted else QUIET)
        if now >= self._cpu_due:
            self._cpu_due = now + QUIET
            self._look_at_processors()
        memory = {slot: private_memory(pid) for slot, pid in pids.items()}
        halted = [slot for slot, taken in memory.items() if not taken and _has_halted(pids[slot])]
        return Sampled(memory, self._cpu, _short(directory) + asked, begun, reached, halted)

    @property
    def is_wanted(self) -> bool:
        """Somebody waits for what a look brings about: it has to be taken though nothing else happens."""
        return self.is_busy or self._is_asked

    def _look_at_processors(self) -> None:
        try:
            with open("/proc/stat", "rb") as file:
                ticks = [int(count) for count in file.readline().split()[1:9]]
        except (OSError, ValueError):
            return
        total, idle = sum(ticks), ticks[3] + ticks[4]
        before, idle_before = self._ticks
        self._ticks = total, idle
        if before and total > before:
            busy = 1.0 - (idle - idle_before) / (total - before)
            self._cpu = min(max(busy, 0.0), 1.0)  # the time that waits for disks may go back


def _short(directory: str) -> int:
    """Bytes that a file system has free less than it should."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return 0
    return max(0, status.f_blocks * FREE // 100 - status.f_bavail) * status.f_frsize


def _has_halted(pid: int) -> bool:
    state = state_of(pid)
    return state is not None and state.is_halted


def private_memory(pid: int) -> int:
    """Bytes of memory that are a process's alone, without the objects it has mapped.

    0 if it is gone, or its main thread is.
    """
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = file.read().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE
