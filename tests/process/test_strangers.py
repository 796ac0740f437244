"""Whoever does not belong here, or speaks nonsense, loses his connection; nobody else loses anything."""

import dataclasses
import os
import re
import resource
import select
import socket
import struct
import subprocess
import sys
import time

import pytest
from support import DEADLINE, alive, until
from support.client_parts import connection_of
from support.programs import environment

from scaler import HandshakeRefused
from scaler.protocol.codec import decode, encode
from scaler.protocol.hello import hello_of
from scaler.protocol.messages import Heartbeat, Refused, Task, Welcome, u32
from scaler.serialize.versions import packages
from scaler.transport import Address, Security, connect, load_or_create

STRANGER = 65534  # "nobody"
both = pytest.mark.parametrize("shortcut", [True, False], ids=["local socket", "tcp"])


def double(x):
    return 2 * x


@pytest.fixture
def friend(daemons):
    """A client with work under way, whose connection must outlive the test."""
    daemons.start_scheduler()
    daemons.start_agent(1)
    client = daemons.client()
    pending = [client.submit(double, x) for x in range(100)]
    connection = connection_of(client)
    yield client
    assert [future.result(20) for future in pending] == [2 * x for x in range(100)]
    assert client.submit(double, 21).result(20) == 42
    assert connection_of(client) is connection
    assert not connection.is_closed
    assert alive(daemons.scheduler.pid)


@pytest.fixture
def stranger(daemons):
    """Connects as a program of the same user would that speaks another language."""
    made = []

    def make(shortcut):
        made.append(connect(daemons.address, load_or_create(), shortcut=shortcut))
        return made[-1]

    yield make
    for connection in made:
        connection.close(0)


def answer(connection):
    """What comes until the other side refuses or closes the connection.

    Over tcp the other side can't close it, and says so instead; whatever is sent afterwards is not heard.
    """
    said = []
    end = time.monotonic() + DEADLINE
    while not connection.is_closed and not (connection.kind == "tcp" and said):
        assert time.monotonic() < end, f"the connection is still open, after {said}"
        select.select([connection.fileno()], [], [], 0.05)
        said += [decode(frames).message for frames in connection.receive()]
    return said


def introduced(connection):
    connection.send(encode(hello_of("client", "stranger", 4711)))
    until(lambda: any(isinstance(decode(frames).message, Welcome) for frames in connection.receive()))
    return connection


HELLO = encode(hello_of("client", "stranger", 4711))
NONSENSE = {
    "garbage": [os.urandom(200)],
    "ones": [b"\xff" * 64],
    "an empty frame": [b""],
    "many frames": [b"x"] * 1000,
    "a truncated message": [bytes(HELLO[0])[: len(bytes(HELLO[0])) // 2]],
    "a message with its end cut off": [bytes(HELLO[0])[:-8]],
    "a bit flipped in its table": [bytes([bytes(HELLO[0])[0] ^ 0x40]) + bytes(HELLO[0])[1:]],
}


@both
@pytest.mark.parametrize("frames", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_instead_of_a_greeting_costs_the_connection(daemons, friend, stranger, frames, shortcut):
    connection = stranger(shortcut)
    connection.send(frames)
    said = answer(connection)
    assert all(isinstance(message, Refused) for message in said)
    daemons.scheduler.says("from (this machine|127.0.0.1) sent bytes that are no message")


@both
@pytest.mark.parametrize("frames", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_after_the_greeting_costs_the_connection(daemons, friend, stranger, frames, shortcut):
    connection = introduced(stranger(shortcut))
    connection.send(frames)
    assert all(isinstance(message, Refused) for message in answer(connection))
    daemons.scheduler.says("client .*stranger.* is gone")


@both
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"protocol": 99},
            r"this client \(scaler \S+\) speaks protocol 99, the scheduler \(scaler \S+\) protocol \d+: ",
        ),
        ({"python": "2.7"}, r"this client runs Python 2\.7, (agent|client) .* Python 3\."),
        (
            {"packages": "scaler=0.0.1 cloudpickle=1.0"},
            r"this client has cloudpickle 1\.0, (agent|client) .* cloudpickle",
        ),
        ({"packages": "gibberish"}, "this client has pickles to send, and does not say by which cloudpickle"),
    ],
    ids=["protocol", "python", "package", "no packages"],
)
def test_another_version_is_told_in_one_line_what_differs(daemons, friend, stranger, changes, words, shortcut):
    connection = stranger(shortcut)
    hello = hello_of("client", "stranger", 4711, packages=packages())
    connection.send(encode(dataclasses.replace(hello, **changes)))
    (refused,) = answer(connection)
    assert re.match(words, refused.reason)
    assert "\n" not in refused.reason
    origin = "this machine" if shortcut else r"127\.0\.0\.1"
    daemons.scheduler.says(f"refused client stranger from {origin}: {words}")


