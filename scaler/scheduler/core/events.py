"""What the scheduler's core hears, and what it answers: its one door is `handle(events, now) -> effects`."""

from dataclasses import dataclass

from scaler.common.effects import Log as Log
from scaler.common.effects import Stop as Stop
from scaler.common.effects import Tick as Tick
from scaler.common.effects import WakeAt as WakeAt
from scaler.protocol.messages import Hello, Message


@dataclass(slots=True)
class Joined:
    """A client or agent was accepted and has been given its number."""

    number: int
    hello: Hello


@dataclass(slots=True)
class Received:
    """A message of a peer that has joined."""

    number: int
    message: Message


@dataclass(slots=True)
class Lost:
    """A peer's connection is known to be gone for good, or it broke the protocol."""

    number: int
    reason: str


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
    """Start the store beside the scheduler: a client needs it."""


Effect = Send | Forget | StartStore | WakeAt | Stop | Log
