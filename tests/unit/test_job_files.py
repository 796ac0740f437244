"""Large results of durable jobs: files that count once they are named on disk, and go when nobody needs them."""

import errno
import json
import logging
import os
import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulator.scripted import FakeAgent, FakeScheduler, ended, graph, result, task
from support import until
from support.made_up_jobs import FIRST, Jobs, Paper, part, results
from support.runner import ARGUMENTS, BATCH, FUNCTION, Agent

from scaler.agent.core.worker_reports import UNFILED_PAUSE as PAUSE
from scaler.common import patience
from scaler.common.patience import Patience
from scaler.errors import JobError
from scaler.protocol.error_record import ErrorRecord
from scaler.protocol.messages import (
    FAILED,
    FILED,
    GRAPH,
    INLINE,
    INLINE_VALUES,
    KEEP,
    PROFILE,
    STORED,
    VALUES_EACH,
    WANTED_ALONE,
    ClientReturn,
    JobAnswer,
    ObjectAnnounce,
    ObjectRequest,
    Task,
    TaskCancel,
    TaskResult,
    u8,
    u32,
    u64,
)
from scaler.protocol.results import SpanResult
from scaler.results import files
from scaler.results.reference import PART, Reference, file_name, path_of, prefix_of
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs.filing import MOST_READ, SOON, SWEEP
from scaler.scheduler.jobs.keeper import NO_FILES
from scaler.scheduler.jobs.result_files import ResultFiles, ResultsError
from scaler.worker import context
from scaler.worker_protocol.messages import Results, Unfiled

DIRECTORY, IDENTITY = "/shared", "ab" * 16
MB = 1 << 20


class Shared:
    """A directory that all share, in memory; what is wanted of it is done when the test says so."""

    def __init__(self, identity: str = IDENTITY) -> None:
        self.directory, self.identity = DIRECTORY, identity
        #: name -> bytes
        self.there: dict[str, bytes] = {}
        self.wanted: list[Any] = []
        self.begun: list[tuple[str, bool]] = []

    def begin(self, known: str, is_anew: bool) -> str:
        self.begun.append((known, is_anew))
        return self.identity

    def fileno(self) -> int:
        return -1

    def do(self, work: Any) -> None:
        self.wanted.append(work)

    def take(self) -> list[Any]:
        wanted, self.wanted = self.wanted, []
        done: list[Any] = []
        for work in wanted:
            if isinstance(work, ev.RemoveFiles):
                for name in work.names:
                    self.there.pop(name, None)
            elif isinstance(work, ev.ListFiles):
                done.append(ev.Listed(work.identity, list(self.there)))
            else:
                data = self.there.get(file_name(work.job, work.file.row, work.file.tag))
                trouble = "its file is missing" if data is None else ""
                done.append(ev.FileRead(work.number, (data or b"")[work.offset :][: work.size], trouble))
        return done

    def give_up(self, now: float) -> list[Any]:
        return []

    wake = None

    def close(self, timeout: float = 0.0) -> None:
        pass

    def write(self, job: int, row: int, tag: int, data: bytes = b"value") -> Reference:
        """As an agent does."""
        self.there[file_name(job, row, tag)] = data
        return Reference(row, tag, len(data), 0)


@pytest.fixture
def shared() -> Shared:
    return Shared()


@pytest.fixture
def jobs(shared: Shared) -> Jobs:
    return Jobs(files=shared)


def filed(lo: int, *references: Reference) -> TaskResult:
    """Rows from `lo` on have ended with files."""
    return results(lo, *(reference.pack() for reference in references), outcome=FILED)


def settle(jobs: Jobs) -> None:
    """All that is wanted of disk and directory is done."""
    for _ in range(3):
        jobs.sync()
        jobs.keeper.gather()
        jobs.go_on()


# ---- what counts -----------------------------------------------------------------------------------------------------
def test_rows_are_told_where_large_results_go_as_soon_as_they_are_on_disk(jobs):
    jobs.submit(*part())
    assert (jobs.tell_of(Task), len(jobs.tell_of(ClientReturn))) == ([], 1)
    jobs.sync()
    (task,) = jobs.tell_of(Task)
    assert task.results == f"{DIRECTORY}/{IDENTITY}/1"
    assert not Jobs().tell_of(Task)


