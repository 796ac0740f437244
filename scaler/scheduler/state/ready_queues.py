"""Rows that are ready and wait for an agent: one queue for each priority and demand.

Queues of the same priority take turns, so that none waits for ever: say, rows that take several slots for those that
take one.
"""

from bisect import insort
from operator import itemgetter

from scaler.common.spans import SpanQueue
from scaler.scheduler.state.batch_records import Batch, QueueClass

#: queues are kept for the next rows of their class, up to this many
KEPT = 16
_URGENCY = itemgetter(0)


class ReadyQueues:
    """All queues; empty ones go away."""

    __slots__ = ("_order", "_queues")

    def __init__(self) -> None:
        self._queues: dict[QueueClass, SpanQueue[Batch]] = {}
        #: the keys of `_queues`, highest priority first, and among equals the one whose turn it is
        self._order: list[QueueClass] = []

    def __bool__(self) -> bool:
        """There are rows."""
        for queue in self._queues.values():  # noqa: SIM110 - as in `WorkerPool.have_rows`
            if queue.rows:
                return True
        return False

    def items(self) -> list[tuple[QueueClass, SpanQueue[Batch]]]:
        """Each queue with its class, highest priority first, empty ones too."""
        return [(key, self._queues[key]) for key in self._order]

    @property
    def rows(self) -> int:
        """Rows in all queues."""
        return sum(queue.rows for queue in self._queues.values())

    def _of(self, batch: Batch) -> SpanQueue[Batch]:
        key = batch.queue_class
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = SpanQueue()
            insort(self._order, key, key=_URGENCY)
        return queue

    def append(self, batch: Batch, lo: int, hi: int) -> None:
        """Queue rows that became ready."""
        self._of(batch).append(batch, lo, hi)

    def prepend(self, batch: Batch, lo: int, hi: int) -> None:
        """Queue rows that had a place before."""
        self._of(batch).prepend(batch, lo, hi)

    def remove(self, batch: Batch, lo: int, hi: int) -> list[tuple[int, int]]:
        """Take out rows; the spans that were here."""
        queue = self._queues.get(batch.queue_class)
        return [] if queue is None else queue.remove(batch, lo, hi)

    def drop_client(self, client: int) -> None:
        """Forget all rows of a client."""
        for queue in self._queues.values():
            queue.drop_client(client)

    def in_order(self) -> list[tuple[QueueClass, SpanQueue[Batch]]]:
        """The queues that hold rows, highest priority first."""
        if len(self._order) > KEPT:
            for key in [key for key in self._order if not self._queues[key].rows]:
                del self._queues[key]
                self._order.remove(key)
        return [(key, self._queues[key]) for key in self._order if self._queues[key].rows]

    def rotate(self, key: QueueClass) -> None:
        """Rows of a queue were given to agents: others of its priority have their turn before it."""
        self._order.remove(key)
        insort(self._order, key, key=_URGENCY)
