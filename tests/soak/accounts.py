"""What came of the load of a soak: what its clients have said, and which of its processes are still there."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

#: in the environment of all processes of a run
MARK = "SCALER_SOAK"
#: bytes at the end of what a client has said in which its last line is
TAIL = 1 << 16


def told(directory: Path) -> dict[str, Any]:
    """What the clients have said."""
    total: dict[str, Any] = {
        "rounds": 0,
        "ok": 0,
        "wrong": 0,
        "hung": 0,
        "errors": Counter[str](),
        "longest": 0.0,
        "stories": [],
        "late": [],
    }
    for path in sorted(directory.glob("told*")):
        for line in path.read_text().splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                continue  # it was killed while it wrote
            total["rounds"] += 1
            for key in ("ok", "wrong", "hung"):
                total[key] += said[key]
            total["errors"].update(said["errors"])
            total["stories"] += said.get("stories", [])
            total["late"] += said.get("late", [])
            total["longest"] = max(total["longest"], said["seconds"])
    return total


def in_use(directory: Path) -> dict[int, float]:
    """MB that malloc had given out in each client at the end of its last round, by pid; of those that have said it."""
    found: dict[int, float] = {}
    for path in directory.glob("told*"):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read().splitlines()
        for line in lines[-2:]:  # the last may be half a line
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if said["in use"] is not None:
                found[said["pid"]] = said["in use"]
    return found


def marked() -> list[str]:
    """Processes of this run that are still there."""
    left = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == os.environ[MARK]:
                left.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
        except psutil.Error:
            continue
    return left
