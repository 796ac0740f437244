"""A monitor's session with the scheduler: connecting, shaking hands, speaking, and noticing that nobody answers.

Used by one thread. `receive` and `say` do not block; `connect` and `leave` do, for a bounded time.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable

from scaler.common import standard_descriptors
from scaler.errors import (
    AddressError,
    ConnectionFailed,
    ConnectionTimeout,
    HandshakeRefused,
    ProtocolError,
    SchedulerStandsBy,
)
from scaler.protocol.channel import Envelope
from scaler.protocol.codec import decode, encode
from scaler.protocol.codes import Role
from scaler.protocol.hello import hello_of, new_number
from scaler.protocol.initiator import Broken, Established, Initiator, Rejected
from scaler.protocol.messages import DisconnectRequest, Heartbeat, Message
from scaler.transport import (
    Address,
    Candidates,
    Connection,
    Security,
    SocketFile,
    connect,
    connect_file,
    surrounding_security,
)


def sendable(text: str) -> str:
    r"""A name as messages hold it: for what is no character there (a byte that is no UTF-8, in an argument) stands a ?.

    >>> sendable("caf\udce9")
    'caf?'
    """
    return text.encode("utf-8", "replace").decode()


class Link:
    """A session that begins anew with each connection: a monitor has nothing that would have to go on."""

    def __init__(
        self, address: str, security: Security | None, name: str, if_refused: Callable[[], Security] | None = None
    ) -> None:
        """`address` is a file, ipc:///path, or a scheduler's, tcp://host:port. Raises `AddressError`.

        `if_refused` is asked for other keys where a scheduler does not accept these.
        """
        self._address = _parse(address)
        self._candidates = None if isinstance(self._address, SocketFile) else Candidates(self._address)
        self._security = security
        self._if_refused = if_refused
        self._name = name
        self._initiator = Initiator(hello_of(Role.MONITOR, name, new_number()))
        self._connection: Connection | None = None
        #: when the next heartbeat is due, and when something came last, seconds
        self._next_beat = self._heard = 0.0

    @property
    def url(self) -> str:
        """The address as users write it."""
        return self._address.url

    @property
    def limit(self) -> int:
        """Bytes of a message that the scheduler takes, once it has answered."""
        assert self._initiator.welcome is not None
        return self._initiator.welcome.limit

    def fileno(self) -> int:
        """Of the connection."""
        assert self._connection is not None
        return self._connection.fileno()

    def connect(self, timeout: float) -> None:
        """Connect and shake hands; blocks. Raises `ConnectionFailed` and its kinds."""
        self.drop()
        standard_descriptors.occupy()
        deadline = time.monotonic() + timeout
        candidates = self._candidates
        if candidates is None:
            assert isinstance(self._address, SocketFile)
            self._greet(connect_file(self._address, timeout=timeout), deadline)
            return
        while True:
            try:
                candidates.find(self._connect_to, deadline)
                return
            except HandshakeRefused:
                raise
            except ConnectionFailed:
                if not candidates.others or time.monotonic() + candidates.longest_pause >= deadline:
                    raise
            time.sleep(candidates.longest_pause)

    def _connect_to(self, address: Address, reached_by: float, answered_by: float) -> None:
        self._greet(self._admitted(address, reached_by), answered_by)

    def _admitted(self, address: Address, reached_by: float) -> Connection:
        """A connection with the keys that are accepted there; those are the first to be tried from then on."""
        if self._security is None:
            self._security = surrounding_security()
        tried = self._security
        try:
            return connect(address, tried, max(0.1, reached_by - time.monotonic()))
        except HandshakeRefused:
            if self._if_refused is None:
                raise
        other = self._if_refused()
        connection = connect(address, other, max(0.1, reached_by - time.monotonic()))
        self._security, self._if_refused = other, lambda: tried
        return connection

    def _greet(self, connection: Connection, deadline: float) -> None:
        others = 0 if self._candidates is None else self._candidates.others
        self._initiator = Initiator(hello_of(Role.MONITOR, self._name, new_number(), others=others))
        try:
            self._connection = connection
            self._send(self._initiator.greet(time.monotonic()))
            self._await_welcome(connection, deadline)
        except BaseException:
            self.drop()
            raise
        self._next_beat = self._heard = time.monotonic()

    def _await_welcome(self, connection: Connection, deadline: float) -> None:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        while not self._initiator.is_open:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConnectionTimeout(f"the scheduler at {self._address} did not answer in time")
            poll.poll(1000 * min(left, 0.1))
            for frames in connection.receive():
                try:
                    said = self._initiator.receive(decode(frames), time.monotonic())
                except ProtocolError as error:
                    raise HandshakeRefused(
                        f"what answers at {self._address} is no scheduler of this version: {error}"
                    ) from None
                if type(said) is Rejected:
                    kind = SchedulerStandsBy if said.elsewhere else HandshakeRefused
                    raise kind(f"the scheduler at {self._address} refused: {said.reason}")
                if type(said) is Established:
                    break
            if connection.is_closed:
                trouble = connection.trouble() or f"the scheduler at {self._address} closed the connection"
                raise ConnectionFailed(trouble)

    @property
    def silence(self) -> float:
        """Seconds since anything was heard, of a connection that was given up for that; 0 of others."""
        return time.monotonic() - self._heard if self._initiator.is_silent else 0.0

    @property
    def quiet(self) -> float:
        """Seconds since anything was heard, as answers to heartbeats, over the connection that is open."""
        return time.monotonic() - self._heard

    @property
    def heartbeat(self) -> float:
        """Seconds between heartbeats, each of which is answered, once there is a connection."""
        return self._initiator.heartbeat

    def say(self, message: Message) -> None:
        """Tell the scheduler."""
        self._send(self._initiator.send(message))

    def _send(self, envelope: Envelope | None) -> None:
        if envelope is not None and self._connection is not None:
            self._connection.send(encode(envelope.message, envelope.seq, envelope.ack))

    def beat(self) -> float:
        """Say that the monitor is there, if that is due; seconds until it is again."""
        welcome, now = self._initiator.welcome, time.monotonic()
        assert welcome is not None
        if now >= self._next_beat:
            self._next_beat = now + self._initiator.heartbeat
            self.say(Heartbeat(now))
        return self._next_beat - now

    def receive(self) -> tuple[list[Message], str | None]:
        """What has come; and why the connection is of no use any more, in one line, or None."""
        connection, now = self._connection, time.monotonic()
        assert connection is not None
        messages: list[Message] = []
        for frames in connection.receive():
            self._heard = now
            try:
                said = self._initiator.receive(decode(frames), now)
            except ProtocolError as error:
                said = self._initiator.reject(str(error))
            if isinstance(said, (Broken, Rejected)):
                return messages, said.reason
            if isinstance(said, Message):
                messages.append(said)
        self._send(self._initiator.take_ack())
        if connection.is_closed:
            return messages, f"the scheduler at {self._address} is gone ({connection.trouble() or 'it closed'})"
        silent = self._initiator.check_silence(now, connection.carried_bytes)
        return messages, None if silent is None else silent.reason

    def ask(self, message: Message, is_answer: Callable[[Message], bool], timeout: float) -> Message:
        """Say something, and wait for what answers it; blocks. Raises `ConnectionFailed`, `ConnectionTimeout`."""
        answers: list[Message] = []

        def take(heard: Message) -> bool:
            if is_answer(heard):
                answers.append(heard)
            return bool(answers)

        self.say(message)
        self.listen(take, timeout)
        return answers[0]

    def listen(self, take: Callable[[Message], bool], timeout: float, wakeup: int | None = None) -> bool:
        """Give `take` what comes until it says that this is all; False if the descriptor `wakeup` is readable before.

        Blocks. Raises `ConnectionFailed` and `SchedulerStandsBy`, and `ConnectionTimeout` after so many seconds.
        """
        deadline = time.monotonic() + timeout
        poll = select.poll()
        for watched in (self.fileno(), wakeup):
            if watched is not None:
                poll.register(watched, select.POLLIN)
        while True:
            messages, trouble = self.receive()
            if any(take(each) for each in messages):
                return True
            if trouble is not None:
                raise (SchedulerStandsBy if self._initiator.is_elsewhere else ConnectionFailed)(trouble)
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConnectionTimeout(f"the scheduler at {self.url} gave no answer within {timeout:g} s")
            if any(ready == wakeup for ready, _ in poll.poll(1000 * min(left, self.beat()))):
                return False

    def drop(self) -> None:
        """The connection is of no use any more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(0)

    def leave(self) -> None:
        """Say goodbye, if somebody listens; blocks for a moment."""
        if self._connection is not None and self._initiator.is_open:
            with contextlib.suppress(Exception):
                self.say(DisconnectRequest())
                self._connection.close(0.3)
        self.drop()


def _parse(address: str) -> Address | SocketFile:
    if address.strip().startswith("ipc://"):
        return SocketFile.parse(address)
    if "://" not in address:
        raise AddressError(
            f"{address!r} is no address: give the monitor address that the scheduler's log names "
            "(ipc:///tmp/..._monitor), or the scheduler's own (tcp://host:port)"
        )
    return Address.parse(address).for_client()
