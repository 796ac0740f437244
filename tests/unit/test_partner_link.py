"""The connection between two schedulers, as far as it can be looked at without a second one."""

import socket
import threading

import pytest
from support import until

from scaler.common.loop import make_loop
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
