"""Where an agent's store listens: where those find it who reach its scheduler."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaler.agent.host_store import HostStore
from scaler.config import OptionError
from scaler.errors import AddressInUse
from scaler.store.directory import default_root
from scaler.transport import Address, Security


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HostStore]:
    made = HostStore(1 << 30, str(tmp_path / "spill"))
    yield made
    made.close()


@pytest.mark.skipif(not _has_ipv6(), reason="there is no IPv6 here")
def test_a_store_is_found_by_ipv6_if_its_scheduler_is(store: HostStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Address, "reached_from", lambda self: "fd00::7")
    store.open(Security.none(), Address.parse("tcp://[fd00::1]:2345"), on_its_host=False)
    advertised = Address.parse(store.hello[2])
    assert advertised.host == "fd00::7"
    for host in ("::1", "127.0.0.1"):
        with socket.create_connection((host, advertised.port), 5):
            pass


def test_a_store_listens_at_the_port_that_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    monkeypatch.setattr(Address, "reached_from", lambda self: "10.0.0.7")
    made = HostStore(1 << 30, str(tmp_path / "spill"), port)
    try:
        made.open(Security.none(), Address.parse("tcp://10.0.0.1:2345"), on_its_host=False)
        assert made.hello[2] == f"tcp://10.0.0.7:{port}"
        other = HostStore(1 << 30, str(tmp_path / "spill"), port)
        with contextlib.closing(other), pytest.raises(AddressInUse, match=str(port)):
            other.open(Security.none(), Address.parse("tcp://10.0.0.1:2345"), on_its_host=False)
    finally:
        made.close()


def test_a_place_for_spilled_objects_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    before = os.listdir(default_root())
    with pytest.raises(OptionError, match=r"spill_directory cannot be written: .*file"):
        HostStore(1 << 30, str(tmp_path / "file"))
    assert not {name for name in set(os.listdir(default_root())) - set(before) if f"-{os.getpid()}-" in name}
