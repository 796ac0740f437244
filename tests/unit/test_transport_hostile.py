"""Strangers: other users, other keys, other protocols. They get nothing, and nobody else notices them."""

import asyncio
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop
import zmq
from support.echo import Echo, works
from support.waiting import until

from scaler.errors import ConnectionFailed, HandshakeRefused
from scaler.transport import Security, connect, listen
from scaler.transport.zeromq_handshakes import NO_HANDSHAKE, NO_KEY, NO_KEY_HERE, OTHER_KEY, Handshakes

_DEADLINE = 20.0
_SECURITY = Security.ephemeral()
INSECURE = Security.none()
_linux = pytest.mark.skipif(sys.platform != "linux", reason="local sockets are abstract names, which Linux has")
_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")
_STRANGER = 65534  # "nobody"


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo(_SECURITY)
    yield made
    made.close()


@pytest.fixture
def friends(echo: Echo) -> Iterator[None]:
    """A client of each kind that works before and after the test."""
    clients = [connect(echo.address, _SECURITY, shortcut=shortcut) for shortcut in (True, False)]
    for client in clients:
        works(client)
    yield
    for client in clients:
        works(client)
        client.close()


def _end_of(stranger: socket.socket) -> bytes:
    """What the listener says until it closes the connection."""
    stranger.settimeout(_DEADLINE)
    said = b""
    try:
        while data := stranger.recv(65536):
            said += data
    except ConnectionResetError:
        pass
    return said


@pytest.mark.usefixtures("friends")
@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"x" * 100,
        b"\xff" * 1000,
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL" + bytes(48) + b"\x04\x29" + b"x" * 41,
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0CURVE" + bytes(47) + b"\x04\xc8" + b"\x05HELLO" + os.urandom(194),
    ],
    ids=["http", "ones", "null", "curve"],
)
def test_garbage_on_the_tcp_port_ends_that_connection_alone(echo: Echo, garbage: bytes) -> None:
    with socket.create_connection((echo.address.host, echo.address.port), _DEADLINE) as stranger:
        stranger.sendall(garbage)
        assert len(_end_of(stranger)) < 200
    assert set(echo.heard) == {b"ping"}


@pytest.mark.parametrize(
    "first_versions",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"a=b; " * 300 + b"\r\n\r\n",
        b"\x01\x00\x06\x00hello",
        b"\x03\x00ab\x06\x00hello\x03\x01ab\x03\x00cd",
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x01\x05\0\0\0\x05hello\0\x05hello",
    ],
    ids=["http", "1.0", "1.0 with a name", "2.0"],
)
def test_what_zeromq_takes_for_its_first_versions_where_there_are_no_keys_is_nobodys(first_versions: bytes) -> None:
    open_to_all = Echo(INSECURE)
    try:
        client = connect(open_to_all.address, INSECURE, shortcut=False)
        works(client)
        for _ in range(5):
            with socket.create_connection((open_to_all.address.host, open_to_all.address.port), _DEADLINE) as stranger:
                until(lambda: open_to_all.listener.state.connections == 2)
                stranger.sendall(first_versions)
                works(client)
            until(lambda: open_to_all.listener.state.connections == 1)
        works(client)
        client.close()
        assert set(open_to_all.heard) == {b"ping"}
    finally:
        open_to_all.close()


def test_who_says_more_than_is_received_has_to_keep_it_until_it_is() -> None:
    """Nothing is lost, and what others say is not behind it."""
    listener = listen("tcp://127.0.0.1:0", INSECURE, shortcut=False)
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.LINGER, 0)
    dealer.setsockopt(zmq.SNDHWM, 1)
    dealer.connect(listener.address.url)
    heard: list[bytes] = []

    def receive() -> bytes:
        """What has come; the last of it."""
        heard.extend(bytes(message[0]) for _, message in listener.receive())
        return heard[-1] if heard else b""

    try:
        dealer.send_multipart([b"0"])
        until(lambda: receive() == b"0")  # who is there
        sent = 1
        while sent < 1_000 and dealer.poll(200, zmq.POLLOUT):
            dealer.send_multipart([str(sent).encode(), bytes(100_000)])
            sent += 1
        assert sent < 1_000
        friend = connect(listener.address, INSECURE, shortcut=False)
        friend.send([b"ping"])
        until(lambda: receive() and len(heard) == sent + 1)
        heard.remove(b"ping")
        assert heard == [str(number).encode() for number in range(sent)]
        friend.close()
    finally:
        dealer.close()
        context.term()
        listener.close(0)


