"""Copies of bytes by address, shared by threads."""

import mmap
import signal
import threading
from typing import Any

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


@pytest.fixture
def four_copy(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[bytes], Any]:
    """How bytes are copied in C, parts that four threads share, and where they go."""
    monkeypatch.setattr(buffers, "available_cores", lambda: 4)
    monkeypatch.setattr(buffers, "_SHARED_FROM", 4096)
    parts = [np.random.default_rng(0).bytes(9000)]
    return buffers._memcpy, parts, np.zeros(9000, "u1")


def test_what_a_signals_handler_raises_comes_when_no_thread_copies_any_more(
    four_copy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memcpy, parts, target = four_copy
    main, has_come = threading.current_thread(), threading.Event()

    def late(*copy: int) -> None:
        if threading.current_thread() is main:
            has_come.set()
            signal.raise_signal(signal.SIGINT)
        else:
            has_come.wait(20)
            threading.Event().wait(0.05)  # it is a long copy
        memcpy(*copy)

    monkeypatch.setattr(buffers, "_memcpy", late)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            copy_all(target.ctypes.data, parts)
    finally:
        signal.signal(signal.SIGINT, before)
    assert target.tobytes() == parts[0]


def test_one_thread_copies_all_where_no_other_can_be_started(four_copy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    _, parts, target = four_copy
    monkeypatch.setattr(threading.Thread, "start", fail)
    copy_all(target.ctypes.data, parts)
    assert target.tobytes() == parts[0]


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
