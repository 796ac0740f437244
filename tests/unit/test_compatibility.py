"""Who can work together: the same protocol for all, the same Python and packages for those that pickle."""

from dataclasses import replace

import pytest

from scaler.protocol.codes import Role
from scaler.protocol.compatibility import Compatibility
from scaler.protocol.hello import hello_of
from scaler.protocol.messages import PROTOCOL_VERSION, Hello
from scaler.version import __version__

HERE = "; 1 agent and no clients are here with that, and when they have gone others may come"
VERSIONS = "scaler=0.1.0 cloudpickle=3.1"


def pickling(role: str = Role.CLIENT, name: str = "a", python: str = "3.11", packages: str = VERSIONS) -> Hello:
    return replace(hello_of(role, name, 1, packages=packages), python=python)


@pytest.fixture
def those() -> Compatibility:
    return Compatibility(PROTOCOL_VERSION)


def test_the_first_that_pickles_may_have_any_versions(those: Compatibility) -> None:
    assert those.refusal(pickling(python="2.7", packages="cloudpickle=0.1 scaler=7")) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            pickling(python="3.12"),
            f"this client runs Python 3.12, agent node 1 Python 3.11: functions can't travel between them{HERE}",
        ),
        (
            pickling(packages="scaler=0.1.0 cloudpickle=2.0"),
            f"this client has cloudpickle 2.0, agent node 1 cloudpickle 3.1: install the same on both{HERE}",
        ),
        (
            pickling(Role.AGENT, packages="scaler=0.2.0 cloudpickle=3.1"),
            f"this agent has scaler 0.2.0, agent node 1 scaler 0.1.0: install the same on both{HERE}",
        ),
        (
            pickling(packages="gibberish scaler=0.1.0"),
            "this client has pickles to send, and does not say by which cloudpickle: update it",
        ),
        (
            replace(pickling(), protocol=99),
            f"this client (scaler 0.1.0) speaks protocol 99, the scheduler (scaler {__version__}) protocol "
            f"{PROTOCOL_VERSION}: install the same scaler on both",
        ),
    ],
    ids=["python", "cloudpickle", "scaler", "unsaid", "protocol"],
)
def test_a_refusal_says_in_one_line_who_has_what(those: Compatibility, changed: Hello, words: str) -> None:
    those.admit(1, pickling(Role.AGENT, "node\n1"))
    assert those.refusal(pickling()) is None
    assert those.refusal(changed) == words


def test_whoever_is_refused_is_told_how_many_are_here(those: Compatibility) -> None:
    """A client that was left open is soon ended; a cluster is not."""
    those.admit(1, pickling(name="idle"))
    agent = pickling(Role.AGENT, packages="scaler=0.2.0 cloudpickle=3.1")
    both = "this agent has scaler 0.2.0, {} scaler 0.1.0: install the same on both; {} are here with that, and when "
    both += "they have gone others may come"
    assert those.refusal(agent) == both.format("client idle", "no agents and 1 client")
    those.admit(2, pickling(Role.AGENT, "node"))
    those.admit(3, pickling(Role.AGENT, "other"))
    assert those.refusal(agent) == both.format("agent node", "2 agents and 1 client")


def test_who_never_looks_into_payloads_may_run_any_python(those: Compatibility) -> None:
    those.admit(1, pickling())
    assert those.refusal(replace(hello_of(Role.STORE, "store", 1), python="3.99")) is None


def test_a_store_does_not_decide_for_others(those: Compatibility) -> None:
    those.admit(1, replace(hello_of(Role.STORE, "store", 1), python="3.99"))
    assert those.refusal(pickling()) is None


def test_one_that_is_left_of_those_that_pickle_still_decides(those: Compatibility) -> None:
    those.admit(1, pickling(name="first"))
    those.admit(2, pickling(name="second"))
    those.forget(1)
    refusal = those.refusal(pickling(python="3.12"))
    assert refusal is not None
    assert "client second Python 3.11" in refusal


def test_when_all_that_pickle_have_gone_the_next_one_decides_anew(those: Compatibility) -> None:
    those.admit(1, pickling())
    those.forget(1)
    those.admit(2, pickling(python="3.12"))
    assert those.refusal(pickling(python="3.12")) is None
    assert those.refusal(pickling(python="3.11")) is not None
