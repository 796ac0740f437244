"""The rows at an agent that could run now and that no worker has: by priority, for any worker or for a certain one.

Rows that take several slots have a queue of their own: they are for any worker, one at a time, once so many slots are
free. The next in line keeps those behind it from beginning until it can itself: they would take the slots that it waits
for. Between the queues priority decides, then whose root has had less, as within each: what is taken from the others
counts in that for any worker. Of one root rows that use what a worker has go first, and of the others who came first.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from scaler.agent.state.rows import RowRange
from scaler.common.spans import SpanQueue
from scaler.store.layout import Key

#: batches without rows here whose places are known, beside as many as have rows
FEW_BATCHES = 1_000


class RowQueue:
    """One SpanQueue for each priority; its methods are as those of SpanQueue, highest priority first.

    While there is one span only it is in none of them: so tasks come that are waited for one by one.
    """

    __slots__ = ("_lone", "_order", "_places", "_queues", "rows")

    def __init__(self) -> None:
        #: the rows here, if they are not in `_queues`
        self._lone: tuple[RowRange, int, int] | None = None
        self._queues: dict[int, SpanQueue[RowRange]] = {}
        #: the keys of `_queues`: -priority, ascending; only queues with rows
        self._order: list[int] = []
        #: (client, batch) -> where in `_queues` it has or had rows, as (-priority, share, nesting), nearly always one
        #: place: a client may have a queue, or a line, for each of its rows, and none is looked for among all
        self._places: dict[Key, tuple[tuple[int, int, int], ...]] = {}
        self.rows = 0

    def _of(self, origin: RowRange) -> SpanQueue[RowRange]:
        self._file()
        key = -origin.task.priority
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = SpanQueue()
            insort(self._order, key)
        self._note_place(origin)
        return queue

    def _note_place(self, origin: RowRange) -> None:
        place, known = (-origin.task.priority, origin.share, origin.nesting), self._places.get(origin.key, ())
        if place in known:
            return
        self._places[origin.key] = (*known, place)
        if len(self._places) > FEW_BATCHES + 2 * self.rows:
            self._places = {origin.key: (*known, place)}
            for queue in self._queues.values():
                for other, _, _ in queue:
                    self._note_place(other)

    def _file(self) -> None:
        """Have all rows in `_queues`."""
        if self._lone is not None:
            lone, self._lone = self._lone, None
            self._of(lone[0]).append(*lone)

    def _settle(self, key: int) -> None:
        if not self._queues[key].rows:
            del self._queues[key], self._order[bisect_left(self._order, key)]

    @property
    def head(self) -> RowRange:
        """The range whose rows are taken next. Raises IndexError when empty."""
        return self._queues[self._order[0]].head if self._lone is None else self._lone[0]

    def heads(self, most: int) -> list[RowRange]:
        """Of the highest priority the next range of each root, in the order of their turns, at most so many."""
        if self._lone is not None:
            return [self._lone[0]]
        return self._queues[self._order[0]].heads(most) if self.rows else []

    def charge(self, origin: RowRange, us: float) -> None:
        """A worker has run for so long what a row of this range waits for, and others waited meanwhile."""
        self._file()
        queue = self._queues.get(-origin.task.priority)
        if queue is not None:
            queue.charge(origin.share, us)

    def has_turn_before(self, origin: RowRange) -> bool:
        """Say whether the next row here goes before those of a range that are queued elsewhere."""
        self._file()
        head = self.head
        if head.share == origin.share or head.task.priority != origin.task.priority:
            return head.goes_before(origin)
        return not self._queues[self._order[0]].may_go_first(origin.share)

    def goes_before(self, other: "RowQueue") -> bool:
        """The next row here is more urgent than that of another queue, or came before it. Both must have rows."""
        mine, others = self.head, other.head
        if mine.goes_before(others) or others.goes_before(mine):
            return mine.goes_before(others)
        return mine.arrival < others.arrival

    def put(self, origin: RowRange, lo: int, hi: int, front: bool = False) -> None:
        """Queue rows behind the others of their client, or before them: they had a place and lost it."""
        if not self.rows:
            self._lone = origin, lo, hi
        elif front:
            self._of(origin).prepend(origin, lo, hi)
        else:
            self._of(origin).append(origin, lo, hi)
        self.rows += hi - lo

    def take(self, rows: int, us: float | None = None) -> tuple[RowRange, int, int]:
        """Take at most `rows` rows of one range."""
        lone = self._lone
        if lone is not None and self.rows <= rows:
            self._lone, self.rows = None, 0
            return lone
        self._file()
        key = self._order[0]
        origin, lo, hi = self._queues[key].take(rows, us)
        self.rows -= hi - lo
        self._settle(key)
        return origin, lo, hi

    def take_last(self, rows: int) -> tuple[RowRange, int, int]:
        """Take at most `rows` rows of one range from the far end, lowest priority first."""
        self._file()
        key = self._order[-1]
        origin, lo, hi = self._queues[key].take_last(rows)
        self.rows -= hi - lo
        self._settle(key)
        return origin, lo, hi

    def remove_rows(self, client: int, batch: int, lo: int, hi: int) -> list[tuple[int, int]]:
        """Take out rows of a batch; the spans that were here."""
        self._file()
        found: list[tuple[int, int]] = []
        for key, share, nesting in self._places.get((client, batch), ()):
            if key in self._queues:
                found += self._queues[key].remove(client, batch, (share, nesting), [(lo, hi)])
                self._settle(key)
        self.rows -= sum(b - a for a, b in found)
        return found

    def drop_client(self, client: int) -> None:
        """Forget all rows of a client."""
        self._file()
        for key in list(self._order):
            before = self._queues[key].rows
            self._queues[key].drop_client(client)
            self.rows -= before - self._queues[key].rows
            self._settle(key)

    def let_go(self) -> None:
        """This is not needed any more, and leaves nothing to the garbage collector."""
        for queue in self._queues.values():
            queue.let_go()

    def __iter__(self) -> Iterator[tuple[RowRange, int, int]]:
        if self._lone is not None:
            yield self._lone
        for key in self._order:
            yield from self._queues[key]


class ReadyRows:
    """Rows for any worker, for each worker those that use what only this one has, and those that take several."""

    __slots__ = ("general", "local", "wide")

    def __init__(self) -> None:
        self.general = RowQueue()
        #: those that take several slots
        self.wide = RowQueue()
        #: by slot; only queues with rows
        self.local: dict[int, RowQueue] = {}

    @property
    def rows(self) -> int:
        """All rows queued."""
        rows = self.general.rows + self.wide.rows
        for queue in self.local.values():
            rows += queue.rows
        return rows

    def put(self, origin: RowRange, lo: int, hi: int, slot: int | None, front: bool) -> None:
        """Queue rows for the worker of a slot, or for any; before the others of their client or behind them."""
        if origin.slots > 1:
            queue = self.wide
        else:
            queue = self.general if slot is None else self.local.setdefault(slot, RowQueue())
        queue.put(origin, lo, hi, front)

    def of(self, slot: int) -> tuple[RowQueue, int | None] | None:
        """The queue that the worker of a slot takes from next, and whose it is; its own goes first if it may."""
        queue = self.local.get(slot)
        if queue is not None and not (self.general.rows and self.general.has_turn_before(queue.head)):
            return queue, slot
        return (self.general, None) if self.general.rows else None

    def within(self, slot: int, free: int, target: int) -> tuple[RowQueue, int | None] | None:
        """As `of`, where rows that take several slots are about, and so many are free of all `target` slots.

        None, too, if what is next has to wait for slots.
        """
        found, wide = self.of(slot), self.wide
        if wide.rows and (found is None or self._wide_go_before(found[0])):
            return (wide, None) if min(wide.head.slots, target) <= free else None
        return found if free > 0 else None

    def _wide_go_before(self, queue: RowQueue) -> bool:
        """Rows that take several slots are next, before those of another queue, which has rows."""
        mine, others = self.wide.head, queue.head
        if queue is self.general and mine.share != others.share and mine.task.priority == others.task.priority:
            return not queue.has_turn_before(mine)
        return self.wide.goes_before(queue)

    def note_taken(self, origin: RowRange, us: float) -> None:
        """Rows not for any worker were taken that take so long: their root has had its turn among those that are."""
        if self.general.rows:
            self.general.charge(origin, us * origin.slots)

    def settle(self, slot: int | None) -> None:
        """Rows were taken from this queue."""
        if slot is not None and slot in self.local and not self.local[slot].rows:
            del self.local[slot]

    def take_last_wide(self, rows: int, slots: int) -> tuple[RowRange, int, int] | None:
        """Take at most `rows` rows that take so many slots each, from the far end; None if there are none."""
        last = next((span for span in reversed(list(self.wide)) if span[0].slots == slots), None)
        if last is None:
            return None
        origin, lo, hi = last
        lo = max(lo, hi - rows)
        self.wide.remove_rows(*origin.key, lo, hi)
        return origin, lo, hi

    def take_last(self, rows: int) -> tuple[RowRange, int, int]:
        """Take at most `rows` rows from the far end: first of those for any worker. Raises IndexError when empty."""
        if self.general.rows or not self.local:
            return self.general.take_last(rows)
        slot = max(self.local, key=lambda slot: self.local[slot].rows)
        taken = self.local[slot].take_last(rows)
        self.settle(slot)
        return taken

    def release(self, slot: int) -> list[tuple[RowRange, int, int]]:
        """Take all rows that are for the worker of this slot, in order."""
        queue = self.local.pop(slot, None)
        if queue is None:
            return []
        rows = list(queue)
        queue.let_go()
        return rows

    def let_go(self) -> None:
        """As of a RowQueue."""
        for queue in (self.general, self.wide, *self.local.values()):
            queue.let_go()

    def remove_rows(self, client: int, batch: int, lo: int, hi: int) -> list[tuple[int, int]]:
        """Take out rows of a batch; the spans that were here."""
        found = self.general.remove_rows(client, batch, lo, hi)
        if self.wide.rows:
            found += self.wide.remove_rows(client, batch, lo, hi)
        for slot in list(self.local):
            found += self.local[slot].remove_rows(client, batch, lo, hi)
            self.settle(slot)
        return found

    def drop_client(self, client: int) -> None:
        """Forget all rows of a client."""
        self.general.drop_client(client)
        self.wide.drop_client(client)
        for slot in list(self.local):
            self.local[slot].drop_client(client)
            self.settle(slot)

    def __iter__(self) -> Iterator[tuple[RowRange, int, int]]:
        yield from self.general
        yield from self.wide
        for queue in self.local.values():
            yield from queue
