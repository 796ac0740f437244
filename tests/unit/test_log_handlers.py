"""A log whose reader has stopped loses lines, says how many, and tears none."""

import errno
import logging
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
from types import SimpleNamespace

import pytest

from scaler.common import log_handlers
from scaler.common.log_handlers import FOLLOW, LONGEST_WAIT, WAITING_PARTS, LineWriter
from scaler.common.outlet import may_block, put


class Reader:
    """Has room for so many bytes, and makes more while it is slept; time passes by sleeping alone."""

    def __init__(self, room=0, rate=0.0):
        self.room, self.rate = room, rate
        self.text = b""
        self.now = 100.0
        self.writer = LineWriter(self.put, lambda missing: b"missing %d\n" % missing, lambda: self.now, self.sleep)

    def put(self, data):
        taken = data[: int(self.room)]
        self.room -= len(taken)
        self.text += taken
        return len(taken)

    def sleep(self, seconds):
        self.now += seconds
        self.room += seconds * self.rate


def test_lines_are_written_as_they_come():
    reader = Reader(100)
    for line in (b"one\n", b"two\n"):
        reader.writer.write(line)
    assert (reader.text, reader.now) == (b"one\ntwo\n", 100.0)


def test_what_nobody_reads_is_left_out_and_told_at_its_place():
    reader = Reader(4)
    for line in (b"one\n", b"two\n", b"three\n"):
        reader.writer.write(line)
    reader.room = 100
    for line in (b"four\n", b"five\n"):
        reader.writer.write(line)
    assert reader.text == b"one\nmissing 2\nfour\nfive\n"


def test_a_line_whose_beginning_was_taken_is_ended_before_another_one_begins():
    reader = Reader(6)
    for line in (b"one\n", b"three\n", b"lost\n"):
        reader.writer.write(line)
    assert reader.text == b"one\nth"
    reader.room = 100
    reader.writer.write(b"last\n")
    assert reader.text == b"one\nthree\nmissing 1\nlast\n"


def test_there_may_be_no_room_for_the_note_itself():
    reader = Reader(4)
    for line in (b"one\n", b"two\n"):
        reader.writer.write(line)
    reader.room = 3
    reader.writer.write(b"three\n")
    assert reader.text == b"one\nmis"
    reader.room = 100
    reader.writer.write(b"four\n")
    assert reader.text == b"one\nmissing 1\nthree\nfour\n"


def test_who_has_stopped_reading_is_waited_for_once_and_not_for_long():
    reader = Reader()
    for _ in range(1000):
        reader.writer.write(b"x\n")
    assert reader.now - 100.0 == pytest.approx(LONGEST_WAIT, abs=0.01)


def test_a_slow_reader_is_waited_for_and_loses_nothing():
    reader = Reader(rate=1000.0)
    for _ in range(40):
        reader.writer.write(b"123456789\n")
    assert reader.text == b"123456789\n" * 40


def test_a_reader_who_is_too_slow_takes_a_part_of_the_time_alone():
    reader = Reader(rate=100.0)
    worked = 0
    for _ in range(1000):
        reader.writer.write(b"123456789\n")
        reader.sleep(0.01)
        worked += 0.01
    waited = reader.now - 100.0 - worked
    assert waited < (LONGEST_WAIT + worked * WAITING_PARTS) / (1 - WAITING_PARTS) + 0.1
    assert b"missing" in reader.text
    *lines, _ = reader.text.split(b"\n")
    assert all(line == b"123456789" or line.startswith(b"missing ") for line in lines)


def test_what_is_left_to_be_said_is_said_at_the_end_if_somebody_reads_it():
    reader = Reader(6)
    for line in (b"one\n", b"three\n", b"lost\n"):
        reader.writer.write(line)
    reader.rate = 1000.0
    reader.writer.finish()
    assert reader.text == b"one\nthree\nmissing 1\n"


def test_a_fork_does_not_say_again_what_its_parent_has_begun():
    reader = Reader(6)
    for line in (b"one\n", b"three\n", b"lost\n"):
        reader.writer.write(line)
    reader.writer.forget()
    reader.room = 100
    reader.writer.write(b"four\n")
    assert reader.text == b"one\nthfour\n"


def test_lines_that_can_not_be_written_are_told_of_when_they_can():
    reader = Reader(100)
    reader.writer._put = lambda data: os.write(-1, data)
    for _ in range(3):
        with pytest.raises(OSError, match="Bad file descriptor"):
            reader.writer.write(b"x\n")
    reader.writer._put = reader.put
    reader.writer.write(b"y\n")
    assert reader.text == b"missing 3\ny\n"


