"""Segments that a writer keeps mapped."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import until

from scaler.store import segments, warm
from scaler.store.warm import MAPPED_FROM, WarmSegments

KEY = (7, 1)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(warm, "_LOOK_SECONDS", 0.01)
    (tmp_path / segments.FREE).mkdir()
    return str(tmp_path)


@pytest.fixture
def kept() -> Iterator[WarmSegments]:
    made = WarmSegments()
    yield made
    made.clear()


def put(store: str, kept: WarmSegments, data: bytes, key: tuple[int, int] = KEY) -> None:
    segments.write(store, key, b"head", [memoryview(data)], kept.write)
    found = segments.open_object(store, key)
    assert bytes(found.inband) == b"head"
    assert bytes(found.buffers[0]) == data


def random(number: int, size: int = MAPPED_FROM) -> bytes:
    return os.urandom(1 << 10) * (size >> 10) + bytes([number])


def test_a_segment_that_comes_back_is_written_through_its_mapping(
    store: str, kept: WarmSegments, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[Any] = []
    copy_all = warm.copy_all
    monkeypatch.setattr(warm, "copy_all", lambda *arguments: (copied.append(1), copy_all(*arguments)))
    put(store, kept, random(0))
    until(lambda: len(kept) == 1, "the mapping")
    for number, size in enumerate([MAPPED_FROM, MAPPED_FROM - 5000, MAPPED_FROM]):
        segments.free(store, KEY)
        put(store, kept, random(number, size))
    assert len(copied) == 2  # the last one is larger than what the segment had been cut to


def test_a_file_of_somebody_else_among_the_free_segments_is_left_alone(store: str, kept: WarmSegments) -> None:
    other = Path(store, segments.FREE, "notes")
    other.write_text("mine")
    put(store, kept, random(1))
    assert other.read_text() == "mine"


def test_an_object_that_is_read_is_never_written_over(store: str, kept: WarmSegments) -> None:
    first = random(1)
    put(store, kept, first)
    until(lambda: len(kept) == 1, "the mapping")
    reader = segments.open_object(store, KEY)
    segments.free(store, KEY)
    put(store, kept, random(2))
    assert bytes(reader.buffers[0]) == first


def test_a_mapping_ends_with_its_file(store: str, kept: WarmSegments) -> None:
    put(store, kept, random(1))
    until(lambda: len(kept) == 1, "the mapping")
    segments.free(store, KEY, recycle=False)
    until(lambda: not len(kept), "the mapping to go")
    until(lambda: kept._keeper is None, "the thread to end")
    put(store, kept, random(2))
    until(lambda: len(kept) == 1, "another mapping")


def test_a_mapping_that_is_not_used_goes(store: str, kept: WarmSegments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_KEEP_SECONDS", 0.05)
    put(store, kept, random(1))
    until(lambda: not len(kept) and kept._keeper is None, "the mapping to go")
    put(store, kept, random(2), (7, 2))


def test_small_objects_and_very_large_ones_are_not_mapped(
    store: str, kept: WarmSegments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "KEEP_BYTES", MAPPED_FROM + 10_000)
    put(store, kept, bytes(MAPPED_FROM - 5000))
    put(store, kept, bytes(MAPPED_FROM + 10_000), (7, 2))
    assert kept._keeper is None
    for number in (3, 4):
        put(store, kept, bytes(MAPPED_FROM), (7, number))
    until(lambda: not kept._wanted, "both to be looked at")
    assert len(kept) <= 1


def test_a_forked_child_has_no_mappings(store: str, kept: WarmSegments) -> None:
    put(store, kept, random(1))
    until(lambda: len(kept) == 1, "the mapping")
    child = os.fork()
    if not child:
        os._exit(len(kept) + (kept._keeper is not None))
    assert os.waitpid(child, 0)[1] == 0
    assert len(kept) == 1


def test_where_no_thread_can_be_started_objects_are_written_without_a_mapping(
    store: str, kept: WarmSegments, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        put(store, kept, random(1))
    assert not kept._wanted
    put(store, kept, random(2), (7, 2))
    until(lambda: len(kept) == 1, "the mapping")
