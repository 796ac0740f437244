"""A journal: what is written is read again, what is damaged is not believed, and one writes at a time."""

import contextlib
import errno
import math
import os
import random
import shutil
import threading
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from support import until

from scaler.cli.journal import journal as cli
from scaler.journal import records, writer
from scaler.journal.directory import RESERVE, SHORT, Directory, JournalError
from scaler.journal.history import MOST_ADDRESS, MOST_TURNS, History, Turn, to_bytes
from scaler.journal.journal import Journal
from scaler.journal.layout import Layout, Place
from scaler.journal.records import SEGMENT_HEADER, Cut, Damaged, OtherVersion, Record
from scaler.journal.writer import Writer

FRAMES = st.lists(st.binary(max_size=40), max_size=5).map(tuple)


def written(path: Path, some: list[Record], most: int = 1 << 20) -> None:
    """Write records, and close the journal."""
    journal = Journal(path)
    layout, _ = journal.replay(lambda record, place: None)
    layout.most = most
    for record in some:
        journal.append(layout.take(record.frames), records.pack(record))
    journal.close()


def replayed(path: Path) -> tuple[list[Record], object]:
    """What a journal holds, and where it can't be believed."""
    found: list[Record] = []
    damage = Directory(path).replay(
        lambda record, _: found.append(record._replace(frames=tuple(map(bytes, record.frames))))
    )
    return found, damage


@pytest.fixture
def some() -> list[Record]:
    chance = random.Random(3)
    return [
        Record(chance.randrange(256), chance.getrandbits(64), (chance.randbytes(n % 7), b"x" * n), 1) for n in range(9)
    ]


@given(st.integers(0, 255), st.integers(0, 2**64 - 1), FRAMES, st.integers(0, 2**32 - 1))
def test_a_record_is_read_as_it_was_packed(kind, owner, frames, term):
    data = b"".join(records.pack(Record(kind, owner, frames, term)))
    assert len(data) == records.size_of(frames)
    record, end = records.read(memoryview(b"before" + data), 6)
    assert end == 6 + len(data)
    assert (record.kind, record.owner, tuple(map(bytes, record.frames)), record.term) == (kind, owner, frames, term)


@settings(max_examples=3 * settings().max_examples)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_damaged(data):
    try:
        records.read(memoryview(data), 0)
    except Damaged:
        pass


def test_what_is_written_is_there_in_order_over_several_segments(tmp_path, some):
    written(tmp_path, some, most=100)
    assert len(Directory(tmp_path).segments()) > 3
    assert replayed(tmp_path) == (some, None)


def test_a_journal_that_is_cut_at_any_byte_holds_what_was_whole_before_it(tmp_path, some):
    written(tmp_path, some)
    path = Directory(tmp_path).segment(1)
    data = path.read_bytes()
    ends = [SEGMENT_HEADER]
    for record in some:
        ends.append(ends[-1] + records.size_of(record.frames))
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        found, damage = replayed(tmp_path)
        whole = sum(end <= cut for end in ends[1:])
        assert found == some[:whole]
        assert (damage is None) == (cut in ends)
        assert damage is None or (damage.is_cut and str(damage.offset) in str(damage).replace(",", ""))


