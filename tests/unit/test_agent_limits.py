"""How much memory an agent takes, and how its store lets go of files."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import ANY

import pytest
from support import until

from scaler.agent.core import events as ev
from scaler.agent.host_store import HostStore
from scaler.agent.limits import limits_of, live_limit
from scaler.agent.store_cleaning import SWEEP_SECONDS
from scaler.agent.usage import private_memory
from scaler.common.host_memory import available_memory
from scaler.config import AgentConfig
from scaler.store import segments
from scaler.store.index import StoreIndex

GB = 1 << 30
KEY = (7, 10)


def host(root: Path, memory: int, groups: dict[str, int | str], membership: str) -> str:
    """The files by which a host says what memory it has."""
    files = {"proc/meminfo": f"MemTotal:       {memory // 1024} kB\n", "proc/self/cgroup": membership}
    for name, text in {**files, **{f"sys/fs/cgroup/{name}": f"{limit}\n" for name, limit in groups.items()}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_the_least_of_what_machine_and_containers_allow_counts(tmp_path: Path) -> None:
    groups: dict[str, int | str] = {"a/memory.max": 3 * GB, "a/b/memory.max": "max", "a/b/c/memory.max": 5 * GB}
    assert available_memory(host(tmp_path, 8 * GB, groups, "0::/a/b/c\n")) == 3 * GB


def test_an_older_kernels_groups_count_too(tmp_path: Path) -> None:
    groups: dict[str, int | str] = {"memory/a/memory.limit_in_bytes": 2 * GB}
    assert available_memory(host(tmp_path, 8 * GB, groups, "4:cpu:/x\n3:memory:/a\n")) == 2 * GB


def test_without_groups_the_machine_counts(tmp_path: Path) -> None:
    assert available_memory(host(tmp_path, 8 * GB, {}, "0::/\n")) == 8 * GB


def test_a_worker_may_take_all_unless_told_otherwise_and_keeps_a_little_to_itself() -> None:
    limits = limits_of(AgentConfig("tcp://h:1", memory_limit=8 * GB))
    assert (limits.total, limits.worker) == (8 * GB, 8 * GB)
    assert live_limit(limits, 4) == GB // 4
    limits = limits_of(AgentConfig("tcp://h:1", memory_limit=8 * GB, worker_memory_limit=GB // 2))
    assert live_limit(limits, 4) == GB // 8
    assert limits_of(AgentConfig("tcp://h:1", memory_limit=8 * GB, worker_memory_limit=0)).worker == 0


def test_mapped_files_are_not_a_processs_own_memory(tmp_path: Path) -> None:
    assert 1 << 20 < private_memory(os.getpid()) < 1 << 40
    assert private_memory(1 << 30) == 0


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostStore]:
    """A store below a directory of the test's own."""
    monkeypatch.setattr("scaler.store.directory.default_root", lambda: str(tmp_path))
    made = HostStore(1 << 30, str(tmp_path / "spill"))
    yield made
    made.close()
    assert not os.listdir(tmp_path)


def settled(store: HostStore, done: Callable[[], bool]) -> list[ev.Event]:
    """What the store tells until something is so."""
    events: list[ev.Event] = []
    deadline = time.monotonic() + 10.0
    while not done() and time.monotonic() < deadline:
        events += store.gather()
        time.sleep(0.001)
    assert done()
    return events + store.gather()


def names(store: HostStore) -> set[str]:
    """The objects in the store."""
    return {name for name in os.listdir(store.path) if name[:1].isdigit()}


def test_objects_go_to_disk_and_come_back(store: HostStore) -> None:
    segments.write(store.path, KEY, b"x" * 1000)
    store.carry_out(ev.Spill(KEY), 0.0)
    assert settled(store, lambda: not store._moves) == [ev.Spilled(KEY)]
    assert not names(store)
    store.carry_out(ev.Restore(KEY), 0.0)
    assert settled(store, lambda: not store._moves) == [ev.Restored(KEY)]
    assert names(store) == {"7-a"}


