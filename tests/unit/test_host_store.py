"""Where an agent's store listens: where those find it who reach its scheduler."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaler.agent.host_store import HostStore
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
