"""Where an agent's store listens, so that those find it who reach its scheduler; and what it says of damaged files."""

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import until

from scaler.agent.core import events as ev
from scaler.agent.host_store import HostStore
from scaler.agent.store_cleaning import FreedMemory
from scaler.config import OptionError
from scaler.errors import AddressInUse
from scaler.store import segments
from scaler.store.directory import default_root
from scaler.store.layout import Key, file_name
from scaler.transport import Address, Security

KEY: Key = (7, 1)


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HostStore]:
    made = HostStore(1 << 30, str(tmp_path / "spill"))
    yield made
    made.close()


@pytest.fixture
def other_store(tmp_path: Path) -> Iterator[HostStore]:
    made = HostStore(1 << 30, str(tmp_path / "other"))
    yield made
    made.close()


def _gathered(store: HostStore) -> list[ev.Event]:
    """What the store tells next."""
    found: list[ev.Event] = []

    def has_told() -> bool:
        found.extend(store.gather())
        return bool(found)

    until(has_told, "the store to tell of something")
    return found


@pytest.mark.skipif(not _has_ipv6(), reason="there is no IPv6 here")
def test_a_store_is_found_by_ipv6_if_its_scheduler_is(store: HostStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Address, "reached_from", lambda self: "fd00::7")
    store.open(Security.none(), Address.parse("tcp://[fd00::1]:2345"), on_its_host=False)
    advertised = Address.parse(store.hello[2])
    assert advertised.host == "fd00::7"
    for host in ("::1", "127.0.0.1"):
        with socket.create_connection((host, advertised.port), 5):
            pass


def test_a_store_listens_at_the_port_that_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    monkeypatch.setattr(Address, "reached_from", lambda self: "10.0.0.7")
    made = HostStore(1 << 30, str(tmp_path / "spill"), port)
    try:
        made.open(Security.none(), Address.parse("tcp://10.0.0.1:2345"), on_its_host=False)
        assert made.hello[2] == f"tcp://10.0.0.7:{port}"
        other = HostStore(1 << 30, str(tmp_path / "spill"), port)
        with contextlib.closing(other), pytest.raises(AddressInUse, match=str(port)):
            other.open(Security.none(), Address.parse("tcp://10.0.0.1:2345"), on_its_host=False)
    finally:
        made.close()


def test_a_store_is_found_where_its_host_is_reached_now(store: HostStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Address, "way", lambda self: None)  # the host has just started, and has no address yet
    scheduler = Address.parse("tcp://10.0.0.1:2345")
    store.open(Security.none(), scheduler, on_its_host=False)
    port = Address.parse(store.address).port
    for host, is_new, found in [
        ("10.0.0.7", True, "10.0.0.7"),
        ("10.0.0.7", False, "10.0.0.7"),
        (None, False, "10.0.0.7"),
        ("10.0.0.8", True, "10.0.0.8"),
        ("fd00::7", False, "10.0.0.8"),  # where it does not listen
    ]:
        assert store.move(scheduler, host) is is_new
        assert store.hello[2] == f"tcp://{found}:{port}"


def test_a_store_on_the_schedulers_own_host_is_looked_for_where_the_scheduler_is_now(
    store: HostStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Address, "way", lambda self: "10.0.0.7")
    pair = Address.parse("tcp://10.0.0.1:2345,tcp://10.0.0.2:2345")
    store.open(Security.none(), pair, on_its_host=False)
    assert store._reachable("tcp://127.0.0.1:5") == "tcp://10.0.0.1:5"
    assert not store.move(pair.each[1], "10.0.0.7")
    assert store._reachable("tcp://127.0.0.1:5") == "tcp://10.0.0.2:5"


def _is_cut(path: Path) -> None:
    os.truncate(path, 100)