def test_a_part_that_is_cancelled_before_it_is_on_disk_is_cancelled(jobs):
    jobs.submit(*part())
    jobs.ask("cancel")
    jobs.sync()
    said = [type(say.message) for say in jobs.said]
    assert TaskCancel in said[said.index(Task) :]


def test_a_part_of_a_job_that_is_deleted_before_it_is_on_disk_is_not_said(jobs):
    jobs.submit(*part())
    jobs.ask("delete")
    jobs.sync()
    assert jobs.tell_of(Task) == []


def test_of_a_graph_files_have_what_no_other_row_needs(jobs):
    function, _ = part()
    graph = Task(
        0, 10, 3, GRAPH, INLINE_VALUES, 9, 0, "f", spans=u32([0, 3]), uses=u32([1, 0, 0]), wanted=u8([1, 1, 0]),
        dependency_counts=u32([0, 0, 0]),
    )  # fmt: skip
    jobs.submit(function, graph)
    jobs.sync()
    assert list(jobs.tell_of(Task)[0].wanted) == [1, WANTED_ALONE, 0]


def test_a_result_in_a_file_counts_when_its_name_is_on_disk(jobs, shared):
    jobs.submit(*part())
    jobs.sync()
    file = shared.write(1, 10, 7)
    jobs.core_says(filed(0, file))
    assert jobs.state()["done"] == 0
    settle(jobs)
    assert (jobs.state()["done"], jobs.state()["file_bytes"]) == (1, 5)
    jobs.ask("ordered")
    answer = jobs.last()
    assert (list(answer.outcomes), Reference.unpack(answer.bodies[0])) == ([FILED], file)
    assert path_of(json.loads(answer.text)["files"], file) == f"{DIRECTORY}/{IDENTITY}/1-a-0000000000000007"


def test_what_the_journal_names_is_known_to_the_next_scheduler(jobs, shared):
    jobs.submit(*part())
    jobs.sync()
    jobs.core_says(filed(0, shared.write(1, 10, 7), shared.write(1, 11, 8)))
    settle(jobs)
    later = Shared()
    later.there = shared.there
    again = Jobs(Paper(jobs.paper.segments), files=later)
    settle(again)
    assert (again.state()["file_bytes"], len(later.there), later.begun) == (10, 2, [(IDENTITY, False)])
    assert list(again.tell_of(Task)[0].ended) == [0, 2]


# ---- what goes -------------------------------------------------------------------------------------------------------
def test_nothing_is_left_of_a_deleted_job(jobs, shared):
    jobs.submit(*part())
    jobs.sync()
    jobs.core_says(filed(0, shared.write(1, 10, 7)))
    settle(jobs)
    shared.write(1, 11, 8)  # by a worker that was killed before it could tell
    shared.there["notes"] = b"of somebody's"
    jobs.ask("delete")
    assert len(shared.there) == 3  # as long as it is not on disk that it is deleted
    settle(jobs)
    assert set(shared.there) == {file_name(1, 11, 8), "notes"}
    jobs.go_on(SOON)
    settle(jobs)
    assert set(shared.there) == {"notes"}


def test_files_go_though_the_scheduler_dies_before_it_removes_them(jobs, shared):
    jobs.submit(*part(), name="other", token=8)
    jobs.submit(*part())
    jobs.sync()
    jobs.core_says(filed(0, shared.write(2, 10, 7)), FIRST + 1)
    settle(jobs)
    jobs.ask("delete")
    jobs.paper.sync()
    later = Shared(identity="cd" * 16)  # another part is its own now: this one is not looked through
    later.there = shared.there
    settle(Jobs(Paper(jobs.paper.segments), files=later))
    assert later.there == {}


def test_what_no_record_names_stays_while_its_row_may_be_told_of(jobs, shared):
    jobs.submit(*part())
    jobs.sync()
    shared.write(1, 10, 7)
    shared.write(1, 10, 8)
    shared.there[file_name(1, 12, 9) + PART] = b""
    jobs.go_on(SWEEP)
    settle(jobs)
    assert len(shared.there) == 3
    jobs.core_says(filed(0, Reference(10, 8, 5, 0)))
    jobs.core_says(results(2, b"c"))
    settle(jobs)
    jobs.go_on(SWEEP)
    settle(jobs)
    assert set(shared.there) == {file_name(1, 10, 8)}


