"""Whether durable jobs are kept: a disk that hangs while their journal is opened holds up those who ask for them."""

import contextlib
import os
import threading
import time

import pytest
from support import until

from scaler.journal.directory import JournalError
from scaler.journal.journal import Journal
from scaler.journal.layout import Place
from scaler.journal.records import SEGMENT_HEADER, Record, pack
from scaler.protocol.messages import PartnerReport, u64
from scaler.scheduler import durable_jobs
from scaler.scheduler.copies.copies import Copies
from scaler.scheduler.durable_jobs import BRIEF, JOURNAL_PAUSE, DurableJobs
from scaler.scheduler.jobs.jobs_core import JobTerms
from scaler.scheduler.jobs.keeper import JobKeeper
from scaler.scheduler.jobs_opener import JobsOpener
from scaler.scheduler.succession import Succession


class Loop:
    """Notes what is watched."""

    def __init__(self) -> None:
        self.ready: dict[object, None] = {}
        self.watched: dict[int, object] = {}

    def watch(self, fd, source) -> None:
        self.watched[fd] = source

    def forget(self, fd) -> None:
        self.watched.pop(fd, None)


class Rest:
    """The composition and the process of a standby that comes to lead, with a disk that answers when it is told to."""

    partner = route = None
    address = "tcp://a:1"

    def __init__(self, path) -> None:
        self.path = path
        self.loop = Loop()
        self.answers = threading.Event()
        self.failures: list[Exception] = []
        self.directories = f"the journal {path}"
        self.lines: list[tuple[str, str]] = []
        self.lodged: list[JobKeeper] = []
        #: what whoever asks for jobs is told; it waits if it is brief
        self.awaited: tuple[str, bool] | None = None
        self.succession = Succession("tcp://b:1", 5, "tcp://a:1", stands_by=True)
        self.copies = Copies(path, self.succession)
        self.jobs = DurableJobs(self, self, None, self.copies, self.succession, self)

    # ---- the shell
    def new_opener(self) -> JobsOpener:
        return JobsOpener(self._open)

    def _open(self, opening):
        self.answers.wait(30)
        try:
            if self.failures:
                raise self.failures.pop()
            journal = opening.run()
            return None if journal is None else JobKeeper(journal, JobTerms(1.0, 0.0))
        except BaseException:
            opening.discard()
            raise

    def log(self, level, text) -> None:
        self.lines.append((level, text))

    # ---- the composition
    def await_residents(self, refusal, is_brief) -> None:
        self.awaited = refusal, is_brief

    def lodge(self, residents) -> None:
        self.lodged.append(residents)
        self.awaited = None

    def part_with_residents(self) -> None:
        self.lodged.pop()

    # ---- the partner
    def take_about_journals(self) -> list:
        return []

    # ---- what happens
    def succeed(self, now: float) -> None:
        """It comes to lead, and nobody has a newer copy."""
        self.succession.promote(now)
        self.jobs.keep(True, now)

    def attend_until(self, now: float, is_so) -> None:
        def attended() -> bool:
            self.jobs.attend(now)
            return is_so()

        until(attended)


@pytest.fixture
def rest(tmp_path, monkeypatch):
    monkeypatch.setattr(durable_jobs, "BLINK", 0.01)
    rest = Rest(tmp_path / "journal")
    yield rest
    rest.answers.set()
    rest.jobs.close()


def test_a_disk_that_hangs_is_named_once_and_jobs_are_kept_when_it_answers(rest):
    rest.succeed(100.0)
    rest.jobs.attend(101.0)
    assert (rest.lodged, rest.awaited[1]) == ([], True)
    assert min(wake for wake in rest.jobs.wakes if wake is not None) == 100.0 + BRIEF
    assert rest.lines == []
    for now in (105.0, 106.0, 120.0):
        rest.jobs.attend(now)
    assert [level for level, _ in rest.lines] == ["WARNING"]
    assert f"the journal {rest.path} can't be read" in rest.lines[0][1]
    assert "durable jobs are not kept yet: the journal" in rest.awaited[0]
    assert not rest.awaited[1], "whoever asks is told"
    rest.answers.set()
    rest.attend_until(121.0, lambda: rest.lodged)
    assert rest.awaited is None
    assert rest.jobs.journal is not None


