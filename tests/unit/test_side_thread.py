"""A thread beside a loop: what it is given is done in order, and nothing that goes wrong ends it."""

import threading

import pytest
from support import until

from scaler.common.side_thread import SideThread


@pytest.fixture
def thread():
    def do(work: int) -> None:
        if work < 0:
            raise ValueError(f"{work} is less than nothing")
        thread.tell(work)

    def fail(work: int, error: Exception) -> None:
        thread.tell(f"{work}: {error}")

    thread: SideThread[int, object] = SideThread("scaler-test", do, fail)
    yield thread
    thread.close(5)


def taken(thread: SideThread, count: int) -> list:
    found: list = []
    until(lambda: found.extend(thread.take()) or len(found) >= count, "what was told")
    return found


def test_what_nobody_expected_is_told_and_the_next_is_done(thread):
    for work in (1, -2, 3):
        thread.put(work)
    assert taken(thread, 3) == [1, "-2: -2 is less than nothing", 3]


def test_a_thread_that_could_not_be_started_is_started_for_the_next(thread, monkeypatch):
    def fail(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            thread.put(1)
    thread.put(2)
    assert taken(thread, 1) == [2]


def test_work_that_may_wait_for_a_thread_is_done_when_there_can_be_one_and_the_log_says_so_once(
    thread, monkeypatch, caplog
):
    def fail(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        thread.put_by(1)
        thread.put_by(2)
        assert thread.take() == []
        assert not thread.has_begun
    assert taken(thread, 2) == [1, 2]
    (line,) = caplog.messages
    assert line.startswith("scaler-test waits for a thread: can't start new thread")


def test_one_that_never_had_a_thread_ends_with_what_waits(monkeypatch):
    def fail(_):
        raise RuntimeError("can't start new thread")

    thread: SideThread[int, int] = SideThread("scaler-test", print, print)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        thread.put_by(1)
    assert thread.close(0)
    assert thread.take() == []
    assert not thread.has_begun


def test_what_fits_is_done_together_and_the_rest_later():
    groups, may_begin = [], threading.Event()

    def do(work: str) -> None:
        may_begin.wait(5)
        group = [work]
        while (more := thread.next_if(lambda other: other[0] == work[0])) is not None:
            group.append(more)
        groups.append(group)

    thread: SideThread[str, None] = SideThread("scaler-test", do, lambda work, error: None)
    for work in ("a1", "a2", "b1", "a3"):
        thread.put(work)
    may_begin.set()
    assert thread.close(5)
    assert groups == [["a1", "a2"], ["b1"], ["a3"]]


def test_the_end_comes_after_what_waits_and_is_not_waited_for_for_ever():
    said, may_end = [], threading.Event()
    thread: SideThread[str, None] = SideThread(
        "scaler-test",
        lambda work: said.append((work, may_end.wait(5))),
        lambda work, error: None,
        lambda: said.append("end"),
    )
    thread.put("work")
    assert not thread.close(0.01)
    may_end.set()
    assert thread.close(5)
    assert said == [("work", True), "end"]


def test_one_that_was_never_needed_ends_at_once():
    thread: SideThread[str, None] = SideThread("scaler-test", print, print)
    assert thread.close(0)
    assert thread.take() == []
