"""The process of an agent, as far as it can be looked at without a scheduler."""

import pytest

from scaler.agent import daemon as module
from scaler.agent.daemon import Daemon
from scaler.agent.host_store import HostStore
from scaler.agent.limits import limits_of
from scaler.config import AgentConfig
from scaler.transport import Address, Security


def test_an_error_that_nobody_expected_ends_an_agent_that_can_not_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*arguments, **options):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module, "connect", refusing)
    config = AgentConfig(address="tcp://127.0.0.1:1")
    address = Address.parse(config.address)
    store = HostStore(limits_of(config).objects_soft)
    store.open(Security.none(), address, on_its_host=False)
    daemon = Daemon(config, address, Security.none(), None, store)
    daemon.run()
    assert daemon.failure == "no connection to the scheduler can be made: RuntimeError: can't start new thread"
