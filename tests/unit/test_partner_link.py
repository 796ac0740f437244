"""The connection between two schedulers, as far as it can be looked at without a second one."""

import socket
import threading
from collections import deque
from typing import Any

import pytest
from support import until

from scaler.common.loop import make_loop
from scaler.protocol.codec import encode
from scaler.protocol.messages import Message, Refused, Welcome
from scaler.scheduler import partner_link
from scaler.scheduler.partner_link import PartnerLink
from scaler.scheduler.succession import BEAT
from scaler.transport import Security


def test_one_that_is_gone_is_not_tried_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []
    connect = partner_link.connect

    def noted(*arguments, **options):
        tries.append(arguments)
        return connect(*arguments, **options)

    monkeypatch.setattr(partner_link, "connect", noted)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        link = PartnerLink("tcp://127.0.0.1:1", Security.none(), 1 << 20, make_loop("builtin", lambda: None))
        for now in (100.0, 100.0 + BEAT / 2, 100.0 + BEAT):
            link.dial(address, now)
            until(lambda: not link._is_connecting)
        link.close(says_goodbye=False)
    assert len(tries) == 2


def test_one_that_says_of_itself_what_is_no_address_is_looked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    link = PartnerLink("tcp://127.0.0.1:1", Security.none(), 1 << 20, make_loop("builtin", lambda: None))
    for now in (100.0, 100.0 + BEAT):
        link.dial("nonsense", now)
        until(lambda: not link._is_connecting)
    assert link.receive(now) == ([], False)
    link.close(says_goodbye=False)
    (line,) = caplog.messages
    assert "the other scheduler is not there: address 'nonsense' has no tcp:// in front" in line


def test_whatever_keeps_a_connection_from_being_made_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def refusing(*arguments, **options):
        tries.append(arguments)
        raise RuntimeError("too many open files")

    monkeypatch.setattr(partner_link, "connect", refusing)
    link = PartnerLink("tcp://127.0.0.1:1", Security.none(), 1 << 20, make_loop("builtin", lambda: None))
    for now in (100.0, 100.0 + BEAT):
        link.dial("tcp://127.0.0.1:2", now)
        until(lambda: not link._is_connecting)
    link.close(says_goodbye=False)
    assert len(tries) == 2


def test_without_a_thread_it_is_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    tries = []
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        tries.append(thread)
        if len(tries) < 3:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    link = PartnerLink("tcp://127.0.0.1:1", Security.none(), 1 << 20, make_loop("builtin", lambda: None))
    for now in (100.0, 100.0 + BEAT, 100.0 + 2 * BEAT):
        link.dial("nonsense", now)
        until(lambda: not link._is_connecting)
    link.close(says_goodbye=False)
    assert len(tries) == 3
    threads, address = caplog.messages
    assert "RuntimeError: can't start new thread; trying until it is" in threads
    assert "'nonsense' has no tcp://" in address


class Played:
    """A connection over which the test says what the other scheduler would."""

    is_closed = False

    def __init__(self, *said: Message) -> None:
        self._reader, self._writer = socket.socketpair()
        self._said = deque(said)

    def fileno(self) -> int:
        return self._reader.fileno()

    def send(self, frames: list[Any]) -> None:
        """Nobody listens."""

    def receive(self) -> list[list[Any]]:
        return [encode(self._said.popleft(), 0, 0)] if self._said else []

    def close(self, linger: float) -> None:
        self._reader.close()
        self._writer.close()


@pytest.mark.parametrize("is_handed_over", [True, False])
def test_a_connection_that_ends_as_the_other_one_steps_down_is_no_loss_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_handed_over: bool
) -> None:
    welcome = Welcome(5, 7, False, 0, 2, True, 1e6, 1e6, 1 << 20)
    refused = Refused("the scheduler at tcp://127.0.0.1:1 leads", is_handed_over)
    monkeypatch.setattr(partner_link, "connect", lambda *_, **__: Played(welcome, refused))
    link = PartnerLink("tcp://127.0.0.1:1", Security.none(), 1 << 20, make_loop("builtin", lambda: None))
    link.dial("tcp://127.0.0.1:2", 100.0)
    until(lambda: not link._is_connecting)
    assert link.receive(100.0) == ([], False)
    assert link.receive(100.1) == ([], True)
    link.close(says_goodbye=False)
    lost = ["the connection to the other scheduler is lost: the scheduler at tcp://127.0.0.1:1 leads"]
    assert caplog.messages == ([] if is_handed_over else lost)
