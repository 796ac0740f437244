"""Queues of spans, case by case."""

from dataclasses import dataclass

import pytest
from support.counting import calls_of

from scaler.common.spans import UNKNOWN_US, SpanQueue


@dataclass(eq=False)
class Batch:
    """As much of a batch as the queue looks at."""

    client: int
    id: int
    slots: int = 1
    nesting: int = 0

    @property
    def share(self) -> int:
        return self.client


A, B, OTHER = Batch(1, 10), Batch(1, 20), Batch(2, 10)


def queue(*spans: tuple[Batch, int, int]) -> SpanQueue[Batch]:
    """A queue with these in it."""
    made: SpanQueue[Batch] = SpanQueue()
    for span in spans:
        made.append(*span)
    return made


def removed(made: SpanQueue[Batch], batch: Batch, lo: int, hi: int) -> list[tuple[int, int]]:
    """Take rows out; the parts that were there."""
    return made.remove(batch.client, batch.id, (batch.share, batch.nesting), [(lo, hi)])


def test_neighbours_become_one_span() -> None:
    assert list(queue((A, 0, 3), (A, 3, 5), (B, 5, 6))) == [(A, 0, 5), (B, 5, 6)]


def test_rows_are_taken_from_the_front_and_from_the_end() -> None:
    made = queue((A, 0, 5))
    assert made.take(2) == (A, 0, 2)
    assert made.take_last(2) == (A, 3, 5)
    assert made.take(9) == (A, 2, 3)
    assert made.rows == 0


def test_clients_take_turns() -> None:
    made = queue((A, 0, 4), (OTHER, 0, 4))
    assert [made.take(2)[0] for _ in range(4)] == [A, OTHER, A, OTHER]


def test_the_spans_of_the_client_whose_turn_it_is_come_first() -> None:
    made = queue((A, 0, 4), (OTHER, 0, 4))
    made.take(2)
    assert list(made) == [(OTHER, 0, 4), (A, 2, 4)]


@pytest.mark.parametrize(("us", "others"), [(100.0, 100.0), (50_000.0, 100.0), (100.0, 50_000.0), (None, None)])
def test_clients_share_the_time_whatever_their_spans_and_rows_are(us: float | None, others: float | None) -> None:
    made = queue((A, 0, 1_000_000), *[(Batch(2, 100 + n), 0, 1) for n in range(100_000)])
    used = {1: 0.0, 2: 0.0}
    for _ in range(5_000):
        each = us if made.head is A else others
        batch, lo, hi = made.take(8 if each == 100.0 else 1, each)
        used[batch.client] += (hi - lo) * (each or UNKNOWN_US)
    longest = max(us or UNKNOWN_US, others or UNKNOWN_US)
    assert abs(used[1] - used[2]) <= max(longest, 800)


def test_a_client_that_comes_later_has_its_share_from_then_on() -> None:
    made = queue((A, 0, 1_000_000), (OTHER, 0, 1))
    for _ in range(100):
        made.take(1)
    made.append(OTHER, 5, 1_000_000)
    assert sum(made.take(1)[0] is OTHER for _ in range(100)) == 50


def test_a_row_that_was_thought_to_take_long_keeps_its_client_waiting_for_a_second_of_others_at_most() -> None:
    made = queue((A, 0, 1_000_000), (OTHER, 0, 1_000_000))
    made.take(1, 1e9)
    taken = [made.take(1, 1_000.0)[0] for _ in range(1_002)]
    assert taken[:1_001] == [OTHER] * 1_001 or taken[:1_000] == [OTHER] * 1_000
    assert A in taken


def test_rows_that_come_back_go_first() -> None:
    made = queue((A, 5, 9))
    made.prepend(A, 0, 2)
    assert made.take(9) == (A, 0, 2)


def test_rows_are_taken_out_of_the_middle() -> None:
    made = queue((A, 0, 5), (B, 0, 3), (A, 7, 9))
    assert removed(made, A, 2, 8) == [(2, 5), (7, 8)]
    assert list(made) == [(A, 0, 2), (B, 0, 3), (A, 8, 9)]
    assert made.rows == 6


def test_a_client_that_is_gone_has_no_rows_and_no_turn() -> None:
    made = queue((A, 0, 5), (OTHER, 0, 1))
    made.drop_client(1)
    assert made.take(9) == (OTHER, 0, 1)
    with pytest.raises(IndexError):
        made.take(1)


def calls_to_remove_one(others: int) -> int:
    """Calls of functions for a row that is taken out of the middle of a line of many spans."""
    made = queue(
        *[(Batch(1, 100 + n), 0, 1) for n in range(others)], *[(A, row, row + 1) for row in range(0, others, 2)]
    )
    return calls_of(lambda: removed(made, A, others // 2, others // 2 + 1))


def test_a_row_is_taken_out_of_many_spans_at_the_price_of_few() -> None:
    assert calls_to_remove_one(1_000) == calls_to_remove_one(20)


def test_the_middle_of_a_span_is_taken_out_again_and_again() -> None:
    made = queue((B, 0, 1), (A, 0, 8), (OTHER, 0, 1))
    assert [removed(made, A, row, row + 1) for row in (6, 2, 4)] == [[(6, 7)], [(2, 3)], [(4, 5)]]
    assert [span for span in made if span[0].client == 1] == [(B, 0, 1), (A, 0, 2), (A, 3, 4), (A, 5, 6), (A, 7, 8)]
    assert removed(made, A, 0, 8) == [(0, 2), (3, 4), (5, 6), (7, 8)]
    assert list(made) == [(B, 0, 1), (OTHER, 0, 1)]
    assert made.rows == 2


def test_what_ran_for_a_share_elsewhere_counts_as_its_own() -> None:
    made = queue((A, 0, 4), (OTHER, 0, 4))
    first = made.head.share
    made.charge(first, 1.0)
    assert made.head.share != first
    made.charge(99, 1.0)
    assert (
        [batch.share for batch in made.heads(9)] == [OTHER.share, A.share] == [batch.share for batch in made.heads(2)]
    )
