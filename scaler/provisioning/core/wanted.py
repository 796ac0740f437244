"""How many hosts are wanted: what there is to do over the time in which it should be done, and no to and fro.

More hosts are wanted at once, fewer when that has been so for `idle_time`: what is wanted is the greatest need of that
time. So a queue that is worked off, and filled, and worked off again changes nothing, and one wave of work is one way
up and one way down. Durations are estimates that waver: for what follows from them, and not from the number of rows,
more hosts are wanted only when the need is clearly above what was wanted. Once fewer are wanted, and while no rows
come, it has to be far above. They are fewer by estimates alone when those have said so for half of `drain_time`, and
while as many rows ended as there are workers, `MANY` at least: short rows end before long ones, and an estimate of a
few is none, whatever else has ended meanwhile. Rows keep a worker each when fewer would be wanted while few rows of
their function have ended, or none; when more are wanted, those of which none has are guessed at. Time in which nobody
saw the cluster says nothing of it.
"""

from __future__ import annotations

import math
from collections import deque

from scaler.provisioning.core.events import Asked, Observed
from scaler.provisioning.core.limits import Limits

#: by how much an estimated need has to be above what is wanted before more are: as a part of that, and in hosts
TOLERANCE, LEAST_TOLERANCE = 0.1, 0.5
#: the same on the way down, when no rows have come
FAR, LEAST_FAR = 0.5, 1.0
#: the part of the time in which a queue should be worked off for which estimates have to say that fewer will do
STEADY = 0.5
#: rows that have to end meanwhile, at least
MANY = 50


def slots_needed(observed: Observed, limits: Limits, mean: float) -> float:
    """Workers of these hosts that have enough to do; `mean`: seconds that rows take whose duration nobody says.

    >>> plain = frozenset[str]()
    >>> slots_needed(Observed((), (Asked(plain, 100, 600.0, 0, 0),)), Limits(drain_time=60.0), 1.0)
    10.0
    >>> slots_needed(Observed((), (Asked(plain, 3, 600.0, 0, 0),)), Limits(drain_time=60.0), 1.0)
    3
    """
    rows, seconds = rows_and_seconds(observed, limits, mean)
    return min(rows, seconds / limits.drain_time)


def rows_and_seconds(observed: Observed, limits: Limits, mean: float) -> tuple[int, float]:
    """What there is for these hosts, and how long it takes one worker; of what runs, half is done."""
    slots = sum(agent.workers for agent in observed.agents)
    rows, seconds = 0, 0.0
    for asked in observed.asked:
        if serves(limits, asked):
            rows += asked.queued + asked.at_agents
            run = min(slots, asked.at_agents)
            slots -= run
            seconds += asked.work + asked.unknown * limits.guess + (asked.at_agents - 0.5 * run) * mean
    return rows, seconds


def serves(limits: Limits, asked: Asked) -> bool:
    """These hosts are for such rows."""
    return asked.capabilities <= limits.capabilities and (bool(asked.capabilities) or not limits.exclusive)


class _Most:
    """The greatest value of the last while."""

    def __init__(self) -> None:
        #: falling: (when, rows that had ended, value)
        self._values: deque[tuple[float, int, int]] = deque()

    def add(self, value: int, now: float, seconds: float, ended: int = 0, many: int = 0) -> None:
        """One more; what is older by so many seconds and so many rows counts no more."""
        while self._values and self._values[-1][2] <= value:
            self._values.pop()
        self._values.append((now, ended, value))
        while len(self._values) > 1 and self._values[0][0] < now - seconds and self._values[0][1] <= ended - many:
            self._values.popleft()

    def cap(self, most: int) -> None:
        """Nothing was ever more than this."""
        self._values = deque((when, ended, min(value, most)) for when, ended, value in self._values)

    @property
    def value(self) -> int:
        """0 before the first."""
        return self._values[0][2] if self._values else 0


class Wanted:
    """The number of hosts that are wanted."""

    def __init__(self) -> None:
        #: needs of the last while, hosts; those that there were room for, as there are rows; those that were estimated
        self._needs, self._room, self._estimates = _Most(), _Most(), _Most()
        #: what was said last
        self._last = 0
        #: rows that there were when that became less; None after it has become more
        self._fell_at: int | None = None
        #: seconds that a row takes, as seen last
        self._mean: float | None = None
        #: seconds in which the cluster was seen; and when that was last, None if it was out of sight since
        self._clock = 0.0
        self._seen_at: float | None = None
        #: rows that were there last, and how many less they have become in all
        self._rows = self._ended = 0

    def lose_sight(self) -> None:
        """Nobody sees the cluster until the next update."""
        self._seen_at = None

    def update(self, observed: Observed, limits: Limits, own_jobs: frozenset[str], now: float) -> int:
        """The number as of now, within the limits."""
        self._clock += 0.0 if self._seen_at is None else now - self._seen_at
        self._seen_at = now
        need, room, estimate, rows = self._need(observed, limits, own_jobs)
        self._needs.add(need, self._clock, limits.idle_time)
        self._room.add(room, self._clock, limits.idle_time)
        self._ended += max(0, self._rows - rows)
        self._rows = rows
        many = max(MANY, sum(agent.workers for agent in observed.agents))
        self._estimates.add(estimate, self._clock, max(limits.idle_time, STEADY * limits.drain_time), self._ended, many)
        before, self._last = self._last, self.bounded(limits)
        if self._last != before:
            self._fell_at = rows if self._last < before else None
        if self._last < self._estimates.value:
            self._estimates.cap(self._last)  # estimates keep what is wanted, and bring nothing back
        return self._last

    def bounded(self, limits: Limits) -> int:
        """The number within limits that may have changed."""
        need = max(self._needs.value, min(self._room.value, self._estimates.value))
        return max(limits.minimum, min(limits.maximum, need))

    def _need(self, observed: Observed, limits: Limits, own_jobs: frozenset[str]) -> tuple[int, int, int, int]:
        """Hosts that have enough to do, beside those that others provide: with what holds back; by rows; by estimates,
        with a worker for each row whose duration nobody knows, or hardly. And the rows that there are for them.
        """
        served = [asked for asked in observed.asked if serves(limits, asked)]
        known = sum(asked.queued - asked.unknown for asked in served)
        if known > 0:
            self._mean = sum(asked.work for asked in served) / known
        mean = limits.guess if self._mean is None else self._mean
        rows, seconds = rows_and_seconds(observed, limits, mean)
        of_others = sum(
            agent.workers for agent in observed.agents
            if agent.job not in own_jobs and not agent.is_draining
            and any(asked.capabilities <= agent.capabilities for asked in served)
        )  # fmt: skip
        hosts = (slots_needed(observed, limits, mean) - of_others) / limits.workers
        is_estimate = seconds / limits.drain_time < rows
        tolerance = max(LEAST_TOLERANCE, TOLERANCE * self._last) if is_estimate and self._last else 0.0
        if self._fell_at is not None and rows <= self._fell_at and (self._last or of_others):
            tolerance = max(LEAST_FAR, FAR * self._last)
        need = self._last if self._last < hosts <= self._last + tolerance else max(0, math.ceil(hosts))
        room = max(0, math.ceil((rows - of_others) / limits.workers))
        unknown = sum(asked.unknown for asked in served)
        hardly_known = sum(asked.hardly_known for asked in served)
        slots = seconds / limits.drain_time + hardly_known + unknown * max(0.0, 1.0 - limits.guess / limits.drain_time)
        estimate = max(0, math.ceil((slots - of_others) / limits.workers))
        return need, room, min(estimate, max(need, self._last)), rows
