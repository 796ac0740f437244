"""The directory of a store: private, recognised by its neighbours, removed when its owner is dead, and not before."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.programs import environment

from scaler.store.directory import OwnedDirectory, StoreDirectory, clean_up_dead, default_root, is_same_host
from scaler.store.segments import write


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreDirectory]:
    made = StoreDirectory(str(tmp_path))
    yield made
    made.remove()


def mode(path: str) -> int:
    return os.stat(path).st_mode & 0o777


def test_it_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        store = StoreDirectory(str(tmp_path))
    finally:
        os.umask(before)
    assert mode(store.path) == mode(f"{store.path}/free") == 0o700
    assert mode(f"{store.path}/token") == mode(f"{store.path}/owner") == 0o600
    assert os.path.basename(store.path).startswith(f"scaler-{os.geteuid()}-{os.getpid()}-")
    store.remove()
    store.remove()
    assert os.listdir(tmp_path) == []


def test_it_is_in_memory_by_default() -> None:
    store = StoreDirectory()
    try:
        assert os.path.dirname(store.path) == default_root()
        assert write(store.path, (1, 1), b"x") > 0
    finally:
        store.remove()
    assert not os.path.exists(store.path)


def test_only_who_reads_its_token_is_on_the_same_host(store: StoreDirectory, tmp_path: Path) -> None:
    assert is_same_host(store.path, store.token)
    other = StoreDirectory(str(tmp_path))
    assert not is_same_host(store.path, other.token)
    other.remove()
    assert not is_same_host(other.path, other.token)
    link = tmp_path / "link"
    link.symlink_to(store.path)
    assert not is_same_host(str(link), store.token)
    for path in ("", "relative", "/", "/nowhere", "\0", store.path + "\0", f"{store.path}/token"):
        assert not is_same_host(path, store.token)
    for token in ("", "x", "ü\ud800", store.token[:-1]):
        assert not is_same_host(store.path, token)
    os.chmod(store.path, 0o755)
    assert not is_same_host(store.path, store.token)


def test_an_empty_or_odd_token_file_proves_nothing(store: StoreDirectory) -> None:
    token = Path(store.path, "token")
    token.write_text("")
    assert not is_same_host(store.path, "")
    token.unlink()
    os.mkfifo(token)
    assert not is_same_host(store.path, store.token)
    token.unlink()
    token.symlink_to(f"{store.path}/owner")
    assert not is_same_host(store.path, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
def test_another_user_is_not_the_same_host(store: StoreDirectory) -> None:
    os.chown(store.path, 12345, -1)
    assert not is_same_host(store.path, store.token)
    os.chown(store.path, 0, -1)


def test_one_that_others_have_removed_is_made_again_with_the_same_token(store: StoreDirectory, tmp_path: Path) -> None:
    assert not store.mend()
    shutil.rmtree(store.path)
    assert store.mend()
    assert is_same_host(store.path, store.token)
    assert os.listdir(os.path.join(store.path, "free")) == []
    assert clean_up_dead(str(tmp_path)) == 0, "it has an owner"
    os.unlink(os.path.join(store.path, "owner"))  # removed in part
    assert store.mend()
    assert not store.mend()
    assert os.listdir(tmp_path) == [os.path.basename(store.path)]


def test_one_that_cannot_be_looked_at_is_not_taken_for_removed(
    store: StoreDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: str) -> None:
        raise OSError(errno.ESTALE, "out of reach")

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fail)
        with pytest.raises(OSError, match="out of reach"):
            store.mend()
    assert is_same_host(store.path, store.token)
    assert not store.mend()


def test_one_that_cannot_be_made_again_leaves_nothing_and_can_be_later(store: StoreDirectory, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("aside"))
    try:
        with pytest.raises(FileNotFoundError):
            store.mend()
    finally:
        tmp_path.with_name("aside").rename(tmp_path)
    assert not store.mend()
    shutil.rmtree(store.path)
    assert store.mend()


def test_the_dead_are_cleaned_up_and_the_living_stay(store: StoreDirectory, tmp_path: Path) -> None:
    code = f"""if True:
        from scaler.store.directory import StoreDirectory
        store = StoreDirectory({str(tmp_path)!r})
        print(store.path, flush=True)
        input()
    """
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    try:
        assert child.stdout is not None
        path = child.stdout.readline().strip()
        assert clean_up_dead(str(tmp_path)) == 0
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert os.path.isdir(path)
        assert clean_up_dead(str(tmp_path)) == 1
        assert not os.path.exists(path)
        assert os.listdir(tmp_path) == [os.path.basename(store.path)]
    finally:
        child.kill()
        child.wait()


def test_a_forked_child_does_not_keep_its_parents_directory_alive(tmp_path: Path) -> None:
    code = f"""if True:
        import os, sys
        from scaler.store.directory import StoreDirectory
        store = StoreDirectory({str(tmp_path)!r})
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            store.remove()
            os.write(writer, b"x")
            sys.stdin.readline()
            os._exit(0)
        os.read(reader, 1)
        print(store.path, flush=True)
        os._exit(0)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert child.stdout is not None
    path = child.stdout.readline().strip()
    child.wait()
    assert os.path.isdir(path), "the child removed what is not its own"
    assert clean_up_dead(str(tmp_path)) == 1
    child.communicate("\n")


def test_only_directories_of_ours_are_cleaned_up(tmp_path: Path) -> None:
    uid = os.geteuid()
    (tmp_path / f"scaler-{uid}-1-file").write_text("")
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / f"scaler-{uid}-1-link").symlink_to(target)
    (tmp_path / f"scaler-{uid + 1}-1-aa").mkdir()
    (tmp_path / f"other-{uid}-1-aa").mkdir()
    half = tmp_path / f".scaler-{uid}-1-young"
    half.mkdir()
    foreign = tmp_path / f"scaler-{uid}-1-foreign"
    if uid == 0:
        OwnedDirectory(str(tmp_path), "x").remove()
        foreign.mkdir()
        os.chown(foreign, 12345, -1)
    before = sorted(os.listdir(tmp_path))
    assert clean_up_dead(str(tmp_path)) == 0
    assert sorted(os.listdir(tmp_path)) == before
    os.utime(half, (0, time.time() - 3600))
    assert clean_up_dead(str(tmp_path)) == 1
    assert not half.exists()
    assert clean_up_dead(str(tmp_path / "nowhere")) == 0
