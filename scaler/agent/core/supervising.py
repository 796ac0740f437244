"""Looking after rows that workers have: past their time-out the worker is ended; rows behind a long one come back."""

import math

from scaler.agent.core import in_hand, silence, withdrawing, worker_commands
from scaler.agent.core.events import LookAt
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import BUSY, IDLE, KillKind, WorkerRecord

#: seconds between looks at rows that are for busy workers, while others idle
STEAL_SECONDS = 0.005


def attend(state: HostState, out: Outgoing) -> None:
    """Look at each worker, unless none has rows, and plan the next look.

    Rows are taken back from a worker that takes longer than expected, and when another worker has nothing to do; also
    from one that can't give them back.
    """
    pool, ready = state.workers, state.ready
    if not (pool.open_dispatches or ready.local or state.withdrawals.withdrawing):
        state.attend_at = math.inf
        return
    now, idle, wake = state.now, 0, math.inf
    crowded: list[WorkerRecord] = []
    for worker in pool.records.values():
        if worker.state is IDLE:
            idle += worker.may_be_fed and worker.slot not in ready.local  # else what is for it has no room yet
        elif worker.state is BUSY and worker.kill_reason is None:
            first = worker.first
            timeout = first.origin.task.timeout
            if timeout:
                if now >= first.at + timeout:
                    worker_commands.kill(out, worker, KillKind.TIMEOUT, "")
                    continue
                wake = min(wake, first.at + timeout)
            if worker.recalling:
                wake = min(wake, silence.attend(state, out, worker))
            elif worker.is_crowded:
                due = worker.due
                if now >= due:
                    worker_commands.recall(state, out, worker)
                else:
                    wake = min(wake, due, worker.look_at if now < worker.look_at else _look(out, worker))
                    crowded.append(worker)
    if pool.wide or ready.wide.rows:
        idle = min(idle, pool.free)  # the others are left without rows
    if idle > 0 and (crowded or ready.local) and not ready.general.rows:
        wake = min(wake, _help_idle(state, out, idle, crowded))
    if state.withdrawals.withdrawing:
        wake = min(wake, withdrawing.look_at_silent(state, out))
    state.attend_at = wake


def _look(out: Outgoing, worker: WorkerRecord) -> float:
    """See whether a worker keeps results back for a long row; when to do so again if it says nothing: never."""
    worker.look_at = math.inf
    out.add(LookAt(worker.slot))
    return math.inf


def _help_idle(state: HostState, out: Outgoing, idle: int, crowded: list[WorkerRecord]) -> float:
    """Idle workers may have rows that wait for busy ones; when to look again."""
    if idle <= state.waiting.stolen or state.memory.is_full:
        return math.inf
    if crowded:
        in_hand.help_idle(state, out, crowded)
    return state.now + STEAL_SECONDS if state.ready.local else math.inf


def recall_crowded(state: HostState, out: Outgoing) -> None:
    """There is no room any more: rows that have not begun are taken back."""
    for worker in state.workers.records.values():
        if worker.is_crowded and worker.kill_reason is None:
            worker_commands.recall(state, out, worker)