@both
def test_a_message_before_the_greeting_is_refused(daemons, friend, stranger, shortcut):
    connection = stranger(shortcut)
    connection.send(encode(Heartbeat(1.0), 1, 0))
    until(lambda: any(isinstance(decode(frames).message, Refused) for frames in connection.receive()))


@both
def test_a_well_formed_message_that_makes_no_sense_costs_the_connection(daemons, friend, stranger, shortcut):
    connection = introduced(stranger(shortcut))
    nonsense = Task(0, 1, 10, 0, 0, 12345, 67890, "f", 0, 0, 0.0, (), u32([5, 3]))
    connection.send(encode(nonsense, 1, 0))
    daemons.scheduler.says("client .*stranger.* is gone")


@both
def test_a_connection_that_says_nothing_disturbs_nobody(daemons, friend, stranger, shortcut):
    for _ in range(20):
        stranger(shortcut)
    assert friend.map(double, range(100), timeout=20) == [2 * x for x in range(100)]


def silent_connections(address, shortcut, number):
    """So many connections that say nothing."""
    made = []
    for _ in range(number):
        raw = socket.socket(socket.AF_UNIX if shortcut else socket.AF_INET)
        made.append(raw)
        raw.setblocking(False)
        raw.connect_ex(address.local_name(os.geteuid()) if shortcut else (address.host, address.port))
    return made


@both
def test_where_descriptors_are_few_silent_connections_keep_nobody_out(daemons, friend, shortcut, monkeypatch):
    monkeypatch.setattr("scaler.transport.unix.AVAILABLE", shortcut)
    resource.prlimit(daemons.scheduler.pid, resource.RLIMIT_NOFILE, (64, 64))
    silent = silent_connections(Address.parse(daemons.address), shortcut, 150)
    try:
        assert friend.submit(double, 3).result(20) == 6
        assert daemons.client(timeout=20).submit(double, 4).result(20) == 8
        daemons.scheduler.says("it did not say who it is")
        assert len(re.findall("it did not say who it is", daemons.scheduler.text)) == 1
        told = re.findall("no new connections for now: .* a process may have 64 open", daemons.scheduler.text)
        assert 1 <= len(told) <= 2, told  # by who listens for programs, and for monitors
    finally:
        for raw in silent:
            raw.close()


def test_raw_bytes_on_either_socket_disturb_nobody(daemons, friend):
    address = Address.parse(daemons.address)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(address.local_name(os.geteuid()))
        raw.sendall(struct.pack("<IQ", 1, 1 << 60) + b"x" * 1000)
        raw.settimeout(DEADLINE)
        try:
            assert raw.recv(100) == b""
        except ConnectionResetError:
            pass
    with socket.create_connection((address.host, address.port), DEADLINE) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100)
        try:
            while raw.recv(100):
                pass
        except ConnectionResetError:
            pass


@pytest.mark.parametrize("keys", [Security.ephemeral(), Security.none()], ids=["other keys", "no keys"])
def test_a_client_with_other_keys_is_turned_away(daemons, friend, keys, monkeypatch, tmp_path):
    monkeypatch.setattr("scaler.transport.unix.AVAILABLE", False)  # as if it was on another host
    with pytest.raises(HandshakeRefused, match="key"):
        daemons.client(security=keys)
    assert daemons.client().submit(double, 4).result(20) == 8


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")
@pytest.mark.skipif(sys.platform != "linux", reason="needs a user that Linux has")
@pytest.mark.parametrize(
    "keys", ["load_or_create(environ={'HOME': '/nonexistent'})", "Security.none()", "Security.ephemeral()"]
)
def test_another_user_is_turned_away_and_runs_nothing(daemons, friend, keys, tmp_path):
    mark = tmp_path / "was here"
    program = f"""
import os, sys
import scaler, scaler.client
from scaler.transport import Security, connect, load_or_create, zeromq
import scaler.transport.unix, scaler.protocol.codec, scaler.serialize.call
os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})
try:
    client = scaler.Client({daemons.address!r}, security={keys}, timeout=3)
    client.submit(open, {str(mark)!r}, "w").result(5)
except scaler.ConnectionFailed as error:
    print(type(error).__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=DEADLINE, cwd="/"
    )
    assert done.stderr == ""
    assert done.stdout == "HandshakeRefused\n"
    assert not mark.exists()
