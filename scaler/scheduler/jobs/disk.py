"""What of the records that were written is on disk, what waits for that, and whether there is room for more."""

from __future__ import annotations

import errno
import math
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

#: what the system says of a disk that is full
NO_ROOM = os.strerror(errno.ENOSPC)


@dataclass
class Disk:
    """Of one journal, as its jobs know it. Records are counted from its opening."""

    #: records that were written, and those of them that are on disk
    written: int = 0
    synced: int = 0
    #: why it takes nothing; None: it does
    refusal: str | None = None
    #: bytes that it took when it was last looked at, but for a reserve, which is for what makes room
    room: float = math.inf
    #: results wait for room
    is_short: bool = False
    #: there may be room by now for what was refused
    wants_room: bool = False
    #: bytes of each of the records that are not on disk, and of all of them
    _unsynced: deque[int] = field(default_factory=deque)
    _unsynced_bytes: int = 0
    #: what is done when so many records are on disk; and what instead, if they never will be
    _when_synced: deque[tuple[int, Callable[[], None], Callable[[str], None] | None]] = field(default_factory=deque)

    @property
    def trouble(self) -> str | None:
        """What keeps it from taking more than the little that makes room; None: nothing does."""
        return self.refusal or (NO_ROOM if self.is_short else None)

    @property
    def has_all(self) -> bool:
        """All that was written is on disk."""
        return self.synced == self.written

    def has_room(self, size: int) -> bool:
        """It takes so many bytes beside what is on its way there, and has its reserve then."""
        return size + self._unsynced_bytes <= self.room

    def count(self, size: int) -> None:
        """A record of so many bytes is written."""
        self.written += 1
        self._unsynced.append(size)
        self._unsynced_bytes += size

    def note_synced(self, records: int) -> None:
        """So many of the records that were written are on disk."""
        for _ in range(records - self.synced):
            self._unsynced_bytes -= self._unsynced.popleft()
        self.synced = records

    def then(self, action: Callable[[], None], otherwise: Callable[[str], None] | None = None) -> None:
        """Do something as soon as all that was written is on disk: when `run_synced` is called next after that.

        `otherwise` is done in its place, and told why, when `give_up` says that it won't be.
        """
        self._when_synced.append((self.written, action, otherwise))

    def give_up(self, why: str) -> None:
        """What is not on disk now won't be as long as this process lives, as far as anybody can tell."""
        waiting = list(self._when_synced)
        self._when_synced = deque(each for each in waiting if each[2] is None)
        for _, _, otherwise in waiting:
            if otherwise is not None:
                otherwise(why)

    def run_synced(self) -> None:
        """Do what waits for records that are on disk by now."""
        while self._when_synced and self._when_synced[0][0] <= self.synced:
            self._when_synced.popleft()[1]()
