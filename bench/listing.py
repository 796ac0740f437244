"""What it takes to list very many tasks, and who waits meanwhile: `python -m bench.listing [ROWS] [TIMES]`.

A local cluster has so many queued rows (a million by default). `scaler tasks --all` lists them in a process of its own,
as text and as JSON: how long that takes, and its memory. Meanwhile this process asks for a row again and again. How
long the cluster's threads ran while an answer was waited for, and how long they were ready to run and had no processor,
is known from the kernel's account, so a pause of the scheduler can be told from one of the machine.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from bench.programs import SCALER, account
from scaler import Client, SchedulerClusterCombo
from scaler.monitor.questions import Questions

#: rows that a worker sleeps in while the others are listed
LASTS = 3600.0
#: seconds between two questions
BETWEEN = 0.001
WORST = 3


class Asked(NamedTuple):
    """A question, in milliseconds."""

    took: float
    #: the cluster's busiest thread was running meanwhile
    ran: float
    #: it could have run, and another process had its processor
    waited: float


def ask(questions: Questions, pid: int) -> Asked:
    """Ask for one row."""
    before = account(pid)
    began = time.perf_counter()
    (row,) = questions.task_lines("", "", 0, 1)
    took = time.perf_counter() - began
    assert row
    after = {thread: told for thread, told in account(pid).items() if thread in before}
    ran, waited = max((ran - before[thread][0], waited - before[thread][1]) for thread, (ran, waited) in after.items())
    return Asked(1e3 * took, ran / 1e6, waited / 1e6)


def peak(pid: int) -> float:
    """The most memory that a process had, MiB; 0 if it has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def list_all(address: str, pid: int, rows: int, options: list[str]) -> tuple[float, float, list[Asked]]:
    """Seconds that listing took, MiB of the process that did, and what was asked meanwhile."""
    asked, memory = [], 0.0
    with Questions(address, timeout=60.0) as questions:
        began = time.perf_counter()
        with subprocess.Popen(["wc", "-l"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as counting:
            listing = subprocess.Popen([*SCALER, "tasks", address, "--all", *options], stdout=counting.stdin)
            assert counting.stdin is not None
            counting.stdin.close()
            while listing.poll() is None:
                asked.append(ask(questions, pid))
                memory = max(memory, peak(listing.pid))
                time.sleep(BETWEEN)
            took = time.perf_counter() - began
            assert counting.stdout is not None
            lines = int(counting.stdout.read())
    assert lines == rows + (not options), f"{lines} lines for {rows} rows"
    return took, memory, asked


def main(rows: int, times: int) -> None:
    """Print what listing took, and the questions that were answered latest."""
    with SchedulerClusterCombo(n_workers=1) as cluster, Client(cluster.address) as client:
        futures = [client.submit(time.sleep, LASTS) for _ in range(rows)]
        with Questions(cluster.address, timeout=60.0) as questions:
            while not list(questions.task_lines("", "", 0, 1)):
                time.sleep(BETWEEN)
            began = time.perf_counter()
            first = len(list(questions.task_lines("", "", 0, 1_000)))
            print(f"the first page, {first:,} rows: {1e3 * (time.perf_counter() - began):.1f} ms")
        for options in ([], ["--json"]):
            for _ in range(times):
                took, memory, asked = list_all(cluster.address, cluster.pid, rows, options)
                answers = sorted(each.took for each in asked)
                print(
                    f"{rows:,} rows {' '.join(options) or 'as text':8} {took:5.1f} s, {memory:3.0f} MiB; "
                    f"{len(asked):,} questions meanwhile: p50 {statistics.median(answers):.2f} ms, "
                    f"p99 {answers[int(0.99 * len(answers))]:.2f} ms, latest:",
                    flush=True,
                )
                for each in sorted(asked, reverse=True)[:WORST]:
                    print(f"    {each.took:6.1f} ms: {each.ran:5.1f} run, {each.waited:5.1f} kept from running")
                most = max(asked, key=attrgetter("ran"))
                print(f"    the most that was run for an answer: {most.ran:.1f} ms of {most.took:.1f}")
        client.clear()
        del futures


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]), *([1_000_000, 3][len(sys.argv) - 1 :]))
