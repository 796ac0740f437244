"""The connection between two schedulers, as far as it can be looked at without a second one."""

import socket

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
