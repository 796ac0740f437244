"""A watcher over a session that says what the test wants, at the times of its clock."""

import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from support import until

from scaler.monitor import link as links
from scaler.monitor import watcher as watchers
from scaler.monitor.watcher import Watcher
from scaler.protocol.messages import Snapshot


class FakeLink:
    """A session with a scheduler."""

    url = "ipc:///x"

    def __init__(self, *arguments: Any) -> None:
        self.mine, self.other = socket.socketpair()
        self.messages: list[Any] = []
        self.trouble: str | None = None
        self.silence = 0.0
        self.passed = threading.Event()

    heartbeat = 1.0
    #: when the last heartbeat was answered; None: each is at once
    answered: float | None = None

    @property
    def quiet(self) -> float:
        return 0.0 if self.answered is None else watchers.time.monotonic() - self.answered

    def connect(self, timeout: float) -> None:
        self.trouble = None

    def say(self, message: Any) -> None:
        pass

    def fileno(self) -> int:
        return self.mine.fileno()

    def beat(self) -> float:
        self.passed.set()
        return 0.005

    def receive(self) -> tuple[list[Any], str | None]:
        messages, self.messages = self.messages, []
        return messages, self.trouble

    def leave(self) -> None:
        self.mine.close()
        self.other.close()

    def turn(self) -> None:
        """Whatever was due then is done."""
        for _ in range(2):
            self.passed.clear()
            assert self.passed.wait(10)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(watchers, "time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 1e9 + now[0]))
    monkeypatch.setattr(watchers, "Link", FakeLink)
    monkeypatch.setattr(watchers, "decoded", lambda message: message)
    monkeypatch.setattr(watchers, "_PAUSE", 0.0)
    return now


def test_a_snapshot_that_does_not_come_is_said_each_second_until_one_comes(clock: list[float]) -> None:
    seen = []
    with Watcher("", 1.0, on_change=seen.append) as watcher:
        link: Any = watcher._link
        link.messages = [Snapshot(1)]
        until(lambda: watcher.seen.snapshot)
        for second, silence in ((2.9, 0), (3.1, 3), (3.9, 3), (4.0, 4), (9.0, 9)):
            clock[0] = 100.0 + second
            link.turn()
            assert (watcher.seen.silence, watcher.seen.is_connected) == (silence, True)
        link.messages = [Snapshot(2)]
        until(lambda: not watcher.seen.silence)
        link.turn()
    assert [each.silence for each in seen] == [0, 3, 4, 9, 0]


def test_heartbeats_that_are_not_answered_are_said_long_before_a_snapshot_is_late(clock: list[float]) -> None:
    with Watcher("", 60.0) as watcher:
        link: Any = watcher._link
        link.messages = [Snapshot(1)]
        until(lambda: watcher.seen.snapshot)
        link.answered = 100.0
        for second, silence in ((2.9, 0), (3.1, 3), (4.5, 4)):
            clock[0] = 100.0 + second
            link.turn()
            assert watcher.seen.silence == silence
        link.answered = clock[0]
        until(lambda: not watcher.seen.silence)


@pytest.mark.parametrize("silence", [0.0, 10.0])
def test_of_a_scheduler_that_fell_silent_it_is_said_when_it_was_last_heard(clock: list[float], silence: float) -> None:
    with Watcher("", 60.0) as watcher:
        link: Any = watcher._link
        link.silence = silence
        clock[0] = 150.0
        link.trouble = "it is gone"
        gone = watcher.wait()
        assert gone is not None
        assert (gone.is_connected, gone.since, gone.silence) == (False, 1e9 + 150.0 - silence, 0)


def test_a_link_counts_silence_from_what_came_last(monkeypatch: pytest.MonkeyPatch) -> None:
    link: Any = links.Link("ipc:///x", None, "test")
    monkeypatch.setattr(links, "decode", lambda frames: frames)
    link._connection = SimpleNamespace(receive=lambda: [[b""]], is_closed=False, carried_bytes=lambda: 0)
    before = time.monotonic()
    link._initiator = SimpleNamespace(
        is_silent=True, receive=lambda said, now: None, take_ack=lambda: None, check_silence=lambda now, carried: None
    )
    link.receive()
    assert 0 <= link.silence <= time.monotonic() - before
    link._initiator.is_silent = False
    assert link.silence == 0.0
