"""Schedulers and agents as programs in the background, for benchmarks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path


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
