"""The scheduler's side of all sessions: who is behind which connection, and whose message is next.

Pure. Whoever has the connections tells it of envelopes and of connections that closed; it answers with events for the
core, and turns the core's `Send`s into (connection, seq, ack, message). `scaler.protocol.initiator` is the other side.
A session outlives its connection for as long as the core keeps the peer, so a client or agent that reconnects goes on
where it was.
"""

from dataclasses import field, replace
from typing import NamedTuple

from scaler.common.records import record
from scaler.protocol.channel import Channel, Envelope, FalseAck, Gap
from scaler.protocol.codes import MAX_NUMBER, Role
from scaler.protocol.compatibility import Compatibility
from scaler.protocol.messages import Ack, Hello, Message, Refused, Welcome


class Outgoing(NamedTuple):
    """A message for a connection; `last` if the connection is to be closed behind it."""

    connection: int
    seq: int
    ack: int
    message: Message
    last: bool = False


class Joined(NamedTuple):
    """A client or agent was accepted and has been given its number."""

    number: int
    hello: Hello
    #: it lives in the scheduler's process
    is_resident: bool = False


class Received(NamedTuple):
    """A message of a peer that has joined, the next in its sequence."""

    number: int
    message: Message
    #: the peer has received everything up to this one of what it was sent
    ack: int = 0


class Lost(NamedTuple):
    """A peer's connection is known to be gone for good, or it broke the protocol."""

    number: int
    reason: str


class Moved(NamedTuple):
    """An agent goes on with its session, and others fetch objects from it at another address now."""

    number: int
    #: as in `Hello`
    data: str


class Stirred(NamedTuple):
    """A part of a message has come of a peer: it is not silent."""

    number: int


class Unread(NamedTuple):
    """A client has not acknowledged messages of more bytes than it may leave unread; said again with each it does.

    Then, once, that they are few again.
    """

    number: int
    #: of all messages that it has not acknowledged; 0: they are few again
    bytes: int
    #: of the first of them
    oldest: int


class TurnedAway(NamedTuple):
    """Somebody who came over this connection can't be taken in."""

    connection: int
    role: str
    name: str
    reason: str


#: why a session is over whose peer comes back from the other one of a pair of schedulers: it begins anew
LEFT = "it has been at another scheduler since"
#: the connection of those who need none
_NOWHERE = -1

#: bytes of messages that a client may leave unread, and the part of them at which they are few again
UNREAD_BYTES = 64 << 20
_FEW = 0.5
#: bytes of answers that a peer may ask for and leave unread; at a heartbeat a second they take four hours
ANSWERED_BYTES = 8 << 20
#: bytes that a client or monitor may leave unread before these are counted among those of all
_UNCOUNTED = 64 << 10
_COUNTED = (Role.CLIENT, Role.MONITOR)
#: bytes that all of them together may leave unread, and the part of these after which that is looked at once more
UNREAD_OF_ALL, _LOOKS = 1 << 30, 16
#: part of what waits to be sent to a peer that it has not acknowledged, at least; sizes of messages are estimates
_BELIEVED = 0.5


@record
class Terms:
    """What a scheduler tells each peer in `Welcome`, and what it asks of it."""

    #: new at each start
    epoch: int
    protocol: int
    #: a client may not end the cluster
    protected: bool
    #: seconds
    heartbeat: float
    #: seconds of silence after which it and a client give each other up
    client_timeout: float
    #: the same of it and an agent
    agent_timeout: float
    #: bytes of a message
    limit: int
    #: bytes of messages that a client may leave unread until it is waited for
    unread: int = UNREAD_BYTES
    #: how many agents both of a pair of schedulers count; 0: this one has no standby
    roster: int = 0
    #: bytes that all clients and monitors together may leave unread until who has most is given up
    unread_of_all: int = UNREAD_OF_ALL


@record
class _Session:
    #: the peer's number at this scheduler
    number: int
    #: the peer's own number of this session
    id: int
    #: the connection that it was heard over last
    connection: int
    #: how it introduced itself, and where others fetch objects from it
    role: str
    data: str
    channel: Channel = field(default_factory=Channel)
    #: it has left too much unread
    lags: bool = False
    #: it leaves too much unread, and is given up: the core was told
    is_over: bool = False


