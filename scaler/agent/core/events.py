"""What an agent's core hears, and what it answers."""

from dataclasses import dataclass
from typing import Any

from scaler.effects import Log as Log
from scaler.effects import Stop as Stop
from scaler.effects import Tick as Tick
from scaler.effects import WakeAt as WakeAt
from scaler.protocol.messages import Message


@dataclass(slots=True)
class FromScheduler:
    """A message of the scheduler."""

    message: Message


@dataclass(slots=True)
class FromWorker:
    """A message of a worker: a tuple that begins with its kind."""

    slot: int
    message: tuple[Any, ...]


@dataclass(slots=True)
class WorkerExited:
    """A worker's process ended; `begun` is the (handout, row) it had begun last, row -1 for none."""

    slot: int
    pid: int
    status: int
    begun: tuple[int, int]


@dataclass(slots=True)
class Welcomed:
    """The scheduler accepted this agent; `resumed` if it remembers what the agent holds."""

    resumed: bool
    heartbeat: float


Event = FromScheduler | FromWorker | WorkerExited | Welcomed | Tick


@dataclass(slots=True)
class ToScheduler:
    """Send this message to the scheduler."""

    message: Message


@dataclass(slots=True)
class ToWorker:
    """Send this to a worker; with `control` to the thread that listens while user code runs."""

    slot: int
    message: tuple[Any, ...]
    control: bool = False


@dataclass(slots=True)
class StartWorker:
    """Fork a worker for this slot."""

    slot: int


@dataclass(slots=True)
class KillWorker:
    """End a worker's process at once; `WorkerExited` follows."""

    slot: int


@dataclass(slots=True)
class Output:
    """A task printed this."""

    name: str
    row: int
    stream: int
    text: str


Effect = ToScheduler | ToWorker | StartWorker | KillWorker | WakeAt | Output | Stop | Log
