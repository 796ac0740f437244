"""What an agent and its workers use of processors and memory, read from /proc while somebody watches.

Where there is no /proc all figures are 0.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from scaler.agent.core.events import Measured, MeasuredWorker
from scaler.common.process_use import ProcessUse

#: seconds from when somebody begins to watch to the first measurement: shares of processors need two looks
FIRST = 0.2


class Measuring:
    """Measures the agent and its workers every now and then, if it is asked to."""

    def __init__(self) -> None:
        #: seconds between two measurements; 0: none is wanted
        self._interval = 0.0
        #: when the next one is due, seconds; None: never
        self.due: float | None = None
        #: pid -> what it has used so far
        self._processes: dict[int, ProcessUse] = {}

    def every(self, interval: float, pids: Mapping[int, int], now: float) -> None:
        """Measure every so many seconds from now on; 0: never again. `pids` are of the workers, by slot."""
        before, self._interval = self._interval, interval
        if not interval:
            self.due = None
            self._processes.clear()
            return
        if not before:
            for pid in (os.getpid(), *pids.values()):
                self._use_of(pid).look(now)
        if self.due is None:
            self.due = now + FIRST
        elif interval < before:  # who looks more often than others do does not wait for those
            self.due = min(self.due, now + FIRST)

    def measure(self, pids: Mapping[int, int], begun: Mapping[int, tuple[int, int]], now: float) -> Measured:
        """Measure now; `pids` of the workers and what they have begun, by slot."""
        self.due = now + self._interval
        own = os.getpid()
        for gone in self._processes.keys() - {own, *pids.values()}:
            del self._processes[gone]
        cpu, memory = self._use_of(own).look(now)
        workers: dict[int, MeasuredWorker] = {}
        for slot, pid in pids.items():
            use = self._use_of(pid)
            row = begun.get(slot, (0, -1))
            workers[slot] = MeasuredWorker(pid, *use.look(now), row, is_stopped=use.is_stopped)
        return Measured(cpu, memory, workers)

    def _use_of(self, pid: int) -> ProcessUse:
        use = self._processes.get(pid)
        if use is None:
            use = self._processes[pid] = ProcessUse(pid)
        return use
