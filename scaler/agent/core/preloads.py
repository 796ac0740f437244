"""Workers can't start: what they call before they take rows (`--preload`) fails, or the system lets there be no more
processes or threads. They are tried again for as long as it takes.

A host of which no worker can start takes no rows. If it may, it ends, and whoever runs hosts sees that; rows that it
has go back, since it drains. A local cluster can't: its program would wait for ever. There rows are refused, so that
other hosts get them if there are any, or else they end with an error that says what has failed: the call at once, the
system after a while, as an agent that may end is left then to whoever reads its log.
"""

from __future__ import annotations

from scaler.agent.core import staging, worker_commands
from scaler.agent.core.events import GiveUp, WorkerExited
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import STARTING, WorkerRecord
from scaler.common.exits import describe_exit
from scaler.protocol import failures
from scaler.worker_protocol.messages import Preloading

#: seconds without any worker, for want of processes, after which rows end with an error
PATIENCE = 30.0


def take_word(state: HostState, out: Outgoing, worker: WorkerRecord, message: Preloading) -> None:
    """A worker makes the call, or has failed to, and is about to end."""
    if worker.state is not STARTING:
        worker_commands.reject(out, worker, "says that it has yet to start")
        return
    worker.preloading = message


def take_failed_start(state: HostState, out: Outgoing, worker: WorkerRecord, event: WorkerExited) -> None:
    """A worker has ended by its call, or while it made it; it is planned to be started again.

    One line says so: at once if other workers are there, else when all have failed or one of them has not.
    """
    pool, said = state.workers, worker.preloading
    assert said is not None
    pool.failed_preload = failures.preload_failed(said.call, said.error or f"its worker {describe_exit(event.status)}")
    if any(record.state is not STARTING for record in pool.records.values()):
        _tell_of_some(state, out)
    elif pool.failed_starts >= pool.target and not pool.is_unfit:
        pool.is_unfit = True
        words = f"no worker of this host can start: {pool.failed_preload}"
        if state.may_end:
            out.add(GiveUp(f"{words}; start the host again when that is mended"))
        else:
            out.log("ERROR", f"{words}; tasks fail until it succeeds, which is tried again and again")


def take_shortage(state: HostState, out: Outgoing, trouble: str, delay: float) -> None:
    """The system did not let a worker start, for this reason; it is tried again in so many seconds."""
    pool = state.workers
    if any(record.state is not STARTING for record in pool.records.values()):
        return
    if pool.failing_since is None:
        pool.failing_since = state.now
    if state.may_end or pool.is_unfit or state.now + delay - pool.failing_since < PATIENCE:
        return
    pool.is_unfit, pool.failed_preload = True, trouble
    out.log("ERROR", f"no worker of this host can start: {trouble}; tasks fail until one can, which is tried again")


def take_start(state: HostState, out: Outgoing) -> None:
    """A worker has started: its call, if there is one, has succeeded."""
    pool = state.workers
    if pool.is_unfit:
        pool.is_unfit = False
        pool.failed_preload = pool.told_preload = ""
        out.log("INFO", "workers of this host can start again")
    elif pool.failed_preload:
        _tell_of_some(state, out)


def _tell_of_some(state: HostState, out: Outgoing) -> None:
    pool = state.workers
    if pool.failed_preload != pool.told_preload:
        pool.told_preload = pool.failed_preload
        out.log("ERROR", f"some workers of this host could not start, and are tried again: {pool.failed_preload}")


def attend(state: HostState, out: Outgoing) -> None:
    """Refuse all rows of a host that can't run any, and can't end."""
    if state.may_end:
        return
    while state.queued:
        origin, lo, hi = staging.take_any(state, out, state.queued)
        out.refuse(state.workers.failed_preload, *origin.key, lo, hi, unfit=True)
