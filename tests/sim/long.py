"""Runs mixes over seeds for as long as one likes, in two processes: `make sim-long SEEDS=100000`.

Each seed is a simulated minute or more of a whole cluster. Prints the seeds, the simulated hours, what an hour of
processor time makes of 100 hosts, and the moves of the tables that were not met, but for those that `test_rare_moves`
brings about. A failure is printed with its mix, seed and story, and the rest goes on; the exit code is 1 then, and also
if a move was not met.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1]))

from simulator.faults import MIXES  # noqa: E402
from simulator.moves import SCRIPTED, never_met  # noqa: E402
from simulator.runs import Failure, run  # noqa: E402

#: the first seed that no other suite runs
FRESH = 1_000_000
#: hosts for which hours are given: work grows with hosts
HOSTS = 100


def one(job: tuple[str, int]) -> tuple[str, int, str, float, float, float, Counter[str]]:
    """A run: its mix and seed, the story if it failed, simulated seconds, of processor, and of hosts, and moves met."""
    mix, seed = job
    begun = time.process_time()
    try:
        cluster = run(seed, mix)
    except Failure as failure:
        return mix, seed, str(failure), 0.0, time.process_time() - begun, 0.0, Counter()
    simulated = cluster.world.now - 1000.0
    spent = time.process_time() - begun
    return mix, seed, "", simulated, spent, simulated * len(cluster.hosts), cluster.world.moves.met()


def jobs(mixes: list[str], first: int, count: int) -> Iterator[tuple[str, int]]:
    """Seeds go to the mixes in turn."""
    for number in range(count):
        yield mixes[number % len(mixes)], first + number


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=FRESH)
    parser.add_argument("--mix", choices=MIXES, action="append", help="these alone")
    options = parser.parse_args()
    met: Counter[str] = Counter()
    failed, done, simulated, spent, of_hosts = 0, 0, 0.0, 0.0, 0.0
    begun = time.monotonic()
    with ProcessPoolExecutor(2) as pool:
        ended = pool.map(one, jobs(options.mix or list(MIXES), options.first, options.seeds))
        for mix, seed, story, seconds, processor, hosts, moves in ended:
            done, simulated, spent, of_hosts = done + 1, simulated + seconds, spent + processor, of_hosts + hosts
            met += moves
            if story:
                failed += 1
                print(f"FAILED: mix {mix!r}, seed {seed}\n{story}\n", flush=True)
    never = sorted(set(never_met(met)) - SCRIPTED)
    print(f"{done:,} seeds, {failed} failed, in {time.monotonic() - begun:,.0f} s ({spent:,.0f} s of processor time)")
    print(f"{simulated / 3600:,.1f} simulated hours of clusters, {of_hosts / 3600:,.1f} of hosts;")
    print(f"{of_hosts / HOSTS / spent:,.2f} simulated hours an hour of processor time at {HOSTS} hosts")
    print(f"moves never met: {', '.join(never) if never else 'none'}")
    return 1 if failed or never else 0


if __name__ == "__main__":
    sys.exit(main())
