"""What a million queued tasks cost the scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil

from bench import work
from bench.engines import connected, free_address, program
from bench.results import Sample

ROWS = 1_000_000
MB = 1e6
#: seconds after which the scheduler should have taken or dropped them all
PATIENCE = 40.0


def memory(name: str, _repetitions: int) -> Iterator[Sample]:
    """Resident MB of a scheduler without agents: empty, with a million one-row tasks, and after their client left."""
    address = free_address()
    with program("scheduler", address) as started:
        scheduler = psutil.Process(started.pid)
        client = connected(address)
        _settled(scheduler)
        yield Sample("memory_empty", name, scheduler.memory_info().rss / MB, 0)
        futures = [client.submit(work.noop, i) for i in range(ROWS)]
        _settled(scheduler)
        yield Sample("memory_queued", name, scheduler.memory_info().rss / MB, len(futures))
        most = peak(started.pid)
        if most is not None:
            yield Sample("memory_peak", name, most / MB, ROWS)
        client.disconnect()
        _settled(scheduler)
        yield Sample("memory_after", name, scheduler.memory_info().rss / MB, 0)


def _settled(process: psutil.Process) -> None:
    """Wait until a process has done nothing worth mentioning for half a second."""
    deadline = time.monotonic() + PATIENCE
    used = -1.0
    while time.monotonic() < deadline:
        times = process.cpu_times()
        if times.user + times.system - used < 0.03:
            return
        used = times.user + times.system
        time.sleep(0.5)
    raise TimeoutError(f"the scheduler is still busy after {PATIENCE:.0f} s")


def peak(pid: int) -> float | None:
    """The most that a process ever had in memory, bytes; None where the system doesn't say."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next(float(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return None
