"""Whoever does not belong here, or speaks nonsense, loses his connection; nobody else loses anything."""

import contextlib
import dataclasses
import itertools
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

from scaler import Client, HandshakeRefused
from scaler.protocol.codec import decode, encode
from scaler.protocol.hello import hello_of
from scaler.protocol.messages import Heartbeat, Refused, Task, Welcome, u32
from scaler.serialize.versions import packages
from scaler.transport import Address, Security, connect, load_or_create

STRANGER = 65534  # "nobody"
both = pytest.mark.parametrize("shortcut", [True, False], ids=["local socket", "tcp"])


def double(x):
    return 2 * x


@pytest.fixture(scope="module")
def cluster(lasting_daemons):
    """A scheduler and an agent that all who know no better come to, one after the other."""
    lasting_daemons.start_scheduler()
    lasting_daemons.start_agent(1)
    return lasting_daemons


@contextlib.contextmanager
def at_work(daemons):
    """A client with work under way, whose connection must outlive the test."""
    with Client(daemons.address) as client:
        pending = [client.submit(double, x) for x in range(100)]
        connection = connection_of(client)
        yield client
        assert [future.result(20) for future in pending] == [2 * x for x in range(100)]
        assert client.submit(double, 21).result(20) == 42
        assert connection_of(client) is connection
        assert not connection.is_closed
        assert alive(daemons.scheduler.pid)
        assert "Traceback" not in daemons.scheduler.text


@pytest.fixture
def friend(cluster):
    with at_work(cluster) as client:
        yield client


@pytest.fixture
def stranger(cluster):
    """Connects as a program of the same user would that speaks another language."""
    made = []

    def make(shortcut, address=cluster.address):
        made.append(connect(address, load_or_create(), shortcut=shortcut))
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


_numbers = itertools.count(4711)


def hello(**more):
    """The greeting of a stranger whose name and session nobody else has."""
    number = next(_numbers)
    return hello_of("client", f"stranger-{number}", number, **more)


def introduced(connection):
    """Let a stranger in; his name."""
    said = hello()
    connection.send(encode(said))
    until(lambda: any(isinstance(decode(frames).message, Welcome) for frames in connection.receive()))
    return said.name


HELLO = encode(hello())
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
def test_nonsense_instead_of_a_greeting_costs_the_connection(cluster, friend, stranger, frames, shortcut):
    connection = stranger(shortcut)
    connection.send(frames)
    said = answer(connection)
    assert all(isinstance(message, Refused) for message in said)
    cluster.scheduler.says("from (this machine|127.0.0.1) sent bytes that are no message")  # once for all of these


@both
@pytest.mark.parametrize("frames", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_after_the_greeting_costs_the_connection(cluster, friend, stranger, frames, shortcut):
    connection = stranger(shortcut)
    name = introduced(connection)
    connection.send(frames)
    assert all(isinstance(message, Refused) for message in answer(connection))
    cluster.scheduler.says(f"client .*{name}.* is gone")


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
def test_another_version_is_told_in_one_line_what_differs(daemons, stranger, changes, words, shortcut):
    daemons.start_scheduler()  # one of its own: of the same host it says so once
    daemons.start_agent(1)
    said = hello(packages=packages())
    with at_work(daemons):
        connection = stranger(shortcut, daemons.address)
        connection.send(encode(dataclasses.replace(said, **changes)))
        (refused,) = answer(connection)
    assert re.match(words, refused.reason)
    assert "\n" not in refused.reason
    origin = "this machine" if shortcut else r"127\.0\.0\.1"
    daemons.scheduler.says(f"refused client {said.name} from {origin}: {words}")


@both
def test_a_message_before_the_greeting_is_refused(cluster, friend, stranger, shortcut):
    connection = stranger(shortcut)
    connection.send(encode(Heartbeat(1.0), 1, 0))
    until(lambda: any(isinstance(decode(frames).message, Refused) for frames in connection.receive()))


@both
def test_a_well_formed_message_that_makes_no_sense_costs_the_connection(cluster, friend, stranger, shortcut):
    connection = stranger(shortcut)
    name = introduced(connection)
    nonsense = Task(0, 1, 10, 0, 0, 12345, 67890, "f", 0, 0, 0.0, (), u32([5, 3]))
    connection.send(encode(nonsense, 1, 0))
    cluster.scheduler.says(f"client .*{name}.* is gone")


@both
def test_a_connection_that_says_nothing_disturbs_nobody(cluster, friend, stranger, shortcut):
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
def test_where_descriptors_are_few_silent_connections_keep_nobody_out(daemons, shortcut, monkeypatch):
    monkeypatch.setattr("scaler.transport.unix.AVAILABLE", shortcut)
    daemons.start_scheduler()
    daemons.start_agent(1)
    with at_work(daemons) as friend, contextlib.ExitStack() as stack:
        resource.prlimit(daemons.scheduler.pid, resource.RLIMIT_NOFILE, (64, 64))
        for raw in silent_connections(Address.parse(daemons.address), shortcut, 150):
            stack.callback(raw.close)
        assert friend.submit(double, 3).result(20) == 6
        assert daemons.client(timeout=20).submit(double, 4).result(20) == 8
        daemons.scheduler.says("it did not say who it is")
        assert len(re.findall("it did not say who it is", daemons.scheduler.text)) == 1
        told = re.findall("no new connections for now: .* a process may have 64 open", daemons.scheduler.text)
        assert 1 <= len(told) <= 2, told  # by who listens for programs, and for monitors


def test_raw_bytes_on_either_socket_disturb_nobody(cluster, friend):
    address = Address.parse(cluster.address)
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
def test_a_client_with_other_keys_is_turned_away(cluster, friend, keys, monkeypatch, tmp_path):
    monkeypatch.setattr("scaler.transport.unix.AVAILABLE", False)  # as if it was on another host
    with pytest.raises(HandshakeRefused, match="key"):
        cluster.client(security=keys)
    assert cluster.client().submit(double, 4).result(20) == 8


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")
@pytest.mark.skipif(sys.platform != "linux", reason="needs a user that Linux has")
@pytest.mark.parametrize(
    "keys", ["load_or_create(environ={'HOME': '/nonexistent'})", "Security.none()", "Security.ephemeral()"]
)
def test_another_user_is_turned_away_and_runs_nothing(cluster, friend, keys, tmp_path):
    mark = tmp_path / "was here"
    program = f"""
import os, sys
import scaler, scaler.client
from scaler.transport import Security, connect, load_or_create, zeromq
import scaler.transport.unix, scaler.protocol.codec, scaler.serialize.call
os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})
try:
    client = scaler.Client({cluster.address!r}, security={keys}, timeout=3)
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
