"""Who is still there, and how busy."""

from dataclasses import dataclass

from scaler.protocol.messages.message import Message


@dataclass(slots=True)
class Heartbeat(Message):
    """Alive, and how busy."""

    clock: float
    workers: int = 0
    queued: int = 0
    running: int = 0
    cpu: float = 0.0
    memory: int = 0
    #: bytes of objects that an agent holds; and whether it has no room for more
    stored: int = 0
    full: bool = False
    #: bytes a second by which objects came to it from other hosts; 0 while unknown
    bandwidth: float = 0.0


@dataclass(slots=True)
class HeartbeatEcho(Message):
    """The scheduler is alive too; `workers` is the whole cluster's."""

    clock: float
    workers: int
