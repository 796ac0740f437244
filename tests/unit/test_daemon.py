"""The process of an agent, as far as it can be looked at without a scheduler."""

import socket

import pytest

from scaler.agent import daemon as module
from scaler.agent.daemon import Daemon
from scaler.agent.host_store import HostStore
from scaler.agent.limits import limits_of
from scaler.config import AgentConfig, OptionError
from scaler.errors import ConnectionFailed
from scaler.protocol.messages import BalanceResponse
from scaler.transport import Address, Security


class Hanging:
    """A connection that is ended as soon as something was said."""

    is_closed = True

    def __init__(self) -> None:
        self._ends = socket.socketpair()
        self._ends[1].close()

    def fileno(self) -> int:
        return self._ends[0].fileno()

    def send(self, frames) -> None: ...

    def receive(self):
        return []

    def trouble(self) -> str:
        return "it hung up"

    def close(self, linger: float) -> None:
        self._ends[0].close()


def daemon_of(**options) -> Daemon:
    config = AgentConfig(address="tcp://127.0.0.1:1", **options)
    address = Address.parse(config.address)
    store = HostStore(limits_of(config).objects_soft)
    store.open(Security.none(), address, on_its_host=False)
    try:
        return Daemon(config, address, Security.none(), None, store)
    except OptionError:
        store.close()
        raise


class Session:
    """A session with a scheduler that is gone."""

    is_open = False
    welcome: object = "welcome"
    unsaid: tuple[type, ...] = ()

    def has_unsaid(self, kind: type) -> bool:
        return kind in self.unsaid


class Shell:
    """Of a host that may have something."""

    may_be_missed = False


def test_a_host_whose_end_was_announced_waits_for_a_scheduler_only_with_what_somebody_may_want() -> None:
    daemon = daemon_of()
    session, shell, closed = Session(), Shell(), daemon._shell
    daemon._initiator, daemon._shell = session, shell  # type: ignore[assignment]
    assert daemon._is_lonely
    shell.may_be_missed = True
    assert not daemon._is_lonely
    session.welcome = None  # nobody knows of it
    assert daemon._is_lonely
    session.welcome, session.unsaid, shell.may_be_missed = "welcome", (BalanceResponse,), False
    assert not daemon._is_lonely
    session.unsaid, session.is_open = (), True  # the scheduler says when it is over
    assert not daemon._is_lonely
    closed.close()


def test_an_error_that_nobody_expected_ends_an_agent_that_can_not_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*arguments, **options):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module, "connect", refusing)
    daemon = daemon_of()
    daemon.run()
    assert daemon.failure == "no connection to the scheduler can be made: RuntimeError: can't start new thread"


def test_connections_without_a_welcome_are_made_less_and_less_often_and_not_for_ever(monkeypatch, caplog) -> None:
    made = []

    def connect(*arguments, **options):
        made.append(Hanging())
        return made[-1]

    monkeypatch.setattr(module, "connect", connect)
    daemon = daemon_of(death_timeout=0.3)
    daemon.run()
    assert daemon.failure == "it hung up; nobody came within 0.3 s (--death-timeout)"
    assert 2 < len(made) < 10
    assert [record.getMessage() for record in caplog.records if "is lost" in record.getMessage()] == [
        "the connection to the scheduler at tcp://127.0.0.1:1 is lost: it hung up"
    ]


def test_the_log_says_so_when_a_scheduler_is_missed_for_another_reason_than_at_first(monkeypatch, caplog) -> None:
    troubles = ["nothing listens", "nothing listens", "another key", "another key", "nothing listens", "another key"]

    def connect(*arguments, **options):
        if len(troubles) == 1:
            daemon.failure = "that is enough"
        raise ConnectionFailed(troubles.pop(0))

    monkeypatch.setattr(module, "connect", connect)
    monkeypatch.setattr(module.Attempts, "next_pause", lambda self, now: 0.0)
    daemon = daemon_of()
    daemon.run()
    assert [record.getMessage() for record in caplog.records if "trying" in record.getMessage()] == [
        "nothing listens; trying until it is there",
        "another key; trying until it is there",
    ]


def test_a_host_with_more_capabilities_than_can_be_said_says_so_at_once() -> None:
    with pytest.raises(OptionError, match=r"^capabilities are too many: .* are heard"):
        daemon_of(capabilities=tuple(f"{number:x}" for number in range(0x100, 0x100 + 3300)))
    with pytest.raises(OptionError, match=r"^capabilities must have at most 10,000 characters together"):
        daemon_of(capabilities=tuple(f"capability{number:06d}" for number in range(4500)))