def test_an_object_that_others_have_removed_from_disk_is_lost(store: HostStore) -> None:
    segments.write(store.path, KEY, b"x" * 1000)
    store.carry_out(ev.Spill(KEY), 0.0)
    settled(store, lambda: not store._moves)
    segments.free(store._spiller.path, KEY)
    store.carry_out(ev.Restore(KEY), 0.0)
    (event,) = settled(store, lambda: not store._moves)
    assert isinstance(event, ev.Restored)
    assert event.is_lost


def test_nothing_is_heard_of_an_object_that_was_dropped_while_it_moved(store: HostStore) -> None:
    segments.write(store.path, KEY, b"x" * 1000)
    store.carry_out(ev.Spill(KEY), 0.0)
    store.carry_out(ev.Restore(KEY), 0.0)
    store.carry_out(ev.DropObject(KEY), 0.0)
    assert settled(store, lambda: not store._moves) == []
    assert not names(store)
    assert not store._stale_moves


def later_than(path: str) -> bool:
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path)) as probe:
        return os.fstat(probe.fileno()).st_ctime_ns > os.stat(path).st_ctime_ns


def test_files_from_before_a_new_scheduler_are_removed_and_newer_ones_are_not(store: HostStore) -> None:
    segments.write(store.path, (7, 1), b"old")
    until(lambda: later_than(os.path.join(store.path, "7-1")), "the clock of files to go on")
    segments.write(store.path, KEY, b"old, and on disk")
    store.carry_out(ev.Spill(KEY), 0.0)
    settled(store, lambda: not store._moves)
    store.introduced()
    segments.write(store.path, (7, 2), b"new")
    store.carry_out(ev.DropClient(0), 0.0)
    segments.write(store.path, KEY, b"new")
    store.carry_out(ev.Restore((7, 1)), 0.0)  # whatever comes after the disk was told to drop it
    assert settled(store, lambda: not store._moves) == [ev.Restored((7, 1), ANY, is_lost=True)]
    assert names(store) == {"7-2", "7-a"}
    assert not store._on_disk


def test_files_that_nobody_knows_are_removed_after_a_while(store: HostStore) -> None:
    index = StoreIndex(1 << 30, 1 << 30)
    index.add((7, 1), 1000)
    for number in (1, 2, 3):
        segments.write(store.path, (7, number), b"x")
        os.utime(os.path.join(store.path, f"7-{number}"), (1, 1))  # how old they are by the clock does not matter
    store.tidy(index, SWEEP_SECONDS)
    assert names(store) == {"7-1", "7-2", "7-3"}
    segments.free(store.path, (7, 3))
    segments.write(store.path, (7, 3), b"x")
    store.tidy(index, 1.5 * SWEEP_SECONDS)
    assert names(store) == {"7-1", "7-2", "7-3"}
    store.tidy(index, 2 * SWEEP_SECONDS)
    assert names(store) == {"7-1", "7-3"}


def test_a_directory_that_others_have_removed_is_made_again_and_its_objects_are_missed(
    store: HostStore, caplog: pytest.LogCaptureFixture
) -> None:
    index = StoreIndex(GB, GB)
    index.add(KEY, segments.write(store.path, KEY, b"pickle", [memoryview(bytes(2 << 20))]))
    store.carry_out(ev.DropObject((7, 11)), 1.0)
    shutil.rmtree(store.path)
    store.tidy(index, 1000.0)
    store.introduced()
    assert store.mend(index) == [ev.FileMissing(KEY)]
    assert "somebody has removed the store" in caplog.text
    assert store.mend(index) == []
    segments.write(store.path, KEY, b"pickle")
    assert not store.lacks(KEY)


def test_a_file_system_without_a_size_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((4096, 4096, *[0] * 8)))
    limits = limits_of(AgentConfig("tcp://127.0.0.1:2345", memory_limit=GB))
    assert limits.store > GB
    assert limits.objects_soft == GB // 2
