"""The control groups that this process is in: what a container, a service or a batch system lets it have."""

from __future__ import annotations

import os
from collections.abc import Iterator


def groups_of(controller: str, root: str = "/") -> Iterator[tuple[str, bool]]:
    """The directories of this process's groups, innermost first, and whether they are of version 2; none elsewhere.

    Groups of version 1 are those of this `controller`. A container may see its own as the outermost, where the names in
    its path lead nowhere: there need not be such a directory. `root` stands for the root of the file system.
    """
    for line in os.fsdecode(content_of(root, "proc/self/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        base = os.path.join(root, "sys/fs/cgroup", controller if controllers else "")
        path = path.strip("/")
        while path:
            yield os.path.join(base, path), not controllers
            path = path.rpartition("/")[0]
        yield base, not controllers


def content_of(directory: str, name: str) -> bytes:
    """What a file of the kernel holds; nothing if it is not there, or not shown to this process."""
    try:
        with open(os.path.join(directory, name), "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
