"""`scaler_scheduler ADDRESS`: runs a scheduler until it is told to stop."""

from __future__ import annotations

import sys

from scaler.cli.command import call, make_command
from scaler.cli.logs import set_up
from scaler.common import asyncio_alone
from scaler.common.unexpected_end import told_in_log
from scaler.config import OptionError, SchedulerConfig
from scaler.errors import ScalerError


def run(config: SchedulerConfig) -> int:
    """Runs the scheduler; returns the exit code."""
    asyncio_alone.load()
    from scaler.scheduler import server  # `-h` and mistakes are answered without loading the engine

    set_up(config.log_level, config.log_path)
    with told_in_log("Scheduler: it", ScalerError, OptionError):
        if not config.supervise:
            return server.run(config)
        from scaler.scheduler.supervisor import Supervisor

        return Supervisor(config).run()


command = make_command(
    "scheduler", SchedulerConfig, "Run a scheduler, which hands the tasks of clients to the workers of hosts.", run
)


def main() -> None:
    """The program `scaler_scheduler`."""
    sys.exit(call(command, "scaler_scheduler"))
