"""What an agent's core hears, and what it answers."""

from collections.abc import Collection, Mapping
from dataclasses import field

from scaler.common.effects import Log as Log
from scaler.common.effects import Stop as Stop
from scaler.common.effects import Tick as Tick
from scaler.common.effects import WakeAt as WakeAt
from scaler.common.records import record
from scaler.protocol.messages import Message
from scaler.store.layout import Key
from scaler.worker_protocol import messages as worker_messages


@record
class FromScheduler:
    """A message of the scheduler."""

    message: Message


@record
class FromWorker:
    """A message of a worker."""

    slot: int
    message: worker_messages.FromWorker


@record
class Garbled:
    """A worker sent bytes that are no message; nothing more is heard of it but its end."""

    slot: int
    #: what is wrong with them
    reason: str


@record
class HungUp:
    """A worker has closed its connection, and its process goes on; nothing more is heard of it but its end."""

    slot: int


@record
class WorkerExited:
    """A worker's process ended; `begun` is the (dispatch, row) it had begun last, row -1 for none."""

    slot: int
    pid: int
    status: int
    begun: tuple[int, int]
    #: which limit of the system has kept it from starting, in words; empty: none that is known
    trouble: str = ""
    #: in how many tasks the row was submitted that this one had claimed and ran in its stack; -1: there was none
    claimed: int = -1


@record
class Welcomed:
    """The scheduler accepted this agent; `resumed` if it remembers what the agent holds."""

    resumed: bool
    heartbeat: float
    #: this agent's number; by default that of the agent in the scheduler's own process
    number: int = 1
    #: it is another scheduler than before, at which this agent has kept its number: it is told what is here
    returned: bool = False
    #: bytes of a message that it hears
    limit: int = 1 << 62


@record
class Leave:
    """The end of this host was announced; it may take so many seconds."""

    grace: float


@record
class Limited:
    """The batch system ends this host at a time, seconds; it is to begin to go so many seconds before."""

    ends: float
    grace: float


@record
class Spilled:
    """An object is on disk now, and not in the store any more; or not, and why."""

    key: Key
    error: str | None = None


@record
class Restored:
    """An object that was on disk is in the store now; or not, and why: it is on disk no more, or there is no room."""

    key: Key
    error: str | None = None
    is_lost: bool = False
    lacks_room: bool = False


@record
class Fetched:
    """An object of another agent is in the store now; or it could not be had, and why, as for lack of room here."""

    key: Key
    error: str | None = None
    lacks_room: bool = False


@record
class Requested:
    """Another agent or a client wants to have an object that is no file here now; to be answered with `Serve`."""

    key: Key


@record
class FileMissing:
    """An object that somebody is going to read has no file here, where one is expected or not."""

    key: Key


@record
class Put:
    """A client on another host has put an object of so many bytes into the store."""

    key: Key
    size: int


@record
class Looked:
    """What a worker is seen to do, without its help: answers `LookAt`."""

    slot: int
    #: (dispatch, row) that it has begun last, row -1 for none
    begun: tuple[int, int]


@record
class Sampled:
    """What the host is busy with."""

    #: bytes of memory that are a worker's alone, by slot; mapped objects don't count
    workers: dict[int, int]
    #: share of the host's processors in use, 0 to 1
    cpu: float = 0.0
    #: bytes that the store's file system should have free and has not: others use it, or map what was removed; or for
    #: which a client has no room
    short: int = 0
    #: (dispatch, row) that each worker has begun last, row -1 for none, by slot
    begun: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    #: the dispatch that each worker is at or was at last, begun or being loaded, 0 for none, by slot
    reached: Mapping[int, int] = field(default_factory=dict)
    #: slots of workers whose main thread has ended, while others of their threads are there
    halted: Collection[int] = ()


@record
class MeasuredWorker:
    """What a worker's process uses and does."""

    pid: int
    #: thousandths of a processor, and resident memory, bytes
    cpu: int
    memory: int
    #: (dispatch, row) that it has begun last, row -1 for none; and for how long it runs, milliseconds
    begun: tuple[int, int] = (0, -1)
    elapsed: int = 0
    #: it does nothing until it is told to go on
    is_stopped: bool = False


@record
class Measured:
    """What the agent and its workers use, by slot; answers `Measure`, again and again."""

    #: of the agent's process: thousandths of a processor, and resident memory, bytes
    cpu: int
    memory: int
    workers: dict[int, MeasuredWorker]


Event = (
    FromScheduler
    | FromWorker
    | Garbled
    | HungUp
    | WorkerExited
    | Welcomed
    | Spilled
    | Restored
    | Fetched
    | Requested
    | FileMissing
    | Put
    | Looked
    | Sampled
    | Measured
    | Leave
    | Limited
    | Tick
)


@record
class ToScheduler:
    """Send this message to the scheduler."""

    message: Message


@record
class ToWorker:
    """Send this to a worker; with `control` to the thread that listens while user code runs."""

    slot: int
    message: worker_messages.ToWorker
    control: bool = False


@record
class StartWorker:
    """Fork a worker for this slot."""

    slot: int
    #: tasks wait for tasks of their own: it is to have loaded already what a client in a task is made of
    nests: bool = False


@record
class KillWorker:
    """End a worker's process at once; `WorkerExited` follows."""

    slot: int


@record
class LookAt:
    """See what a worker does that gives no answer; `Looked` follows."""

    slot: int


@record
class Revoke:
    """Have a worker begin nothing of its dispatches up to this one, but for what it has begun, without its help."""

    slot: int
    dispatch: int


@record
class Measure:
    """Measure what the agent and its workers use, every so many seconds; 0: not any more. `Measured` follows."""

    interval: float


@record
class ShowOutput:
    """A task printed this."""

    name: str
    row: int
    stream: int
    text: str
    #: its client is told, too
    is_told: bool


@record
class GiveUp:
    """No worker of this host can start, for this reason: it should go, in order."""

    reason: str


@record
class Spill:
    """Move an object from the store to disk; `Spilled` follows."""

    key: Key


@record
class Restore:
    """Move an object from disk to the store; `Restored` follows."""

    key: Key


@record
class Fetch:
    """Copy an object from one of these addresses into the store; `Fetched` follows, unless it is dropped before."""

    key: Key
    #: bytes
    size: int
    addresses: list[str]


@record
class Serve:
    """An object that was `Requested` is a file now; or it will not be, and why."""

    key: Key
    error: str | None = None


@record
class DropObject:
    """Remove an object from the store and from disk, and fetch it no longer."""

    key: Key


@record
class DropClient:
    """Remove all that a client has in the store; what is known of it was dropped before.

    0: all that anybody has, except what came after this agent introduced itself to the scheduler.
    """

    client: int


Effect = (
    ToScheduler
    | ToWorker
    | StartWorker
    | KillWorker
    | LookAt
    | Revoke
    | Measure
    | Spill
    | Restore
    | Fetch
    | Serve
    | DropObject
    | DropClient
    | WakeAt
    | ShowOutput
    | GiveUp
    | Stop
    | Log
)
