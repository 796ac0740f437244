"""Looks why the zygote does not report what it should, and has it go on, or end. `overdue.py` decides."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Mapping

from scaler.agent.overdue import Overdue, Verdict
from scaler.agent.process_state import state_of
from scaler.agent.worker_processes import WorkerProcess, Zygote

logger = logging.getLogger("scaler.agent")


def has_hung_up(worker: WorkerProcess) -> bool:
    """Of a worker whose connection has ended: its process goes on, as far as can be seen."""
    state = None if worker.pid is None else state_of(worker.pid)
    return state is not None and not state.is_ending


def look(overdue: Overdue, zygote: Zygote, workers: Mapping[int, WorkerProcess], now: float) -> list[int]:
    """The zygote owes reports. The slots of workers that have hung up and don't end, which keeps it from reporting."""
    living: list[int] = []
    is_owed = False
    forkers = {zygote.pid: None}  # the warm process may have forked a worker
    for slot in overdue.slots(now):
        worker = workers.get(slot)
        if worker is None:
            continue
        state = None if worker.pid is None else state_of(worker.pid)
        if state is not None:
            forkers[state.parent] = None
        if state is not None and (state.is_halted or not state.is_ending):
            living.append(slot)
        else:
            is_owed = True
    stopped = [pid for pid in forkers if (state := state_of(pid)) is not None and state.is_stopped]
    verdict = overdue.judge(now, bool(stopped), is_owed)
    if verdict is Verdict.CONTINUE:
        for pid in stopped:
            logger.warning("the process that workers are forked from (pid %d) was stopped: it is made to go on", pid)
            _signal(pid, signal.SIGCONT)
    elif verdict is Verdict.REPLACE:
        logger.error("the process that workers are forked from (pid %d) reports nothing: it is killed", zygote.pid)
        _signal(zygote.pid, signal.SIGKILL)
    return [slot for slot in living if workers[slot].ended]


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
