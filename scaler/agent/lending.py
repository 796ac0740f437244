"""What an agent's options lend its workers."""

from __future__ import annotations

import os

from scaler.agent import native_threads
from scaler.agent.worker_processes import WorkerOptions
from scaler.common import start_environment
from scaler.config import AgentConfig


def lent_to_workers(config: AgentConfig) -> WorkerOptions:
    """What workers are to begin with."""
    return WorkerOptions(
        environ=native_threads.environment(config, start_environment.for_tasks(os.environ)),
        warm_modules=config.warm_modules, spill_directory=config.spill_directory,
    )  # fmt: skip