def test_a_journal_with_any_bit_flipped_holds_only_what_was_written(tmp_path, some):
    written(tmp_path, some)
    path = Directory(tmp_path).segment(1)
    data = bytearray(path.read_bytes())
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            found, damage = replayed(tmp_path)
        except JournalError as error:  # the version is one of the bits: but then the checksum would be right
            raise AssertionError(bit) from error
        assert found == some[: len(found)], bit
        assert damage is not None, bit
        assert damage.offset <= bit // 8, bit
        data[bit // 8] ^= 1 << bit % 8


def test_behind_a_damage_nothing_is_believed_and_what_comes_next_follows_what_is(tmp_path, some):
    written(tmp_path, some, most=100)
    segments = Directory(tmp_path).segments()
    path = Directory(tmp_path).segment(segments[1])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before, damage = replayed(tmp_path)
    assert damage is not None
    assert not damage.is_cut
    assert damage.lost > 0
    more = Record(7, 7, (b"more",), 2)
    written(tmp_path, [more])
    assert replayed(tmp_path) == ([*before, more], None)
    assert sorted(p.name for p in (tmp_path / "aside").iterdir())  # it is kept for whoever wants to look at it


@pytest.mark.parametrize("offset", [0, SEGMENT_HEADER])
def test_what_is_behind_a_damage_is_kept_without_being_read_as_a_whole(tmp_path, offset):
    """A segment of 4 GB took 8 GB at the start of a scheduler."""
    path, size = Directory(tmp_path).segment(1), 32 << 20
    path.write_bytes(records.segment_header(1) if offset else b"?")
    os.truncate(path, size)
    _, damage = replayed(tmp_path)
    assert damage is not None
    assert damage.offset == offset
    tracemalloc.start()
    try:
        Directory(tmp_path).set_aside(damage)
        assert tracemalloc.get_traced_memory()[1] < size / 8
    finally:
        tracemalloc.stop()
    (kept,) = (tmp_path / "aside").iterdir()
    assert kept.stat().st_size == size - offset
    assert replayed(tmp_path) == ([], None)


def test_what_is_read_is_on_disk_before_anything_comes_behind_it(tmp_path, some, monkeypatch):
    """Whoever wrote it may have been killed before it was, or have made a copy; then the power goes."""
    written(tmp_path, some, most=100)
    synced = set()
    monkeypatch.setattr(os, "fsync", lambda file: synced.add(Path(os.readlink(f"/proc/self/fd/{file}")).name))
    journal = Journal(tmp_path)
    journal.replay(lambda record, place: None)
    journal.close()
    segments = {path.name for path in tmp_path.glob("*.log")}
    assert len(segments) > 2
    assert segments <= synced


def test_one_writes_at_a_time(tmp_path):
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match=rf"another scheduler \(process {os.getpid()}\) writes the journal"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def test_a_journal_of_another_version_is_left_as_it_is(tmp_path, some, monkeypatch):
    monkeypatch.setattr(records, "VERSION", 9)
    written(tmp_path, some)
    before = Directory(tmp_path).segment(1).read_bytes()
    monkeypatch.undo()
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match=r"is of another version of Scaler.*9.*give another directory"):
        journal.replay(lambda record, place: None)
    journal.close()
    assert Directory(tmp_path).segment(1).read_bytes() == before
    with pytest.raises(OtherVersion):
        records.check_segment(before, 1)


def test_a_directory_that_can_not_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"can't be written: .*; give a directory that this user may write"):
        Journal(tmp_path / "file" / "journal")
    with pytest.raises(JournalError, match=r"/file can't be written: it is a file; give a directory"):
        Journal(tmp_path / "file")
    with pytest.raises(JournalError, match="there is no journal at"):
        Directory(tmp_path / "nothing").replay(lambda record, place: None)


def test_while_the_disk_is_full_nothing_is_acknowledged_and_nothing_is_lost(tmp_path, some, monkeypatch):
    monkeypatch.setattr(writer, "AGAIN", 0.01)
    is_full, real = True, os.pwritev

    def pwritev(file, buffers, offset):
        if is_full:  # some of it was written, as it happens
            os.pwrite(file, bytes(buffers[0])[:5], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, buffers, offset)

    monkeypatch.setattr(os, "pwritev", pwritev)
    journal = Journal(tmp_path)
    layout, _ = journal.replay(lambda record, place: None)
    for record in some:
        journal.append(layout.take(record.frames), records.pack(record))
    until(lambda: journal.take_news()[1])
    assert journal.take_news() == (0, "No space left on device")
    is_full = False
    until(lambda: journal.take_news() == (len(some), None))
    journal.close()
    assert replayed(tmp_path) == (some, None)


