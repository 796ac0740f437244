"""The client's session with the scheduler over whatever connection it has at present."""

from __future__ import annotations

import time

from scaler.protocol.codec import decode, encode
from scaler.protocol.codes import Role
from scaler.protocol.hello import hello_of, new_number
from scaler.protocol.initiator import Broken, Established, Initiator, Rejected
from scaler.protocol.messages import Frame, Message, Welcome
from scaler.serialize.versions import packages
from scaler.transport import Connection


class Line:
    """Messages in and out. Touched under the lock of the `SessionDriver`, but for what any thread may look at."""

    def __init__(self, name: str, others: int = 0, store: str | None = None) -> None:
        """`others`: at how many addresses besides one a scheduler may be. `store`, in a worker: its agent's."""
        around = (store or "", "", "")
        hello = hello_of(Role.CLIENT, name, new_number(), store=around, packages=packages(), others=others)
        #: the session; what it says of the last connection may be looked at without the lock
        self.initiator = Initiator(hello)
        #: what no other client has
        self.identity = f"{hello.name}|Client|{hello.session:016x}".encode()
        #: the one in use, or that was in use last; None before the first. May be looked at without the lock
        self.connection: Connection | None = None
        #: what came over it was nothing that a scheduler says, or nobody knows what was: no other one would mend that
        self.error: Exception | None = None

    @property
    def welcome(self) -> Welcome:
        """What the scheduler last said of itself. Any thread."""
        welcome = self.initiator.welcome
        assert welcome is not None
        return welcome

    # ---- the handshake ---------------------------------------------------------------------------------------------
    def greet(self) -> list[Frame]:
        """The first frames over a new connection."""
        return encode(self.initiator.greet(time.monotonic()).message)

    def hear(self, frames: list[Frame]) -> Message | Established | Rejected | Broken | None:
        """What frames mean that came over a new connection. Raises `ProtocolError`."""
        return self.initiator.receive(decode(frames), time.monotonic())

    def establish(self, connection: Connection, established: Established) -> None:
        """The session goes on over this connection, or begins; says again what was lost."""
        self.connection = connection
        for seq, ack, message in established.again:
            connection.send(encode(message, seq, ack))

    def disconnect(self, reason: str) -> str:
        """The connection is gone, or could not be made; why, in words for people."""
        self.initiator.disconnect(reason)
        return self.initiator.trouble

    # ---- in use ----------------------------------------------------------------------------------------------------
    def send(self, message: Message) -> None:
        """Say this, or keep it until the session goes on. Does not block."""
        envelope = self.initiator.send(message)
        if envelope is not None and self.connection is not None:
            self.connection.send(encode(envelope.message, envelope.seq, envelope.ack))

    def receive(self) -> list[Message]:
        """What has come since the last time, in order. Does not block."""
        return self.accept(self.connection.receive()) if self.connection is not None else []

    def accept(self, arrived: list[list[Frame]]) -> list[Message]:
        """The messages in these frames; what is out of order closes the connection: a new one mends it."""
        messages: list[Message] = []
        receive, now = self.initiator.receive, time.monotonic()
        for frames in arrived:
            said = receive(decode(frames), now)
            if isinstance(said, (Broken, Established, Rejected)):
                self.close(0)
                break
            if said is not None:
                messages.append(said)
        return messages

    def acknowledge(self) -> None:
        """Say what has been received, if that is due."""
        envelope = self.initiator.take_ack()
        if envelope is not None and self.connection is not None:
            self.connection.send(encode(envelope.message, envelope.seq, envelope.ack))

    def check_silence(self) -> None:
        """Give up a connection over which nothing came for too long."""
        if self.connection is not None:
            self.initiator.check_silence(time.monotonic(), self.connection.carried_bytes)

    @property
    def is_lost(self) -> bool:
        """The connection is of no use any more."""
        return self.connection is None or self.connection.is_closed or not self.initiator.is_open

    def give_up(self, error: Exception) -> None:
        """What came, or is to be sent, can't be dealt with."""
        self.error = self.error or error
        self.close(0)

    def close(self, linger: float) -> None:
        """Close the connection; blocks for at most `linger` seconds."""
        if self.connection is not None:
            self.connection.close(linger)
