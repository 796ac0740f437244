"""The rows at an agent that no worker has, by priority."""

from bisect import insort

from scaler.agent.core.state import Part
from scaler.spans import SpanQueue


class RowQueue:
    """One SpanQueue of parts for each priority; all methods are those of SpanQueue, highest priority first."""

    __slots__ = ("_order", "_queues", "rows")

    def __init__(self) -> None:
        self._queues: dict[int, SpanQueue[Part]] = {}
        #: the keys of `_queues`: -priority, ascending; only queues with rows
        self._order: list[int] = []
        self.rows = 0

    def _of(self, part: Part) -> SpanQueue[Part]:
        key = -part.task.priority
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = SpanQueue()
            insort(self._order, key)
        return queue

    def _settle(self, key: int) -> None:
        if not self._queues[key].rows:
            del self._queues[key]
            self._order.remove(key)

    @property
    def head(self) -> Part:
        """The part whose rows are taken next. Raises IndexError when empty."""
        return self._queues[self._order[0]].head

    def append(self, part: Part, lo: int, hi: int) -> None:
        """Queue rows that came."""
        self._of(part).append(part, lo, hi)
        self.rows += hi - lo

    def prepend(self, part: Part, lo: int, hi: int) -> None:
        """Queue rows that a worker gave back."""
        self._of(part).prepend(part, lo, hi)
        self.rows += hi - lo

    def take(self, rows: int) -> tuple[Part, int, int]:
        """Take at most `rows` rows of one part."""
        key = self._order[0]
        part, lo, hi = self._queues[key].take(rows)
        self.rows -= hi - lo
        self._settle(key)
        return part, lo, hi

    def take_last(self, rows: int) -> tuple[Part, int, int]:
        """Take at most `rows` rows of one part from the far end, lowest priority first."""
        key = self._order[-1]
        part, lo, hi = self._queues[key].take_last(rows)
        self.rows -= hi - lo
        self._settle(key)
        return part, lo, hi

    def remove_rows(self, client: int, batch: int, lo: int, hi: int) -> list[tuple[int, int]]:
        """Take out rows of a batch; the spans that were here."""
        found: list[tuple[int, int]] = []
        for key in list(self._order):
            queue = self._queues[key]
            parts = {part for part, _, _ in queue.of_client(client) if part.task.batch == batch}
            for part in parts:
                found += queue.remove(part, lo, hi)
            self._settle(key)
        self.rows -= sum(b - a for a, b in found)
        return found

    def drop_client(self, client: int) -> None:
        """Forget all rows of a client."""
        for key in list(self._order):
            before = self._queues[key].rows
            self._queues[key].drop_client(client)
            self.rows -= before - self._queues[key].rows
            self._settle(key)
