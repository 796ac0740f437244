"""What one process uses: its share of a processor since the last look, and its memory."""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
#: seconds over which a share is measured, at least, so that a tick more or less is no more than a hundredth: several
#: look at one process, each every now and then. The first one is not waited for so long
_LEAST, _FIRST = 1.0, 0.1


def stat_of(pid: int) -> list[bytes]:
    """What /proc says of a process, from its state on: behind its name, which may hold anything. Raises OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


class ProcessUse:
    """Looks at one process now and then."""

    __slots__ = ("_least", "_looked", "_pid", "_share", "_ticks", "is_stopped")

    def __init__(self, pid: int) -> None:
        self._pid = pid
        #: it did nothing until it was told to go on, at the last look
        self.is_stopped = False
        #: when it was looked at last, seconds, and the clock ticks that it had used by then; None before the first look
        self._looked = 0.0
        self._ticks: int | None = None
        #: seconds until the next measurement, at least
        self._least = _FIRST
        #: thousandths of a processor, as measured last
        self._share = 0

    def look(self, now: float) -> tuple[int, int]:
        """Thousandths of a processor as last measured, 0 at the first look; and bytes of resident memory.

        0 if it is gone. `now` in seconds; all who look within a second are told the same share.
        """
        try:
            fields = stat_of(self._pid)
            self.is_stopped = fields[0] in (b"T", b"t")
            ticks, memory = int(fields[11]) + int(fields[12]), int(fields[21]) * _PAGE
        except (OSError, ValueError, IndexError):
            self.is_stopped = False
            return 0, 0
        before, since = self._ticks, now - self._looked
        if before is None:
            self._ticks, self._looked = ticks, now
        elif since >= self._least:
            self._ticks, self._looked, self._least = ticks, now, _LEAST
            self._share = max(0, round(1000 * (ticks - before) / _TICKS / since))
        return self._share, memory
