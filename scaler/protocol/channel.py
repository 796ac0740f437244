"""A session's two sequences of messages: nothing lost, nothing twice, in order, across connections.

Every message but the handshake's carries a `seq` and the highest seq received (`ack`). The sender keeps a message until
it is acknowledged; after a reconnect both sides say in `Hello` and `Welcome` what they have received, and the rest is
sent again. So the cores above see a peer that is either there or lost, never one that forgot a message. Pure: no I/O,
no time.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from scaler.protocol.messages import Message

#: an Ack of its own is owed after this many messages that nothing was sent back for
ACK_EVERY = 32
#: and after so many bytes of messages, whose sender may wait for it: see `Channel.unread`
ACK_BYTES = 4 << 20


class Envelope(NamedTuple):
    """A message with its place in the sequence of its session."""

    seq: int
    ack: int
    message: Message


class Gap(Exception):
    """A message is missing: the connection lost some, and must be made anew."""


class FalseAck(Exception):
    """The other side says that it has received what was not sent: it is not to be believed."""


class Channel:
    """One side of a session."""

    __slots__ = ("_acked", "_next", "_unacked", "_unacked_bytes", "answers", "received", "unread")

    def __init__(self) -> None:
        #: seq of the next message sent
        self._next = 1
        #: messages that the other side may not have, in order of seq, with about how many bytes each takes
        self._unacked: deque[tuple[int, Message, int]] = deque()
        #: bytes of those: what the other side has not said that it has read
        self.unread = 0
        #: of those the bytes of answers that it has asked for
        self.answers = 0
        #: the highest seq received; all before it were received too
        self.received = 0
        #: the highest `received` told to the other side
        self._acked = 0
        #: bytes of messages that came since
        self._unacked_bytes = 0

    @property
    def kept(self) -> Iterator[Message]:
        """The messages that the other side has not confirmed, in order."""
        return (message for _, message, _ in self._unacked)

    @property
    def sent(self) -> int:
        """How many messages were sent so far: the seq of the last one."""
        return self._next - 1

    @property
    def owes_ack(self) -> bool:
        """Enough came in without an answer that an Ack of its own is due."""
        return self.received - self._acked >= ACK_EVERY or self._unacked_bytes >= ACK_BYTES

    def stamp(self, message: Message) -> tuple[int, int]:
        """Keep a message that is about to be sent; its (seq, ack)."""
        seq = self._next
        self._next = seq + 1
        weight = message.weight
        self._unacked.append((seq, message, weight))
        self.unread += weight
        if message.is_answer:
            self.answers += weight
        self._acked, self._unacked_bytes = self.received, 0
        return seq, self.received

    def replace(self, seq: int, message: Message) -> None:
        """Keep another message in the place of one that can't be sent."""
        unacked = self._unacked
        for at in range(len(unacked) - 1, -1, -1):
            if unacked[at][0] == seq:
                _, before, weight = unacked[at]
                self.unread += message.weight - weight
                self.answers += message.weight * message.is_answer - weight * before.is_answer
                unacked[at] = seq, message, message.weight
                return

    def stamp_ack(self) -> tuple[int, int]:
        """The (seq, ack) of an Ack."""
        self._acked, self._unacked_bytes = self.received, 0
        return 0, self.received

    @property
    def oldest(self) -> int:
        """Bytes of the first message that the other side has not said that it has read; 0 if there is none."""
        return self._unacked[0][2] if self._unacked else 0

    def check_ack(self, ack: int) -> None:
        """Raises `FalseAck` for what can't be: who says that it has read what it has not has what is kept unbounded."""
        if ack >= self._next:
            raise FalseAck(f"acknowledges message {ack:,} of {self.sent:,}")

    def accept(self, seq: int, ack: int, weight: int = 0) -> bool:
        """Take note of an arrived message of about so many bytes; False if it came before.

        Raises `Gap` when one before it is missing, `FalseAck` as `check_ack` does.
        """
        self.check_ack(ack)
        unacked = self._unacked
        while unacked and unacked[0][0] <= ack:
            _, message, size = unacked.popleft()
            self.unread -= size
            if message.is_answer:
                self.answers -= size
        if seq == 0:
            return True
        if seq <= self.received:
            return False
        if seq != self.received + 1:
            raise Gap(f"message {seq} came after {self.received}")
        self.received = seq
        self._unacked_bytes += weight
        return True

    def resume(self, received: int) -> Iterator[tuple[int, int, Message]]:
        """After a reconnect: what has to be sent again to who has received that much, as (seq, ack, message).

        Raises `FalseAck` when that can't be.
        """
        self.accept(0, received)
        self._acked, self._unacked_bytes = self.received, 0
        for seq, message, _ in self._unacked:
            yield seq, self.received, message