@pytest.mark.parametrize("is_near", [pytest.param(True, marks=_linux, id="unix"), pytest.param(False, id="tcp")])
def test_to_whom_much_waits_to_be_sent_is_told_until_it_reads(is_near: bool) -> None:
    listener = listen("tcp://127.0.0.1:0", INSECURE)
    listener.state.share_unsent(0)  # of nothing each has the least
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.RCVHWM, 1)
    near = connect(listener.address, INSECURE) if is_near else None
    try:
        if near is not None:
            near.send([b"hello"])
        else:
            dealer.connect(listener.address.url)
            dealer.send(b"hello")
        peers: list[int] = []
        until(lambda: peers.extend(peer for peer, _ in listener.receive()) or bool(peers))
        sent = 0
        while not listener.state.swamped:
            listener.send(peers[0], [bytes(1 << 18)])
            sent += 1
            assert sent < 200
        assert listener.state.take_swamped()[peers[0]] > 1 << 20
        read = 0

        def has_read() -> bool:
            nonlocal read
            listener.receive()
            if near is not None:
                read += len(near.receive())
            else:
                read += dealer.poll(10) and bool(dealer.recv())
            return read == sent

        until(has_read)
        listener.send(peers[0], [b"more"])
        assert not listener.state.swamped
    finally:
        if near is not None:
            near.close(0)
        dealer.close(0)
        context.term()
        listener.close(0)


@pytest.mark.parametrize(
    ("garbage", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", NO_HANDSHAKE),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), NO_HANDSHAKE),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0CURVE" + bytes(47) + b"\x04\xc8\x05HELLO" + bytes(194), NO_HANDSHAKE),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL" + bytes(48) + b"\x04\x29" + b"x" * 41, NO_KEY),
    ],
    ids=["http", "tls", "curve", "null"],
)
def test_who_speaks_something_else_is_in_the_log_once_with_its_address(
    echo: Echo, caplog: pytest.LogCaptureFixture, garbage: bytes, why: str
) -> None:
    client = connect(echo.address, _SECURITY, shortcut=False)
    for _ in range(3):
        with socket.create_connection((echo.address.host, echo.address.port), _DEADLINE) as stranger:
            until(lambda: echo.listener.state.connections == 2)  # of one that is gone at once no address may be known
            stranger.sendall(garbage)
            _end_of(stranger)
        until(lambda: echo.listener.state.connections == 1)
    works(client)
    client.close()
    assert caplog.messages == [f"refused a connection from 127.0.0.1: {why}"]


@pytest.mark.parametrize(
    "other",
    [Security.ephemeral(), Security(_SECURITY.public, Security.ephemeral().secret)],
    ids=["own keys", "knows the public key"],
)
def test_who_has_another_key_is_in_the_log_once(echo: Echo, caplog: pytest.LogCaptureFixture, other: Security) -> None:
    for _ in range(2):
        with pytest.raises(HandshakeRefused):
            connect(echo.address, other, timeout=_DEADLINE, shortcut=False)
    until(lambda: caplog.messages)
    (said,) = caplog.messages
    assert said.startswith("refused a connection from ")
    assert said.endswith(f": {OTHER_KEY}")


def test_handshakes_that_went_well_are_no_news_though_nothing_is_said_after_them() -> None:
    mismatch = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
    for insecure, why in ((False, NO_KEY), (True, NO_KEY_HERE)):
        handshakes = Handshakes(insecure)
        handshakes.hear(zmq.EVENT_HANDSHAKE_SUCCEEDED, 0)
        handshakes.hear(zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400)
        handshakes.hear(*mismatch)
        assert handshakes.end(has_spoken=False) == why
        handshakes.hear(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, 104)
        assert handshakes.end(has_spoken=False) is None
        handshakes.speak()
        assert handshakes.end(has_spoken=True) is None
        assert handshakes.end(has_spoken=False) is None
        assert handshakes.end(has_spoken=False) == NO_HANDSHAKE


def test_who_only_looks_or_has_nothing_to_say_is_not_in_the_log(echo: Echo, caplog: pytest.LogCaptureFixture) -> None:
    for shortcut in (True, False, False):
        connect(echo.address, _SECURITY, shortcut=shortcut).close()
        socket.create_connection((echo.address.host, echo.address.port), _DEADLINE).close()
    client = connect(echo.address, _SECURITY, shortcut=False)
    works(client)
    client.close()
    until(lambda: not echo.listener.state.connections)
    assert caplog.messages == []


@pytest.mark.usefixtures("friends")
def test_a_port_scan_disturbs_nobody(echo: Echo) -> None:
    for _ in range(50):
        socket.create_connection((echo.address.host, echo.address.port), _DEADLINE).close()


