"""The port: all that the rest of the engine knows about moving messages between processes.

A message is a list of frames (at least one). A connection is one session: messages arrive in order, all of them or the
connection is closed. It never comes back by itself: the layer above calls `connect` again and introduces itself anew,
so that a lost message always shows as a lost connection.

Both ends have one descriptor that an event loop (or `select`) watches for readability and nothing else: it becomes
readable when messages arrived, when a peer left, and also when bytes that could not be sent at once can be sent now.
Whoever sees it readable calls `receive`, which does all three without blocking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from scaler.transport.address import Address
from scaler.transport.listener_state import ListenerState

#: What arrives: small frames as bytes, large ones as read-only views that keep the memory of their message alive.
Frame: TypeAlias = bytes | memoryview
Message: TypeAlias = list[Frame]
#: What can be sent. It is not copied at once, so nobody may change it afterwards.
Sendable: TypeAlias = bytes | bytearray | memoryview

#: What the engine's own headers may add to the user's bytes.
SLACK_BYTES = 1 << 20


class Named(Protocol):
    """An address, as users write it."""

    @property
    def url(self) -> str:
        """The whole of it."""


class Connection(Protocol):
    """The client's or agent's end. One thread receives; any thread sends."""

    #: "unix" or "tcp".
    kind: str

    @property
    def address(self) -> Named:
        """The address it was made for."""

    @property
    def is_closed(self) -> bool:
        """True once the peer is gone and every message that came before was received."""

    def fileno(self) -> int:
        """The descriptor to watch for readability. Always the same."""

    def receive(self) -> list[Message]:
        """Everything that has arrived (at most a few megabytes a call). Never blocks."""

    def send(self, frames: Sequence[Sendable]) -> None:
        """Send or queue one message. Never blocks; dropped if the connection is closed.

        Raises `ObjectTooLarge` if it is over the limit.
        """

    def carried_bytes(self) -> int:
        """How many have come so far here or to the other host, of messages that are not complete, too.

        0 where nobody knows.
        """

    def trouble(self) -> str | None:
        """Why the connection is closed, in words for people; None while it is well."""

    def close(self, linger: float = 1.0) -> None:
        """Close, after at most `linger` seconds of sending what is queued. Blocks for that long; can be repeated."""


class Listener(Protocol):
    """The scheduler's end. Belongs to one thread. Peers are numbers of its own, never used twice."""

    #: Where it listens, with the real port.
    address: Address
    #: What is true of all its sockets: whether somebody is gone, or has to be looked after (`tend`).
    state: ListenerState

    def fileno(self) -> int:
        """The descriptor to watch for readability. Always the same."""

    def receive(self) -> list[tuple[int, Message]]:
        """Everything that has arrived (at most a few megabytes a peer and call), with who sent it. Never blocks."""

    def send(self, peer: int, frames: Sequence[Sendable]) -> None:
        """Send or queue one message. Never blocks; dropped if the peer is gone.

        Raises `ObjectTooLarge` if it is over the limit.
        """

    def origin_of(self, peer: int) -> str:
        """Where a peer is that has not left, for people: the address of its host, or that it is this machine."""

    def welcome(self, peer: int) -> None:
        """A peer has said who it is, where that is awaited: it may stay, and send messages of any size."""

    def stirring(self, now: float) -> list[int]:
        """Peers of whom a part of a message has come since the last call, and no whole one. Cheap if called often."""

    def tend(self, now: float) -> float | None:
        """Close connections that had time to say who they are; when to look again, None while there are none."""

    def unsent(self, peer: int) -> int:
        """Bytes that were sent to a peer and have not gone to it, or to its machine; 0 where nobody knows."""

    def disconnect(self, peer: int) -> None:
        """Forget a peer; nothing of it arrives any more, and it is not reported by `closed`."""

    def close(self, linger: float = 1.0) -> None:
        """Close, after at most `linger` seconds of sending what is queued. Blocks for that long; can be repeated."""
