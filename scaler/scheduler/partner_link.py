"""The connection that one of a pair of schedulers makes to the other: a thread connects, the rest is the loop's.

A session begins anew with each connection: what is said is said again twice a second.
"""

from __future__ import annotations

import logging

from scaler.common.loop import Loop
from scaler.common.side_thread import SideThread
from scaler.errors import ProtocolError, ScalerError
from scaler.protocol.channel import Envelope
from scaler.protocol.codec import decode, encode
from scaler.protocol.codes import Role
from scaler.protocol.hello import hello_of, new_number
from scaler.protocol.initiator import Broken, Initiator, Rejected
from scaler.protocol.messages import (
    DisconnectRequest,
    JournalSlice,
    JournalStart,
    JournalState,
    JournalSynced,
    Message,
    PartnerReport,
)
from scaler.scheduler.succession import BEAT, SUSPECT
from scaler.transport import PROBE, Address, Connection, Security, connect

#: what schedulers say to each other
Said = PartnerReport | JournalState | JournalStart | JournalSlice | JournalSynced

logger = logging.getLogger("scaler.scheduler")


class PartnerLink:
    """At most one connection at a time. Used by the loop's thread, but for the thread that connects."""

    def __init__(self, address: str, security: Security, limit: int, loop: Loop) -> None:
        """`address` is this scheduler's own; `limit`: bytes of a message."""
        self._name = address
        self._security = security
        self._limit = limit
        self._loop = loop
        self._connection: Connection | None = None
        self._initiator = self._new_initiator()
        #: connections that were made
        self._made_so_far = 0
        self._thread: SideThread[str, Connection] = SideThread("scaler-partner", self._connect, self._fail)
        self._is_connecting = False
        #: when it may be tried again, seconds: who is gone refuses at once
        self._due = 0.0
        loop.watch(self._thread.fileno(), self)
        #: when something was heard, seconds
        self._heard = 0.0
        #: what the log has last said of why it is not connected
        self._trouble = ""

    def _new_initiator(self) -> Initiator:
        return Initiator(hello_of(Role.SCHEDULER, self._name, new_number()))

    def dial(self, address: str, now: float) -> None:
        """Connect there, unless there is a connection, or it was tried a moment ago. Does not block."""
        if self._connection is None and not self._is_connecting and now >= self._due:
            self._is_connecting, self._due = True, now + BEAT
            try:
                self._thread.put(address)
            except RuntimeError as error:
                self._fail(address, error)

    def _connect(self, address: str) -> None:
        made = connect(Address.parse(address).for_client(), self._security, PROBE, max_message_bytes=self._limit)
        if self._thread.is_closing.is_set():
            made.close(0)
        self._thread.tell(made)
        self._is_connecting = False

    def _fail(self, address: str, error: Exception) -> None:
        """Nobody is there, or what it has said of where it is makes no sense, or there is no room or thread for it."""
        trouble = str(error) if isinstance(error, ScalerError) else f"{address}: {type(error).__name__}: {error}"
        if trouble != self._trouble:
            logger.warning("the other scheduler is not there: %s; trying until it is", trouble)
            self._trouble = trouble
        self._is_connecting = False

    @property
    def route(self) -> int | None:
        """Which connection what is said now goes over; None if there is no session."""
        return self._made_so_far if self._connection is not None and self._initiator.is_open else None

    def receive(self, now: float) -> tuple[list[Said], bool]:
        """What the other one has said; and whether the connection has just been lost. Does not block."""
        self._loop.ready.pop(self, None)
        for made in self._thread.take():
            if self._connection is not None:
                made.close(0)
                continue
            self._connection, self._initiator, self._heard = made, self._new_initiator(), now
            self._made_so_far += 1
            self._loop.watch(made.fileno(), self)
            self._send(self._initiator.greet(now))
        connection = self._connection
        if connection is None:
            return [], False
        reports, trouble = self._take(connection, now)
        if connection.is_closed:
            trouble = connection.trouble() or "it was closed"
        elif now - self._heard > SUSPECT:
            trouble = f"nothing was heard for {SUSPECT:g} s"
        if trouble:
            self._drop(connection, trouble)
        return reports, bool(trouble)

    def _take(self, connection: Connection, now: float) -> tuple[list[Said], str]:
        reports: list[Said] = []
        for frames in connection.receive():
            self._heard = now
            try:
                said = self._initiator.receive(decode(frames), now)
            except ProtocolError as error:
                said = self._initiator.reject(str(error))
            if isinstance(said, (Rejected, Broken)):
                if isinstance(said, Broken) and self._initiator.is_elsewhere:
                    self._trouble = said.reason  # it steps down and begins anew, which the log says already
                return reports, said.reason
            if isinstance(said, PartnerReport):
                self._trouble = ""
            if isinstance(said, Said):
                reports.append(said)
        self._send(self._initiator.take_ack())
        return reports, ""

    def send(self, message: Message) -> None:
        """Say this, if there is a session. Does not block."""
        if self._initiator.is_open:
            self._send(self._initiator.send(message))

    def reject(self, reason: str) -> None:
        """What the other one said makes no sense, as the log has said: this connection is over."""
        if self._connection is not None:
            self._trouble = reason
            self._drop(self._connection, reason)

    def _send(self, envelope: Envelope | None) -> None:
        if envelope is not None and self._connection is not None:
            self._connection.send(encode(envelope.message, envelope.seq, envelope.ack))

    def _drop(self, connection: Connection, trouble: str) -> None:
        if trouble != self._trouble:
            logger.warning("the connection to the other scheduler is lost: %s", trouble)
            self._trouble = trouble
        self._initiator.disconnect(trouble)
        self._loop.forget(connection.fileno())
        connection.close(0)
        self._connection = None

    def close(self, says_goodbye: bool) -> None:
        """End it, when the loop has ended; blocks for a moment."""
        if self._connection is not None:
            if says_goodbye and self._initiator.is_open:
                self._send(self._initiator.send(DisconnectRequest()))
                self._connection.close(0.3)
            self._connection.close(0)
            self._connection = None
        self._thread.close(0.1)