@_linux
@pytest.mark.usefixtures("friends")
@pytest.mark.parametrize(
    "garbage",
    [b"\xff" * 100, struct.pack("<I", 0), struct.pack("<IQ", 1, 1 << 62), struct.pack("<IQ", 1, 100) + b"cut"],
    ids=["ones", "no frames", "absurd size", "truncated"],
)
def test_garbage_on_the_local_socket_ends_that_connection_alone(echo: Echo, garbage: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(echo.address.local_name(os.geteuid()))
        stranger.sendall(garbage)
        stranger.shutdown(socket.SHUT_WR)
        assert _end_of(stranger) == b""
    assert set(echo.heard) == {b"ping"}


@pytest.mark.usefixtures("friends")
@pytest.mark.parametrize(
    "other",
    [Security.ephemeral(), Security(_SECURITY.public, Security.ephemeral().secret), Security.none()],
    ids=["own keys", "knows the public key", "no keys"],
)
def test_whoever_has_another_key_is_turned_away_and_told_so(echo: Echo, other: Security) -> None:
    with pytest.raises(HandshakeRefused, match=r"was started with another key|was started with keys"):
        connect(echo.address, other, timeout=_DEADLINE, shortcut=False, retry=True)


def test_a_listener_that_knows_the_key_is_not_enough_without_the_secret() -> None:
    """The public key alone makes no scheduler: a client does not talk to one that stole it."""
    thief = Echo(Security(_SECURITY.public, Security.ephemeral().secret))
    try:
        with pytest.raises(ConnectionFailed):
            connect(thief.address, _SECURITY, timeout=_DEADLINE, shortcut=False)
        assert thief.heard == []
    finally:
        thief.close()


def test_without_keys_on_either_side_everybody_may_enter() -> None:
    everybody = Echo(Security.none())
    try:
        client = connect(everybody.address, Security.none(), shortcut=False)
        works(client)
        client.close()
        with pytest.raises(HandshakeRefused):
            connect(everybody.address, _SECURITY, shortcut=False)
    finally:
        everybody.close()


def _as_stranger(code: str, *arguments: str) -> str:
    """Run `code` as another user; everything is imported before, because that user may be unable to read it."""
    program = (
        "import os, sys; from scaler.transport import *; from scaler.transport import zeromq\n"
        f"os.setgroups([]); os.setgid({_STRANGER}); os.setuid({_STRANGER})\n" + code
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environ, capture_output=True, text=True, timeout=_DEADLINE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@_linux
@_root
@pytest.mark.usefixtures("friends")
def test_another_user_gets_in_neither_by_the_local_socket_nor_by_tcp(echo: Echo) -> None:
    name = echo.address.local_name(os.geteuid()).decode()[1:]
    said = _as_stranger(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0' + sys.argv[2]); s.settimeout(10)\n"
        "try: s.sendall(b'\\1\\0\\0\\0\\4\\0\\0\\0\\0\\0\\0\\0evil'); print(s.recv(100))\n"
        "except ConnectionError: print(b'')\n"
        "try: connect(sys.argv[1], load_or_create(environ={'HOME': '/nonexistent'}))\n"
        "except Exception as error: print(type(error).__name__)",
        echo.address.url,
        name,
    )
    assert said.split() == ["b''", "HandshakeRefused"]
    assert set(echo.heard) == {b"ping"}


@_linux
@_root
def test_another_user_who_takes_the_local_name_catches_nobody() -> None:
    first = Echo(_SECURITY)
    address = first.address
    first.close()
    program = (
        "import os, socket, sys\n"
        f"os.setgroups([]); os.setgid({_STRANGER}); os.setuid({_STRANGER})\n"
        "s = socket.socket(socket.AF_UNIX); s.bind('\\0' + sys.argv[1]); s.listen()\n"
        "print('ready', flush=True); sys.stdin.read()\n"
    )
    name = address.local_name(os.geteuid()).decode()[1:]
    running = subprocess.Popen(
        [sys.executable, "-c", program, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        listener = listen(address, _SECURITY)  # tcp works all the same
        try:
            with ThreadPoolExecutor(1) as pool:
                made = pool.submit(connect, address, _SECURITY)
                while not made.done():
                    select.select([listener], [], [], 0.05)
                    listener.receive()
            client = made.result()
            assert client.kind == "tcp"
            client.close()
        finally:
            listener.close()
    finally:
        running.kill()
        running.communicate()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("shortcut", [True, False], ids=["near", "far"])
def test_an_event_loop_watches_one_descriptor_of_each_end(echo: Echo, loop: object, shortcut: bool) -> None:
    client = connect(echo.address, _SECURITY, shortcut=shortcut)
    body = bytes(1 << 20)

    async def talk() -> int:
        finished = asyncio.get_running_loop().create_future()
        heard = []

        def readable() -> None:
            heard.extend(client.receive())
            if len(heard) == 40 and not finished.done():
                finished.set_result(len(heard))

        asyncio.get_running_loop().add_reader(client.fileno(), readable)
        for _ in range(40):
            client.send([b"part", body])
        try:
            return await asyncio.wait_for(finished, _DEADLINE)
        finally:
            asyncio.get_running_loop().remove_reader(client.fileno())

    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        assert runner.run(talk()) == 40
    client.close()
