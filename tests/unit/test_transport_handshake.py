"""Handshakes by tcp that come to nothing: who dies in one, or is behind a proxy and gone, has no other key."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from support.echo import Echo, Proxy, works

from scaler.errors import ConnectionFailed, ConnectionTimeout, HandshakeRefused
from scaler.transport import Address, Security, connect, connecting
from scaler.transport.connecting import AGAIN

_DEADLINE = 20.0
_SECURITY = Security.ephemeral()
#: Bytes from the scheduler: its greeting has 64 (it says 10 to everybody, and one more what version it speaks), the
#: Welcome of CURVE ends at 234, and the last of Ready is missing at 300.
_CUTS = [0, 1, 10, 11, 63, 64, 65, 233, 234, 300]


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo(_SECURITY)
    yield made
    made.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Callable[..., Proxy]]:
    made: list[Proxy] = []

    def make(*limits: int | None, dies: bool = False) -> Proxy:
        made.append(Proxy(echo.address, *limits, dies=dies))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("cut", _CUTS)
def test_a_scheduler_that_dies_in_the_handshake_is_gone(proxy: Callable[..., Proxy], cut: int) -> None:
    dying = proxy(None, cut, dies=True)
    with pytest.raises(ConnectionFailed, match="nothing listens at") as caught:
        connect(dying.address, _SECURITY, timeout=_DEADLINE)
    assert not isinstance(caught.value, HandshakeRefused)


@pytest.mark.parametrize("cut", _CUTS)
def test_a_scheduler_that_died_in_the_handshake_and_is_back_is_found(proxy: Callable[..., Proxy], cut: int) -> None:
    restarted = proxy(None, cut, None)
    client = connect(restarted.address, _SECURITY, timeout=_DEADLINE)
    works(client)
    client.close()


@pytest.mark.parametrize("cut", [1, 64, 234])
def test_a_proxy_is_no_scheduler_with_another_key_when_the_one_behind_it_dies_in_the_handshake(
    proxy: Callable[..., Proxy], cut: int
) -> None:
    with pytest.raises(ConnectionFailed, match="no scheduler at") as caught:
        connect(proxy(None, cut, 0).address, _SECURITY, timeout=_DEADLINE)
    assert not isinstance(caught.value, HandshakeRefused)


def test_a_proxy_with_nobody_behind_it_is_waited_for(proxy: Callable[..., Proxy]) -> None:
    behind = proxy(*[0] * 12, None)
    client = connect(behind.address, _SECURITY, timeout=_DEADLINE, retry=True)
    works(client)
    client.close()
    assert behind.visitors > 12


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Security.ephemeral(), "was started with another key"),
        (Security(_SECURITY.public, Security.ephemeral().secret), "was started with another key"),
        (Security.none(), "was started with keys .leave out --insecure here, too"),
        (Security.none("SCALER_KEY=insecure"), "was started with keys .leave out SCALER_KEY=insecure here, too"),
    ],
    ids=["own keys", "knows the public key", "no keys", "no keys by the environment"],
)
def test_another_key_is_said_in_one_line_by_way_of_a_proxy_too(
    proxy: Callable[..., Proxy], other: Security, words: str
) -> None:
    with pytest.raises(HandshakeRefused, match=words) as caught:
        connect(proxy(None).address, other, timeout=_DEADLINE, retry=True)
    assert "\n" not in str(caught.value)


def test_who_has_a_key_is_told_of_a_scheduler_that_may_have_none_what_to_say() -> None:
    open_to_all = Echo(Security.none())
    try:
        with pytest.raises(HandshakeRefused, match=r"with --insecure [(]say that here, too"):
            connect(open_to_all.address, _SECURITY, timeout=_DEADLINE, shortcut=False)
    finally:
        open_to_all.close()


def test_another_key_is_said_when_time_is_nearly_over(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "AT_LEAST", _DEADLINE)
    monkeypatch.setattr(connecting, "AGAIN", (0.2, 0.2))
    with pytest.raises(HandshakeRefused, match="another key"):
        connect(echo.address, Security.ephemeral(), timeout=0.2, shortcut=False)


def test_who_is_killed_in_each_handshake_but_the_last_has_the_right_key(proxy: Callable[..., Proxy]) -> None:
    limits = [limit for _ in AGAIN for limit in (None, 64)]
    client = connect(proxy(*limits, None).address, _SECURITY, timeout=_DEADLINE)
    works(client)
    client.close()


def test_who_takes_long_to_hang_up_has_not_looked_at_the_key(
    proxy: Callable[..., Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "PROMPT", 0.0)
    with pytest.raises(ConnectionTimeout, match="does not answer"):
        connect(proxy(None).address, Security.ephemeral(), timeout=_DEADLINE)


def test_who_is_silent_after_a_handshake_was_cut_has_said_nothing_of_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scheduler that was started again, and does not look at its visitors yet."""
    monkeypatch.setattr(connecting, "GREETING", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as door:
        visitors: list[socket.socket] = []

        def serve() -> None:
            for _ in range(2):
                door.accept()[0].close()
            visitors.append(door.accept()[0])

        serving = threading.Thread(target=serve)
        serving.start()
        address = Address("127.0.0.1", door.getsockname()[1])
        with pytest.raises(ConnectionTimeout, match="does not answer"):
            connect(address, _SECURITY, timeout=_DEADLINE, shortcut=False)
        serving.join()
        visitors[0].close()


def test_who_speaks_another_language_is_no_scheduler_and_is_asked_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        visitors: list[socket.socket] = []

        def serve() -> None:
            for _ in range(2):  # a look whether anybody listens, and a connection
                visitors.append(door.accept()[0])
                visitors[-1].send(b"SSH-2.0-OpenSSH_9.6\r\n")

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(HandshakeRefused, match="or it is no scaler scheduler"):
            connect(Address("127.0.0.1", door.getsockname()[1]), _SECURITY, timeout=_DEADLINE, shortcut=False)
        serving.join()
        door.setblocking(False)
        with pytest.raises(BlockingIOError):
            door.accept()
        for visitor in visitors:
            visitor.close()
