"""How what processes take grows with their age, from looks at them again and again.

Of memory the pages are counted that are no file's (`RssAnon`), whether or not another process still has them in common
since a fork: of a process that forks, or was forked, the private ones alone grow by all that was shared when the other
one ends. What is mapped of `/dev/shm` is counted apart.

Of each minute of a process the least counts. A value at hand is there for a moment, and may be larger than all else;
what leaks lifts the least as well. The first part of a life does not count: modules are loaded then, caches fill, and
malloc meets the largest that it will keep for the next time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable
from pathlib import Path

#: seconds of which the least counts
WINDOW = 60.0
#: windows from which on a process has a slope
LEAST = 3

#: what the target of a descriptor begins with, before a colon
KINDS = {"socket": "sockets", "pipe": "pipes", "anon_inode": "events"}

#: an hour's growth, its standard error, the number of processes, the highest age in minutes
Found = tuple[float, float, int, float]


def memory(pid: int) -> dict[str, float]:
    """MB that a process has, and that it has mapped of memory files. Raises OSError if it is gone."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    if "RssAnon" not in lines:
        raise ProcessLookupError(pid)  # it has ended, and nobody has heard of it yet
    kib = {name: int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem")}
    return {"megabytes": kib["RssAnon"] * 1024 / 1e6, "mapped megabytes": kib["RssShmem"] * 1024 / 1e6}


def descriptors(pid: int) -> dict[str, float]:
    """Descriptors that a process has, in all and by what they are: there are as many sockets as others have connected,
    and workers do when a task first submits something. Raises OSError if it is gone.
    """
    found = Counter({"descriptors": 0, "sockets": 0, "pipes": 0, "events": 0, "files": 0})
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except FileNotFoundError:
            continue  # it was closed meanwhile
        found["descriptors"] += 1
        found[KINDS.get(target.partition(":")[0], "files")] += 1
    return {what: float(count) for what, count in found.items()}


class Growth:
    """What has been seen of processes older than `warm` seconds."""

    def __init__(self, warm: float) -> None:
        self._warm = warm
        #: by role and measure, of each process: by window, its age at the least that was seen, and that
        self._least: dict[tuple[str, str], dict[Hashable, dict[int, tuple[float, float]]]] = {}

    def note(self, role: str, process: Hashable, age: float, takes: dict[str, float]) -> None:
        """A process of this role takes so much of each measure at an age, in seconds."""
        if age <= self._warm:
            return
        window = int(age / WINDOW)
        for measure, value in takes.items():
            least = self._least.setdefault((role, measure), {}).setdefault(process, {})
            if window not in least or value < least[window][1]:
                least[window] = age, value

    def found(self) -> dict[str, dict[str, Found]]:
        """By role and measure how it grows. Each process has a level of its own; the slope is that of all of them."""
        found: dict[str, dict[str, Found]] = {}
        for (role, measure), of_each in sorted(self._least.items()):
            lines = [list(least.values()) for least in of_each.values() if len(least) >= LEAST]
            if lines:
                oldest = max(points[-1][0] for points in lines) / 60
                found.setdefault(role, {})[measure] = *_slope(lines), len(lines), oldest
        return found


def _slope(lines: list[list[tuple[float, float]]]) -> tuple[float, float]:
    """Of parallel lines through the points of each, an hour, and its standard error."""
    level: list[tuple[float, float]] = []
    for points in lines:
        mx, my = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
        level += [(x - mx, y - my) for x, y in points]
    spread = sum(x * x for x, _ in level)
    a = sum(x * y for x, y in level) / spread
    rest = sum((y - a * x) ** 2 for x, y in level) / (len(level) - len(lines) - 1)
    return 3600 * a, 3600 * (rest / spread) ** 0.5
