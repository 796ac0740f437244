"""Rows that an agent was asked for by their client and has not answered for.

An agent answers for them one by one, and each answer is a matter of the questions about these rows alone: they are
found by their batch, and in it by bisection.
"""

from collections.abc import Iterator
from typing import NamedTuple

from scaler.common.sorted_numbers import SortedNumbers
from scaler.common.span_lists import without
from scaler.protocol.codes import WithdrawalKind
from scaler.scheduler.state.batch_records import Batch


class Withdrawal(NamedTuple):
    """Rows that an agent was asked for and has not answered."""

    kind: WithdrawalKind
    batch: Batch
    lo: int
    hi: int


class _Apart:
    """Spans that are apart, each with its bounds."""

    __slots__ = ("_starts", "ends")

    def __init__(self) -> None:
        #: the first row of a span -> the row behind its last
        self.ends: dict[int, int] = {}
        self._starts = SortedNumbers()

    def within(self, lo: int, hi: int) -> list[tuple[int, int]]:
        """The spans that have some of the rows [lo, hi), ascending."""
        ends = self.ends
        if hi - lo == 1 and lo in ends:  # as nearly always
            return [(lo, ends[lo])]
        before = self._starts.below(lo)
        found = [(before, ends[before])] if before is not None and ends[before] > lo else []
        return found + [(start, ends[start]) for start in self._starts.between(lo, hi)]

    def add(self, lo: int, hi: int) -> None:
        for a, b in without([(lo, hi)], self.within(lo, hi)):
            self.ends[a] = b
            self._starts.add(a)

    def take(self, lo: int, hi: int) -> list[tuple[int, int]]:
        """Those are not there any more."""
        taken = self.within(lo, hi)
        for start, _ in taken:
            del self.ends[start]
            self._starts.remove(start)
        return taken


class AskedRows:
    """What an agent was asked for of one client: each row once for each kind of question."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        #: id -> batch that is not over, and what of it was asked for; nothing empty
        self._batches: dict[int, tuple[Batch, dict[WithdrawalKind, _Apart]]] = {}

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __iter__(self) -> Iterator[Withdrawal]:
        for batch, kinds in self._batches.values():
            for kind, spans in kinds.items():
                for lo, hi in spans.ends.items():
                    yield Withdrawal(kind, batch, lo, hi)

    def add(self, asked: Withdrawal) -> None:
        """Ask for rows; what was asked for already in this way is so once."""
        kind, batch, lo, hi = asked
        _, kinds = self._batches.setdefault(batch.id, (batch, {}))
        if kind not in kinds:
            kinds[kind] = _Apart()
        kinds[kind].add(lo, hi)

    def take(self, batch_id: int, rows: list[tuple[int, int]], kind: WithdrawalKind | None = None) -> list[Withdrawal]:
        """The questions about some of these rows of a batch, of one kind or of any; none of them is open any more."""
        if batch_id not in self._batches:
            return []
        batch, kinds = self._batches[batch_id]
        taken: list[Withdrawal] = []
        for one in [*kinds] if kind is None else [kind] if kind in kinds else ():
            spans = kinds[one]
            taken += [Withdrawal(one, batch, a, b) for lo, hi in rows for a, b in spans.take(lo, hi)]
            if not spans.ends:
                del kinds[one]
        if not kinds:
            del self._batches[batch_id]
        return taken

    def end_batch(self, batch_id: int) -> None:
        """All rows of a batch have ended."""
        self._batches.pop(batch_id, None)
