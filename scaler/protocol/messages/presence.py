"""Who is still there and how busy; and goodbyes: of clients, of all that a client has, of the cluster."""

from typing import ClassVar

from scaler.common.records import record
from scaler.protocol.codes import MAX_WORKERS, MOST_BANDWIDTH, NEVER, Leaving, Wish
from scaler.protocol.messages.message import Malformed, Message, require

#: why an agent may be about to go
_REASONS = frozenset(map(int, Leaving))


@record
class Heartbeat(Message):
    """Alive, and how busy."""

    clock: float
    workers: int = 0
    queued: int = 0
    running: int = 0
    #: part of the host's processors that is in use, 0 to 1
    cpu: float = 0.0
    memory: int = 0
    #: bytes of objects that an agent holds; and whether it has no room for more
    stored: int = 0
    full: bool = False
    #: bytes a second by which objects came to it from other hosts; 0 while unknown
    bandwidth: float = 0.0
    #: of an agent: `Leaving`
    leaving: int = 0

    def validate(self) -> None:
        if self.leaving not in _REASONS:
            raise Malformed(f"no reason to leave: {self.leaving}")
        if self.workers > MAX_WORKERS:
            raise Malformed(f"more than {MAX_WORKERS:,} workers in an agent")
        if not (0.0 <= self.clock < NEVER and 0.0 <= self.cpu <= 1.0 and 0.0 <= self.bandwidth < MOST_BANDWIDTH):
            raise Malformed("a clock, a use of processors or a bandwidth that none can have")


@record
class Drain(Message):
    """An agent is to go in order, or to stay; or nothing is left for it to do; or its scheduler ends."""

    #: `Wish`
    wish: int

    def validate(self) -> None:
        require(self.wish in list(Wish), f"no wish: {self.wish}")


@record
class HeartbeatEcho(Message):
    """The scheduler is alive too; `workers` is the whole cluster's."""

    is_answer: ClassVar[bool] = True

    clock: float
    workers: int
    #: how many agents both of a pair of schedulers count; 0: this one has no standby
    roster: int = 0

    def validate(self) -> None:
        if not 0.0 <= self.clock < NEVER:
            raise Malformed("a clock that shows no time")


@record
class ClientDeparture(Message):
    """A client is gone, or wants to begin anew and `stays`: agents drop what they hold of it."""

    client: int
    stays: bool = False


@record
class DisconnectRequest(Message):
    """The orderly goodbye of a client, an agent or any other peer: what is left of it is dropped at once."""


@record
class DisconnectResponse(Message):
    """Everything of the client is dropped."""


@record
class ClientShutdown(Message):
    """A client asks the whole cluster to end; an agent is told so by the scheduler."""


@record
class ShutdownResponse(Message):
    """Whether the scheduler will."""

    accepted: bool
    reason: str


@record
class ClientClear(Message):
    """Drop all tasks and objects of this client."""
