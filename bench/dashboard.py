"""What the dashboard's process does with a snapshot: `python -m bench.dashboard [AGENTS] [WORKERS]`.

Snapshots are synthetic; adding up, pages, their documents and the metrics are the real ones. Milliseconds of processor.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

from bokeh.document import Document

from bench.synthetic import SyntheticCluster
from scaler.monitor import Seen
from scaler.monitor.dashboard.layout import View
from scaler.monitor.dashboard.live import LivePage, Sight
from scaler.monitor.dashboard.pages import PAGES, Page
from scaler.monitor.metrics import exposition

ROUNDS = 20


def timed(call: Callable[[], object]) -> float:
    """Milliseconds that it takes."""
    began = time.process_time()
    call()
    return 1000 * (time.process_time() - began)


def _open(pages: list[LivePage], document: Document, page: Page, sight: Sight) -> None:
    pages.append(LivePage(document, page, View(page.path), sight))


def main(agents: int, workers: int) -> None:
    """Print the times."""
    cluster, sight = SyntheticCluster(agents, workers), Sight()
    first = cluster.snapshot()
    sight.see(Seen(first, True, 0.0, ""))
    documents = [Document() for _ in PAGES]
    opening = {page.path: 0.0 for page in PAGES}
    pages: list[LivePage] = []
    for document, page in zip(documents, PAGES, strict=True):
        opening[page.path] = timed(partial(_open, pages, document, page, sight))
    seeing: list[float] = []
    metrics: list[float] = []
    showing: dict[str, list[float]] = {page.path: [] for page in PAGES}
    text = ""
    for _ in range(ROUNDS):
        seen = Seen(cluster.snapshot(), True, 0.0, "")
        seeing.append(timed(partial(sight.see, seen)))
        for live in pages:
            showing[live.page.path].append(timed(live._show))
        began = time.process_time()
        text = exposition(seen)
        metrics.append(1000 * (time.process_time() - began))
    print(f"{agents:,} agents with {workers} workers each, {ROUNDS} snapshots; milliseconds: median, 95 of 100")
    rows = {"adding up": seeing} | {f"page {path or 'overview'}": times for path, times in showing.items()}
    for name, times in (rows | {"metrics": metrics}).items():
        print(f"{name:16}{statistics.median(times):8.1f}{statistics.quantiles(times, n=20)[-1]:8.1f}")
    for path, took in opening.items():
        print(f"opening {path or 'overview':12}{took:6.0f}")
    series = sum(not line.startswith("#") for line in text.splitlines())
    print(f"metrics: {series:,} series, {len(text) / 1024:,.0f} KiB")


if __name__ == "__main__":
    main(*(int(text) for text in [*sys.argv[1:], "1000", "64"][:2]))