@pytest.fixture(params=["pipe", "terminal", "terminal at Ctrl-S", "socket"])
def ends(request):
    """A descriptor to write to, and the one from which it is read."""
    if request.param == "pipe":
        reads, writes = os.pipe()
    elif request.param == "socket":
        reads, writes = (each.detach() for each in socket.socketpair())
    else:
        reads, writes = pty.openpty()
        if "Ctrl-S" in request.param:
            termios.tcflow(writes, termios.TCOOFF)
    yield writes, reads
    os.close(reads)
    os.close(writes)


@pytest.fixture
def _impatient():
    """Who blocks is interrupted."""

    def interrupt(number, frame):
        raise TimeoutError("it blocks")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("size", [1, 37, 500, select.PIPE_BUF, 100_000])
def test_nothing_blocks_who_writes_to_what_nobody_reads(ends, size):
    writes, _ = ends
    assert may_block(writes)
    line = b"x" * (size - 1) + b"\n"
    while put(writes, line):
        pass
    assert os.get_blocking(writes), "others have it as well"


@pytest.mark.usefixtures("_impatient")
def test_a_pipe_that_can_not_be_opened_anew_blocks_nobody(monkeypatch):
    def refused(*_):
        raise PermissionError

    reads, writes = os.pipe()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refused)
            while put(writes, b"x" * 10_000):
                pass
        os.close(reads)
        with pytest.raises(BrokenPipeError):
            put(writes, b"x")
    finally:
        os.close(writes)


def test_a_file_is_written_to_as_ever(tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(b"before\n")
        file.flush()
        assert not may_block(file.fileno())
        assert put(file.fileno(), b"behind\n") == 7
    assert path.read_text() == "before\nbehind\n"


@pytest.fixture
def rotated(tmp_path):
    """A log at a file, and `log(line, seconds)`, which writes a line so long after the last one."""
    now = 100.0
    handler = log_handlers.FileFollower(str(tmp_path / "log"), lambda: now)
    handler.complaints = []
    handler.handleError = lambda record: handler.complaints.append(str(sys.exc_info()[1]))

    def log(line, seconds=FOLLOW):
        nonlocal now
        now += seconds
        handler.handle(logging.makeLogRecord({"msg": line}))

    handler.log = log
    yield handler
    handler.close()


def test_a_log_whose_file_was_moved_away_goes_on_in_a_new_one(rotated, tmp_path):
    path = tmp_path / "log"
    rotated.log("one")
    path.rename(tmp_path / "log.1")
    rotated.log("two", FOLLOW / 2)
    assert (tmp_path / "log.1").read_text() == "one\ntwo\n", "it is looked once a second"
    rotated.log("three")
    path.unlink()
    rotated.log("four")
    assert path.read_text() == "four\n"
    path.write_text("")  # by copying and truncating
    rotated.log("five")
    assert path.read_text() == "five\n"
    assert rotated.complaints == []


def test_a_log_goes_on_where_it_is_while_no_new_file_can_be_made(rotated, tmp_path):
    path = tmp_path / "log"
    path.rename(tmp_path / "log.1")
    os.mkfifo(path)  # that nobody reads: opening it would take for ever
    rotated.log("one")
    path.unlink()
    path.symlink_to(tmp_path / "nowhere" / "log")
    rotated.log("two")
    assert (tmp_path / "log.1").read_text() == "one\ntwo\n"
    goes_on = "it goes on in the one that was moved"
    assert rotated.complaints == [
        f"the log can't go on in a new file: something else has its name; {goes_on}",
        f"the log can't go on in a new file: No such file or directory; {goes_on}",
    ]
    path.unlink()
    rotated.log("three")
    assert path.read_text() == "three\n"


def test_lines_of_a_file_that_was_removed_are_counted_until_there_can_be_another(rotated, tmp_path):
    path, home = tmp_path / "log", tmp_path / "home"
    rotated.log("one")
    home.mkdir()
    path.rename(home / "log")
    rotated.baseFilename = str(home / "log")
    rotated.log("two")
    assert (home / "log").read_text() == "one\ntwo\n"
    shutil.rmtree(home)
    for line in ("three", "four"):
        rotated.log(line, 0.0)
    assert rotated.complaints == [
        "the log can't go on in a new file: No such file or directory; "
        "its file was removed, and lines are missing until it can"
    ]
    home.mkdir()
    rotated.log("five")
    rotated.log("six")
    assert (home / "log").read_text() == "lines are missing here, as the log's file was removed: 2\nfive\nsix\n"


def test_no_line_is_lost_when_the_file_is_removed(rotated, tmp_path):
    rotated.log("one")
    (tmp_path / "log").unlink()
    rotated.log("two", 0.0)
    assert (tmp_path / "log").read_text() == "two\n"
    assert rotated.complaints == []


@pytest.fixture(params=["--log-path", "> file"])
def log_of_limited_size(request, tmp_path):
    """`limit` says how many bytes the file may have, `log` writes a line, `read` says what is there."""
    path, room = tmp_path / "log", None

    def write(descriptor, data, write=os.write):
        left = len(data) if room is None else max(0, room - os.fstat(descriptor).st_size)
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:left])

    def limit(size):
        nonlocal room
        room = size

    with pytest.MonkeyPatch.context() as patch, path.open("a") as stream:
        patch.setattr(os, "write", write)
        handler = log_handlers.to_file(str(path)) if request.param == "--log-path" else log_handlers.to_stream(stream)
        errors = []
        handler.handleError = lambda record: errors.append(str(sys.exc_info()[1]))
        yield SimpleNamespace(
            limit=limit, log=lambda line: handler.handle(logging.makeLogRecord({"msg": line})), read=path.read_text,
            close=handler.close, errors=errors,
        )  # fmt: skip
        handler.close()


