"""How much memory an agent and its workers may use, and how they share it."""

from __future__ import annotations

import os

from scaler import defaults
from scaler.agent.state.memory import AgentLimits
from scaler.common.host_memory import available_memory
from scaler.config import AgentConfig
from scaler.store.directory import default_root

#: values that stay in workers may take this part of the memory limit, all together
LIVE_PART = 8


def limits_of(config: AgentConfig) -> AgentLimits:
    """The limits that follow from the options."""
    total = (
        config.memory_limit if config.memory_limit is not None else available_memory() * defaults.MEMORY_PERCENT // 100
    )
    worker = config.worker_memory_limit
    store = _size_of(default_root())
    tasks = config.max_tasks_per_worker or 0
    return AgentLimits(total, total if worker is None else worker, store, tasks, config.max_message_bytes)


def live_limit(limits: AgentLimits, workers: int) -> int:
    """Bytes of values that one worker may keep to itself."""
    limit = limits.total // LIVE_PART // max(1, workers)
    return min(limit, limits.worker // 4) if limits.worker else limit


def _size_of(path: str) -> int:
    try:
        status = os.statvfs(path)
    except OSError:
        return 1 << 62
    return status.f_blocks * status.f_frsize or 1 << 62  # one without a limit, as of `mount -t tmpfs -o size=0`, says 0