@pytest.mark.parametrize("gone", ["directory", "lock", "replaced", "segment", "end of a segment"])
def test_what_somebody_has_removed_is_not_written_and_nothing_is_acknowledged(tmp_path, some, monkeypatch, gone):
    monkeypatch.setattr(writer, "AGAIN", 0.01)
    path = tmp_path / "journal"
    journal = Journal(path)
    layout, _ = journal.replay(lambda record, place: None)
    first, *others = some
    journal.append(layout.take(first.frames), records.pack(first))
    until(lambda: journal.take_news() == (1, None))
    if gone in ("directory", "replaced"):
        shutil.rmtree(path)
    elif gone == "lock":
        (path / "lock").unlink()
    elif gone == "segment":
        (path / "00000001.log").unlink()
    else:
        os.truncate(path / "00000001.log", SEGMENT_HEADER)
    if gone == "replaced":  # by another one, of somebody who writes it
        written(path, some)
    for record in others:
        journal.append(layout.take(record.frames), records.pack(record))
    why = "00000001.log was removed or cut" if "segment" in gone else "lock was removed or replaced"
    until(lambda: why in (journal.take_news()[1] or ""))
    assert journal.take_news()[0] == 1
    journal.close()
    if gone == "replaced":
        assert replayed(path) == (some, None)


def test_the_room_of_a_disk_is_measured_after_each_record_and_when_that_is_asked(tmp_path, some, monkeypatch):
    free = [100 << 20]

    def statvfs(_):
        return SimpleNamespace(f_frsize=1, f_bavail=free[0], f_blocks=blocks)

    blocks = 1 << 30
    monkeypatch.setattr(os, "statvfs", statvfs)
    journal = Journal(tmp_path)
    layout, _ = journal.replay(lambda record, place: None)
    until(lambda: journal.room == (100 << 20) - RESERVE)
    free[0] = 90 << 20
    journal.append(layout.take(some[0].frames), records.pack(some[0]))
    until(lambda: journal.room == (90 << 20) - RESERVE)
    free[0], blocks = 1 << 20, 8 << 20
    journal.measure_room()
    until(lambda: journal.room == 0, "an eighth of a small disk is its reserve")
    free[0] = blocks = 0
    journal.measure_room()
    until(lambda: journal.room == math.inf, "some file systems say nothing of their size")
    until(lambda: journal.take_news() == (1, None))
    journal.close()


def test_an_error_that_nobody_expected_is_told_and_what_waits_is_written_when_it_is_over(tmp_path, some, monkeypatch):
    monkeypatch.setattr(writer, "AGAIN", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", lambda file, buffers, offset: 1 // 0)
        journal = Journal(tmp_path)
        layout, _ = journal.replay(lambda record, place: None)
        for record in some:
            journal.append(layout.take(record.frames), records.pack(record))
        until(lambda: journal.take_news() == (0, "ZeroDivisionError: integer division or modulo by zero"))
    until(lambda: journal.take_news() == (len(some), None))
    journal.close()
    assert replayed(tmp_path) == (some, None)


def test_nobody_else_gets_a_journal_as_long_as_a_disk_that_hangs_may_still_write_to_it(tmp_path, some, monkeypatch):
    """The bytes would come to the disk behind those of whoever has it next, at the same place."""
    answers, real = threading.Event(), os.pwritev

    def pwritev(file, buffers, offset):
        answers.wait(30)
        return real(file, buffers, offset)

    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(Writer.close, "__defaults__", (0.05,))
    journal = Journal(tmp_path)
    layout, _ = journal.replay(lambda record, place: None)
    journal.append(layout.take(some[0].frames), records.pack(some[0]))
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="another scheduler"):
        Journal(tmp_path)
    answers.set()
    next_one: list[Journal] = []

    def is_free() -> bool:
        with contextlib.suppress(JournalError):
            next_one.append(Journal(tmp_path))
        return bool(next_one)

    until(is_free, "a journal that can be had")
    assert [record.owner for record in replayed(tmp_path)[0]] == [some[0].owner]
    next_one[0].close()


def test_a_disk_that_can_not_be_read_is_one_line(tmp_path, some, monkeypatch):
    """A page of a mapped file that can't be read ends the process, and one that takes long holds up all threads."""
    written(tmp_path, some)

    def readv(file, buffers):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "readv", readv)
    with pytest.raises(JournalError, match=r"00000001.log can't be read: Input/output error"):
        replayed(tmp_path)


