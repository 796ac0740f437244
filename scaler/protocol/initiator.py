"""The client's or agent's side of its session with the scheduler: what it says first, and what the answers mean.

Pure: whoever has the connection and the clock tells it of both, and does what it says. `scaler.protocol.acceptor` is
the other side. A session outlives its connections: what was said and not acknowledged is kept, and said again over the
next one if the scheduler still knows the session.

    connection is made     greet(now)              the Hello to be sent over it
    a message arrived      receive(envelope, now)  Established | Rejected | Broken | the message | None
    bytes are no message   reject(reason)          Broken
    time goes by           check_silence(now)      Broken if nothing was heard for too long
    connection is gone     disconnect(reason)
    something to be said   send(message)           the envelope, unless it has to wait for a connection
    arrivals are dealt with  take_ack()            an Ack, if one is due

After `Rejected` and `Broken` the connection is to be closed; another one begins with `greet` again.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple, final

from scaler.common.attempts import is_under_way
from scaler.protocol.channel import Channel, Envelope, FalseAck, Gap
from scaler.protocol.codes import MAX_WORKERS, Role
from scaler.protocol.hello import term_of
from scaler.protocol.messages import Ack, AgentsInUse, HeartbeatEcho, Hello, Message, Refused, Welcome, u32

#: seconds of silence after which a connection is given up, until the scheduler has said how many
FIRST_TIMEOUT = 10.0
#: the same of whoever knows where else a scheduler may be
TURN_AWAY = 2.5
#: why a scheduler is not listened to that has not noticed that its standby leads
REPLACED = "another scheduler has replaced this one"
#: seconds between looks at what is under way
LOOK = 0.5


class State(Enum):
    """What the session does with its connection."""

    AWAY = "away"
    GREETING = "greeting"
    OPEN = "open"


class Cause(Enum):
    """What happens to a session."""

    CONNECTED = "connected"
    WELCOME = "Welcome"
    REFUSED = "Refused"
    MESSAGE = "another message"
    GAP = "a gap"
    MALFORMED = "no message"
    SILENCE = "silence"
    CLOSED = "closed"


#: (state, what happens) -> (the next state, what that means)
TRANSITIONS: dict[tuple[State, Cause], tuple[State, str]] = {
    (State.AWAY, Cause.CONNECTED): (State.GREETING, "Hello is said, with what was received so far"),
    (State.AWAY, Cause.CLOSED): (State.AWAY, "the connection had been given up"),
    (State.GREETING, Cause.WELCOME): (State.OPEN, "the session goes on, and what was lost is said again; or it begins"),
    (State.GREETING, Cause.MESSAGE): (State.GREETING, "it is not listened to before the Welcome"),
    (State.GREETING, Cause.REFUSED): (State.AWAY, "rejected: the scheduler can't work with this process"),
    (State.GREETING, Cause.MALFORMED): (State.AWAY, "what answers is no scheduler of this version"),
    (State.GREETING, Cause.SILENCE): (State.AWAY, "connect anew"),
    (State.GREETING, Cause.CLOSED): (State.AWAY, "connect anew"),
    (State.OPEN, Cause.MESSAGE): (State.OPEN, "it is handed on, once, in order"),
    (State.OPEN, Cause.REFUSED): (State.AWAY, "the scheduler lost the thread: connect anew"),
    (State.OPEN, Cause.WELCOME): (State.AWAY, "nobody asked: connect anew"),
    (State.OPEN, Cause.GAP): (State.AWAY, "connect anew"),
    (State.OPEN, Cause.MALFORMED): (State.AWAY, "connect anew"),
    (State.OPEN, Cause.SILENCE): (State.AWAY, "connect anew"),
    (State.OPEN, Cause.CLOSED): (State.AWAY, "connect anew"),
}


@final
class Established(NamedTuple):
    """The scheduler welcomed this process; unless `resumed`, it knows nothing of it."""

    welcome: Welcome
    resumed: bool
    #: what has to be sent first: the scheduler has not received it
    again: list[Envelope]
    #: it is another scheduler, at which this process has kept its number: what it has and waits for still holds
    returned: bool = False


@final
class Rejected(NamedTuple):
    """The scheduler does not take this process."""

    reason: str
    #: another one leads, or may soon: those are to be asked, and this one again
    elsewhere: bool = False


@final
class Broken(NamedTuple):
    """This connection is of no use any more; the session may go on over another."""

    reason: str


class Initiator:
    """A session that outlives its connections. Not thread-safe."""

    __slots__ = (
        "_agents",
        "_channel",
        "_heard",
        "_hello",
        "_looked",
        "_roster",
        "_term",
        "_workers",
        "is_elsewhere",
        "is_final",
        "is_silent",
        "refusal",
        "state",
        "trouble",
        "welcome",
    )

    def __init__(self, hello: Hello) -> None:
        """`hello` says who this is; its `session` is a number that nobody else has."""
        self._hello = hello
        self._channel = Channel()
        #: when something came over the connection last, seconds
        self._heard = 0.0
        #: the same when it was looked at last what is under way; when that was, and the bytes that had been carried
        self._looked = 0.0, 0.0, 0
        #: the highest term of a scheduler that has welcomed it, and how many agents its pair had
        self._term = self._roster = 0
        #: workers of the whole cluster, as last heard
        self._workers = 0
        self.state = State.AWAY
        #: the scheduler's last Welcome; None before the first
        self.welcome: Welcome | None = None
        #: of a client: the agents that may have something of it, by number, and where each listens
        self._agents: dict[int, str] = {}
        #: why the last connection ended
        self.trouble = ""
        #: why the scheduler has ended the last connection; None if it has not
        self.refusal: str | None = None
        #: it said that another one leads, or may soon
        self.is_elsewhere = False
        #: it said that to say the same again does not help
        self.is_final = False
        #: nothing was heard for too long over the last connection
        self.is_silent = False

    @property
    def is_open(self) -> bool:
        """What is said now is sent now."""
        return self.state is State.OPEN

    @property
    def timeout(self) -> float:
        """Seconds of silence after which the connection is given up; few if there are others to turn to."""
        timeout = self.welcome.timeout if self.welcome is not None else FIRST_TIMEOUT
        return min(timeout, TURN_AWAY) if self._hello.others else timeout

    @property
    def heartbeat(self) -> float:
        """Seconds between heartbeats, once there was a Welcome; few if a scheduler's end is to be noticed soon."""
        assert self.welcome is not None
        return min(self.welcome.heartbeat, TURN_AWAY / 5) if self._hello.others else self.welcome.heartbeat

    def introduce(self, **changes: Any) -> None:
        """Say otherwise who this is from the next Hello on."""
        self._hello = replace(self._hello, **changes)

    def greet(self, now: float) -> Envelope:
        """A connection was made; the Hello to be sent over it."""
        self._move(Cause.CONNECTED)
        self._heard, self.refusal = now, None
        self.is_elsewhere = self.is_final = self.is_silent = False
        hello, welcome = self._hello, self.welcome
        if welcome is not None:
            hello = replace(
                hello,
                epoch=welcome.epoch,
                received=self._channel.received,
                number=welcome.number,
                agents=u32(self._agents),
                whereabouts=tuple(self._agents.values()),
                roster=self._roster,
            )
            if hello.role == Role.CLIENT:
                hello.workers = min(self._workers, MAX_WORKERS)
        return Envelope(0, 0, hello)

    def receive(self, envelope: Envelope, now: float) -> Message | Established | Rejected | Broken | None:
        """What a message means that came over the connection; None if nothing. All is ignored after it broke."""
        if self.state is State.AWAY:
            return None
        self._heard = now
        seq, ack, message = envelope
        kind = type(message)
        if kind is Welcome:
            return self._receive_welcome(message)  # type: ignore[arg-type]
        if kind is Refused:
            return self._receive_refused(message)  # type: ignore[arg-type]
        if self.state is State.GREETING:
            return None
        if seq == 0 and kind is not Ack:
            return self._break(Cause.MALFORMED, f"a {kind.__name__} without a number")
        try:
            is_new = self._channel.accept(seq, ack, message.weight)
        except Gap as gap:
            return self._break(Cause.GAP, str(gap))
        except FalseAck as false:
            return self._break(Cause.MALFORMED, f"the scheduler {false}")
        if not is_new or kind is Ack:
            return None
        if kind is AgentsInUse:
            self._note_agents(message)  # type: ignore[arg-type]
            return None
        if kind is HeartbeatEcho:
            self._roster, self._workers = message.roster, message.workers  # type: ignore[attr-defined]
        return message

    def _note_agents(self, message: AgentsInUse) -> None:
        self._agents.update(zip(message.added, message.whereabouts or [""] * len(message.added), strict=True))
        for number in message.removed:
            self._agents.pop(number, None)

    def reject(self, reason: str) -> Broken:
        """What came over the connection was no message."""
        return Broken(self.trouble) if self.state is State.AWAY else self._break(Cause.MALFORMED, reason)

    def quiet(self, now: float) -> float:
        """Seconds since something was heard; infinite while the session is not open."""
        return now - self._heard if self.state is State.OPEN else math.inf

    def check_silence(self, now: float, carried: Callable[[], int] = lambda: 0) -> Broken | None:
        """`Broken` when nothing was heard for too long. `carried` tells how many bytes the connection did, either way.

        A message that is still coming is no silence: on a narrow way a large one takes longer than the time-out. Nor is
        one that is still going: the heartbeat that would be answered is behind it.
        """
        quiet = now - self._heard
        if now == self._heard or self.state is State.AWAY or quiet <= self.timeout / 2:
            return None
        heard, at, before = self._looked
        if heard != self._heard or now - at >= LOOK:
            bytes_now = carried()
            if heard == self._heard and is_under_way(bytes_now - before, now - at):
                self._heard = now
            self._looked = self._heard, now, bytes_now
        if now - self._heard <= self.timeout:
            return None
        self.is_silent = True
        return self._break(Cause.SILENCE, f"nothing was heard for {self.timeout:g} s")

    def disconnect(self, reason: str) -> None:
        """The connection is gone."""
        if self.state is not State.AWAY:
            self.trouble = reason
        self._move(Cause.CLOSED)

    def send(self, message: Message) -> Envelope | None:
        """The next message, as it is to be sent; None if it waits for the session to go on.

        Nothing is kept before the first Welcome: a session that begins has nothing to say again.
        """
        if self.welcome is None:
            return None
        seq, ack = self._channel.stamp(message)
        return Envelope(seq, ack, message) if self.state is State.OPEN else None

    def has_unsaid(self, kind: type[Message]) -> bool:
        """Messages of a kind were sent that the scheduler may not have."""
        return any(isinstance(message, kind) for message in self._channel.kept)

    def replace(self, envelope: Envelope, message: Message) -> Envelope:
        """What can't be sent is not said again, but this message in its place; how that is to be sent."""
        self._channel.replace(envelope.seq, message)
        return envelope._replace(message=message)

    def take_ack(self) -> Envelope | None:
        """An Ack of its own if one is due: much has come and nothing was said."""
        if self.state is not State.OPEN or not self._channel.owes_ack:
            return None
        return Envelope(*self._channel.stamp_ack(), Ack())

    def _receive_welcome(self, welcome: Welcome) -> Established | Rejected | Broken:
        if self.state is not State.GREETING:
            return self._break(Cause.WELCOME, "the scheduler welcomed this process twice")
        if self._hello.others and term_of(welcome.epoch) < self._term:
            self.is_elsewhere = True
            self._break(Cause.REFUSED, REPLACED)
            return Rejected(REPLACED, elsewhere=True)
        self._move(Cause.WELCOME)
        self._term, self._roster, self._workers = term_of(welcome.epoch), welcome.roster, welcome.workers
        last, self.welcome = self.welcome, welcome
        if not (welcome.resumed and last is not None):
            self._channel = Channel()
            returned = last is not None and last.epoch != welcome.epoch and last.number == welcome.number
            if not returned:
                self._agents.clear()
            return Established(welcome, False, [], returned)
        try:
            return Established(welcome, True, [Envelope(*rest) for rest in self._channel.resume(welcome.received)])
        except FalseAck as false:
            return self._break(Cause.MALFORMED, f"the scheduler {false}")

    def _receive_refused(self, refused: Refused) -> Rejected | Broken:
        is_greeting = self.state is State.GREETING
        self.refusal, self.is_elsewhere, self.is_final = refused.reason, refused.elsewhere, refused.final
        broken = self._break(Cause.REFUSED, refused.reason)
        return Rejected(refused.reason, refused.elsewhere) if is_greeting else broken

    def _break(self, cause: Cause, reason: str) -> Broken:
        self._move(cause)
        self.trouble = reason
        return Broken(reason)

    def _move(self, cause: Cause) -> None:
        found = TRANSITIONS.get((self.state, cause))
        if found is None:
            raise RuntimeError(f"a session that is {self.state.value} can't be told: {cause.value}")
        self.state = found[0]
