"""What one process uses: its share of a processor since the last look, and its memory."""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessUse:
    """Looks at one process now and then."""

    __slots__ = ("_looked", "_pid", "_ticks")

    def __init__(self, pid: int) -> None:
        self._pid = pid
        #: when it was looked at last, seconds, and the clock ticks that it had used by then; None before the first look
        self._looked = 0.0
        self._ticks: int | None = None

    def look(self, now: float) -> tuple[int, int]:
        """Thousandths of a processor since the last look, 0 at the first; and bytes of resident memory.

        0 if it is gone. `now` in seconds.
        """
        try:
            with open(f"/proc/{self._pid}/stat", "rb") as file:
                # behind the name, which may hold anything
                fields = file.read().rpartition(b")")[2].split()
            ticks, memory = int(fields[11]) + int(fields[12]), int(fields[21]) * _PAGE
        except (OSError, ValueError, IndexError):
            return 0, 0
        before, since = self._ticks, now - self._looked
        self._ticks, self._looked = ticks, now
        if before is None or since <= 0:
            return 0, memory
        return max(0, round(1000 * (ticks - before) / _TICKS / since)), memory
