"""Objects as files: what is written is read, nobody's memory is used again while it is read, nothing is left behind."""

import errno
import fcntl
import json
import os
import pickle
import random
import resource
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import pytest
from support.programs import environment
from support.signals_at import signals_at_each_point

from scaler.store import ObjectMissing, StoreFull
from scaler.store import segments as seg
from scaler.store.layout import HEADER_BYTES, Key, decode, encode, file_name, size_of
from scaler.store.segments import free, open_file, open_object, remove_client, remove_drafts, trim, write

KEY: Key = (7, 0xABC)
MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The directory of a store, as far as segments know."""
    (tmp_path / "free").mkdir()
    return str(tmp_path)


def segments_of(store: str) -> list[str]:
    return sorted(os.listdir(os.path.join(store, "free")))


def objects_of(store: str) -> list[str]:
    return sorted(set(os.listdir(store)) - {"free"})


@pytest.mark.parametrize(
    ("inband", "sizes"),
    [
        (b"", []),
        (b"pickle", []),
        (b"", [0]),
        (b"x" * 63, [1, 0, 63, 64, 65, 4096, 0]),
        (b"p", [MIB, 3, MIB + 1]),
        (b"p" * 3 * MIB, [MIB - 1]),
        (b"many", [5] * 2500),
    ],
)
def test_what_is_written_is_read(store: str, inband: bytes, sizes: list[int]) -> None:
    parts = [random.Random(size).randbytes(size) for size in sizes]
    size = write(store, KEY, inband, [memoryview(part) for part in parts])
    found = open_object(store, KEY)
    assert (found.key, found.size, bytes(found.inband)) == (KEY, size, inband)
    assert [bytes(buffer) for buffer in found.buffers] == parts
    assert size == size_of(len(inband), sizes) == os.stat(os.path.join(store, "7-abc")).st_size
    fd, length = open_file(store, KEY)
    assert length == size
    assert decode(memoryview(os.pread(fd, size, 0)), KEY).inband == inband
    os.close(fd)


def test_buffers_are_aligned_and_may_have_any_item_type(store: str) -> None:
    _, offsets, size = encode(KEY, 1, 5, [1, 100, MIB, 3])
    assert [offset % 64 for offset in offsets] == [0, 0, 0, 0]
    assert offsets[2] % 4096 == 0
    assert size == offsets[3] + 3
    numbers = memoryview(bytearray(8 * 12)).cast("d", (3, 4))
    write(store, KEY, b"", [numbers])
    assert open_object(store, KEY).buffers[0].nbytes == 96


def test_a_reader_changes_its_own_copy_only(store: str) -> None:
    write(store, KEY, b"pickle", [memoryview(b"value")])
    mine = open_object(store, KEY)
    mine.buffers[0][:] = b"other"
    assert bytes(open_object(store, KEY).buffers[0]) == b"value"
    assert bytes(mine.buffers[0]) == b"other"


def test_views_outlive_the_object_and_the_file(store: str) -> None:
    write(store, KEY, b"pickle", [memoryview(b"value" * MIB)])
    buffers = open_object(store, KEY).buffers
    assert free(store, KEY) > 5 * MIB
    with pytest.raises(ObjectMissing):
        open_object(store, KEY)
    assert segments_of(store) == []
    assert bytes(buffers[0][-5:]) == b"value"


def test_files_are_private_whatever_the_umask(store: str) -> None:
    before = os.umask(0o777)
    try:
        write(store, KEY, b"pickle")
    finally:
        os.umask(before)
    assert os.stat(os.path.join(store, file_name(KEY))).st_mode & 0o777 == 0o600
    assert bytes(open_object(store, KEY).inband) == b"pickle"


def test_a_freed_segment_is_taken_by_the_next_writer_of_a_similar_size(store: str) -> None:
    sizes = {1: 2 * MIB, 2: 8 * MIB, 3: 40 * MIB}
    inodes = {}
    for number, size in sizes.items():
        write(store, (1, number), b"x" * size)
        inodes[number] = os.stat(os.path.join(store, file_name((1, number)))).st_ino
    for number in sizes:
        assert free(store, (1, number)) > 0
    assert len(segments_of(store)) == 3
    write(store, (1, 4), b"y" * 7 * MIB)
    path = os.path.join(store, file_name((1, 4)))
    assert os.stat(path).st_ino == inodes[2]
    assert os.stat(path).st_size == size_of(7 * MIB, [])
    write(store, (1, 5), b"y" * 3 * MIB)
    assert os.stat(os.path.join(store, file_name((1, 5)))).st_ino == inodes[1], "a smaller one grows"
    write(store, (1, 6), b"y" * 3 * MIB)
    assert os.stat(os.path.join(store, file_name((1, 6)))).st_ino != inodes[3], "much too large"
    assert bytes(open_object(store, (1, 4)).inband) == b"y" * 7 * MIB


def test_small_objects_are_not_worth_keeping_and_unknown_ones_do_not_matter(store: str) -> None:
    write(store, KEY, b"x" * 1000)
    assert free(store, KEY) == size_of(1000, [])
    assert free(store, KEY) == 0
    assert os.listdir(os.path.join(store, "free")) == []
    write(store, KEY, b"x" * 2 * MIB)
    free(store, KEY, recycle=False)
    assert os.listdir(store) == ["free"]
    assert segments_of(store) == []


def test_a_segment_that_a_late_reader_looks_at_is_not_handed_out(store: str) -> None:
    write(store, KEY, b"x" * 2 * MIB)
    late = os.open(os.path.join(store, file_name(KEY)), os.O_RDONLY)
    free(store, KEY)
    assert len(segments_of(store)) == 1
    fcntl.flock(late, fcntl.LOCK_SH)
    write(store, (1, 1), b"y" * 2 * MIB)
    assert os.pread(late, 100, HEADER_BYTES) == b"x" * 100
    os.close(late)
    assert objects_of(store) == [file_name((1, 1))]
    assert segments_of(store) == []


def test_an_object_that_is_being_written_is_missing(store: str) -> None:
    draft = seg.Draft(store, KEY, 1000)
    with pytest.raises(ObjectMissing):
        open_object(store, KEY)
    draft.discard()
    draft.discard()
    assert objects_of(store) == []


def test_damaged_and_foreign_files_are_missing(store: str) -> None:
    write(store, KEY, b"pickle" * 1000, [memoryview(b"buffer")])
    path = Path(store, file_name(KEY))
    whole = path.read_bytes()
    generator = random.Random(1)
    damaged = [whole[:cut] for cut in (0, 1, 63, 64, 80, 100, len(whole) - 1)] + [whole + b"x", bytes(len(whole))]
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(generator.randint(1, 4)):
            changed[generator.randrange(80)] = generator.randrange(256)
        damaged.append(bytes(changed))
    for content in damaged:
        path.write_bytes(content)
        try:
            found = open_object(store, KEY)
        except ObjectMissing:
            continue
        assert sum(map(len, found.buffers)) + len(found.inband) <= found.size
        os.close(open_file(store, KEY)[0])
    path.write_bytes(whole)
    path.rename(path.with_name(file_name((8, 1))))
    with pytest.raises(ObjectMissing, match="holds 7-abc"):
        open_object(store, (8, 1))
    path.symlink_to(path.with_name(file_name((8, 1))))
    with pytest.raises(ObjectMissing):
        open_object(store, KEY)
    with pytest.raises(ObjectMissing):
        decode(memoryview(b""), KEY)


def test_a_full_store_is_said_and_nothing_is_left(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    for function, size in (("posix_fallocate", 2 * MIB), ("pwritev", 1000), ("open", 1000)):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, full)
            with pytest.raises(StoreFull) as caught:
                write(store, KEY, b"x" * size)
        assert caught.value.wanted == size_of(size, [])
        assert caught.value.free > 0
        assert caught.value.path == store
        assert objects_of(store) == []


def test_room_that_turns_out_to_lack_when_a_file_is_closed_leaves_nothing(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = os.close

    def full(fd: int) -> None:
        close(fd)
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", full)
        with pytest.raises(StoreFull):
            write(store, KEY, b"x" * 1000)
    assert objects_of(store) == []
    write(store, KEY, b"x" * 1000)
    assert len(objects_of(store)) == 1


def test_an_object_can_be_read_though_others_have_its_draft_open(store: str) -> None:
    with seg.Draft(store, KEY, size_of(3, [])) as draft:
        parts, _ = seg.parts_of(KEY, b"abc", ())
        seg.write_all(draft.fd, parts)
        other = os.dup(draft.fd)  # as who maps warm segments
        draft.commit()
    assert open_object(store, KEY).inband == b"abc"
    os.close(other)


def test_a_full_memory_is_said_with_what_to_do_in_one_line() -> None:
    full = StoreFull("/dev/shm/scaler-0-1-ab", 1000, 5)
    for words in (str(full), full.reason):
        assert "/dev/shm/scaler-0-1-ab has no room for" in words
        assert "--shm-size=SIZE" in words
        assert "mount -o remount,size=SIZE /dev/shm" in words
        assert "\n" not in words
    assert not full.is_for_good
    assert str(StoreFull("/tmp/scaler-0-1-ab", 1000, 5)) == "/tmp/scaler-0-1-ab has no room for 1,000 bytes: 5 are free"


def test_what_is_larger_than_the_whole_memory_never_fits() -> None:
    full = pickle.loads(pickle.dumps(StoreFull("/dev/shm/scaler-0-1-ab", 1001, 5, total=1000)))
    assert full.is_for_good
    assert str(full).startswith("/dev/shm/scaler-0-1-ab can't take 1,001 bytes: there are 1,000 in all (give")
    assert full.reason.startswith("/dev/shm/scaler-0-1-ab can't take it: there are 1,000 in all (give")
    assert not StoreFull("/dev/shm/scaler-0-1-ab", 1000, 5, total=1000).is_for_good


def test_a_file_system_without_a_limit_is_not_too_small(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    status = os.statvfs(store)
    monkeypatch.setattr(
        os, "statvfs", lambda _: types.SimpleNamespace(f_bavail=0, f_blocks=0, f_frsize=status.f_frsize)
    )
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StoreFull) as caught:
        write(store, KEY, b"x" * 2 * MIB)
    assert not caught.value.is_for_good


@pytest.mark.parametrize("limit", [MIB, MIB // 16])
def test_a_file_over_the_process_limit_is_a_full_store(store: str, limit: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(StoreFull, match=rf"no file of more than {limit:,} \(`ulimit -f`\)") as caught:
            write(store, KEY, b"x" * 2 * limit)
        assert pickle.loads(pickle.dumps(caught.value)).reason == caught.value.reason
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert objects_of(store) == []


def test_an_interrupted_writer_leaves_nothing(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "pwritev", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(store, KEY, b"x")
    assert objects_of(store) == []


def test_warm_segments_are_given_back_when_unused_or_too_many(store: str) -> None:
    for number in range(3):
        write(store, (1, number), b"x" * 2 * MIB)
    for number in range(3):
        free(store, (1, number))
    for age, name in enumerate(segments_of(store)):
        os.utime(os.path.join(store, "free", name), (0, time.time() - age))
    size = size_of(2 * MIB, [])
    for older_than, max_bytes, left in ((60, 10 * size, 3), (60, 2 * size, 2), (0.5, 10 * size, 1), (0, 0, 0)):
        trim(store, older_than, max_bytes)
        assert len(segments_of(store)) == left
    trim(os.path.join(store, "nowhere"), 0, 0)


def test_all_of_a_client_is_removed_also_what_is_being_written(store: str) -> None:
    write(store, (1, 5), b"x")
    write(store, (12, 5), b"x")
    draft = seg.Draft(store, (1, 6), 5000)
    remove_client(store, 1)
    assert objects_of(store) == [file_name((12, 5))]
    with pytest.raises(FileNotFoundError):
        draft.commit()


def test_what_a_dead_process_was_writing_is_removed(store: str) -> None:
    draft = seg.Draft(store, (1, 6), 5000)
    here = os.listdir(store)
    remove_drafts(store, os.getpid() + 1)
    assert os.listdir(store) == here
    remove_drafts(store, os.getpid())
    assert len(os.listdir(store)) == len(here) - 1
    draft.discard()


def test_opening_takes_no_time_for_the_size(store: str) -> None:
    path = Path(store, file_name(KEY))
    head, _, size = encode(KEY, 1, 0, [100 * MIB])
    with path.open("wb") as file:
        file.write(seg.MAGIC + head[8:])
        file.truncate(size)
    took = []
    for _ in range(50):
        began = time.perf_counter()
        found = open_object(store, KEY)
        took.append(time.perf_counter() - began)
        assert found.size == size
        del found
    assert min(took) < 100e-6


def test_thousands_of_objects_can_be_held_with_few_descriptors(store: str) -> None:
    code = f"""
        import resource
        from scaler.store.segments import open_object, write
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        held = []
        for number in range(500):
            write({store!r}, (1, number), b"x" * 100, [memoryview(b"%d" % number)])
            held.append(open_object({store!r}, (1, number)))
        for number, found in enumerate(held):
            found.buffers[0][:] = found.buffers[0]
            assert bytes(found.buffers[0]) == b"%d" % number
        print("all")
    """
    assert run(code) == ["all"]


def test_the_lock_lives_as_long_as_the_mapping_in_another_process(store: str) -> None:
    write(store, KEY, b"x" * 2 * MIB)
    reader = start(f"""
        import sys
        from scaler.store.segments import open_object
        found = open_object({store!r}, {KEY!r})
        view = found.inband[:4]
        del found
        print("mapped", flush=True)
        sys.stdin.readline()
        print(bytes(view).decode(), flush=True)
        del view
        print("released", flush=True)
        sys.stdin.readline()
    """)
    try:
        assert reader.stdout is not None
        assert reader.stdin is not None
        assert reader.stdout.readline() == "mapped\n"
        os.link(os.path.join(store, file_name(KEY)), os.path.join(store, file_name((7, 1))))
        free(store, KEY)
        assert segments_of(store) == []
        reader.stdin.write("\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == "xxxx\n"
        assert reader.stdout.readline() == "released\n"
        free(store, (7, 1))
        assert len(segments_of(store)) == 1, "nobody maps it any more"
    finally:
        reader.kill()
        reader.wait()


# What the processes below write: the key says the content, so that every reader can check it.
_ACTOR = """
    import hashlib, os, random, sys, json
    from scaler.store import ObjectMissing
    from scaler.store.segments import free, open_object, trim, write
    store, seed, steps = {store!r}, int(sys.argv[1]), {steps}
    chance = random.Random(seed)
    def block(number, version):
        return hashlib.blake2b(b"%d %d" % (number, version)).digest() * ((1 << 14) + 1024 * (number % 7))
    held, seen = [], dict(written=0, read=0, missing=0, freed=0)
    def check(number, found):
        version = int.from_bytes(found.inband, "little")
        assert hashlib.blake2b(found.buffers[0]).digest() == hashlib.blake2b(block(number, version)).digest(), number
    for step in range(steps):
        number, action = chance.randrange(12), chance.random()
        if action < 0.35:
            version = seed << 32 | step
            write(store, (1, number), version.to_bytes(8, "little"), [memoryview(block(number, version))])
            seen["written"] += 1
        elif action < 0.75:
            try:
                found = open_object(store, (1, number))
            except ObjectMissing:
                seen["missing"] += 1
                continue
            check(number, found)
            seen["read"] += 1
            held.append((number, found))
            if len(held) > 4:
                check(*held.pop(chance.randrange(5)))
        elif action < 0.97:
            seen["freed"] += free(store, (1, number)) > 0
        else:
            trim(store, 0, 3 << 20)
    for number, found in held:
        check(number, found)
    print(json.dumps(seen))