def test_a_row_that_ran_twice_leaves_the_file_that_was_told_of_first(jobs, shared):
    jobs.submit(*part())
    jobs.sync()
    jobs.core_says(filed(0, shared.write(1, 10, 7), shared.write(1, 11, 1)))
    jobs.core_says(filed(0, shared.write(1, 10, 8)))
    settle(jobs)
    jobs.core_says(filed(0, shared.write(1, 10, 9), Reference(11, 1, 5, 0)))  # said again, as to another scheduler
    settle(jobs)
    assert set(shared.there) == {file_name(1, 10, 7), file_name(1, 11, 1)}


def test_files_of_jobs_of_a_journal_that_was_damaged_are_left_alone(jobs, shared):
    jobs.submit(*part())
    jobs.sync()
    data = bytearray(jobs.paper.segments[1])
    data[len(data) // 2] ^= 1

    class Torn(Paper):
        def replay(self, take: Any) -> Any:
            layout, damage = super().replay(take)
            return layout, None if damage is None else replace(damage, is_cut=False)

    later = Shared()
    Jobs(Torn({1: bytes(data)}), files=later)
    assert later.begun[0][1] is True


def test_in_another_part_what_known_jobs_do_not_need_goes_and_nothing_else(jobs, shared):
    jobs.submit(*part())
    jobs.sync()
    jobs.core_says(filed(0, shared.write(1, 10, 7)))
    settle(jobs)
    later = Shared(identity="cd" * 16)
    again = Jobs(Paper(jobs.paper.segments), files=later)
    settle(again)
    names = [file_name(1, 10, 7), file_name(1, 10, 8), file_name(1, 11, 9), file_name(5, 1, 1)]
    for identity, needless in ((IDENTITY, names[1:2]), (later.identity, names)):
        again.keeper._tell(ev.Listed(identity, names))
        again.go_on()
        assert later.wanted == [ev.RemoveFiles(identity, needless)]
        later.wanted.clear()


def test_old_jobs_go_with_their_files_and_a_quota_holds(shared):
    jobs = Jobs(files=shared, age=10.0, results_quota=4)
    jobs.submit(*part(1))
    jobs.sync()
    jobs.core_says(filed(0, shared.write(1, 10, 7)))
    settle(jobs)
    jobs.submit(*part(), name="more", token=8)
    assert "large results take more than the 4 bytes that they may (results_quota)" in jobs.last().error
    jobs.go_on(20.0)
    settle(jobs)
    assert shared.there == {}


# ---- reading ---------------------------------------------------------------------------------------------------------
def test_bytes_of_a_file_are_asked_for_in_slices(jobs, shared):
    jobs.submit(*part())
    jobs.sync()
    jobs.core_says(filed(1, shared.write(1, 11, 7, b"0123456789")))
    settle(jobs)
    jobs.ask("file", position=1, offset=4, limit=3)
    settle(jobs)
    assert (bytes(jobs.last().bodies[0]), jobs.last().next) == (b"456", 7)
    jobs.ask("file", position=1, offset=2**64 - 1)
    settle(jobs)
    assert bytes(jobs.last().bodies[0]) == b""
    for row in (0, 2**40):
        jobs.ask("file", position=row)
        assert jobs.last().error == f"row {row:,} of job 'work' has no result in a file"
    jobs.ask("file", "nothing")
    assert "there is no job 'nothing' here" in jobs.last().error
    shared.there.clear()
    jobs.ask("file", position=1)
    settle(jobs)
    assert jobs.last().error == "job 'work', row 1: its file is missing"


def test_few_files_are_read_for_one_at_a_time(jobs, shared):
    jobs.submit(*part())
    jobs.sync()
    jobs.core_says(filed(0, shared.write(1, 10, 7)))
    settle(jobs)
    for _ in range(MOST_READ + 1):
        jobs.ask("file", position=0)
    assert jobs.last().error == "too many files are read: ask again"
    settle(jobs)
    jobs.ask("file", position=0)
    settle(jobs)
    assert bytes(jobs.last().bodies[0]) == b"value"


def test_the_core_is_given_a_value_from_its_file(jobs, shared):
    jobs.submit(*part(4))
    jobs.sync()
    large = Reference(12, 9, 2**40, 0)
    jobs.core_says(filed(0, shared.write(1, 10, 7), Reference(11, 8, 5, 0), large))
    settle(jobs)
    jobs.core_says(ObjectRequest(u32([FIRST] * 3), u64([10, 11, 12])))
    settle(jobs)
    said = {message.ids[0]: message for message in jobs.tell_of(ObjectAnnounce)}
    assert (said[10].kinds[0], bytes(said[10].bodies[0])) == (INLINE, b"value")
    assert (said[11].kinds[0], said[12].kinds[0]) == (FAILED, FAILED)
    assert "row 1: its file is missing" in ErrorRecord.decode(said[11].bodies[0]).message
    assert "more than a message may have" in ErrorRecord.decode(said[12].bodies[0]).message


def test_a_scheduler_without_the_directory_says_so(jobs, shared):
    jobs.submit(*part())
    jobs.sync()
    jobs.core_says(filed(0, shared.write(1, 10, 7)))
    settle(jobs)
    again = Jobs(Paper(jobs.paper.segments))
    assert again.tell_of(Task)[0].results == ""
    again.ask("file", position=0)
    again.sync()
    assert again.last().error == f"job 'work', row 0: {NO_FILES}"


# ---- files -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def prefix(tmp_path: Path) -> str:
    (tmp_path / IDENTITY).mkdir()
    return prefix_of(str(tmp_path), IDENTITY, 7)


def test_what_was_written_is_read_whole_and_in_slices(prefix):
    data = os.urandom(3 * MB)
    reference = files.write(prefix, 255, data)
    assert os.listdir(os.path.dirname(prefix)) == [os.path.basename(path_of(prefix, reference))]
    assert os.stat(path_of(prefix, reference)).st_mode & 0o777 == 0o600
    assert files.read(prefix, reference) == data
    assert files.read_slice(prefix, reference, 5, 7) == data[5:12]
    assert files.read_slice(prefix, reference, 2**64 - 1, 0) == b""


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_disk_that_is_full_leaves_nothing_behind(prefix, monkeypatch, call):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        files.write(prefix, 1, b"value")
    assert os.listdir(os.path.dirname(prefix)) == []


def test_a_file_that_is_not_what_was_written_is_named(prefix, tmp_path):
    reference = files.write(prefix, 1, b"value")
    path = Path(path_of(prefix, reference))
    path.write_bytes(b"other")
    with pytest.raises(files.Unreadable, match=f"its file {path} is damaged"):
        files.read(prefix, reference)
    path.write_bytes(b"others")
    with pytest.raises(files.Unreadable, match="has 6 bytes, not 5"):
        files.read(prefix, reference)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(files.Unreadable, match=f"its file {path} is missing"):
        files.read(prefix, reference)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(files.Unreadable, match="can't be read: Too many levels of symbolic links"):
        files.read(prefix, reference)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(files.Unreadable, match="has 0 bytes"):
        files.read(prefix, reference)


def test_a_directory_that_is_a_link_is_not_followed(prefix, tmp_path):
    (tmp_path / IDENTITY).rename(tmp_path / "elsewhere")
    (tmp_path / IDENTITY).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Not a directory"):
        files.write(prefix, 1, b"value")


def test_the_identity_of_a_journal_stays_but_after_a_damage(tmp_path):
    journal, directory = tmp_path / "journal", tmp_path / "a" / "results"
    journal.mkdir()
    made = [ResultFiles(str(directory), str(journal)) for _ in range(4)]
    first = made[0].begin("", False)
    assert (directory / first).stat().st_mode & 0o777 == 0o700
    assert made[1].begin("", False) == first
    other = made[2].begin(first, True)
    assert other != first
    (journal / "results.id").unlink()
    assert made[3].begin(first, False) == first
    for each in made:
        each.close()


def test_a_directory_that_can_not_be_made_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    made = ResultFiles(str(tmp_path / "file" / "results"), str(tmp_path))
    with pytest.raises(ResultsError, match=r"large results can't be written to .*: Not a directory; give a directory"):
        made.begin("", False)
    made.close()


def test_without_a_thread_no_directory_is_begun_with(tmp_path, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    made = ResultFiles(str(tmp_path / "results"), str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ResultsError, match="large results can't be looked after: can't start new thread"):
            made.begin("", False)
    made.close()


def test_a_thread_reads_lists_and_removes(tmp_path):
    made = ResultFiles(str(tmp_path / "results"), str(tmp_path))
    identity = made.begin("", False)
    reference = files.write(prefix_of(made.directory, identity, 7), 1, b"value")
    name = file_name(7, 1, reference.tag)
    made.do(ev.ReadFile(5, identity, 7, reference, 1, 3, False))
    made.do(ev.ReadFile(6, identity, 7, reference._replace(checksum=0), 0, 5, True))
    made.do(ev.ListFiles(identity))
    made.do(ev.RemoveFiles(identity, [name, "absent"]))
    made.do(ev.ListFiles(identity))
    made.close()
    read, damaged, before, after = made.take()
    assert (read, before, after) == (ev.FileRead(5, b"alu"), ev.Listed(identity, [name]), ev.Listed(identity, []))
    assert "is damaged" in damaged.trouble


def test_those_who_ask_for_files_are_told_while_one_hangs_and_the_rest_waits(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "scaler.scheduler")
    made = ResultFiles(str(tmp_path / "results"), str(tmp_path))
    identity = made.begin("", False)
    prefix = prefix_of(made.directory, identity, 7)
    reference = files.write(prefix, 1, b"value")
    answers, real = threading.Event(), files.read_slice
    monkeypatch.setattr(files, "read_slice", lambda *all: real(*all) if answers.wait(30) else b"")
    made.do(ev.ReadFile(5, identity, 7, reference, 0, 3, False))
    made.do(ev.ReadFile(6, identity, 7, reference, 0, 5, True))
    made.do(ev.RemoveFiles(identity, [file_name(7, 1, reference.tag)]))
    made.do(ev.ReadFile(7, identity, 7, reference, 0, 3, False))
    assert made.give_up(100.0) == []
    assert made.wake is not None
    assert made.give_up(made.wake - 0.1) == []
    given_up = made.give_up(made.wake)
    assert [each.number for each in given_up] == [5, 7]
    assert f"its file {path_of(prefix, reference)} can't be read" in given_up[0].trouble
    made.do(ev.ReadFile(8, identity, 7, reference, 0, 3, False))
    assert [each.number for each in made.give_up(200.0)] == [8]
    assert (made.give_up(300.0), made.wake) == ([], None)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"nothing has come of {path_of(prefix, reference)} for 60 s" in caplog.text
    answers.set()
    found: list[Any] = []
    until(lambda: found.extend(made.take()) or not made._waiting)
    assert found == [ev.FileRead(6, b"value")]
    assert "answers again" in caplog.text
    assert (made.give_up(400.0), made.wake, os.listdir(tmp_path / "results" / identity)) == ([], None, [])
    made.close()


def test_the_end_does_not_wait_for_a_file_that_hangs(tmp_path, monkeypatch):
    made = ResultFiles(str(tmp_path / "results"), str(tmp_path))
    identity = made.begin("", False)
    answers = threading.Event()
    monkeypatch.setattr(files, "remove", lambda path, names: answers.wait(30))
    made.do(ev.RemoveFiles(identity, ["7-1"]))
    begun = time.monotonic()
    made.close(0.1)
    assert time.monotonic() - begun < 5
    answers.set()


# ---- workers, agents and the scheduler ------------------------------------------------------------------------------
@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Agent]:
    made = Agent()
    context.set_surroundings({"limit": 4 * MB})
    yield made
    context._surroundings = None
    context.uninstall()


def make(size: int) -> bytes:
    return b"x" * size


LARGE, SMALL = 2 * MB, MB - 100


@pytest.mark.parametrize("flags", [INLINE_VALUES, INLINE_VALUES | PROFILE])
def test_a_worker_writes_large_results_before_it_tells_of_them(worker, prefix, flags):
    worker.hand_out(1, make, range(3), arguments=[(LARGE,), (SMALL,), (9 * MB,)], flags=flags, results=prefix)
    worker.run()
    first, small, last = worker.outcomes().values()
    assert small == make(SMALL)
    for row, file, size in ((0, first, LARGE), (2, last, 9 * MB)):
        assert (file.row, pickle.loads(files.read(prefix, Reference(*file)))) == (BATCH + row, make(size))


def test_a_worker_without_the_directory_sends_results_and_says_so_until_it_is_there(worker, prefix, tmp_path):
    def move(away: bool) -> bytes:
        names = (tmp_path / IDENTITY, tmp_path / "away")
        os.rename(*(names if away else names[::-1]))
        return make(LARGE)

    def stay(size: int) -> bytes:
        return make(size)

    worker.hand_out(1, move, range(1), arguments=[(True,)], flags=INLINE_VALUES, results=prefix)
    worker.run()
    worker.inbox.clear()
    assert worker.outcomes() == {0: make(LARGE)}
    unfiled = [message for message in worker.sent if isinstance(message, Unfiled)]
    assert unfiled == [Unfiled(1, errno.ENOENT)]
    worker.sent.clear()
    context.set_surroundings({"limit": 4 * MB})
    worker.runner._quitting = False
    worker.hand_out(2, stay, range(2), arguments=[(LARGE,), (5 * MB,)], flags=INLINE_VALUES, results=prefix)
    worker.runner._inputs.drop([FUNCTION, ARGUMENTS])
    worker.run()
    outcomes = worker.outcomes()
    assert outcomes[0] == make(LARGE)
    assert not [message for message in worker.sent if isinstance(message, Unfiled)]  # it was said
    assert f"too many for a message, and {tmp_path / IDENTITY}: No such file or directory" in str(outcomes[1])


def test_a_directory_that_hangs_holds_no_worker_for_ever(worker, prefix, monkeypatch):
    may_go_on, calls, write = threading.Event(), [], files.write

    def hangs(prefix: str, row: int, data: bytes) -> Reference:
        calls.append(row)
        assert may_go_on.wait(30)
        return write(prefix, row, data)

    monkeypatch.setattr(patience, "PATIENCE", 0.01)
    monkeypatch.setattr(files, "write", hangs)
    worker.hand_out(1, make, range(2), arguments=[(LARGE,), (LARGE + 1,)], flags=INLINE_VALUES, results=prefix)
    try:
        worker.run()
    finally:
        may_go_on.set()
    assert worker.outcomes() == {0: make(LARGE), 1: make(LARGE + 1)}
    assert calls == [BATCH], "while one hangs no other is tried"
    assert [message for message in worker.sent if isinstance(message, Unfiled)] == [Unfiled(1, errno.ETIMEDOUT)]


def test_what_hung_is_tried_again_when_it_has_come_back(monkeypatch):
    may_go_on, waits = threading.Event(), Patience()
    monkeypatch.setattr(patience, "PATIENCE", 0.01)
    with pytest.raises(TimeoutError):
        waits.call(lambda: may_go_on.wait(30), 0)
    with pytest.raises(TimeoutError):
        waits.call(lambda: "not tried", 0)
    may_go_on.set()
    monkeypatch.setattr(patience, "PATIENCE", 30.0)
    until(lambda: not waits._hanging.is_alive())
    assert waits.call(lambda: "tried", 0) == "tried"
    with pytest.raises(ZeroDivisionError):
        waits.call(lambda: 1 // 0, 0)


def test_an_agent_says_once_that_results_are_not_written():
    fake = FakeAgent(2)
    for batch in (10, 20):
        fake.give(batch, 0, 1, results="/shared/here/7", flags=INLINE_VALUES)
    runs = [fake.runs[slot].pop() for slot in (0, 1)]
    assert [run.results for run in runs] == ["/shared/here/7"] * 2
    for slot, run in enumerate(runs):
        fake.worker(slot, Unfiled(run.dispatch, errno.ENOSPC))
    fake.worker(0, Unfiled(99, errno.ENOSPC))
    said = "large results of durable jobs go through the scheduler: /shared/here on this host: No space left on device"
    assert fake.logged == [said]
    for slot, run in enumerate(runs):
        assert fake.logged == [said]  # it may be that some were written all the time
        fake.now += PAUSE
        file = Reference(run.batch, 1, 2, 3).pack()
        fake.worker(slot, Results([ended(run, 0, 1, FILED, 5, u32([len(file)]), file)], [run.dispatch]))
    assert fake.logged == [said, "large results of durable jobs are written to files again"]
    assert [list(m.outcomes) for m in fake.said if isinstance(m, TaskResult)] == [[FILED], [FILED]]
    assert fake.core.state.objects.count == 1  # the function


def of_file(batch: int, row: int) -> SpanResult:
    file = Reference(batch + row, 1, 2, 3).pack()
    return SpanResult(batch, row, row + 1, FILED, 5, 0, u32([len(file)]), file)


def test_a_scheduler_passes_on_what_stands_for_files_of_durable_jobs_alone():
    fake = FakeScheduler(4)
    client, (agent,) = fake.client(), fake.agents
    fake.say(client, task(10, 2, flags=INLINE_VALUES, results="/shared/here/7"))
    assert [given.results for given in fake.heard(agent, Task)] == ["/shared/here/7"]
    fake.report(agent, client, of_file(10, 0))
    assert fake.ends(client) == [(10, 0, 1, FILED)]
    fake.say(client, task(20, 2))
    fake.report(agent, client, of_file(20, 0))
    assert fake.ends(client) == []
    assert agent not in fake.core.state.agents
    assert "results in files, of rows of no durable job" in fake.log[-1]


def test_an_agent_that_leaves_a_wanted_value_of_a_durable_job_in_a_store_is_not_believed():
    fake = FakeScheduler(3)
    client, (agent,) = fake.client(), fake.agents
    fake.say(client, replace(graph(10, [[], [0]], [1]), flags=KEEP | INLINE_VALUES))
    fake.report(agent, client, result(10, 0, 1, STORED))
    assert fake.core.state.agents.keys() == {agent}
    fake.report(agent, client, result(10, 1, 2, STORED))
    assert not fake.core.state.agents
    assert "results in a store, of rows of a durable job that are wanted" in fake.log[-1]
    assert not fake.ends(client)
    again = fake.agent(2)
    fake.end_all(again, client, VALUES_EACH)
    fake.end_all(again, client, VALUES_EACH)
    assert fake.ends(client) == [(10, 1, 2, VALUES_EACH)]


def test_a_value_in_a_file_that_another_row_needs_is_asked_of_its_job():
    fake = FakeScheduler(1)
    client, (agent,) = fake.client(), fake.agents
    made = graph(10, [[], [0]], [0, 1])
    made.flags |= INLINE_VALUES
    fake.say(client, made)
    fake.placed(agent)
    fake.report(agent, client, of_file(10, 0))
    assert [list(message.ids) for message in fake.heard(client, ObjectRequest)] == [[10]]
    assert fake.placed(agent) == []
    fake.say(client, ObjectAnnounce(u64([10]), u8([INLINE]), [b"value"]))
    assert fake.placed(agent) == [(10, 1, 2)]
    fake.report(agent, client, of_file(10, 1))
    assert not fake.core.state.clients[client].batches


# ---- a client --------------------------------------------------------------------------------------------------------
class Asked:
    """A session with a scheduler that has one file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def ask(self, kind: str, name: str, position: int, offset: int, limit: int, token: int) -> JobAnswer:
        assert (kind, name) == ("file", "work")
        self.asked.append((position, offset))
        return JobAnswer(1, bodies=[self.data[offset : offset + 2]])


def test_a_client_that_has_not_the_directory_asks_for_slices(prefix):
    from scaler.client.jobs.files import JobFiles
    from scaler.client.jobs.subject import JobSubject

    reference = files.write(prefix, 1, b"value")
    session = Asked(b"value")
    read = JobFiles(JobSubject(session, "work")).read  # type: ignore[arg-type]
    assert read(prefix, 3, reference.pack()) == b"value"
    assert session.asked == []
    assert read("/nowhere" + prefix, 3, reference.pack()) == b"value"
    assert session.asked == [(3, 0), (3, 2), (3, 4)]
    for wrong in (b"valse", b"val"):
        session.data = wrong
        with pytest.raises(JobError, match=r"job 'work', row 3: its file /nowhere.* is damaged: its checksum is wrong"):
            read("/nowhere" + prefix, 3, reference.pack())
