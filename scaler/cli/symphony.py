"""`scaler_symphony_cluster ADDRESS SERVICE --base-concurrency N`: runs tasks in a service of IBM Spectrum Symphony."""

from __future__ import annotations

import os
import sys

from scaler.cli.command import call, make_command
from scaler.cli.logs import set_up
from scaler.common.unexpected_end import told_in_log
from scaler.config import OptionError, SymphonyConfig
from scaler.errors import ScalerError


def run(config: SymphonyConfig) -> int:
    """Runs the agent that hands tasks to Symphony; returns the exit code."""
    from scaler.symphony import cluster  # `-h` and mistakes are answered without loading the engine

    set_up(config.log_level, config.log_path)
    with told_in_log("ClusterProcess: it", ScalerError, OptionError):
        return cluster.run(config)


command = make_command(
    "symphony", SymphonyConfig, "Run tasks of the scheduler at ADDRESS in the Symphony service SERVICE.", run
)


def main() -> None:
    """The program `scaler_symphony_cluster`."""
    sys.exit(call(command, os.path.basename(sys.argv[0]) or "scaler_symphony_cluster"))
