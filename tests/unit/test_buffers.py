"""Copies of bytes by address, shared by threads."""

import mmap

import numpy as np
import pytest

from scaler.common import buffers
from scaler.common.buffers import address_of, copy_all, equal, populate


@pytest.mark.parametrize("processors", [1, 2, 3, 16])
@pytest.mark.parametrize("sizes", [(0,), (5, 0, 3), (9 << 20,), (1, 5 << 20, 7, 8 << 20, 0, 3)])
def test_parts_are_copied_one_behind_the_other(
    monkeypatch: pytest.MonkeyPatch, processors: int, sizes: tuple[int, ...]
) -> None:
    monkeypatch.setattr(buffers, "available_cores", lambda: processors)
    parts = [np.random.default_rng(i).bytes(size) for i, size in enumerate(sizes)]
    target = np.full(sum(sizes) + 8, 7, "u1")
    copy_all(target.ctypes.data + 4, parts)
    assert target[4:-4].tobytes() == b"".join(parts)
    assert target[:4].tobytes() == target[-4:].tobytes() == b"\7" * 4


def test_buffers_are_compared_by_what_they_hold() -> None:
    array = np.arange(10)
    assert equal(memoryview(array), memoryview(array.copy()))
    assert not equal(memoryview(array), memoryview(array[:9]))
    assert not equal(memoryview(array), memoryview(array + 1))
    assert address_of(array) == array.ctypes.data


def test_to_populate_memory_changes_nothing() -> None:
    memory = mmap.mmap(-1, 100_000)
    memory[:] = b"x" * 100_000
    populate(memory)
    assert memory[:] == b"x" * 100_000
