"""Memory for objects: what to move to disk, and when to take no new work.

    0 ────────────── soft ────────── hard ──────────── limit
      all in memory   least recently   no new rows      is what workers need besides
                      used go to disk  until below

What is pinned stays. If nothing runs and nothing can leave, work goes on all the same, a row at a time: rather too much
memory than none of the work.
"""

import math
from dataclasses import dataclass

from scaler.agent.core.crew import Crew
from scaler.agent.core.data import Data
from scaler.agent.core.outbox import Outbox
from scaler.store.index import StoreIndex

#: shares of the memory limit, in percent: objects go to disk from SOFT on, there is no new work from HARD on
SOFT, HARD = 50, 70
#: bytes on their way to disk at once, at most
SPILL_AHEAD = 64 << 20
#: seconds without spilling after it failed
PAUSE = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Memory that an agent may use, bytes."""

    #: for objects and workers together
    total: int = 1 << 62
    #: of one worker alone; 0 for no limit
    worker: int = 0
    #: what the store's file system has, if that is less
    store: int = 1 << 62

    def index(self) -> StoreIndex:
        """An index with the limits for objects."""
        return StoreIndex(
            min(self.total * SOFT // 100, self.store * 70 // 100), min(self.total * HARD // 100, self.store * 85 // 100)
        )


class Memory:
    """See the module's text."""

    def __init__(self, out: Outbox, crew: Crew, data: Data) -> None:
        self._out = out
        self._crew = crew
        self._data = data
        self._index = data.index
        #: nothing is spilled before this time
        self._paused_until = 0.0
        #: bytes that the store's file system has too little
        self._short = 0
        #: there is no room for new objects
        self.full = False

    @property
    def holds(self) -> bool:
        """New work has to wait: there is no room, and there is hope for some."""
        return self.full and (self._data.leaving > 0 or self._crew.is_working)

    @property
    def wake(self) -> float:
        """When `relieve` should be called again though nothing happened; infinite for never."""
        return self._paused_until if self._paused_until > self._crew.now and self._index.over else math.inf

    def room(self) -> int:
        """Bytes that new objects may take."""
        return max(0, self._index.hard_limit - self._index.in_memory)

    def relieve(self) -> bool:
        """Move to disk what has to go; True if `full` has changed."""
        index, data = self._index, self._data
        over = max(index.over, self._short, data.lacking)
        data.lacking = 0
        if over and data.leaving < SPILL_AHEAD and self._crew.now >= self._paused_until:
            for key in index.victims(min(over, SPILL_AHEAD - data.leaving)):
                self._short = max(0, self._short - index[key].size)
                data.spill(key)
        was, self.full = self.full, index.is_full
        return was != self.full

    def sampled(self, short: int) -> None:
        """The store's file system was looked at; what is on its way to disk will be free."""
        self._short = max(0, short - self._data.leaving)

    def found_no_room(self, size: int) -> None:
        """An object of this size could not be written: others have to go, whatever the index says."""
        self._short = max(self._short, size)

    def spilled(self, error: str | None) -> None:
        """An object was moved to disk, or could not be."""
        if error is not None and self._crew.now >= self._paused_until:
            self._paused_until = self._crew.now + PAUSE
            self._out.log("WARNING", f"objects can't be moved to disk: {error}")