def test_without_a_thread_the_journal_is_opened_when_there_can_be_one(rest, monkeypatch, caplog):
    refusals, start = [], threading.Thread.start

    def refuse(thread):
        if len(refusals) < 3:
            refusals.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    rest.answers.set()
    rest.succeed(100.0)
    rest.attend_until(101.0, lambda: rest.lodged)
    assert len(refusals) == 3
    (line,) = [record.getMessage() for record in caplog.records if "thread" in record.getMessage()]
    assert line.startswith("scaler-opening waits for a thread: can't start new thread: no more processes or threads")


def test_an_opening_for_which_there_was_no_thread_lets_go_of_what_it_has(rest, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    follower = rest.copies.follow()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        rest.succeed(100.0)
        rest.jobs.close()
    assert follower.fileno() < 0, "it is closed"


def test_what_was_known_of_a_copy_is_known_when_it_could_not_be_opened_at_first(rest):
    """It was never whole: the partner, which has led, has more."""
    rest.copies.follow()
    rest.failures.append(OSError(24, "Too many open files"))
    rest.answers.set()
    rest.jobs.keep(True, 100.0, asks=True)
    rest.attend_until(100.0, lambda: rest.lines)
    rest.attend_until(100.0 + JOURNAL_PAUSE, lambda: rest.copies.is_held or rest.lodged)
    assert rest.copies.is_held
    assert "may have a newer copy" in rest.awaited[0]


def test_what_is_not_open_yet_is_not_handed_over(rest):
    rest.succeed(100.0)
    succession = rest.succession
    succession.hear_partner(PartnerReport(0, False, "tcp://a:1", 0, False, u64(), False), 100.5)
    assert "is being opened: try again" in succession.hand_over(7, 1, 101.0)
    rest.answers.set()
    rest.attend_until(101.0, lambda: rest.lodged)
    assert succession.hand_over(7, 2, 101.0) == ""


def test_the_end_does_not_wait_for_a_disk_that_hangs_and_what_it_opens_then_is_closed(rest):
    rest.succeed(100.0)
    begun = time.monotonic()
    rest.jobs.close()
    assert time.monotonic() - begun < 10
    assert not rest.lodged
    rest.answers.set()
    found: list[Journal] = []

    def is_free() -> bool:
        with contextlib.suppress(JournalError):
            found.append(Journal(rest.path))
        return bool(found)

    until(is_free, "a journal that somebody else can have")
    assert not found[0].history.turns, "it was not written for somebody who does not want it any more"
    found[0].close()


def test_a_hand_over_waits_for_a_moment_for_a_disk_that_hangs(rest, monkeypatch):
    rest.answers.set()
    rest.succeed(100.0)
    rest.attend_until(100.0, lambda: rest.lodged)
    answers, real = threading.Event(), os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda *all: real(*all) if answers.wait(30) else 0)
    rest.copies.journal.append(Place(1, SEGMENT_HEADER), pack(Record(1, 1, (b"x",), 1)))
    begun = time.monotonic()
    try:
        rest.jobs.keep(False, 101.0)
        assert time.monotonic() - begun < 4
        assert rest.copies.journal.take_news() == (0, None)
    finally:
        answers.set()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (JournalError("no such disk"), "no such disk"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (ValueError("odd"), "ValueError: odd"),
    ],
)
def test_what_can_not_be_opened_is_said_and_tried_again(rest, error, text):
    rest.failures.append(error)
    rest.answers.set()
    rest.succeed(100.0)
    said = f"durable jobs are not kept yet: {text}"
    rest.attend_until(100.0, lambda: rest.awaited == (said, True))
    assert min(wake for wake in rest.jobs.wakes if wake is not None) == 100.0 + JOURNAL_PAUSE
    rest.jobs.attend(100.0 + JOURNAL_PAUSE)
    rest.attend_until(101.0, lambda: rest.lodged)
    assert [line for level, line in rest.lines if level == "ERROR"] == [said]
