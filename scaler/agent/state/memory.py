"""What an agent knows of memory: how much it may use, and whether there is room for new objects.

0 ────────────── soft ────────── hard ──────────── limit
  all in memory   least recently   no new rows      is what workers need besides
                  used go to disk  until below
"""

from scaler.common.records import frozen, record
from scaler.store.index import StoreIndex

#: shares of the memory limit, in percent: objects go to disk from SOFT on, there is no new work from HARD on
SOFT, HARD = 50, 70
#: the same of what the store's file system has
STORE_SOFT, STORE_HARD = 70, 85


@frozen
class AgentLimits:
    """Memory that an agent may use, bytes; how long a worker serves, and how large a message may be."""

    #: for objects and workers together
    total: int = 1 << 62
    #: of one worker alone; 0 for no limit
    worker: int = 0
    #: what the store's file system has, if that is less
    store: int = 1 << 62
    #: rows that a worker runs at most, 0 for any number
    tasks: int = 0
    #: bytes of results that a message may have
    message: int = 1 << 62

    @property
    def objects_soft(self) -> int:
        """From so many bytes of objects in memory on some go to disk."""
        return min(self.total * SOFT // 100, self.store * STORE_SOFT // 100)

    @property
    def objects_hard(self) -> int:
        """From so many bytes of objects in memory on there is no new work."""
        return min(self.total * HARD // 100, self.store * STORE_HARD // 100)

    def index(self) -> StoreIndex:
        """An empty index with the limits for objects."""
        return StoreIndex(self.objects_soft, self.objects_hard)


@record
class MemoryState:
    """How memory is, apart from what the index of objects says."""

    #: there is no room for new objects
    is_full: bool = False
    #: bytes that the store's file system has too little
    short: int = 0
    #: nothing is moved to disk before this time, seconds
    paused_until: float = 0.0
    #: the log says so, and nothing was moved since
    is_stuck: bool = False