class Acceptor:
    """All sessions of one scheduler."""

    def __init__(self, terms: Terms, reserved: int = 0, first_number: int | None = None) -> None:
        """Numbers up to `reserved` are given to nobody here.

        Others begin with `first_number`; drawn by lot it keeps numbers of schedulers apart that follow each other.
        """
        self._terms = terms
        #: its own
        self._epochs = {terms.epoch}
        self._reserved = reserved
        self._compatibility = Compatibility(terms.protocol)
        self._next_number = reserved + 1 if first_number is None else first_number
        #: whoever comes from another scheduler keeps its number, and says what it has
        self._may_come_back = True
        self._by_connection: dict[int, _Session] = {}
        self._by_number: dict[int, _Session] = {}
        self._by_id: dict[int, _Session] = {}
        #: bytes that a peer may leave unread before it is looked whether that is too much, and those that were sent
        #: beyond that since it was looked at all
        self._unlooked = min(terms.unread, _UNCOUNTED)
        self._sent = 0
        #: what `receive` and `reject` want sent, beside the core's effects; others may add what is to come behind that
        self.outgoing: list[Outgoing] = []
        #: who could not be taken in, for the log
        self.turned_away: list[TurnedAway] = []
        #: what the core is to be told of clients that don't read what it sends, or do again, and of who only asks
        self.unread: list[Unread | Lost] = []

    def receive(
        self, connection: int, envelope: Envelope, workers: int
    ) -> tuple[Joined | Moved | Received | Lost, ...]:
        """A message came over a connection; `workers` are those of the cluster."""
        seq, ack, message = envelope
        if isinstance(message, Hello):
            return self._receive_hello(connection, message, workers)
        session = self._by_connection.get(connection)
        if session is None:
            self._refuse(connection, "this connection has no session: say Hello first")
            return ()
        if seq == 0 and type(message) is not Ack:  # it could be said again and again, and each time be new
            return self.reject(connection, f"a {type(message).__name__} without a number")
        channel = session.channel
        before = channel.unread
        try:
            is_new = channel.accept(seq, ack, message.weight)
        except Gap:
            self._refuse(connection, "a message is missing: say Hello again")
            return ()
        except FalseAck as false:
            return self.reject(connection, f"this peer {false}")
        if session.lags and channel.unread < before:
            self._tell_unread(session)
        if not is_new:
            return ()
        if channel.owes_ack:
            self.outgoing.append(Outgoing(connection, *channel.stamp_ack(), Ack()))
        return (Received(session.number, message, ack),)

    def speaks_with(self, hello: Hello) -> bool:
        """It is of this protocol: of another one hardly more is known than who said it."""
        return hello.protocol == self._terms.protocol

    def stir(self, connection: int) -> tuple[Stirred, ...]:
        """A part of a message has come over a connection."""
        session = self._by_connection.get(connection)
        return () if session is None else (Stirred(session.number),)

    def reject(self, connection: int, reason: str, elsewhere: bool = False) -> tuple[Lost, ...]:
        """What came was no message, or is to be said `elsewhere`: this connection is over."""
        self._refuse(connection, reason, last=True, elsewhere=elsewhere)
        return self.disconnect(connection, reason)

    def end(self, number: int, reason: str, elsewhere: bool = False) -> tuple[Lost, ...]:
        """A peer is to begin anew, over another connection."""
        session = self._by_number.get(number)
        return () if session is None else self.reject(session.connection, reason, elsewhere)

    def disconnect(self, connection: int, reason: str = "its connection closed") -> tuple[Lost, ...]:
        """A connection is gone, and its session with it, unless that goes on over another one."""
        session = self._by_connection.get(connection)
        return () if session is None else (Lost(session.number, reason),)

    def may_resume(self, connection: int) -> bool:
        """Whoever was behind this connection goes on with its session when it comes back, and may want to."""
        session = self._by_connection.get(connection)
        return session is not None and session.role in (Role.CLIENT, Role.AGENT)

    def include(self, number: int, hello: Hello) -> None:
        """A peer that needs no connection, since it is in this process, is there from now on.

        It ended with the last scheduler, if there was one, and what it had with it: nobody comes back here.
        """
        self._may_come_back = False
        self._compatibility.admit(number, hello)

    def lodge(self, hello: Hello) -> int:
        """The number of a client that lives in this process and says this: what it is sent does not come here.

        It is given the number that it had, unless somebody else has it.
        """
        session = _Session(self._number_for(hello), hello.session, _NOWHERE, hello.role, hello.data)
        self._by_number[session.number] = session
        return session.number

    def announce(self, epoch: int, roster: int) -> None:
        """Welcome peers with this from now on; those that are here have heard an earlier epoch of this scheduler."""
        self._epochs.add(epoch)
        self._terms = replace(self._terms, epoch=epoch, roster=roster)

    def refuse(self, connection: int, reason: str) -> None:
        """Have somebody look elsewhere who wants to come."""
        self._refuse(connection, reason, last=True, elsewhere=True)

    def dismiss(self, reason: str) -> list[Outgoing]:
        """What tells everybody who is connected to look elsewhere."""
        return [Outgoing(each, 0, 0, Refused(reason, elsewhere=True), last=True) for each in self._by_connection]

    def numbers_of(self, role: str) -> set[int]:
        """All peers that are this."""
        return {number for number, session in self._by_number.items() if session.role == role}

    def role_of(self, number: int) -> str:
        """What a peer is; empty if there is none of this number."""
        session = self._by_number.get(number)
        return "" if session is None else session.role

    def send(self, number: int, message: Message) -> Outgoing | None:
        """Where and how a message goes; None if the peer is unknown."""
        session = self._by_number.get(number)
        if session is None:
            return None
        channel = session.channel
        seq, ack = channel.stamp(message)
        outgoing = Outgoing(session.connection, seq, ack, message)
        if channel.unread > self._unlooked:
            self._note_unread(session, message.weight)
        if channel.answers > ANSWERED_BYTES:
            self._give_up(session, f"asks on, and leaves {channel.answers / 1e6:,.0f} MB of answers unread")
        return outgoing

    def replace(self, outgoing: Outgoing, message: Message) -> Outgoing:
        """What can't be sent is not said again, but this message in its place; how that is to be sent."""
        session = self._by_connection.get(outgoing.connection)
        if session is not None:
            session.channel.replace(outgoing.seq, message)
        return outgoing._replace(message=message)

    def is_believed(self, connection: int, waiting: int) -> bool:
        """So many bytes have not even left for a peer: it can't have acknowledged most of them."""
        session = self._by_connection.get(connection)
        return session is not None and session.channel.unread >= waiting * _BELIEVED

    def reads(self, number: int) -> bool:
        """A monitor has not left too much unread: it may be sent more answers."""
        session = self._by_number.get(number)
        return session is not None and session.channel.unread <= min(self._terms.unread, ANSWERED_BYTES)

    def sent_to(self, number: int) -> int:
        """How many messages a peer was sent so far; whoever confirms more has heard one that came later."""
        session = self._by_number.get(number)
        return 0 if session is None else session.channel.sent

    def forget(self, number: int) -> int | None:
        """A session is over; the connection it had."""
        session = self._by_number.pop(number, None)
        if session is None:
            return None
        if self._by_id.get(session.id) is session:
            del self._by_id[session.id]
        self._compatibility.forget(number)
        if self._by_connection.get(session.connection) is session:
            del self._by_connection[session.connection]
        return session.connection

    def _number_for(self, hello: Hello) -> int:
        """The number of a new session: the one that it had at another scheduler, if nobody else has that here."""
        number = hello.number
        if (
            self._may_come_back
            and number > self._reserved
            and hello.epoch not in self._epochs
            and number not in self._by_number
        ):
            return number
        while self._next_number in self._by_number or not self._reserved < self._next_number < MAX_NUMBER:
            self._next_number = self._next_number + 1 if self._next_number < MAX_NUMBER else self._reserved + 1
        self._next_number += 1
        return self._next_number - 1

    def _tell_unread(self, session: _Session) -> None:
        """Tell the core what a client has left unread: it is too much, or was and is less now."""
        unread = session.channel.unread
        session.lags = unread > self._terms.unread * (_FEW if session.lags else 1)
        self.unread.append(Unread(session.number, unread if session.lags else 0, session.channel.oldest))

    def _note_unread(self, session: _Session, weight: int) -> None:
        """A peer was sent so many bytes more, and leaves much unread."""
        if session.role not in _COUNTED:
            return
        if session.channel.unread > self._terms.unread and not session.lags and session.role == Role.CLIENT:
            self._tell_unread(session)
        self._sent += weight
        if self._sent >= self._terms.unread_of_all // _LOOKS:
            self._sent = 0
            self._bound_unread()

    def _bound_unread(self) -> None:
        """Give up those who leave most unread, as long as that is too much of all clients and monitors together."""
        peers = [each for each in self._by_number.values() if each.role in _COUNTED and not each.is_over]
        peers.sort(key=lambda peer: peer.channel.unread)
        total = sum(peer.channel.unread for peer in peers)
        while total > self._terms.unread_of_all:
            most = peers.pop()
            what = f"leaves {most.channel.unread / 1e6:,.0f} MB unread, most of all clients and monitors"
            self._give_up(most, f"{what}, for whom {total / 1e6:,.0f} MB wait")
            total -= most.channel.unread

    def _give_up(self, session: _Session, words: str) -> None:
        if not session.is_over:
            session.is_over = True
            self.unread.append(Lost(session.number, words))

    def _refuse(self, connection: int, reason: str, last: bool = False, elsewhere: bool = False) -> None:
        self.outgoing.append(Outgoing(connection, 0, 0, Refused(reason, elsewhere), last))

    def _receive_hello(self, connection: int, hello: Hello, workers: int) -> tuple[Joined | Moved | Lost, ...]:
        terms = self._terms
        refusal = self._compatibility.refusal(hello)
        if refusal is not None:
            self.turned_away.append(TurnedAway(connection, hello.role, hello.name, refusal))
            self._refuse(connection, refusal, last=True)
            return ()
        session = self._by_id.get(hello.session)
        if session is not None and session.role != hello.role:
            self._refuse(connection, "this session belongs to somebody else", last=True)
            return ()
        if self._by_connection.get(connection, session) is not session:  # which would be here until its time-out
            self._refuse(connection, "this connection has another session", last=True)
            return ()
        if session is not None and hello.epoch and hello.epoch not in self._epochs:
            self.refuse(connection, LEFT)
            return (Lost(session.number, LEFT),)
        resumed = session is not None
        if session is not None:
            try:
                session.channel.check_ack(hello.received)
            except FalseAck as false:
                self._refuse(connection, f"this peer {false}", last=True)
                return ()
        if session is None:
            session = _Session(self._number_for(hello), hello.session, connection, hello.role, hello.data)
            self._by_number[session.number] = self._by_id[hello.session] = session
            self._compatibility.admit(session.number, hello)
        else:
            self._by_connection.pop(session.connection, None)
            session.connection = connection
        self._by_connection[connection] = session
        welcome = Welcome(
            terms.epoch, session.number, resumed, session.channel.received, workers, terms.protected,
            terms.heartbeat, terms.client_timeout if hello.role == Role.CLIENT else terms.agent_timeout, terms.limit,
            terms.roster,
        )  # fmt: skip
        self.outgoing.append(Outgoing(connection, 0, session.channel.received, welcome))
        if not resumed:
            return (Joined(session.number, hello),)
        before = session.channel.unread
        self.outgoing += [Outgoing(connection, *rest) for rest in session.channel.resume(hello.received)]
        if session.lags and session.channel.unread < before:
            self._tell_unread(session)
        if hello.data == session.data:
            return ()
        session.data = hello.data
        return (Moved(session.number, hello.data),)