def test_a_segment_that_is_gone_or_was_cut_is_one_line_for_whoever_reads_it(tmp_path, some):
    written(tmp_path, some)
    journal = Journal(tmp_path)
    assert len(journal.read(1, SEGMENT_HEADER, 40)) == 40
    os.truncate(tmp_path / "00000001.log", SEGMENT_HEADER + 39)
    with pytest.raises(JournalError, match=r"00000001.log is shorter than it was$"):
        journal.read(1, SEGMENT_HEADER, 40)
    with pytest.raises(JournalError, match=r"00000002.log can't be read: No such file or directory$"):
        journal.read(2, SEGMENT_HEADER, 40)
    journal.close()


def test_a_large_record_is_written_though_the_system_takes_less_at_once(tmp_path, monkeypatch):
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda file, buffers, offset: real(file, [b"".join(buffers)[:1000]], offset))
    large = Record(1, 2, (os.urandom(5_000), b"", os.urandom(3)), 1)
    written(tmp_path, [large, large])
    assert replayed(tmp_path) == ([large, large], None)


def test_the_command_says_what_can_not_be_believed_and_waits_for_no_pipe(tmp_path, some):
    written(tmp_path, some)

    def check() -> Result:
        return CliRunner().invoke(cli, ["check", str(tmp_path)], standalone_mode=False)

    assert check().return_value == 0
    (tmp_path / "history").write_bytes(b"garbage")
    said = check()
    assert said.return_value == 1
    assert said.output.splitlines()[1].startswith(f"{tmp_path}/history: it can't be read")
    (tmp_path / "history").unlink()
    os.mkfifo(tmp_path / "history")
    assert "is no file" in str(check().exception)


def test_a_history_that_has_no_end_is_not_believed(tmp_path):
    directory = Directory(tmp_path)
    assert directory.is_history_believed()
    os.mkfifo(tmp_path / "lock")
    assert not directory.has_mark(1)
    (tmp_path / "history").write_bytes(b"[" * (SHORT + 1))
    os.truncate(tmp_path / "history", 1 << 40)
    assert not directory.is_history_believed()
    most = 2**64 - 1
    longest = History((Turn(most, most, Place(most, most)),) * MOST_TURNS, partner="\1" * MOST_ADDRESS)
    assert SHORT / 3 < len(to_bytes(longest)) < SHORT / 1.9


def test_a_pipe_among_the_segments_is_one_line_and_is_not_waited_for(tmp_path, some):
    written(tmp_path, some)
    os.mkfifo(tmp_path / "00000009.log")
    with pytest.raises(JournalError, match=r"00000009.log is no file: a journal consists of files"):
        replayed(tmp_path)


def test_places_follow_each_other():
    layout = Layout(most=220)
    frames = [b"x" * 60]
    places = [layout.take(frames) for _ in range(5)]
    size = records.size_of(frames)
    assert places[:2] == [Place(1, SEGMENT_HEADER), Place(1, SEGMENT_HEADER + size)]
    assert [place.segment for place in places] == sorted(place.segment for place in places)
    assert layout.take([b"y" * 500]).offset == SEGMENT_HEADER  # longer than a segment is to be, but not divided


def test_a_cut_head_is_no_record():
    with pytest.raises(Cut):
        records.read(memoryview(b"abc"), 0)


def test_a_segment_that_is_removed_takes_no_room_though_it_was_written_last(tmp_path, some):
    journal = Journal(tmp_path)
    layout, _ = journal.replay(lambda record, place: None)
    journal.append(layout.take(some[0].frames), records.pack(some[0]))
    until(lambda: journal.take_news() == (1, None), "the record on disk")

    def segments_open():
        paths = []
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # that of this listing
                paths.append(os.readlink(link))
        return [path for path in paths if path.startswith(str(tmp_path)) and ".log" in path]

    with contextlib.ExitStack() as stack:
        stack.callback(journal.close)
        assert segments_open()
        layout.turn_over()
        journal.remove(1)
        until(lambda: not segments_open(), "the segment to be let go of")
        journal.append(layout.take(some[1].frames), records.pack(some[1]))
        until(lambda: journal.take_news() == (2, None), "the next record on disk")
    assert replayed(tmp_path) == ([some[1]], None)
