"""Addresses: what is accepted, what is said about the rest, and the names of local sockets."""

import pickle
import socket

import pytest

from scaler.errors import AddressError, ConnectionFailed
from scaler.transport import Address, Candidates


@pytest.mark.parametrize(
    ("text", "host", "port", "url"),
    [
        ("tcp://127.0.0.1:2345", "127.0.0.1", 2345, "tcp://127.0.0.1:2345"),
        (" tcp://localhost:0/ ", "localhost", 0, "tcp://localhost:0"),
        ("tcp://[::1]:1", "::1", 1, "tcp://[::1]:1"),
        ("tcp://[0:0::1]:1", "::1", 1, "tcp://[::1]:1"),
        ("tcp://*:65535", "0.0.0.0", 65535, "tcp://0.0.0.0:65535"),
        ("tcp://node-7.cluster:80", "node-7.cluster", 80, "tcp://node-7.cluster:80"),
    ],
)
def test_an_address_is_read_and_written(text: str, host: str, port: int, url: str) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.url, str(address)) == (host, port, url, url)
    assert Address.parse(address) is address
    assert Address.parse(url) == address
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no tcp://"),
        ("127.0.0.1:2345", "no tcp://"),
        ("http://127.0.0.1:2345", "only tcp://"),
        ("ipc:///tmp/x", "is for monitors"),
        ("tcp://127.0.0.1", "no port"),
        ("tcp://127.0.0.1:", "no port"),
        ("tcp://127.0.0.1:65536", "no number from 0 to 65535"),
        ("tcp://127.0.0.1:-1", "no number from 0 to 65535"),
        ("tcp://127.0.0.1:2³", "no number from 0 to 65535"),
        ("tcp://127.0.0.1:" + 5000 * "1", "no number from 0 to 65535"),
        ("tcp://:2345", "no usable host"),
        ("tcp://a\x00b:2345", "no usable host"),
        ("tcp://a b:2345", "no usable host"),
        ("tcp://user@host:2345", "no usable host"),
        ("tcp://[nonsense]:2345", "no usable host"),
        ("tcp://::1:2345", "needs brackets"),
    ],
)
def test_a_wrong_address_is_explained_with_the_right_form(text: str, complaint: str) -> None:
    with pytest.raises(AddressError) as caught:
        Address.parse(text)
    assert complaint in str(caught.value)
    assert "tcp://host:port" in str(caught.value)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *[("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True)],
        *[("0.0.0.0", False), ("127.example.org", False), ("10.0.0.1", False), ("::", False)],
    ],
)
def test_loopback_is_what_no_other_machine_reaches(host: str, loopback: bool) -> None:
    assert Address(host, 1).is_loopback is loopback


def test_names_differ_by_user_host_and_port() -> None:
    addresses = [Address("127.0.0.1", 1), Address("127.0.0.2", 1), Address("127.0.0.1", 2), Address("::1", 1)]
    names = {address.local_name(uid) for address in addresses for uid in (0, 1000)}
    assert len(names) == 8
    assert all(name.startswith(b"\0") and len(name) < 108 for name in names)


def test_a_client_looks_for_the_listener_of_every_address_on_this_machine_alone() -> None:
    here = list(Address("127.0.0.2", 5).local_names(1))
    assert here == [Address(host, 5).local_name(1) for host in ("127.0.0.2", "0.0.0.0", "::")]
    elsewhere = Address("203.0.113.7", 5)  # an address reserved for documentation
    assert list(elsewhere.local_names(1)) == [elsewhere.local_name(1)]


def test_everywhere_is_loopback_to_a_client() -> None:
    assert Address("0.0.0.0", 5).for_client() == Address("127.0.0.1", 5)
    assert Address("::", 5).for_client() == Address("::1", 5)
    assert Address("10.0.0.1", 5).for_client() == Address("10.0.0.1", 5)


def test_a_host_name_becomes_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: bytes, port: int, type: int) -> list[tuple[object, ...]]:
        if host != b"node":
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", ("fd00::1", port, 0, 0)), (0, 0, 0, "", ("10.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert Address("node", 5).resolve() == [Address("10.0.0.1", 5), Address("fd00::1", 5)]
    assert Address("localhost", 5).resolve() == [Address("127.0.0.1", 5), Address("::1", 5)]
    assert Address("10.1.1.1", 5).resolve() == [Address("10.1.1.1", 5)]
    with pytest.raises(ConnectionFailed, match="'elsewhere' cannot be resolved"):
        Address("elsewhere", 5).resolve()


@pytest.mark.parametrize("text", ["tcp://head:0", "tcp://head:2345,tcp://head:0"])
def test_nobody_is_looked_for_at_a_port_that_is_still_to_be_taken(text: str) -> None:
    with pytest.raises(AddressError, match=r"'tcp://head:0' has port 0: the scheduler's log says which one it took"):
        Candidates(Address.parse(text))
