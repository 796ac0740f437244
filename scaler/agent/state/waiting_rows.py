"""Rows at an agent that can't run yet: objects they need are not here, or not where the row could use them.

The objects of a wait are brought when its turn comes, and pinned from then on, so that rows which need much can't take
it from each other for ever. When all is there its rows are queued.
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import field

from scaler.agent.state.rows import RowRange
from scaler.common.records import entity
from scaler.common.sorted_numbers import SortedNumbers
from scaler.store.layout import Key


@entity
class WaitingSpan:
    """Rows that wait for the same objects."""

    origin: RowRange
    lo: int
    hi: int
    #: all stored objects they need
    keys: list[Key]
    #: they shall be able to run in any worker: what is live is written to a file first
    anywhere: bool = False
    #: their objects are being brought
    begun: bool = False
    #: those that have not come yet
    missing: set[Key] = field(default_factory=set)
    #: bytes that are brought
    cost: int = 0
    #: those pinned for them
    pins: list[Key] = field(default_factory=list)


class _WaitsOfBatch:
    """The waits of one batch, no two of which have a row in common."""

    __slots__ = ("by_first", "firsts")

    def __init__(self) -> None:
        #: first row -> wait, as they came
        self.by_first: dict[int, WaitingSpan] = {}
        #: exactly its keys
        self.firsts = SortedNumbers()

    def add(self, wait: WaitingSpan) -> None:
        """One more."""
        self.by_first[wait.lo] = wait
        self.firsts.add(wait.lo)

    def remove(self, wait: WaitingSpan) -> None:
        """One less."""
        del self.by_first[wait.lo]
        self.firsts.remove(wait.lo)

    def in_rows(self, lo: int, hi: int) -> list[WaitingSpan]:
        """Those with any of these rows, ascending."""
        before = self.firsts.below(lo)
        firsts = self.firsts.between(lo if before is None else before, hi)
        return [self.by_first[first] for first in firsts if self.by_first[first].hi > lo]


class WaitingRows:
    """The waits of an agent: in order of urgency and arrival those that have not begun, by key those that have."""

    __slots__ = ("_batches", "_by_key", "_later", "_order", "begun", "coming", "complete", "rows", "stolen")

    def __init__(self) -> None:
        #: not begun, by -urgency; and these numbers in order. A plain dict passes all that were removed before its
        #: first one, or behind its last
        self._later: dict[int, OrderedDict[WaitingSpan, None]] = {}
        self._order: list[int] = []
        #: those that have begun
        self.begun: OrderedDict[WaitingSpan, None] = OrderedDict()
        #: of those, the ones that miss nothing any more, and hold what they need until there is room to go on
        self.complete: OrderedDict[WaitingSpan, None] = OrderedDict()
        self._by_key: dict[Key, dict[WaitingSpan, None]] = {}
        #: those of each batch that has some
        self._batches: dict[Key, _WaitsOfBatch] = {}
        #: rows that wait
        self.rows = 0
        #: bytes that are brought for those that have begun
        self.coming = 0
        #: of those that have begun, how many were taken from one worker for another
        self.stolen = 0

    def add(self, wait: WaitingSpan) -> None:
        """Rows wait from now on, and have not begun to."""
        urgency = -wait.origin.urgency
        if urgency not in self._later:
            self._later[urgency] = OrderedDict()
            insort(self._order, urgency)
        self._later[urgency][wait] = None
        if wait.origin.key not in self._batches:
            self._batches[wait.origin.key] = _WaitsOfBatch()
        self._batches[wait.origin.key].add(wait)
        self.rows += wait.hi - wait.lo

    @property
    def first(self) -> WaitingSpan | None:
        """The one that should begin next."""
        return next(iter(self._later[self._order[0]])) if self._order else None

    def begin(self, wait: WaitingSpan, missing: list[Key], cost: int) -> None:
        """Its missing objects are being brought, so many bytes."""
        self._leave_later(wait)
        wait.begun, wait.missing, wait.cost = True, set(missing), cost
        self.begun[wait] = None
        self.coming += wait.cost
        self.stolen += wait.anywhere
        for key in wait.missing:
            self._by_key.setdefault(key, {})[wait] = None

    def of_key(self, key: Key) -> list[WaitingSpan]:
        """Those that miss this object."""
        return list(self._by_key.get(key, ()))

    def note_arrival(self, wait: WaitingSpan, key: Key) -> None:
        """An object has come; with the last one the wait is complete."""
        if key in wait.missing:
            wait.missing.remove(key)
            self._unlist(wait, key)
            if not wait.missing:
                self.complete[wait] = None

    def remove(self, wait: WaitingSpan) -> None:
        """Its rows wait no longer."""
        if wait.begun:
            del self.begun[wait]
            self.complete.pop(wait, None)
            self.coming -= wait.cost
            self.stolen -= wait.anywhere
            for key in wait.missing:
                self._unlist(wait, key)
        else:
            self._leave_later(wait)
        waits = self._batches[wait.origin.key]
        waits.remove(wait)
        if not waits.by_first:
            del self._batches[wait.origin.key]
        self.rows -= wait.hi - wait.lo

    def in_rows(self, client: int, batch: int, lo: int, hi: int) -> list[WaitingSpan]:
        """Those with any of these rows, ascending."""
        waits = self._batches.get((client, batch))
        return waits.in_rows(lo, hi) if waits is not None else []

    def of_client(self, client: int) -> list[WaitingSpan]:
        """Those of a client."""
        return [wait for key, waits in self._batches.items() if key[0] == client for wait in waits.by_first.values()]

    @property
    def last(self) -> WaitingSpan | None:
        """The one to give away first: of those that have not begun, or else the youngest."""
        if self._order:
            return next(reversed(self._later[self._order[-1]]))
        return next(reversed(self.begun), None)

    def _leave_later(self, wait: WaitingSpan) -> None:
        urgency = -wait.origin.urgency
        waits = self._later[urgency]
        del waits[wait]
        if not waits:
            del self._later[urgency]
            self._order.remove(urgency)

    def _unlist(self, wait: WaitingSpan, key: Key) -> None:
        waits = self._by_key[key]
        del waits[wait]
        if not waits:
            del self._by_key[key]

    def __iter__(self) -> Iterator[WaitingSpan]:
        for waits in self._batches.values():
            yield from waits.by_first.values()
