"""`python -m bench.jobs`: what a journal costs, and how fast it is.

Pairs of the same work as a durable job and as a plain map, on one cluster; how long a part takes to be acknowledged;
how many bytes a row takes; how long a scheduler takes to read a journal of a million rows; and large results, in the
journal and in files. With `--copied` a second scheduler stands by with a journal of its own: what counts is on both
disks, and what is measured is the same pairs, acknowledgements, and how long it takes until the copy is in step.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
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
    parser.add_argument("--copied", action="store_true", help="measure a pair of schedulers with a journal each")
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


def _acknowledgements(client: scaler.Client, count: int = 300, where: str = "on disk") -> None:
    names = [f"small-{where}-{number}" for number in range(count)]
    taken = sorted(_timed(partial(client.submit_job, abs, [1], name)) for name in names)
    p50, p99 = (500 * taken[count * part // 100] for part in (50, 99))  # each job waits for two
    print(f"an acknowledgement, {where}: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


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


def _end(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        process.terminate()
        process.wait(20)


def _with_cluster(measure: Callable[[scaler.Client, Callable[[], None]], None], *options: str) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    scheduler = start("scaler_scheduler", address, *options)
    agent = start("scaler_cluster", "-n", "2", "--drain-grace", "0", address)
    stop = partial(_end, agent, scheduler)

    try:
        client = scaler.Client(address, timeout=20)
        while client.n_workers < 2:
            time.sleep(0.05)
        measure(client, stop)
    finally:
        stop()


class _Pair:
    """Two schedulers on this machine, with a journal each, and an agent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "log"
        first, second = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        self._first, self._second = first, second
        self.addresses = f"{first},{second}"
        self._leader = start("scaler_scheduler", first, "--journal", str(directory / "first"), log=self._log)
        self._agent = start("scaler_cluster", "-n", "2", "--drain-grace", "0", self.addresses)
        self._standby: subprocess.Popen[bytes] | None = None

    def follow(self, journal: str) -> float:
        """Start the one that stands by, with this journal; seconds until that is in step."""
        seen, begun = self._times_in_step(), time.perf_counter()
        options = "--journal", str(self._directory / journal), "--standby-of", self._first
        self._standby = start("scaler_scheduler", self._second, *options)
        while self._times_in_step() == seen:
            if time.perf_counter() - begun > 300 or self._standby.poll() is not None:
                raise SystemExit(f"the copy did not come to be in step: {self._log.read_text()}")
            time.sleep(0.01)
        return time.perf_counter() - begun

    def _times_in_step(self) -> int:
        return self._log.read_text().count("is in step")

    def check(self) -> None:
        """The copy was in step all the time; otherwise what was measured is something else."""
        if "goes on alone" in self._log.read_text():
            raise SystemExit(f"the copy has not been in step: {self._log.read_text()}")

    def part(self) -> None:
        """End the one that stands by."""
        assert self._standby is not None
        _end(self._standby)
        self._standby = None

    def close(self) -> None:
        """End them."""
        _end(self._agent, *([self._standby] if self._standby else []), self._leader)


def _copied(directory: Path, given: argparse.Namespace) -> None:
    pair = _Pair(directory)
    try:
        client = scaler.Client(pair.addresses, timeout=20)
        while client.n_workers < 2:
            time.sleep(0.05)
        _acknowledgements(client, where="on one disk")
        print(f"a small journal: a standby that is started is in step after {pair.follow('second'):.2f} s")
        _acknowledgements(client, where="on both disks")
        _pairs(client, given.pairs, given.rows)
        pair.check()
        if given.large:
            pair.part()
            job = client.submit_job(abs, range(given.large), name="large")
            job.wait()
            size = job.status().bytes
            taken = pair.follow("third")
            print(
                f"{given.large:,} rows, {size / 1e6:.0f} MB: one that has nothing of it is in step after {taken:.2f} s"
            )
        client.disconnect()
    finally:
        pair.close()


def main() -> None:
    """The program."""
    given = _arguments()
    if given.copied:
        with tempfile.TemporaryDirectory(dir=".") as directory:
            _copied(Path(directory), given)
        return

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
