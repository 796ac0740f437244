"""Large results of durable jobs that can't be written to files: they come as others do, and the log says so."""

import os

from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import WorkerRecord
from scaler.worker_protocol.messages import Unfiled

#: directories that it is said of, at most
MOST = 16
#: seconds until it is said that it is over, at least: a disk that is nearly full takes some and refuses others
PAUSE = 60.0


def take(state: HostState, out: Outgoing, worker: WorkerRecord, message: Unfiled) -> None:
    """A worker could not write a file: the log says so, once for each directory."""
    dispatch = worker.dispatches.get(message.dispatch)
    if dispatch is None or len(state.unfiled) >= MOST:
        return
    directory = dispatch.origin.task.results.rpartition("/")[0]
    if directory and directory not in state.unfiled:
        state.unfiled[directory] = state.now
        why = os.strerror(message.error)
        out.log("WARNING", f"large results of durable jobs go through the scheduler: {directory} on this host: {why}")


def end(state: HostState, out: Outgoing) -> None:
    """A worker has written one, of which the log says otherwise."""
    if state.now > max(state.unfiled.values()) + PAUSE:
        state.unfiled.clear()
        out.log("INFO", "large results of durable jobs are written to files again")
