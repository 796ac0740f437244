"""`python -m bench.jobs`: what a journal costs, and how fast it is.

Pairs of the same work as a durable job and as a plain map, on one cluster; how long a part takes to be acknowledged;
how many bytes a row takes; how long a scheduler takes to read a journal of a million rows; and large results, in the
journal and in files.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import scaler
from bench.programs import free_port, start
from scaler.journal.journal import Journal
from scaler.scheduler.jobs.jobs_core import JobTerms
from scaler.scheduler.jobs.keeper import JobKeeper


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.jobs", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="pairs of a plain and a durable run (default: 5)")
    parser.add_argument("--rows", type=int, default=8_000, help="rows of 1 ms in each (default: 8,000)")
    parser.add_argument("--large", type=int, default=1_000_000, help="rows of the journal read (default: 1,000,000)")
    parser.add_argument("--results", type=int, default=60, help="large results (default: 60)")
    return parser.parse_args()


def _millisecond(number: int) -> int:
    end = time.perf_counter() + 1e-3
    while time.perf_counter() < end:
        pass
    return number


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _pairs(client: scaler.Client, pairs: int, rows: int) -> None:
    items = list(range(rows))
    plain, durable = [], []
    for number in range(pairs + 1):
        taken = _timed(lambda: client.map(_millisecond, items))
        job: list[scaler.client.jobs.Job] = []

        def run(name: str = f"pair-{number}", job: list[scaler.client.jobs.Job] = job) -> None:
            job.append(client.submit_job(_millisecond, items, name=name))
            assert list(job[0].results()) == items

        lasting = _timed(run)
        if number:  # the first pair warms both up
            plain.append(taken)
            durable.append(lasting)
    ratios = [d / p for d, p in zip(durable, plain, strict=True)]
    size = client.attach(f"pair-{pairs}").status().bytes / rows
    medians = statistics.median(plain), statistics.median(durable)
    print(
        f"{rows:,} rows of 1 ms: plain map {medians[0]:.2f} s, durable job {medians[1]:.2f} s, "
        f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}); {size:.0f} bytes a row"
    )


def _acknowledgements(client: scaler.Client, count: int = 300) -> None:
    taken = sorted(_timed(partial(client.submit_job, abs, [number], f"small-{number}")) for number in range(count))
    p50, p99 = (500 * taken[count * part // 100] for part in (50, 99))  # each job waits for two
    print(f"an acknowledgement: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def _read_again(client: scaler.Client, directory: str, rows: int, stop: Callable[[], None]) -> None:
    begun = time.perf_counter()
    job = client.submit_job(abs, range(rows), name="large")
    submitted = time.perf_counter() - begun
    job.wait()
    print(
        f"{rows:,} rows: on disk after {submitted:.2f} s, all ended after {time.perf_counter() - begun:.2f} s; ", end=""
    )
    print(f"{job.status().bytes / rows:.1f} bytes a row; ", end="")
    begun = time.perf_counter()
    count = sum(1 for _ in job.results())
    print(f"{count:,} results read in {time.perf_counter() - begun:.2f} s; ", end="")
    client.disconnect()
    stop()
    journal = Journal(directory)
    taken = _timed(lambda: JobKeeper(journal, JobTerms(1.0, 0.0)))
    journal.close()
    print(f"the journal is read in {taken:.2f} s")


def _large_results(client: scaler.Client, where: str, count: int, size: int = 4 << 20) -> None:
    client.submit_job(bytes, [size] * 2, name="warm").wait()
    begun = time.perf_counter()
    job = client.submit_job(bytes, [size] * count, name="bytes")
    job.wait()
    made = time.perf_counter() - begun
    read = _timed(lambda: sum(1 for _ in job.results()))
    rates = [count * size / seconds / 1e6 for seconds in (made, read)]
    print(f"{count} results of {size >> 20} MiB, {where}: {rates[0]:.0f} MB/s made, {rates[1]:.0f} MB/s read")


def _with_cluster(measure: Callable[[scaler.Client, Callable[[], None]], None], *options: str) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    scheduler = start("scaler_scheduler", address, *options)
    agent = start("scaler_cluster", "-n", "2", "--drain-grace", "0", address)

    def stop() -> None:
        for process in (agent, scheduler):
            process.terminate()
            process.wait(20)

    try:
        client = scaler.Client(address, timeout=20)
        while client.n_workers < 2:
            time.sleep(0.05)
        measure(client, stop)
    finally:
        stop()


def main() -> None:
    """The program."""
    given = _arguments()

    def small(client: scaler.Client, stop: Callable[[], None]) -> None:
        _pairs(client, given.pairs, given.rows)
        _acknowledgements(client)
        _read_again(client, path, given.large, stop)

    with tempfile.TemporaryDirectory(dir=".") as directory:
        path = str(Path(directory) / "journal")
        _with_cluster(small, "--journal", path)
        for where in ("journal", "files"):
            options = ["--journal", str(Path(directory) / where)]
            if where == "files":
                options += ["--results", str(Path(directory) / "results")]

            def large(client: scaler.Client, _stop: Callable[[], None], where: str = where) -> None:
                _large_results(client, where, given.results)

            _with_cluster(large, *options)


if __name__ == "__main__":
    main()
