"""Programs of the engine in the background, for benchmarks, and what the kernel says of a process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

#: the program `scaler`, of this very interpreter
SCALER = [sys.executable, "-c", "from scaler.cli.main import main; main()"]


def start(name: str, *arguments: str, log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a program of the engine, which says nothing but errors, and those to nobody; with `log` all to a file."""
    command = [str(Path(sys.executable).with_name(name)), *arguments, "--log-level", "INFO" if log else "ERROR"]
    with open(log or os.devnull, "ab") as said:
        return subprocess.Popen(command, stdout=said, stderr=said)


def free_port() -> int:
    """A port of the loopback interface that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def account(pid: int) -> dict[str, tuple[int, int]]:
    """Nanoseconds that each thread of a process ran so far, and for which it was kept from running; by the kernel."""
    told = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # it has ended
            ran, waited, _ = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()
            told[thread] = int(ran), int(waited)
    return told
