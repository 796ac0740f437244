"""Runs mixes over seeds for as long as one likes, in two processes: `make sim-long SEEDS=100000 HOURS=100`.

Each seed is a simulated minute or more of a whole cluster that has much to do. Prints the seeds, the simulated hours,
and the moves of the tables that were not met, but for those that `test_rare_moves` brings about.

Then come hours of large clusters (`long_runs.py`): mostly quiet, with a burst of work and some faults each minute. What
an hour of processor time makes of them is printed for heartbeats at their default, and at every fifth second.

A failure is printed with its mix, seed and story, and the rest goes on; the exit code is 1 then, and also if a move was
not met. Ctrl-C and SIGTERM end it early, with what there is to be said until then.
"""

import argparse
import gc
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1]))

from simulator.faults import MIXES  # noqa: E402
from simulator.long_runs import LongRun  # noqa: E402
from simulator.moves import SCRIPTED, never_met  # noqa: E402
from simulator.runs import Cluster, Failure, run  # noqa: E402

#: the first seed that no other suite runs
FRESH = 1_000_000
#: what ends it early
ENDING = (signal.SIGINT, signal.SIGTERM)
#: hosts of long runs, and how long each is
HOSTS, MINUTES = 100, 15
#: seconds between two heartbeats in long runs: the default, and what lets more hours into one
HEARTBEATS = (1.0, 5.0)


class Ended(NamedTuple):
    """A run that is over."""

    name: str
    seed: int
    #: its story if it failed
    story: str
    #: simulated seconds, and what they took of a processor
    simulated: float = 0.0
    spent: float = 0.0
    #: schedulers that were killed
    kills: int = 0
    rows: int = 0
    moves: Counter[str] | None = None


def of_mix(job: tuple[str, int]) -> Ended:
    """A run of a mix."""
    mix, seed = job
    begun = time.process_time()
    try:
        cluster = run(seed, mix)
    except Failure as failure:
        return Ended(f"mix {mix!r}", seed, str(failure), spent=time.process_time() - begun)
    rows = sum(len(client.jobs) for client in cluster.clients)
    return ended(f"mix {mix!r}", seed, cluster, begun, rows)


def of_large(job: tuple[float, int]) -> Ended:
    """A run of a large cluster."""
    heartbeat, seed = job
    gc.set_threshold(200_000, 20, 50)
    begun, name = time.process_time(), f"heartbeats every {heartbeat:g} s"
    large = LongRun(seed, HOSTS, MINUTES, heartbeat)
    try:
        cluster = large.run()
    except Failure as failure:
        return Ended(name, seed, str(failure), spent=time.process_time() - begun)
    return ended(name, seed, cluster, begun, large.rows)


def ended(name: str, seed: int, cluster: Cluster, begun: float, rows: int) -> Ended:
    """What is to be said of a run that went well."""
    return Ended(
        name, seed, "", cluster.world.now - 1000.0, time.process_time() - begun, cluster.restarts, rows,
        cluster.world.moves.met(),
    )  # fmt: skip


def jobs(mixes: list[str], first: int, count: int) -> Iterator[tuple[str, int]]:
    """Seeds go to the mixes in turn."""
    for number in range(count):
        yield mixes[number % len(mixes)], first + number


class Report:
    """Sums of runs, and how many failed."""

    def __init__(self) -> None:
        self.runs = self.failed = self.kills = self.rows = 0
        self.simulated = self.spent = 0.0
        self.moves: Counter[str] = Counter()

    def take(self, one: Ended) -> None:
        """Another one is over; a failure is told of at once."""
        self.runs, self.failed = self.runs + 1, self.failed + bool(one.story)
        self.kills, self.rows = self.kills + one.kills, self.rows + one.rows
        self.simulated, self.spent = self.simulated + one.simulated, self.spent + one.spent
        self.moves += one.moves or Counter()
        if one.story:
            print(f"FAILED: {one.name}, seed {one.seed}\n{one.story}\n", flush=True)

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.runs:,} runs, {self.failed} failed; {self.simulated / 3600:,.1f} simulated hours in "
            f"{self.spent:,.0f} s of processor time, {self.rows:,} rows, {self.kills:,} kills of the scheduler"
        )


def _finish_what_runs() -> None:
    """In the processes that run them: a run leaves files if it is broken off."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _end_early(number: int, _frame: object) -> None:
    _finish_what_runs()
    raise KeyboardInterrupt


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument(
        "--hours", type=float, default=2.0, help=f"simulated hours of {HOSTS} hosts, for each heartbeat"
    )
    parser.add_argument("--first", type=int, default=FRESH)
    parser.add_argument("--mix", choices=MIXES, action="append", help="these alone")
    options = parser.parse_args()
    mixed, large = Report(), {heartbeat: Report() for heartbeat in HEARTBEATS}
    with ProcessPoolExecutor(2, initializer=_finish_what_runs) as pool:
        for number in ENDING:
            signal.signal(number, _end_early)
        try:
            for one in pool.map(of_mix, jobs(options.mix or list(MIXES), options.first, options.seeds)):
                mixed.take(one)
            count = round(options.hours * 60 / MINUTES)
            for heartbeat, report in large.items():
                for one in pool.map(of_large, [(heartbeat, options.first + number) for number in range(count)]):
                    report.take(one)
        except KeyboardInterrupt:
            print("ended early")
            pool.shutdown(cancel_futures=True)
    print(f"mixes: {mixed}")
    for heartbeat, report in large.items():
        if report.spent:
            print(f"{HOSTS} hosts, heartbeats every {heartbeat:g} s: {report};")
            print(f"  {report.simulated / report.spent:,.0f} simulated hours an hour of processor time")
    moves = sum((report.moves for report in large.values()), mixed.moves)
    never = sorted(set(never_met(moves)) - SCRIPTED)
    print(f"moves never met: {', '.join(never) if never else 'none'}")
    return 1 if never or mixed.failed or any(report.failed for report in large.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
