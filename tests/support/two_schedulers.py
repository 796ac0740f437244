"""What tests of two schedulers have in common: commands of `scaler`, and agents that count."""

import json
import subprocess
import sys

from support.programs import Daemons, Program, environment
from support.waiting import until

#: so that what has to be noticed is noticed soon
QUICK = ("--heartbeat-interval", "0.2", "--agent-timeout", "2")
#: seconds that anything here may take
PATIENCE = 60


def command(*arguments: str) -> subprocess.CompletedProcess:
    """Run a command of `scaler`."""
    program = "import sys; sys.argv[0] = 'scaler'; from scaler.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, timeout=PATIENCE, env=environment(), check=False,
    )  # fmt: skip


def start_agents(daemons: Daemons, agents: int) -> list[Program]:
    """So many, each with a worker; returns when they count."""
    started = [daemons.start_agent(1) for _ in range(agents)]
    until(lambda: _count(daemons.address) == agents, f"{agents} agents that count")
    return started


def _count(address: str) -> int:
    said = command("status", address, "--json")
    return json.loads(said.stdout)["scheduler"]["roster"] if said.returncode == 0 else -1
