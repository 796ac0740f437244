"""The dashboard of a cluster that is not there.

    PYTHONPATH=tests python -m support.synthetic_dashboard AGENTS WORKERS PORT [TOKENFILE]

A snapshot a second, of any size, and every bit of the rest is the product's own.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from bench.synthetic import SyntheticCluster
from scaler.config import DashboardConfig
from scaler.monitor import Seen
from scaler.monitor.output import LastOutput, place_of

#: what the first workers have printed
PRINTING = 100
#: what a batch system says of the hosts that it is asked for
WORDS = "sbatch: error: Batch job submission failed: Requested node configuration is not available"
LINES = LastOutput((("stdout", "part 17: 48,210 rows"), ("stderr", "<script>alert(1)</script> is no price")))


def watch_of(agents: int, workers: int, names: tuple[str, ...] = ()) -> Callable:
    """What `server.run` takes as its `watch`; `names` are what the first functions are called."""

    @contextlib.contextmanager
    def watch(config: DashboardConfig, on_change: Callable[[Seen], None]) -> Iterator[None]:
        ended = threading.Event()
        cluster = SyntheticCluster(agents, workers, fleet=True)
        first = cluster.snapshot()
        places = (place_of(first.worker_id(at)) for at in range(min(len(first.workers), PRINTING)))
        printed = {place: LINES for place in places if place is not None}

        def next_one() -> Seen:
            snapshot = cluster.snapshot()
            view = replace(snapshot.view, fleets=replace(snapshot.view.fleets, lines=(WORDS,)))
            if names:
                functions = replace(view.functions, names=(*names, *view.functions.names[len(names) :]))
                others = tuple(names[at % len(names)] for at in range(len(view.worker_names)))
                view = replace(view, functions=functions, worker_names=others)
            view = replace(view, scheduler=replace(view.scheduler, time=time.time()))
            return Seen(replace(snapshot, view=view), True, time.time(), "", snapshot.number, printed)

        def tell() -> None:
            while not ended.is_set():
                on_change(next_one())
                ended.wait(config.interval)

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    return watch


def main() -> None:
    """Until it is told to end."""
    from scaler.monitor.dashboard import server

    agents, workers, port = map(int, sys.argv[1:4])
    config = DashboardConfig("synthetic", port=port, token_file=sys.argv[4] if len(sys.argv) > 4 else None)
    sys.exit(
        server.run(config, lambda address: print(f"Dashboard: open {address}", flush=True), watch_of(agents, workers))
    )


if __name__ == "__main__":
    main()
