"""`scaler_cluster -n N ADDRESS`, also called `scaler_worker`: runs the workers of this host."""

from __future__ import annotations

import os
import sys

from scaler.cli.command import call, make_command
from scaler.cli.logs import set_up
from scaler.common import start_environment
from scaler.common.unexpected_end import told_in_log
from scaler.config import AgentConfig, OptionError
from scaler.errors import ScalerError


def run(config: AgentConfig) -> int:
    """Runs the agent of this host and its workers; returns the exit code."""
    from scaler.agent import daemon  # `-h` and mistakes are answered without loading the engine

    set_up(config.log_level, config.log_path)
    with told_in_log("ClusterProcess: it", ScalerError, OptionError):
        return daemon.run(config)


command = make_command("cluster", AgentConfig, "Run workers on this host for the scheduler at ADDRESS.", run)


def main() -> None:
    """The programs `scaler_cluster` and `scaler_worker`; `start` has it begin anew earlier."""
    start_environment.start_again()
    sys.exit(call(command, os.path.basename(sys.argv[0]) or "scaler_cluster"))
