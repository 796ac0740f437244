"""Peers of another protocol version are told so, in one line on both sides, and end."""

import os
import shutil
from pathlib import Path

import pytest
from support.programs import ROOT, Daemons, Scripts, environment

from scaler.protocol.messages import PROTOCOL_VERSION

LINE = f"PROTOCOL_VERSION = {PROTOCOL_VERSION}\n"


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a program of the next version."""
    site = Path(tmp_path_factory.mktemp("site"))
    shutil.copytree(ROOT / "scaler", site / "scaler", ignore=shutil.ignore_patterns("__pycache__"))
    path = site / "scaler/protocol/messages/__init__.py"
    text = path.read_text()
    assert LINE in text
    path.write_text(text.replace(LINE, "PROTOCOL_VERSION = 77\n"))
    env = environment()
    return {**env, "PYTHONPATH": os.pathsep.join([str(site), env["PYTHONPATH"]]), "PYTHONSAFEPATH": "1"}


@pytest.mark.parametrize("whose", ["scheduler", "agent"])
def test_an_agent_of_another_version_ends_and_both_say_why(
    daemons: Daemons, another: dict[str, str], whose: str
) -> None:
    of_scheduler, of_agent = (another, None) if whose == "scheduler" else (None, another)
    scheduler = daemons.run("scaler_scheduler", "scheduler", daemons.address, env=of_scheduler)
    scheduler.says("listens at")
    agent = daemons.run("scaler_cluster", "cluster", "-n", "1", "--name", "here", daemons.address, env=of_agent)
    assert agent.ends(60) == 1
    numbers = (PROTOCOL_VERSION, 77) if whose == "scheduler" else (77, PROTOCOL_VERSION)
    words = r"this agent \(scaler \S+\) speaks protocol {}, the scheduler \(scaler \S+\) protocol {}: install the same"
    agent.says(r"ERROR.* refused: " + words.format(*numbers))
    scheduler.says("WARNING.* refused agent here from .*: " + words.format(*numbers))
    assert "Traceback" not in agent.text + scheduler.text


def test_a_monitor_and_a_client_of_another_version_are_told(
    daemons: Daemons, scripts: Scripts, another: dict[str, str]
) -> None:
    daemons.start_scheduler()
    monitor = daemons.run("scaler", "main", "status", daemons.address, env=another)
    assert monitor.ends(60) == 1
    monitor.says("refused: this monitor speaks protocol 77, ")
    client = scripts.start(
        "import sys, scaler; scaler.Client(sys.argv[1])", daemons.address,
        PYTHONPATH=another["PYTHONPATH"], PYTHONSAFEPATH="1",
    )  # fmt: skip
    assert client.ends(60) == 1
    client.says(r"HandshakeRefused: .*this client \(scaler \S+\) speaks protocol 77, ")
