"""What tells this host from others."""

import os
import platform
from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """The same for processes that can read each other's stores: one user, one boot, one file system in memory.

    Containers on one machine share the kernel and its boot, but each has a /dev/shm of its own.
    """
    try:
        booted = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{booted}/{os.stat('/dev/shm').st_dev:x}/{os.geteuid()}"
    except OSError:
        return f"{platform.node()}/{os.geteuid()}"
