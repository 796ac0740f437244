"""The client's or agent's side of its session with the scheduler: what it says first, and its place in the sequence."""

import os
from collections.abc import Iterable

from scaler.protocol.channel import Channel
from scaler.protocol.codec import decode, encode
from scaler.protocol.hello import hello_of
from scaler.protocol.messages import Ack, Frame, Hello, Message, Refused, Welcome


class Refusal(Exception):
    """The scheduler refused a message or the session."""


class Peer:
    """A session that outlives its connections. Not thread-safe."""

    def __init__(
        self,
        role: str,
        name: str,
        workers: int = 0,
        capabilities: tuple[str, ...] = (),
        store: tuple[str, str, str] = ("", "", ""),
    ) -> None:
        self._role = role
        self._name = name
        self._workers = workers
        self._capabilities = capabilities
        #: of an agent: directory, token and data address of its store
        self.store = store
        self._id = int.from_bytes(os.urandom(8), "little") | 1
        self._channel = Channel()
        #: the scheduler's last Welcome; None before the first
        self.welcome: Welcome | None = None

    def hello(self) -> list[Frame]:
        """The first frames on a new connection."""
        epoch = self.welcome.epoch if self.welcome else 0
        message: Hello = hello_of(
            self._role, self._name, self._id, epoch, self._channel.received, self._workers, self._capabilities,
            self.store,
        )  # fmt: skip
        return encode(message)

    def welcomed(self, welcome: Welcome) -> tuple[bool, list[list[Frame]]]:
        """The scheduler answered: does the session go on, and the frames that have to be sent again."""
        resumed = welcome.resumed and self.welcome is not None
        self.welcome = welcome
        if not resumed:
            self._channel = Channel()
            return False, []
        return True, [encode(message, seq, ack) for seq, ack, message in self._channel.resume(welcome.received)]

    def frames(self, message: Message) -> list[Frame]:
        """The frames of the next message."""
        return encode(message, *self._channel.stamp(message))

    def accept(self, frames: list[Frame]) -> Message | None:
        """The message in these frames; None if it came before, or is an Ack. Raises Gap, Refusal, ProtocolError."""
        seq, ack, message = decode(frames)
        if isinstance(message, Refused):
            raise Refusal(message.reason)
        if not self._channel.accept(seq, ack) or isinstance(message, Ack):
            return None
        return message

    def owed_acks(self) -> Iterable[list[Frame]]:
        """The frames of an Ack if one is due."""
        if self._channel.owes_ack:
            yield encode(Ack(), *self._channel.stamp_ack())
