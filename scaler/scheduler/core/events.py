"""What the scheduler's core hears, and what it answers: its one door is `handle(events, now) -> effects`."""

from dataclasses import dataclass

from scaler.common.effects import Log as Log
from scaler.common.effects import Stop as Stop
from scaler.common.effects import Tick as Tick
from scaler.common.effects import WakeAt as WakeAt
from scaler.protocol.acceptor import Joined as Joined
from scaler.protocol.acceptor import Lost as Lost
from scaler.protocol.acceptor import Received as Received
from scaler.protocol.messages import Message

Event = Joined | Received | Lost | Tick


@dataclass(slots=True)
class Send:
    """Send this message to a peer."""

    number: int
    message: Message


@dataclass(slots=True)
class Forget:
    """The peer's session is over: what still comes from it is refused."""

    number: int
    reason: str


@dataclass(slots=True)
class StartStore:
    """Start the standalone store: a client needs it."""


Effect = Send | Forget | StartStore | WakeAt | Stop | Log
