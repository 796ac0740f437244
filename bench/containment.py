"""Runs a program and ends everything it has started, however it ended.

On Linux this process becomes the reaper of its descendants: one whose parent died is handed to it instead of to init.
So walking the tree of processes finds all of them, whatever sessions and groups they have made for themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

PR_SET_CHILD_SUBREAPER = 36
#: seconds for what a program has started to end by itself, after it
GRACE = 2.0


def adopt_orphans() -> None:
    """Make this process the reaper of its descendants, where the system can."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True)
class Outcome:
    """How a program ended."""

    #: what was wrong in one line; empty if nothing
    error: str
    #: processes that it left behind, and that were killed
    left: int
    #: cores that other programs kept busy meanwhile
    foreign: float


def run(arguments: Sequence[str], environment: Mapping[str, str], timeout: float) -> Outcome:
    """Run a program, at most `timeout` seconds. When this returns or raises, none of its descendants is left."""
    begin, busy, ours = time.monotonic(), _busy(), _used()
    with tempfile.TemporaryFile() as output:  # not a pipe, which descendants would hold open
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(environment),
            start_new_session=True,
        )
        try:
            try:
                code = process.wait(timeout)
                error = ""
            except subprocess.TimeoutExpired:
                code, error = None, f"took longer than {timeout:.0f} s"
            left = 0 if code is None else _survivors()
        finally:
            _end_all()
            process.wait()
        if code:
            output.seek(0)
            said = output.read().decode(errors="replace").strip().splitlines()
            error = said[-1] if said else f"exit code {code}"
    foreign = (_busy() - busy - (_used() - ours)) / (time.monotonic() - begin)
    return Outcome(error, left, max(0.0, foreign))


def _busy() -> float:
    """CPU seconds that all cores of this machine were busy, since it started."""
    times = psutil.cpu_times()
    return float(sum(times[:3]) + getattr(times, "steal", 0.0))  # user, nice, system


def _used() -> float:
    """CPU seconds of this process and of all that it has started and that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _descendants() -> list[psutil.Process]:
    children: list[psutil.Process] = psutil.Process().children(recursive=True)
    return children


def _survivors() -> int:
    """How many descendants are left once they had their time to end."""
    deadline = time.monotonic() + GRACE
    while True:
        alive = []
        for process in _descendants():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() == psutil.STATUS_ZOMBIE:
                    _reap(process)
                else:
                    alive.append(process)
        if not alive or time.monotonic() > deadline:
            return len(alive)
        time.sleep(0.02)


def _end_all() -> None:
    """Kill what is left, and what that starts in the meantime."""
    deadline = time.monotonic() + 10
    while (remaining := _descendants()) and time.monotonic() < deadline:
        for process in remaining:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                _reap(process)


def _reap(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.TimeoutExpired):
        process.wait(0.1)
