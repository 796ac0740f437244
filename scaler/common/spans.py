"""Queues of spans: rows waiting for a place, by priority, fair among clients, without a cost per row.

The spans of a client are linked in their order, and each batch knows its own by row: to take one out costs little.

Fair is what takes as long (fair queueing, which networks have for packets: Demers, Keshav, Shenker 1989): the client
whose rows have taken the least time so far, as far as known, has its turn. By turns alone a client with one map of a
million rows had many times what one had that submits them one by one; by rows, one whose rows are long.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Generic, Protocol, TypeVar


class Owned(Protocol):
    """What a span is of: a batch, or a part of one."""

    @property
    def client(self) -> int:
        """The client's number."""
        ...

    @property
    def id(self) -> int:
        """The batch's, by which its client knows it."""
        ...

    @property
    def slots(self) -> int:
        """How many workers each of its rows takes while it runs."""
        ...


B = TypeVar("B", bound=Owned)
_LO = attrgetter("lo")
#: what a row takes of which nothing is known, and for how long one that is long counts at most, microseconds: what was
#: thought of a client's rows keeps it waiting for no longer than that
UNKNOWN_US, MOST_US = 10_000.0, 1e6


class _Span(Generic[B]):
    """Rows [lo, hi) of a batch, and the spans before and behind them."""

    __slots__ = ("after", "batch", "before", "hi", "lo")

    batch: B
    lo: int
    hi: int
    before: "_Span[B]"
    after: "_Span[B]"


def _link(before: _Span[B], batch: B, lo: int, hi: int) -> _Span[B]:
    """A new span behind another one."""
    span: _Span[B] = _Span()
    span.batch, span.lo, span.hi = batch, lo, hi
    after = before.after
    span.before, span.after = before, after
    before.after = after.before = span
    return span


def _unlink(span: _Span[B]) -> None:
    span.before.after, span.after.before = span.after, span.before


class _Line(Generic[B]):
    """The spans of one client in their order; no row of a batch is in two of them."""

    __slots__ = ("end", "of", "used")

    def __init__(self, used: float = 0.0) -> None:
        #: what its rows have taken, microseconds: those since it has some here, beside those of others
        self.used = used
        #: closes the ring: behind it comes the first, before it the last
        self.end: _Span[B] = _Span()
        self.end.before = self.end.after = self.end
        #: the spans of each batch, by its id, and by their rows, ascending; no empty lists
        self.of: dict[int, list[_Span[B]]] = {}

    def insert(self, before: _Span[B], batch: B, lo: int, hi: int) -> None:
        """Put rows behind a span, or behind `end`: before all others."""
        span = _link(before, batch, lo, hi)
        known = self.of.get(batch.id)
        if known is None:
            self.of[batch.id] = [span]
        elif known[-1].lo < lo:
            known.append(span)
        else:
            insort(known, span, key=_LO)

    def remove(self, span: _Span[B]) -> None:
        """Take a span out."""
        _unlink(span)
        known = self.of[span.batch.id]
        if len(known) == 1:
            del self.of[span.batch.id]
        else:
            del known[0 if known[0] is span else bisect_left(known, span.lo, key=_LO)]

    def remove_all(self, batch: int, spans: list[tuple[int, int]]) -> int:
        """Take rows of a batch out that are named in ascending order; how many were here."""
        known = self.of.get(batch)
        if known is None:
            return 0
        first = at = max(0, bisect_right(known, spans[0][0], key=_LO) - 1)
        left: list[_Span[B]] = []
        end, rows = len(known), 0
        for lo, hi in spans:
            if at < end and known[at].hi <= lo:
                reached = max(at + 1, bisect_right(known, lo, at, key=_LO) - 1)
                left += known[at:reached]
                at = reached
                if at < end and known[at].hi <= lo:
                    left.append(known[at])
                    at += 1
            while at < end and known[at].lo < hi:
                span = known[at]
                a, b = span.lo, span.hi
                rows += min(b, hi) - max(a, lo)
                if a < lo:
                    span.hi = lo
                    left.append(span)
                    if hi < b:
                        known[at] = _link(span, span.batch, hi, b)
                        break
                elif hi < b:
                    span.lo = hi
                    break
                else:
                    _unlink(span)
                at += 1
        known[first:at] = left
        if not known:
            del self.of[batch]
        return rows

    def clear(self) -> int:
        """Take all out; the rows that were here."""
        rows = 0
        for spans in self.of.values():
            for span in spans:
                rows += span.hi - span.lo
                del span.before, span.after  # else they would wait for the garbage collector
        self.let_go()
        return rows

    def let_go(self) -> None:
        """It is over, and has no spans: open the ring, or `end` would wait for the garbage collector, by itself."""
        del self.end.before, self.end.after

    def __iter__(self) -> Iterator[tuple[B, int, int]]:
        span = self.end.after
        while span is not self.end:
            yield span.batch, span.lo, span.hi
            span = span.after


