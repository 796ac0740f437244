"""What a queue of spans is made of: a share for each root, in it lines, in these linked spans of rows.

Any span can be taken out at little cost: each knows those before and behind it, and a line knows those of each batch by
their rows, so that none is looked for among all.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar


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

    @property
    def share(self) -> int:
        """The root that its rows are run for, or the client if there is none."""
        ...

    @property
    def nesting(self) -> int:
        """How many tasks, one inside the other, it was submitted in; 0 for none."""
        ...


B = TypeVar("B", bound=Owned)
_LO = attrgetter("lo")
#: the key of lists in which lines, or shares, are in order
by_rank = attrgetter("rank")


class Span(Generic[B]):
    """Rows [lo, hi) of a batch, and the spans before and behind them."""

    __slots__ = ("after", "batch", "before", "hi", "lo")

    batch: B
    lo: int
    hi: int
    before: "Span[B]"
    after: "Span[B]"


def _link(before: Span[B], batch: B, lo: int, hi: int) -> Span[B]:
    """A new span behind another one."""
    span: Span[B] = Span()
    span.batch, span.lo, span.hi = batch, lo, hi
    after = before.after
    span.before, span.after = before, after
    before.after = after.before = span
    return span


def _unlink(span: Span[B]) -> None:
    span.before.after, span.after.before = span.after, span.before


class Line(Generic[B]):
    """The spans of one client, share and nesting in their order; no row of a batch is in two of them."""

    __slots__ = ("client", "end", "nesting", "of", "rank", "rows", "share", "used")

    #: by which the lines of a share are in order: -nesting, `used`, and a number that counts up: of two that are alike
    #: the one that was put there first goes first
    rank: tuple[int, float, int]

    def __init__(self, client: int, nesting: int, share: "Share[B]", used: float = 0.0) -> None:
        self.client, self.nesting, self.share = client, nesting, share
        #: rows in all spans
        self.rows = 0
        #: what its rows have taken, microseconds: those since it has some here, beside those of others of its share
        self.used = used
        #: closes the ring: behind it comes the first, before it the last
        self.end: Span[B] = Span()
        self.end.before = self.end.after = self.end
        #: the spans of each batch, by its id, and by their rows, ascending; no empty lists
        self.of: dict[int, list[Span[B]]] = {}

    def insert(self, before: Span[B], batch: B, lo: int, hi: int) -> None:
        """Put a span behind another one, or behind `end`: before all others. Rows are counted by who does that."""
        span = _link(before, batch, lo, hi)
        known = self.of.get(batch.id)
        if known is None:
            self.of[batch.id] = [span]
        elif known[-1].lo < lo:
            known.append(span)
        else:
            insort(known, span, key=_LO)

    def remove(self, span: Span[B]) -> None:
        """Take a span out."""
        _unlink(span)
        known = self.of[span.batch.id]
        if len(known) == 1:
            del self.of[span.batch.id]
        else:
            del known[0 if known[0] is span else bisect_left(known, span.lo, key=_LO)]

    def take_out(self, batch: int, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Take out rows of a batch that are named by spans, ascending and apart; the parts that were here, ascending.

        Many spans are taken out at the price of few.
        """
        known, found = self.of[batch], list[tuple[int, int]]()
        first = at = max(0, bisect_right(known, spans[0][0], key=_LO) - 1)
        #: of what is here from `first` on up to `at`, what stays
        left: list[Span[B]] = []
        end = len(known)
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
                found.append((a if lo < a else lo, b if b < hi else hi))
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
        for lo, hi in found:
            self.rows -= hi - lo
        return found

    def clear(self) -> None:
        """Take all out."""
        for spans in self.of.values():
            for span in spans:
                del span.before, span.after  # else they would wait for the garbage collector
        self.of, self.rows = {}, 0

    def let_go(self) -> None:
        """It is over, and has no spans: open the ring, or `end` would wait for the garbage collector, by itself."""
        del self.end.before, self.end.after

    def __iter__(self) -> Iterator[tuple[B, int, int]]:
        span = self.end.after
        while span is not self.end:
            yield span.batch, span.lo, span.hi
            span = span.after


class Share(Generic[B]):
    """What is queued for one root."""

    __slots__ = ("has_had_turn", "key", "lines", "rank", "used")

    #: by which shares have their turns: `used`, `has_had_turn`, and a number that counts up, as in the rank of a line
    rank: tuple[float, bool, int]

    def __init__(self, key: int, used: float) -> None:
        self.key = key
        #: the deepest first, of those the one that has used least; none without spans
        self.lines: list[Line[B]] = []
        #: what its rows have taken, microseconds: those since it has some here, beside those of others
        self.used = used
        #: some of its rows were taken: those that come with nothing behind them go before it
        self.has_had_turn = False


R = TypeVar("R", Line[Any], Share[Any])


def remove_ranked(ranked: list[R], one: R) -> None:
    """Take one out of a list that is in the order of ranks: mostly the first."""
    del ranked[0 if ranked[0] is one else bisect_left(ranked, one.rank, key=by_rank)]
