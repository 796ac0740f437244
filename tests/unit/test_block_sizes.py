"""Rows of a map go together as long as their arguments are small."""

from collections.abc import Callable, Iterable

import pytest

from scaler.client.submitting.block_sizes import BLOCK_BYTES, BlockSizes

MB = 1 << 20


def blocks(sizes: BlockSizes, rows: int, size_of: Callable[[int, int], int]) -> Iterable[tuple[int, bool]]:
    """The rows of each block that is made, and whether it is sent."""
    start = 0
    while start < rows:
        end = min(rows, start + sizes.rows)
        is_sent = sizes.fits(end - start, size_of(start, end))
        yield end - start, is_sent
        start = end if is_sent else start


@pytest.mark.parametrize(
    ("each", "made"),
    [
        (1000, [50, 50]),
        (300_000, [50, 27, 23]),  # 15 MB: as it is, and the next ones smaller
        (MB, [50, *[8] * 12, 4]),
        (5 * MB, [50, *[1] * 100]),
    ],
)
def test_large_arguments_make_small_blocks_and_only_the_first_one_is_made_twice(each: int, made: list[int]) -> None:
    found = list(blocks(BlockSizes(1, 50), 100, lambda start, end: (end - start) * each))
    assert [rows for rows, _ in found] == made
    assert [is_sent for _, is_sent in found].count(False) == (50 * each >= 2 * BLOCK_BYTES)


def test_what_rows_share_is_not_sent_more_often() -> None:
    found = list(blocks(BlockSizes(1, 50), 200, lambda start, end: 100 * MB))
    assert found == [(50, False), (4, True), (50, True), (50, True), (50, True), (46, True)]


def test_rows_that_are_to_stay_together_do() -> None:
    assert list(blocks(BlockSizes(10, 50), 100, lambda start, end: (end - start) * 5 * MB)) == [
        (50, False),
        *[(10, True)] * 10,
    ]


def test_one_large_row_does_not_make_all_others_travel_alone() -> None:
    def size_of(start: int, end: int) -> int:
        return end - start + (100 * MB if start == 0 else 0)

    assert list(blocks(BlockSizes(1, 50), 1000, size_of))[:4] == [(50, False), (3, True), (50, True), (50, True)]
