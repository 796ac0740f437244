"""What a monitor and the scheduler say to each other, and what agents tell of their hosts while somebody watches."""

from dataclasses import field

from scaler.common.records import record
from scaler.protocol.codes import MAX_NAME, MAX_WORKERS, Frame
from scaler.protocol.messages.message import Message, require
from scaler.protocol.messages.worker_columns import WORKER_BYTES, functions_in


@record
class Watch(Message):
    """A monitor wants to see the cluster, and has taken what it was shown; the scheduler wants an agent's reports."""

    #: milliseconds between two pictures, or reports, at least; 0: none is wanted any more
    interval: int
    #: monitors: number of the last `Snapshot` that came; the next one is sent when this has been said
    taken: int = 0


@record
class HostReport(Message):
    """What an agent's host and workers are busy with, told while somebody watches; the frame has `WorkerColumns`."""

    has_bodies = True

    #: of the agent's process: thousandths of a processor, and resident memory, bytes
    cpu: int
    memory: int
    #: thousandths of all the host's processors in use
    host_cpu: int
    #: slots in which a row could begin, rows that no worker has, and rows that workers run
    free: int
    queued: int
    running: int
    #: microseconds from the agent's last heartbeat to its echo
    lag: int
    #: bytes of objects that it holds, those of them on disk, and all that ever came from other hosts
    stored: int
    spilled: int
    fetched: int
    #: how many workers the frame has, and the functions that they run
    workers: int = 0
    names: tuple[str, ...] = ()
    bodies: list[Frame] = field(default_factory=list)

    def validate(self) -> None:
        require(len(self.bodies) == 1, "a HostReport has one frame")
        require(self.workers <= MAX_WORKERS, f"more than {MAX_WORKERS:,} workers")
        require(len(self.bodies[0]) == WORKER_BYTES * self.workers, f"{WORKER_BYTES} bytes for each worker")
        require(len(self.names) <= self.workers, "a function that no worker runs")
        require(all(len(name) <= MAX_NAME for name in self.names), f"a name of more than {MAX_NAME} characters")
        most = max(functions_in(self.bodies[0], self.workers), default=0)
        require(most <= len(self.names), "a worker runs a function without a name")


@record
class Snapshot(Message):
    """The cluster at one moment, for a monitor: two frames, a `ClusterView` and the `WorkerColumns` of all agents."""

    has_bodies = True

    #: counts from 1 in each scheduler
    number: int
    bodies: list[Frame] = field(default_factory=list)

    def validate(self) -> None:
        require(len(self.bodies) == 2, "a Snapshot has two frames")
