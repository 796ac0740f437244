"""The life of a worker as a table, and the only place that changes its state."""

from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import BUSY, GONE, IDLE, PARKED, STARTING, WorkerRecord, WorkerState

#: which moves a worker makes, with what causes them; anything else is a defect
WORKER_TRANSITIONS: dict[tuple[WorkerState, WorkerState], str] = {
    (STARTING, IDLE): "it said that it is ready",
    (IDLE, BUSY): "rows were handed to it",
    (BUSY, IDLE): "all its rows are reported",
    (IDLE, PARKED): "a blocked worker goes on, and there is one too many",
    (PARKED, IDLE): "another worker blocked",
    (STARTING, GONE): "its process ended",
    (IDLE, GONE): "its process ended",
    (BUSY, GONE): "its process ended",
    (PARKED, GONE): "its process ended",
}


class IllegalWorkerMove(Exception):
    """A worker was about to make a move that is not in the table: a defect of the agent."""

    def __init__(self, worker: WorkerRecord, after: WorkerState) -> None:
        super().__init__(f"worker {worker.slot} went from {worker.state} to {after}")


def move(state: HostState, worker: WorkerRecord, after: WorkerState, cause: str | None = None) -> None:
    """Have a worker make a move; the cause is that of the table unless there is more to say.

    A move that is not in the table raises IllegalWorkerMove if the state is strict; otherwise it is made, and the
    worker is replaced at the end of the step.
    """
    before = worker.state
    usual = WORKER_TRANSITIONS.get((before, after))
    if usual is None:
        if state.strict:
            raise IllegalWorkerMove(worker, after)
        state.follow_ups.disorder[worker.slot] = str(IllegalWorkerMove(worker, after))
        usual = "nobody knows why"
    worker.state = after
    worker.history.append((state.now, before, after, cause or usual))
