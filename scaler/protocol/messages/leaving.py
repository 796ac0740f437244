"""Goodbyes: of clients, of all that a client has, of the cluster."""

from dataclasses import dataclass

from scaler.protocol.messages.message import Message


@dataclass(slots=True)
class ClientDeparture(Message):
    """A client is gone, or wants to begin anew and `stays`: agents drop what they hold of it."""

    client: int
    stays: bool = False


@dataclass(slots=True)
class DisconnectRequest(Message):
    """A client's orderly goodbye."""


@dataclass(slots=True)
class DisconnectResponse(Message):
    """Everything of the client is dropped."""


@dataclass(slots=True)
class ClientShutdown(Message):
    """A client asks the whole cluster to end; an agent is told so by the scheduler."""


@dataclass(slots=True)
class ShutdownResponse(Message):
    """Whether the scheduler will."""

    accepted: bool
    reason: str


@dataclass(slots=True)
class ClientClear(Message):
    """Drop all tasks and objects of this client."""