def _cannot_be_read(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [Path.unlink, _is_cut, _cannot_be_read])
def test_another_host_that_wants_what_is_damaged_is_told_so_once_the_core_knows(
    store: HostStore, other_store: HostStore, damage: Callable[[Path], None]
) -> None:
    for each in (store, other_store):
        each.open(Security.none(), Address.parse("tcp://127.0.0.1:2345"), on_its_host=True)
    size = segments.write(store.path, KEY, b"", [memoryview(bytes(5000))])
    damage(Path(store.path, file_name(KEY)))
    assert store.lacks(KEY)
    other_store.carry_out(ev.Fetch(KEY, size, [store.address]), 0.0)
    assert _gathered(store) == [ev.Requested(KEY)]
    store.carry_out(ev.Serve(KEY, "it is not here"), 0.0)
    assert _gathered(other_store) == [ev.Fetched(KEY, f"{store.address}: it is not here")]


def test_what_is_gone_again_when_it_was_made_ready_is_refused(store: HostStore, other_store: HostStore) -> None:
    for each in (store, other_store):
        each.open(Security.none(), Address.parse("tcp://127.0.0.1:2345"), on_its_host=True)
    other_store.carry_out(ev.Fetch(KEY, 5000, [store.address]), 0.0)
    assert _gathered(store) == [ev.Requested(KEY)]
    store.carry_out(ev.Serve(KEY), 0.0)
    assert _gathered(other_store) == [ev.Fetched(KEY, f"{store.address}: does not have it")]


@pytest.mark.parametrize("place", ["tcp://worker-7:port", "tcp://h:99999", "ipc:///x", "tcp://[::1:3", "nonsense"])
def test_nobody_is_reached_at_what_is_no_address(store: HostStore, place: str) -> None:
    store.open(Security.none(), Address.parse("tcp://127.0.0.1:2345"), on_its_host=True)
    store.carry_out(ev.Fetch(KEY, 5000, [place]), 0.0)
    (fetched,) = _gathered(store)
    assert isinstance(fetched, ev.Fetched)
    assert (fetched.error or "").startswith(f"{place}: address '{place}'")


def test_memory_is_given_back_though_there_is_no_thread_for_it_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / segments.FREE / "5000-1"
    kept.parent.mkdir()
    kept.touch()
    os.utime(kept, (0, 0))
    start, tries = threading.Thread.start, list[threading.Thread]()

    def refuse(thread: threading.Thread) -> None:
        tries.append(thread)
        if len(tries) == 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    freed = FreedMemory(str(tmp_path), 1 << 30)
    freed.note_freed(5000, 100.0)
    for _ in range(2):
        assert freed.wake is not None
        assert kept.exists()
        freed.give_back(freed.wake)
    tries[-1].join()
    assert not kept.exists()


def test_a_host_that_is_short_of_descriptors_does_not_take_its_files_for_damaged(
    store: HostStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    segments.write(store.path, KEY, b"", [memoryview(bytes(5000))])
    monkeypatch.setattr(segments, "open_file", fails)
    assert not store.lacks(KEY)


def test_a_place_for_spilled_objects_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    before = os.listdir(default_root())
    with pytest.raises(OptionError, match=r"spill_directory cannot be written: .*/file is a file$"):
        HostStore(1 << 30, str(tmp_path / "file"))
    assert not {name for name in set(os.listdir(default_root())) - set(before) if f"-{os.getpid()}-" in name}


def test_directories_for_spilled_objects_that_were_not_there_go_with_the_store(tmp_path: Path) -> None:
    (tmp_path / "is").mkdir()
    for name in ("is", "is/not/there", "was/not"):
        store = HostStore(1 << 30, str(tmp_path / name))
        assert len(os.listdir(tmp_path / name)) == 1
        store.close()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["is"]
    store = HostStore(1 << 30, str(tmp_path / "shared" / "by"))
    (tmp_path / "shared" / "file").touch()
    store.close()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "is", "shared"]


def test_directories_for_spilled_objects_that_can_not_be_made_are_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("scaler.agent.host_store.Spiller", fails)
    with pytest.raises(OptionError, match=r"spill_directory cannot be written: .*No space"):
        HostStore(1 << 30, str(tmp_path / "not" / "there"))
    assert not os.listdir(tmp_path)
