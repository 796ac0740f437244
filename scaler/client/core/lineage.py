"""What a client keeps so that values of its rows can be computed again after scheduler and host have died.

A value that stays in a store is lost with its host. The scheduler remembers the batch that made it, as long as somebody
refers to the value; when the scheduler dies, its client alone can tell the next one. So a batch that has ended is kept
here for as long: for each value of its rows that is referred to, and for each kept batch that needed one of its values.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

from scaler.client.core.needed import NeededTokens
from scaler.client.core.object_table import ObjectTable
from scaler.client.core.pending import PendingBatch, PendingBatches
from scaler.common.records import entity
from scaler.protocol.messages import Task

#: bytes of kept batches, and of small values counted with them; over that the oldest are forgotten, and with them what
#: they made if it is lost twice
MOST_BYTES = 64 << 20
#: bytes that a kept batch takes beside its payloads
OVERHEAD = 1000
#: numbers of batches that are not kept any more: as many as of those that are, and so many more, before they go
FEW = 1_000


@entity
class EndedBatch:
    """A batch that has ended, as it was sent."""

    task: Task
    #: how many batches were submitted before it
    number: int
    #: the tokens of small values that its rows needed, by id
    needs: dict[int, Any]
    #: ids of the batches that made the others
    parents: list[int]
    #: bytes
    size: int


class Lineage:
    """The batches that have ended and are kept."""

    def __init__(self, pending: PendingBatches, objects: ObjectTable) -> None:
        """`objects` knows which values of rows are in stores and are referred to here."""
        self._pending = pending
        self._objects = objects
        #: by id, in the order they ended
        self.kept: OrderedDict[int, EndedBatch] = OrderedDict()
        #: why a batch is to be kept once it has ended: values that are referred to, batches that needed its values
        self._reasons: Counter[int] = Counter()
        #: id of a value that is referred to -> of its batch
        self._made_by: dict[int, int] = {}
        #: small values that kept batches needed
        self._needed = NeededTokens()
        #: numbers of kept batches, and of some that are not kept any more, with their ids; a heap
        self._numbers: list[tuple[int, int]] = []
        self._bytes = 0

    @property
    def is_of_interest(self) -> bool:
        """Batches that end may have to be kept, whether their values are in stores or not."""
        return bool(self._reasons)

    def end(self, batches: Iterable[int]) -> None:
        """These batches have ended together, and are still among those that are pending."""
        by_id = self._pending.by_id
        ended = [by_id[batch] for batch in batches]
        for pending in sorted(ended, key=lambda pending: pending.number, reverse=True):  # those that need others first
            batch = pending.task.batch
            for lo, hi in pending.stored or ():
                for value in range(batch + lo, batch + hi):
                    if value in self._objects.referenced:
                        self._made_by[value] = batch
                        self._reasons[batch] += 1
            if self._reasons[batch] > 0:
                self._keep(pending)
            else:
                del self._reasons[batch]
        while self._bytes > MOST_BYTES:
            self._forget(next(iter(self.kept)))

    def release(self, ids: Iterable[int]) -> None:
        """Nobody refers to these any more."""
        for value in ids:
            batch = self._made_by.pop(value, None)
            if batch is not None:
                self._let_go(batch)

    def clear(self) -> None:
        """Nothing can be computed again."""
        for table in (self.kept, self._reasons, self._made_by, self._needed, self._numbers):
            table.clear()
        self._bytes = 0

    @property
    def oldest(self) -> int:
        """The number of the oldest batch that is kept; that of the next one to be submitted if there is none."""
        numbers = self._numbers
        while numbers and numbers[0][1] not in self.kept:
            heappop(numbers)
        return numbers[0][0] if numbers else self._pending.submitted

    def need(self, value: int) -> Any:
        """The token of a small value that a kept batch needed; None if none did."""
        return self._needed.get(value)

    def _keep(self, pending: PendingBatch) -> None:
        task = pending.task
        size = OVERHEAD + sum(map(len, task.bodies))
        needs: dict[int, Any] = {}
        parents: dict[int, None] = {}
        tokens: dict[int, Any] = pending.group.keep
        if pending.needs:
            tokens = dict(zip(task.dependencies, (token for row in pending.needs for token in row), strict=True))
        objects = self._objects
        for value in set(task.dependencies):
            parent = self._maker_of(value)
            if parent == task.batch:
                continue
            if parent is not None:
                parents[parent] = None
            elif value in tokens and value not in objects.referenced and value not in objects.announced:
                needs[value] = tokens[value]
        for parent in parents:
            self._reasons[parent] += 1
        self.kept[task.batch] = EndedBatch(task, pending.number, needs, list(parents), size)
        self._needed.add(needs, needs.values())
        self._bytes += size
        if len(self._numbers) > 2 * len(self.kept) + FEW:
            self._numbers = sorted((ended.number, batch) for batch, ended in self.kept.items())
        else:
            heappush(self._numbers, (pending.number, task.batch))

    def _maker_of(self, value: int) -> int | None:
        """The batch that made a stored value, or is to make one; None if it is not one that could be kept."""
        made_by = self._made_by.get(value)
        if made_by is not None:
            return made_by
        pending = self._pending.batch_of(value)
        return pending.task.batch if pending is not None else None

    def _let_go(self, batch: int) -> None:
        """One reason less to keep a batch; with it those may go that made what it needed."""
        unreferenced = [batch]
        while unreferenced:
            batch = unreferenced.pop()
            self._reasons[batch] -= 1
            if self._reasons[batch] <= 0:
                del self._reasons[batch]
                ended = self._remove(batch)
                if ended is not None:
                    unreferenced += ended.parents

    def _forget(self, batch: int) -> None:
        """It is not kept, whatever the reasons."""
        ended = self._remove(batch)
        for parent in ended.parents if ended is not None else ():
            self._let_go(parent)

    def _remove(self, batch: int) -> EndedBatch | None:
        ended = self.kept.pop(batch, None)
        if ended is not None:
            self._bytes -= ended.size
            self._needed.remove(ended.needs)
        return ended
