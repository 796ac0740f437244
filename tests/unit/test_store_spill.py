"""Objects go to disk and come back whole; nothing is lost when the disk is full, and nothing is left at the end."""

import errno
import os
import select
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaler.store import ObjectMissing
from scaler.store import spill as spill_module
from scaler.store.layout import Key, file_name, size_of
from scaler.store.mailbox import Mailbox
from scaler.store.segments import open_object, write
from scaler.store.spill import Result, Spiller

KEY: Key = (7, 1)
CONTENT = b"content" * 300_000
SIZE = size_of(6, [len(CONTENT)])


class Host:
    """A store and its spiller."""

    def __init__(self, root: Path) -> None:
        self.store = str(root / "store")
        self.disk = root / "disk"
        os.makedirs(f"{self.store}/free")
        self.disk.mkdir()
        self.spiller = Spiller(self.store, str(self.disk))

    def put(self, key: Key) -> None:
        assert write(self.store, key, b"pickle", [memoryview(CONTENT)]) == SIZE

    def results(self, count: int = 1) -> list[Result]:
        """Wait for so many results."""
        found: list[Result] = []
        while len(found) < count:
            ready, _, _ = select.select([self.spiller], [], [], 20)
            assert ready, f"waited in vain after {found}"
            found += self.spiller.take()
        return found


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.spiller.close()
    assert os.listdir(made.disk) == []


def test_a_directory_that_others_have_removed_is_made_again(host: Host) -> None:
    shutil.rmtree(host.spiller.path)
    host.put(KEY)
    host.spiller.spill(KEY)
    assert host.results() == [("spill", KEY, SIZE, None)]
    assert open_object(host.spiller.path, KEY).size == SIZE


def test_an_object_goes_to_disk_and_comes_back(host: Host) -> None:
    host.put(KEY)
    host.spiller.spill(KEY)
    assert host.results() == [("spill", KEY, SIZE, None)]
    assert sorted(os.listdir(host.store)) == ["disk", "free"]
    assert os.listdir(f"{host.store}/free") == [], "its memory is given back"
    assert bytes(open_object(host.store, KEY).buffers[0]) == CONTENT, "it is read where it is"
    host.spiller.restore(KEY)
    assert host.results() == [("restore", KEY, SIZE, None)]
    assert bytes(open_object(host.store, KEY).buffers[0]) == CONTENT
    assert os.listdir(host.spiller.path) == ["owner"]


def test_a_reader_keeps_what_it_mapped(host: Host) -> None:
    host.put(KEY)
    found = open_object(host.store, KEY)
    host.spiller.spill(KEY)
    host.results()
    assert bytes(found.buffers[0]) == CONTENT


def test_what_is_not_there_is_said(host: Host) -> None:
    host.spiller.spill(KEY)
    host.spiller.restore(KEY)
    host.spiller.drop(KEY)
    by_kind = {what: (key, size, error) for what, key, size, error in host.results(3)}
    assert by_kind["drop"] == (KEY, 0, None)
    for what in ("spill", "lost"):
        key, size, error = by_kind[what]
        assert (key, size) == (KEY, 0)
        assert error is not None
        assert file_name(KEY) in error


def test_what_cannot_be_read_may_be_read_later(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(spill_module, "open_file", fails)
    host.spiller.restore(KEY)
    assert host.results() == [("restore", KEY, 0, "[Errno 5] the disk is broken")]


def test_a_full_disk_leaves_the_object_in_memory(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    host.put(KEY)
    monkeypatch.setattr(os, "posix_fallocate", full)
    host.spiller.spill(KEY)
    ((what, key, size, error),) = host.results()
    assert (what, key, size) == ("spill", KEY, 0)
    assert error is not None
    assert host.spiller.path in error
    assert "no room" in error
    assert bytes(open_object(host.store, KEY).buffers[0]) == CONTENT
    assert os.listdir(host.spiller.path) == ["owner"]


def test_an_unexpected_failure_is_a_result_too(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise RuntimeError("broken")

    monkeypatch.setattr(spill_module, "copy", broken)
    host.spiller.spill(KEY)
    assert host.results() == [("spill", KEY, 0, "RuntimeError: broken")]


def test_restoring_goes_first_but_requests_for_one_object_keep_their_order(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    copy = spill_module.copy

    def held(source: str, target: str, key: Key) -> int:
        begun.set()
        assert go_on.wait(20)
        return copy(source, target, key)

    for number in range(1, 5):
        host.put((7, number))
    host.spiller.spill((7, 4))
    host.results()
    monkeypatch.setattr(spill_module, "copy", held)
    host.spiller.spill((7, 1))
    assert begun.wait(20)
    host.spiller.spill((7, 2))
    host.spiller.spill((7, 3))
    host.spiller.drop((7, 3))
    host.spiller.restore((7, 4))
    go_on.set()
    assert [(what, key[1]) for what, key, _, _ in host.results(5)] == [
        ("spill", 1), ("restore", 4), ("spill", 2), ("spill", 3), ("drop", 3)
    ]  # fmt: skip
    with pytest.raises(ObjectMissing):
        open_object(host.spiller.path, (7, 3))


def test_what_dead_processes_left_on_disk_is_removed(host: Host) -> None:
    dead = host.disk / f"scaler-spill-{os.geteuid()}-1-abc"
    dead.mkdir()
    (dead / "owner").write_text("")
    (dead / "7-1").write_text("")
    (host.disk.parent / "other").mkdir()
    other = Spiller(str(host.disk.parent / "other"), str(host.disk))
    assert not dead.exists()
    assert os.path.isdir(host.spiller.path)
    other.close()


def test_what_a_dead_process_left_is_removed_also_where_there_is_no_room_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it left may be all that fills the place, and no new directory would ever be there."""
    full, other = tmp_path / "full", tmp_path / "other"
    dead = full / f"scaler-spill-{os.geteuid()}-1-abc"
    dead.mkdir(parents=True)
    (dead / "owner").write_text("")
    other.mkdir()
    found = os.statvfs_result((4096, 4096, 100, 0, 0, 10, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    monkeypatch.setenv("TMPDIR", str(full))
    spiller = Spiller(str(tmp_path))
    assert not dead.exists()
    assert os.path.dirname(spiller.path) == str(other)
    spiller.close()


def test_a_mailbox_is_readable_exactly_while_there_is_something_in_it() -> None:
    box: Mailbox[int] = Mailbox()

    def readable() -> bool:
        return bool(select.select([box], [], [], 0)[0])

    assert not readable()
    box.put(1)
    box.put(2)
    assert readable()
    assert box.take() == [1, 2]
    assert not readable()
    assert box.take() == []
    box.put(3)
    box.close()
    box.close()
    box.put(4)
    assert box.take() == [3]
