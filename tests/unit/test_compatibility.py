"""Who can work together: the same protocol for all, the same Python and packages for those that pickle."""

from dataclasses import replace

import pytest

from scaler.protocol.codes import Role
from scaler.protocol.compatibility import Compatibility
from scaler.protocol.hello import hello_of
from scaler.protocol.messages import PROTOCOL_VERSION, Hello
from scaler.version import __version__

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
            "this client runs Python 3.12, agent node 1 Python 3.11: functions can't travel between them",
        ),
        (
            pickling(packages="scaler=0.1.0 cloudpickle=2.0"),
            "this client has cloudpickle 2.0, agent node 1 cloudpickle 3.1: install the same on both",
        ),
        (
            pickling(Role.AGENT, packages="scaler=0.2.0 cloudpickle=3.1"),
            "this agent has scaler 0.2.0, agent node 1 scaler 0.1.0: install the same on both",
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
