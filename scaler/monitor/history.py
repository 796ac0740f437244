"""What a cluster did in the last minutes: a few figures of each snapshot, and rates from one to the next. Bounded."""

from __future__ import annotations

from collections import deque
from math import nan

from scaler.monitor.snapshot import Snapshot
from scaler.monitor.totals import Totals

#: snapshots that are remembered: ten minutes at one a second
POINTS = 600

#: figures that are as they are at a moment
LEVELS = (
    "cpu", "memory", "occupancy", "waiting", "queued", "handed", "running", "in_memory", "on_disk", "scheduler_cpu",
)  # fmt: skip
#: figures that grow, shown as so many a second; in the order of `_counters`
RATES = ("finished", "failed", "cancelled", "transferred", "sent", "received")
SERIES = ("time", *LEVELS, *RATES)


class History:
    """The last snapshots, a column for each figure; times are milliseconds since 1970, as browsers count."""

    def __init__(self, points: int = POINTS) -> None:
        self._columns: dict[str, deque[float]] = {name: deque(maxlen=points) for name in SERIES}
        #: what rates are made from: the last scheduler, its time, and its counters
        self._before: tuple[int, float, tuple[int, ...]] | None = None

    def add(self, snapshot: Snapshot, totals: Totals) -> dict[str, float]:
        """Remember a snapshot; the point that was added. A rate is NaN where there is nothing to compare with."""
        rows, objects, scheduler = snapshot.rows, snapshot.objects, snapshot.scheduler
        counters = (
            rows.finished, rows.failed, rows.cancelled, objects.fetched,
            sum(scheduler.sent_counts), sum(scheduler.received_counts),
        )  # fmt: skip
        levels = (
            totals.cpu / 1000, totals.memory, 100 * totals.occupancy,
            rows.waiting, rows.queued, max(0, rows.at_agents - rows.running), rows.running,
            max(0, objects.stored - objects.spilled), objects.spilled, scheduler.cpu / 1000,
        )  # fmt: skip
        point = dict(zip(SERIES, (1000 * scheduler.time, *levels, *self._rates(snapshot, counters)), strict=True))
        for name, value in point.items():
            self._columns[name].append(value)
        return point

    def _rates(self, snapshot: Snapshot, counters: tuple[int, ...]) -> list[float]:
        before, now = self._before, snapshot.scheduler.time
        self._before = (snapshot.scheduler.epoch, now, counters)
        if before is None or before[0] != snapshot.scheduler.epoch or now <= before[1]:
            return [nan] * len(counters)
        # what is fetched sinks when the agent that fetched it leaves
        return [max(0.0, new - old) / (now - before[1]) for new, old in zip(counters, before[2], strict=True)]

    def columns(self) -> dict[str, list[float]]:
        """All points, a list for each figure."""
        return {name: list(values) for name, values in self._columns.items()}

    @property
    def last(self) -> dict[str, float]:
        """The last point; nothing before the first."""
        return {name: values[-1] for name, values in self._columns.items() if values}
