"""Agents that have not come to another scheduler are looked for where they listened."""

import contextlib
import select
import socket
from collections.abc import Iterator

import pytest

from scaler.common.host import boot_id
from scaler.scheduler.missing_agents import Missing, MissingAgents, refused


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """Nothing listens there, nor will while the test runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{bound.getsockname()[1]}"


def test_who_does_not_listen_any_more_has_ended(listening: str, silent: str) -> None:
    missing = [Missing(3, f"{listening} {boot_id()}"), Missing(4, f"{silent} {boot_id()}")]
    assert refused(missing, 5.0) == missing[1:]


def test_a_loopback_address_of_another_host_says_nothing(silent: str) -> None:
    assert refused([Missing(3, f"{silent} another"), Missing(4, silent)], 5.0) == []


def test_what_is_no_address_says_nothing() -> None:
    assert refused([Missing(3, "nonsense"), Missing(4, f"tcp://no.such.host.invalid:1 {boot_id()}")], 5.0) == []


def test_a_host_that_does_not_answer_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch, silent: str) -> None:
    near, far = socket.socketpair()
    with far:
        monkeypatch.setattr("scaler.scheduler.missing_agents._connect", lambda where: near)
        near.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # then it is as one that is not made yet: nothing can be written
            while True:
                near.send(b"x" * 65536)
        assert refused([Missing(3, silent)], 0.01) == []
    assert near.fileno() == -1


def test_a_thread_looks_and_tells(silent: str) -> None:
    agents = MissingAgents()
    agents.look_for([(4, f"{silent} {boot_id()}")])
    assert select.select([agents.fileno()], [], [], 20)[0]
    assert agents.take() == [Missing(4, f"{silent} {boot_id()}")]
    agents.close()
