"""How much memory this process and its children may use."""

from __future__ import annotations

import os
from collections.abc import Iterator

from scaler.common.control_groups import content_of, groups_of


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
