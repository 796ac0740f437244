"""Queues of spans against lists of rows."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from scaler.agent.state.ready_rows import RowQueue
from scaler.common.span_lists import runs_of, without
from scaler.common.spans import MOST_US, UNKNOWN_US, SpanQueue
from scaler.scheduler.state.ready_queues import ReadyQueues

Line = tuple[int, int, int]


@dataclass(eq=False)
class Batch:
    """As much of a batch, or of a part, as queues look at."""

    client: int
    id: int
    priority: int
    capabilities: tuple[str, ...] = ()
    #: rows made so far
    rows: int = 0
    slots: int = 1
    root: int = 0
    nesting: int = 0

    @property
    def share(self) -> int:
        """Whose turn it takes."""
        return self.root or self.client

    @property
    def line(self) -> Line:
        """Whose order its rows are in."""
        return self.client, self.share, self.nesting

    @property
    def queue_class(self) -> tuple[int, tuple[tuple[str, ...], int]]:
        """Which queue of ready rows is theirs."""
        return -self.priority, (self.capabilities, 1)

    @property
    def key(self) -> tuple[int, int]:
        """What it is known by at an agent."""
        return self.client, self.id

    @property
    def task(self) -> Any:
        """Where queues find the priority."""
        return SimpleNamespace(priority=self.priority, capabilities=self.capabilities, batch=self.id)


class Rows:
    """The model: rows of each line (client, share, nesting) in order, and whose turn it is."""

    def __init__(self) -> None:
        self.of: dict[Line, list[tuple[Batch, int]]] = {}
        #: shares, and the lines of all shares, as they would be taken
        self.turns: list[int] = []
        self.lines: list[Line] = []
        #: of shares and of lines
        self.used: dict[int | Line, float] = {}
        self.past: dict[int, float] = {}
        self.new: set[int] = set()

    def add(self, batch: Batch, lo: int, hi: int, front: bool) -> None:
        """Queue rows."""
        rows, line, share = [(batch, row) for row in range(lo, hi)], batch.line, batch.share
        if share not in self.turns:
            least = min((self.used[other] for other in self.turns), default=0.0)
            self.used[share] = max(least, self.past.pop(share, 0.0))
            self.new.add(share)
            before = [
                other
                for other in self.turns
                if self.used[other] < self.used[share] or (self.used[other] == self.used[share] and other in self.new)
            ]
            self.turns.insert(len(before), share)
        if line not in self.of:
            alike = [other for other in self.of if other[1:] == line[1:]]
            self.used[line] = min((self.used[other] for other in alike), default=0.0)
            self.of[line] = []
            self.lines.append(line)
            self.sort_lines()
        here = self.of[line]
        self.of[line] = rows + here if front else here + rows

    def sort_lines(self) -> None:
        """Of a share the deepest go first, then those that have used least, then those that did so first."""
        self.lines.sort(key=lambda line: (-line[2], self.used[line]))

    def next_of(self, share: int, last: bool = False) -> Line:
        """The line that is next of a share."""
        return [line for line in self.lines if line[1] == share][-1 if last else 0]

    def taken(
        self, limit: int, batch: Batch, lo: int, hi: int, share: int, last: bool = False, us: float | None = None
    ) -> None:
        """These rows are said to come first of a share, or last."""
        line = self.next_of(share, last)
        here = self.of[line]
        n = hi - lo
        assert 0 < n <= limit
        rows = [(batch, row) for row in range(lo, hi)]
        assert (here[-n:] if last else here[:n]) == rows
        self.of[line] = here[:-n] if last else here[n:]
        if not last:
            self.new.discard(share)
            if len(self.turns) > 1 or self.past or len([one for one in self.lines if one[1] == share]) > 1:
                self.charge(share, line, n * (UNKNOWN_US if us is None else min(us, MOST_US)))
        self.settle()

    def charge(self, share: int, line: Line, us: float) -> None:
        """They have used more than before: behind those that have used as much."""
        self.used[share] += us
        self.turns.remove(share)
        self.turns.append(share)
        self.turns.sort(key=lambda other: self.used[other])
        if len([one for one in self.lines if one[1] == share]) > 1:
            self.used[line] += us
            self.lines.remove(line)
            self.lines.append(line)
            self.sort_lines()
        least = self.used[self.turns[0]]
        self.past = {other: used for other, used in self.past.items() if used > least}

    def settle(self) -> None:
        """What has no rows has no turn; what it has used beyond others is remembered."""
        self.of = {line: rows for line, rows in self.of.items() if rows}
        self.lines = [line for line in self.lines if line in self.of]
        for share in [share for share in self.turns if not any(line[1] == share for line in self.lines)]:
            self.turns.remove(share)
            if not self.turns:
                self.past.clear()
            elif self.used[share] > self.used[self.turns[0]]:
                self.past[share] = self.used[share]

    def remove(self, batch: Batch, lo: int, hi: int) -> set[int]:
        """Take out rows; those that were here."""
        here = self.of.get(batch.line, [])
        found = {row for other, row in here if other is batch and lo <= row < hi}
        if here:
            self.of[batch.line] = [(other, row) for other, row in here if other is not batch or row not in found]
        self.settle()
        return found

    def drop(self, client: int) -> None:
        """A client is gone."""
        for line in [line for line in self.of if line[0] == client]:
            del self.of[line]
            self.settle()

    @property
    def count(self) -> int:
        """All rows."""
        return sum(map(len, self.of.values()))


class SpanQueues(RuleBasedStateMachine):
    """One SpanQueue: the share whose rows have taken least has its turn, of it the deepest; lines stay in order."""

    batches = Bundle("batches")

    def __init__(self) -> None:
        super().__init__()
        self.queue: SpanQueue[Batch] = SpanQueue()
        self.model = Rows()
        self.spare: list[tuple[Batch, int, int]] = []
        self.next_id = 1

    @rule(target=batches, client=st.integers(1, 3), root=st.integers(0, 2), nesting=st.integers(0, 2))
    def batch(self, client: int, root: int, nesting: int) -> Batch:
        self.next_id += 1
        return Batch(client, self.next_id, 0, root=root, nesting=nesting)

    @rule(batch=batches, n=st.integers(1, 6))
    def append(self, batch: Batch, n: int) -> None:
        lo, batch.rows = batch.rows, batch.rows + n
        self.queue.append(batch, lo, batch.rows)
        self.model.add(batch, lo, batch.rows, front=False)

    @precondition(lambda self: self.spare)
    @rule()
    def prepend(self) -> None:
        batch, lo, hi = self.spare.pop()
        self.queue.prepend(batch, lo, hi)
        self.model.add(batch, lo, hi, front=True)

    @precondition(lambda self: self.model.count)
    @rule(limit=st.integers(1, 8), last=st.booleans(), us=st.sampled_from((None, 0.0, 100.0, 30_000.0, 1e9)))
    def take(self, limit: int, last: bool, us: float | None) -> None:
        share = self.model.turns[-1 if last else 0]
        if not last:
            assert self.queue.head is self.model.of[self.model.next_of(share)][0][0]
        span = self.queue.take_last(limit) if last else self.queue.take(limit, us)
        self.model.taken(limit, *span, share, last, us)
        self.spare.append(span)

    @precondition(lambda self: self.model.count)
    @rule(limit=st.integers(1, 8), us=st.sampled_from((None, 100.0)), data=st.data())
    def take_of_a_share(self, limit: int, us: float | None, data: st.DataObject) -> None:
        share = data.draw(st.sampled_from(self.model.turns))
        head = self.queue.head_of(share)
        span = self.queue.take(limit, us, share)
        assert span[0] is head
        self.model.taken(limit, *span, share, us=us)
        self.spare.append(span)

    @rule(batch=batches, lo=st.integers(0, 12), n=st.integers(1, 12))
    def remove(self, batch: Batch, lo: int, n: int) -> None:
        found = self.queue.remove(batch.client, batch.id, (batch.share, batch.nesting), [(lo, lo + n)])
        rows = [row for a, b in found for row in range(a, b)]
        assert len(set(rows)) == len(rows)
        assert set(rows) == self.model.remove(batch, lo, lo + n)

    @rule(client=st.integers(1, 3))
    def drop(self, client: int) -> None:
        self.queue.drop_client(client)
        self.model.drop(client)
        self.spare = [span for span in self.spare if span[0].client != client]

    @invariant()
    def same_rows(self) -> None:
        assert self.queue.rows == self.model.count
        for one, rows in self.model.of.items():
            queued = [(batch, row) for batch, lo, hi in self.queue for row in range(lo, hi)]
            assert [(batch, row) for batch, row in queued if batch.line == one] == rows
        assert sum(hi - lo for _, lo, hi in self.queue) == self.model.count
        assert self.queue.shares(9) == self.model.turns


class PriorityQueues(RuleBasedStateMachine):
    """RowQueue and ReadyQueues: highest priority first, nothing lost between them."""

    batches = Bundle("batches")

    def __init__(self) -> None:
        super().__init__()
        self.rows: RowQueue = RowQueue()
        self.ready = ReadyQueues()
        self.model: list[tuple[Batch, int]] = []
        self.next_id = 1

    @rule(target=batches, client=st.integers(1, 2), priority=st.integers(-1, 1), gpu=st.booleans())
    def batch(self, client: int, priority: int, gpu: bool) -> Batch:
        self.next_id += 1
        return Batch(client, self.next_id, priority, ("gpu",) if gpu else ())

    @rule(batch=batches, n=st.integers(1, 5), front=st.booleans())
    def add(self, batch: Batch, n: int, front: bool) -> None:
        lo, batch.rows = batch.rows, batch.rows + n
        self.rows.put(batch, lo, batch.rows, front)  # type: ignore[arg-type]
        (self.ready.prepend if front else self.ready.append)(batch, lo, batch.rows)  # type: ignore[arg-type]
        self.model += [(batch, row) for row in range(lo, batch.rows)]

    def _left(self, *spans: tuple[Batch, int, int]) -> None:
        for batch, lo, hi in spans:
            for row in range(lo, hi):
                self.model.remove((batch, row))

    @precondition(lambda self: self.model)
    @rule(limit=st.integers(1, 5), last=st.booleans())
    def take(self, limit: int, last: bool) -> None:
        batch, lo, hi = self.rows.take_last(limit) if last else self.rows.take(limit)
        priorities = [other.priority for other, _ in self.model]
        assert batch.priority == (min if last else max)(priorities)  # type: ignore[attr-defined]
        assert 0 < hi - lo <= limit
        self._left((batch, lo, hi))  # type: ignore[arg-type]
        assert sum(b - a for a, b in self.ready.remove(batch, lo, hi)) == hi - lo  # type: ignore[arg-type]

    @rule(batch=batches, lo=st.integers(0, 8), n=st.integers(1, 8))
    def remove(self, batch: Batch, lo: int, n: int) -> None:
        found = self.rows.remove_rows(batch.client, batch.id, lo, lo + n)
        assert (sorted(found) and set(found)) or not found
        assert {r for a, b in found for r in range(a, b)} == {
            r for other, r in self.model if other is batch and lo <= r < lo + n
        }
        self._left(*[(batch, a, b) for a, b in found])
        self.ready.remove(batch, lo, lo + n)  # type: ignore[arg-type]

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def rotate(self, data: st.DataObject) -> None:
        before = [key for key, _ in self.ready.in_order()]
        served = data.draw(st.sampled_from(before))
        self.ready.rotate(served)  # type: ignore[arg-type]
        before.remove(served)
        after = [key for key, _ in self.ready.in_order()]
        assert [key for key in after if key != served] == before
        assert all(urgency > served[0] for urgency, _ in after[after.index(served) + 1 :])

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def leave_out(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key, _ in self.ready.in_order()]))
        self.ready.leave_out(key)
        assert key not in [key for key, _ in self.ready.in_order()]

    @rule(gpu=st.booleans())
    def bring_back(self, gpu: bool) -> None:
        self.ready.bring_back(frozenset(["gpu"] if gpu else []), 1)
        assert all(key[1][0] and not gpu for key in self.ready.unmet)

    @rule(client=st.integers(1, 2))
    def hold_for_a_moment(self, client: int) -> None:
        self.ready.hold(client)
        held = sum(other.client == client for other, _ in self.model)
        assert self.ready.rows == len(self.model)
        assert sum(queue.rows for _, queue in self.ready.in_order()) <= len(self.model) - held
        self.ready.release(client)

    @rule(client=st.integers(1, 2))
    def drop(self, client: int) -> None:
        self.rows.drop_client(client)
        self.ready.drop_client(client)
        self.model = [(batch, row) for batch, row in self.model if batch.client != client]

    @invariant()
    def counts(self) -> None:
        assert self.rows.rows == self.ready.rows == len(self.model)
        if self.model:
            assert self.rows.head.priority == max(batch.priority for batch, _ in self.model)  # type: ignore[attr-defined]
        classes = [key for key, queue in self.ready.in_order()]
        unmet = list(self.ready.unmet)
        assert sorted(classes + unmet) == sorted({batch.queue_class for batch, _ in self.model})
        assert [urgency for urgency, _ in classes] == sorted(urgency for urgency, _ in classes)


TestSpanQueue = SpanQueues.TestCase
TestPriorityQueues = PriorityQueues.TestCase
for case in (TestSpanQueue, TestPriorityQueues):
    case.settings = settings(stateful_step_count=30)


def test_runs_cover_rows_exactly() -> None:
    assert list(runs_of([])) == []
    assert list(runs_of([3])) == [(3, 4)]
    assert list(runs_of([0, 1, 2, 5, 7, 8])) == [(0, 3), (5, 6), (7, 9)]


ROW_SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)).map(lambda span: (span[0], sum(span))))


@given(ROW_SPANS, ROW_SPANS)
def test_what_is_left_of_spans_without_others_is_each_row_once(
    spans: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    rows, cut = ({row for lo, hi in some for row in range(lo, hi)} for some in (spans, others))
    assert without(spans, others) == list(runs_of(sorted(rows - cut)))
