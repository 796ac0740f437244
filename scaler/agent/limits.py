"""How much memory this process and its children may use, and how the parts of an agent share it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from scaler import defaults
from scaler.agent.state.memory import AgentLimits
from scaler.common.control_groups import content_of, groups_of
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


def available_memory(root: str = "/") -> int:
    """Bytes of memory that this process may use: what the machine has or its control groups allow, the least of them.

    `root` stands for the root of the file system.
    """
    return min([_machine(root), *_groups(root)])


def _machine(root: str) -> int:
    try:
        with open(os.path.join(root, "proc/meminfo"), encoding="utf-8") as file:
            for line in file:
                if line.startswith("MemTotal:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _groups(root: str) -> Iterator[int]:
    """The limits of the control groups that this process is in, and of those around them."""
    for group, is_unified in groups_of("memory", root):
        try:
            yield int(content_of(group, "memory.max" if is_unified else "memory.limit_in_bytes"))
        except ValueError:  # "max", or there is none to see
            pass


def _size_of(path: str) -> int:
    try:
        status = os.statvfs(path)
    except OSError:
        return 1 << 62
    return status.f_blocks * status.f_frsize or 1 << 62  # one without a limit, as of `mount -t tmpfs -o size=0`, says 0