"""


def test_readers_see_whole_objects_whatever_others_write_and_free(store: str) -> None:
    actors = [start(_ACTOR.format(store=store, steps=400), str(seed)) for seed in range(4)]
    seen = []
    try:
        for actor in actors:
            out, _ = actor.communicate(timeout=50)
            assert actor.returncode == 0
            seen.append(json.loads(out))
    finally:
        for actor in actors:
            actor.kill()
            actor.wait()
    for what in ("written", "read", "freed", "missing"):
        assert sum(one[what] for one in seen) > 50, seen
    assert not [name for name in os.listdir(store) if name.startswith(".")]


def run(code: str) -> list[str]:
    child = start(code)
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 0
    return out.splitlines()


def start(code: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=environment(),
    )  # fmt: skip


def test_a_signal_at_any_point_of_beginning_to_write_leaves_no_file_that_nobody_knows(store: str) -> None:
    drafts: list[seg.Draft] = []

    def begin() -> None:
        drafts.append(object.__new__(seg.Draft))
        drafts[-1].__init__(store, KEY, seg.MIN_RECYCLED)  # type: ignore[misc]

    def look() -> None:
        draft = drafts.pop()
        if hasattr(draft, "fd"):
            draft.discard()
        assert os.listdir(store) == before

    before = os.listdir(store)
    assert signals_at_each_point(begin, look) > 50