class SpanQueue(Generic[B]):
    """Spans (batch, lo, hi) of one class of rows; clients share the time, each client's rows go in their order."""

    __slots__ = ("_clients", "_turns", "rows")

    def __init__(self) -> None:
        self._clients: dict[int, _Line[B]] = {}
        #: exactly the keys of `_clients`, those that have used least first, then those whose last turn is longest ago
        self._turns: list[int] = []
        #: rows queued
        self.rows = 0

    def _of(self, client: int) -> _Line[B]:
        line = self._clients.get(client)
        if line is None:
            turns = self._turns
            line = self._clients[client] = _Line(self._used(turns[0]) if turns else 0.0)
            turns.insert(bisect_right(turns, line.used, key=self._used) if turns else 0, client)
        return line

    def _used(self, client: int) -> float:
        return self._clients[client].used

    def _settle(self, client: int) -> None:
        """A client without rows has no turn."""
        if not self._clients[client].of:
            self._clients.pop(client).let_go()
            self._turns.remove(client)

    def copy(self) -> "SpanQueue[B]":
        """Another queue of the same spans."""
        made: SpanQueue[B] = SpanQueue()
        for client, line in self._clients.items():
            copied = made._clients[client] = _Line(line.used)
            for span in line:
                copied.insert(copied.end.before, *span)
        made._turns, made.rows = self._turns.copy(), self.rows
        return made

    @property
    def head(self) -> B:
        """The batch whose rows are taken next. Raises IndexError when empty."""
        return self._clients[self._turns[0]].end.after.batch

    def append(self, batch: B, lo: int, hi: int) -> None:
        """Queue rows behind the others of their client."""
        line = self._of(batch.client)
        last = line.end.before
        if last is not line.end and last.batch is batch and last.hi == lo:
            last.hi = hi
        else:
            line.insert(last, batch, lo, hi)
        self.rows += hi - lo

    def prepend(self, batch: B, lo: int, hi: int) -> None:
        """Queue rows before the others of their client: they had a place and lost it."""
        line = self._of(batch.client)
        line.insert(line.end, batch, lo, hi)
        self.rows += hi - lo

    def take(self, rows: int, us: float | None = None) -> tuple[B, int, int]:
        """Take at most `rows` rows of one batch, from the client whose turn it is. Raises IndexError when empty.

        Each of them takes `us` microseconds of each of its slots; None: nothing is known of that.
        """
        turns = self._turns
        client = turns[0]
        line = self._clients[client]
        span = line.end.after
        batch, lo, hi = span.batch, span.lo, span.hi
        if hi - lo > rows:
            hi = span.lo = lo + rows
        else:
            line.remove(span)
        self.rows -= hi - lo
        if not line.of:
            self._clients.pop(client).let_go()
            del turns[0]
        elif len(turns) > 1:
            line.used += (hi - lo) * (UNKNOWN_US if us is None else min(us * batch.slots, MOST_US))
            del turns[0]
            turns.insert(bisect_right(turns, line.used, key=self._used), client)
        return batch, lo, hi

    def take_last(self, rows: int) -> tuple[B, int, int]:
        """Take at most `rows` rows of one batch from the far end. Raises IndexError when empty."""
        client = self._turns[-1]
        line = self._clients[client]
        span = line.end.before
        batch, lo, hi = span.batch, span.lo, span.hi
        if hi - lo > rows:
            lo = span.hi = hi - rows
        else:
            line.remove(span)
        self.rows -= hi - lo
        self._settle(client)
        return batch, lo, hi

    def has_others(self, client: int) -> bool:
        """Say whether there are rows of others than this client."""
        return len(self._clients) > (client in self._clients)

    def drop_client(self, client: int) -> None:
        """Forget all rows of a client."""
        line = self._clients.pop(client, None)
        if line is not None:
            self._turns.remove(client)
            self.rows -= line.clear()

    def let_go(self) -> None:
        """Forget all rows, of everybody."""
        for client in [*self._clients]:
            self.drop_client(client)

    def remove(self, client: int, batch: int, lo: int, hi: int) -> list[tuple[int, int]]:
        """Take out the rows [lo, hi) of a batch; the parts that were here, ascending."""
        line = self._clients.get(client)
        known = line.of.get(batch) if line is not None else None
        if line is None or known is None:
            return []
        found: list[tuple[int, int]] = []
        first = max(0, bisect_right(known, lo, key=_LO) - 1)
        for span in known[first : bisect_left(known, hi, first, key=_LO)]:
            a, b = span.lo, span.hi
            if b <= lo:
                continue
            found.append((max(a, lo), min(b, hi)))
            if a < lo:
                span.hi = lo
                if hi < b:
                    line.insert(span, span.batch, hi, b)
            elif hi < b:
                span.lo = hi
            else:
                line.remove(span)
        self.rows -= sum(b - a for a, b in found)
        self._settle(client)
        return found

    def remove_all(self, client: int, batch: int, spans: list[tuple[int, int]]) -> None:
        """Take out rows of a batch: spans that ascend and have no row in common, many at the price of few."""
        line = self._clients.get(client)
        if line is not None:
            self.rows -= line.remove_all(batch, spans)
            self._settle(client)

    def of_client(self, client: int) -> Iterable[tuple[B, int, int]]:
        """The spans of one client, in order."""
        return self._clients.get(client, ())

    def __iter__(self) -> Iterator[tuple[B, int, int]]:
        for client in self._turns:  # the first span is that whose rows are taken next
            yield from self._clients[client]


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


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What some spans cover, ascending, as few spans.

    >>> joined([(4, 6), (0, 2), (1, 3), (3, 4), (8, 9), (0, 1)])
    [(0, 6), (8, 9)]
    """
    made: list[tuple[int, int]] = []
    end = -1
    for lo, hi in sorted(spans):
        if lo > end:
            made.append((lo, hi))
            end = hi
        elif hi > end:
            made[-1] = (made[-1][0], hi)
            end = hi
    return made


def within(spans: list[tuple[int, int]], lo: int, hi: int) -> list[tuple[int, int]]:
    """What spans that are ascending and apart cover of [lo, hi).

    >>> within([(0, 2), (4, 6), (8, 9)], 1, 5)
    [(1, 2), (4, 5)]
    """
    found = []
    for a, b in islice(spans, bisect_right(spans, lo, key=itemgetter(1)), None):
        if a >= hi:
            break
        found.append((max(a, lo), min(b, hi)))
    return found


def without(spans: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What some spans cover and none of the others does, ascending."""
    edges = [edge for lo, hi in spans for edge in ((lo, 1, 0), (hi, -1, 0))]
    edges += [edge for lo, hi in others for edge in ((lo, 0, 1), (hi, 0, -1))]
    left: list[tuple[int, int]] = []
    covered = cut = before = 0
    for at, begins, cuts in sorted(edges):
        if covered and not cut and before < at:
            lo = left.pop()[0] if left and left[-1][1] == before else before
            left.append((lo, at))
        covered, cut, before = covered + begins, cut + cuts, at
    return left
