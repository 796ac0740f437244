"""`python -m bench.urgent`: how soon an urgent row begins behind many others.

Two workers are busy with rows of 5 ms each, of which so many are queued; then a row of higher priority is submitted,
again and again. Prints how long after that it began: a worker has to become free first, which takes up to 5 ms.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import deque

import scaler

#: seconds that a row of the backlog takes
LASTS = 0.005
WORKERS = 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.urgent", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10, 1_000, 100_000, 1_000_000])
    parser.add_argument("--times", type=int, default=50, help="urgent rows (default: 50)")
    return parser.parse_args()


def measure(rows: int, times: int) -> list[float]:
    """Milliseconds from an urgent row's submission to its beginning, each behind about so many rows."""
    delays = []
    with scaler.SchedulerClusterCombo(n_workers=WORKERS) as cluster, scaler.Client(cluster.address) as client:
        urgent = client.with_options(priority=10)
        for _ in range(10):
            urgent.submit(time.monotonic).result()
            client.submit(time.sleep, LASTS).result()
        queued = deque(client.submit(time.sleep, LASTS) for _ in range(rows))
        for _ in range(times):
            while queued and queued[0].done():  # they end about in order
                queued.popleft()
            queued.extend(client.submit(time.sleep, LASTS) for _ in range(rows - len(queued)))
            time.sleep(LASTS / 2)
            submitted = time.monotonic()
            delays.append(1000 * (urgent.submit(time.monotonic).result() - submitted))
        client.clear()
    return delays


def main() -> None:
    """Measure all settings, a line each."""
    told = _arguments()
    print(f"{'behind':>10} {'rows':>5} {'median':>9} {'worst':>9}")
    for rows in told.rows:
        delays = measure(rows, told.times)
        print(f"{rows:10,} {len(delays):5} {statistics.median(delays):6.1f} ms {max(delays):6.1f} ms", flush=True)


if __name__ == "__main__":
    main()