def test_lines_are_counted_for_which_a_disk_has_no_room(log_of_limited_size):
    log = log_of_limited_size
    log.log("one")
    log.limit(7)  # in the midst of the second line
    for line in ("two", "three", "four"):
        log.log(line)
    assert log.read() == "one\ntwo"
    assert log.errors == ["[Errno 28] No space left on device"] * 3
    log.limit(None)
    log.log("five")
    assert log.read() == "one\ntwo\nlines are missing here, as the log could not be written: 2\nfive\n"
    log.limit(0)
    log.log("six")
    log.limit(None)
    log.close()
    assert log.read().endswith("five\nlines are missing here, as the log could not be written: 1\n")


def test_a_line_that_was_begun_on_a_full_disk_is_no_part_of_the_next_file(rotated, tmp_path, monkeypatch):
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, data[:2]))
    monkeypatch.setattr(log_handlers, "LONGEST_WAIT", 0.0)
    rotated._writer._patience = 0.0
    rotated.log("one")
    monkeypatch.undo()
    (tmp_path / "log").rename(tmp_path / "log.1")
    rotated.log("two")
    assert (tmp_path / "log.1").read_text() == "on"
    assert (tmp_path / "log").read_text() == "lines are missing here, as the log could not be written: 1\ntwo\n"


@pytest.mark.usefixtures("_impatient")
def test_a_pipe_without_a_reader_blocks_nobody_and_is_read_later(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    handler = log_handlers.to_file(str(path))
    try:
        handler.handle(logging.makeLogRecord({"msg": "one"}))
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as reader:
            assert reader.read(100) == b"one\n"
            handler.handle(logging.makeLogRecord({"msg": "two"}))
            assert reader.read(100) == b"two\n"
        for _ in range(2000):
            handler.handle(logging.makeLogRecord({"msg": "x" * 100}))
    finally:
        handler.close()
        handler.stream.close()


PROGRAM = """
import logging, sys
from scaler.cli.logs import set_up
set_up("INFO", "/dev/stdout")
for number in range(int(sys.argv[1])):
    logging.info("%06d %s", number, "x" * 500)
sys.stderr.write("written\\n")
sys.stdin.read()
logging.info("last")
"""


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_program_goes_on_and_ends_while_nobody_reads_its_log(kind):
    reads, writes = os.pipe() if kind == "pipe" else pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "1000"], stdin=subprocess.PIPE, stdout=writes, stderr=subprocess.PIPE
    )
    os.close(writes)
    with running, open(reads, "rb", buffering=0) as log:
        assert running.stderr.readline() == b"written\n"
        text = b""
        while b" 000001 " not in text:
            text += log.read(4096)
        while select.select([log], [], [], 0)[0]:
            text += log.read(65536)
        running.stdin.close()
        while b"last" not in text:
            text += log.read(4096)
        assert running.wait(20) == 0
        assert running.stderr.read() == b""
    lines = text.decode().splitlines()
    numbers = [int(line.split()[2]) for line in lines if line.endswith("x")]
    assert numbers == list(range(len(numbers)))
    assert 0 < len(numbers) < 1000
    assert all(line.endswith(" " + "x" * 500) for line in lines[1 : len(numbers) + 1]), "none is torn"
    assert len(lines) == len(numbers) + 3, lines[len(numbers) :]
    missing, last = lines[-2:]
    assert missing.endswith(f": lines are missing here, as nobody has read the log: {1000 - len(numbers)}")
    assert missing.startswith("[WARNING]")
    assert last.endswith(": last")


def test_a_program_whose_log_is_read_loses_nothing():
    running = subprocess.run(
        [sys.executable, "-c", PROGRAM, "3000"], input=b"", capture_output=True, check=True, timeout=60
    )
    lines = running.stdout.decode().splitlines()
    assert [int(line.split()[2]) for line in lines[1:-1]] == list(range(3000))
