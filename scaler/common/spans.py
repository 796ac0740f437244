"""Queues of spans: rows waiting for a place, by priority, fair among clients, without a cost per row."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Owned(Protocol):
    """What a span is of: a batch that knows its client."""

    @property
    def client(self) -> int:
        """The client's number."""
        ...


B = TypeVar("B", bound=Owned)


class SpanQueue(Generic[B]):
    """Spans (batch, lo, hi) of one class of rows; clients take turns, each client's rows in their order."""

    __slots__ = ("_clients", "_turns", "rows")

    def __init__(self) -> None:
        self._clients: dict[int, deque[tuple[B, int, int]]] = {}
        #: whose turn it is, first to last; exactly the keys of `_clients`
        self._turns: deque[int] = deque()
        #: rows queued, counting those taken out of their batch since
        self.rows = 0

    def _of(self, client: int) -> deque[tuple[B, int, int]]:
        queue = self._clients.get(client)
        if queue is None:
            queue = self._clients[client] = deque()
            self._turns.append(client)
        return queue

    def copy(self) -> "SpanQueue[B]":
        """Another queue of the same spans."""
        made: SpanQueue[B] = SpanQueue()
        made._clients = {client: spans.copy() for client, spans in self._clients.items()}
        made._turns, made.rows = self._turns.copy(), self.rows
        return made

    @property
    def head(self) -> B:
        """The batch whose rows are taken next. Raises IndexError when empty."""
        return self._clients[self._turns[0]][0][0]

    def append(self, batch: B, lo: int, hi: int) -> None:
        """Queue rows behind the others of their client."""
        queue = self._of(batch.client)
        if queue:
            last, first, end = queue[-1]
            if last is batch and end == lo:
                lo = first
                queue.pop()
                self.rows -= end - first
        queue.append((batch, lo, hi))
        self.rows += hi - lo

    def prepend(self, batch: B, lo: int, hi: int) -> None:
        """Queue rows before the others of their client: they had a place and lost it."""
        self._of(batch.client).appendleft((batch, lo, hi))
        self.rows += hi - lo

    def take(self, rows: int) -> tuple[B, int, int]:
        """Take at most `rows` rows of one batch, from the client whose turn it is. Raises IndexError when empty."""
        turns = self._turns
        client = turns[0]
        queue = self._clients[client]
        batch, lo, hi = queue[0]
        if hi - lo > rows:
            queue[0] = (batch, lo + rows, hi)
            hi = lo + rows
        else:
            queue.popleft()
            if not queue:
                del self._clients[client]
                turns.popleft()
                self.rows -= hi - lo
                return batch, lo, hi
        if len(turns) > 1:
            turns.rotate(-1)
        self.rows -= hi - lo
        return batch, lo, hi

    def take_last(self, rows: int) -> tuple[B, int, int]:
        """Take at most `rows` rows of one batch from the far end. Raises IndexError when empty."""
        client = self._turns[-1]
        queue = self._clients[client]
        batch, lo, hi = queue[-1]
        if hi - lo > rows:
            queue[-1] = (batch, lo, hi - rows)
            lo = hi - rows
        else:
            queue.pop()
            if not queue:
                del self._clients[client]
                self._turns.pop()
        self.rows -= hi - lo
        return batch, lo, hi

    def drop_client(self, client: int) -> None:
        """Forget all rows of a client."""
        queue = self._clients.pop(client, None)
        if queue is not None:
            self._turns.remove(client)
            self.rows -= sum(hi - lo for _, lo, hi in queue)

    def remove(self, batch: B, lo: int, hi: int) -> list[tuple[int, int]]:
        """Take out the rows [lo, hi) of a batch; the parts that were here. Costs a look at the client's spans."""
        queue = self._clients.get(batch.client)
        if queue is None:
            return []
        found: list[tuple[int, int]] = []
        kept: deque[tuple[B, int, int]] = deque()
        for span in queue:
            other, a, b = span
            if other is not batch or b <= lo or hi <= a:
                kept.append(span)
                continue
            found.append((max(a, lo), min(b, hi)))
            if a < lo:
                kept.append((batch, a, lo))
            if hi < b:
                kept.append((batch, hi, b))
        self.rows -= sum(b - a for a, b in found)
        if kept:
            self._clients[batch.client] = kept
        else:
            del self._clients[batch.client]
            self._turns.remove(batch.client)
        return found

    def of_client(self, client: int) -> Iterable[tuple[B, int, int]]:
        """The spans of one client, in order."""
        return self._clients.get(client, ())

    def __iter__(self) -> Iterator[tuple[B, int, int]]:
        for queue in self._clients.values():
            yield from queue


def runs_of(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Spans that cover these ascending row numbers."""
    if not rows:
        return
    lo = previous = rows[0]
    for row in rows[1:]:
        if row != previous + 1:
            yield lo, previous + 1
            lo = row
        previous = row
    yield lo, previous + 1
