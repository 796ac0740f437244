"""What a scheduler's process decides: sessions, the core and, in a local cluster, this host's agent, put together.

Pure: the shell, or the simulator, hands in what came and carries out what `settle` wants. Between the scheduler's core
and the agent in the same process no message is encoded, and nobody waits.

    connections ──► acceptor ──► scheduler's core ──► acceptor ──► connections
                                     │    ▲
                                     ▼    │
                                  local agent
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from scaler.protocol.acceptor import Acceptor, Outgoing
from scaler.protocol.channel import Envelope
from scaler.protocol.messages import DisconnectRequest, Hello, Message, Refused
from scaler.scheduler.core import events as ev
from scaler.scheduler.state.agent_records import LOCAL_AGENT as LOCAL_AGENT


class Core(Protocol):
    """The scheduler's core."""

    @property
    def workers(self) -> int:
        """How many the cluster has."""

    def handle(self, events: list[ev.Event], now: float) -> list[ev.Effect]:
        """What is to be done about this."""


class LocalAgent(Protocol):
    """This host's agent, with what carries out its wishes."""

    #: it was told something, or something happened in it, that it has not dealt with
    has_news: bool

    def welcome(self, heartbeat: float, number: int) -> None:
        """The scheduler has taken it in, and knows nothing of what it had; `heartbeat` in seconds."""

    def hear(self, message: Message) -> None:
        """The scheduler says something."""

    def handle(self, now: float) -> list[Message]:
        """Let its core decide, and do what it wants; what it says to the scheduler. Without news: time has passed."""


class Disconnect(NamedTuple):
    """Close this connection: nobody is behind it any more."""

    connection: int


#: what the shell is asked to do
Wish = Outgoing | Disconnect | ev.Effect


class Composition:
    """The parts of a scheduler's process that decide, and what they have to tell each other."""

    def __init__(self, core: Core, acceptor: Acceptor) -> None:
        """`acceptor` gives numbers above `LOCAL_AGENT`."""
        self._core = core
        self._acceptor = acceptor
        self._agent: LocalAgent | None = None
        #: what that would say in its Hello, and seconds between its heartbeats; None when it is not to join any more
        self._greeting: tuple[Hello, float] | None = None
        #: messages by their type, those of this host's agent among them
        self.sent: defaultdict[type[Message], int] = defaultdict(int)
        self.received: defaultdict[type[Message], int] = defaultdict(int)
        #: for the scheduler's core
        self._events: list[ev.Event] = []

    def host(self, agent: LocalAgent, hello: Hello, heartbeat: float) -> None:
        """Put this host's agent beside the core; as if it had said Hello and been welcomed."""
        self._agent = agent
        self._greeting = hello, heartbeat
        self._acceptor.include(LOCAL_AGENT, hello)
        self._greet()

    def _greet(self) -> None:
        """The local agent joins; again, if the core took it for lost."""
        if self._agent is not None and self._greeting is not None:
            hello, heartbeat = self._greeting
            self._events.append(ev.Joined(LOCAL_AGENT, hello))
            self._agent.welcome(heartbeat, LOCAL_AGENT)

    def receive(self, connection: int, envelope: Envelope) -> None:
        """A message came over a connection."""
        self.received[type(envelope.message)] += 1
        self._events += self._acceptor.receive(connection, envelope, self._core.workers)

    def send(self, number: int, message: Message) -> Outgoing | None:
        """Where and how a message goes that the shell has made for a peer, after a `Publish`; None if it is gone."""
        self.sent[type(message)] += 1
        return self._acceptor.send(number, message)

    def reject(self, connection: int, reason: str) -> None:
        """What came over a connection was no message."""
        self._events += self._acceptor.reject(connection, reason)

    def disconnect(self, connection: int, reason: str = "its connection closed") -> None:
        """A connection is gone, or can't be used any more."""
        self._events += self._acceptor.disconnect(connection, reason)

    def settle(self, now: float, is_due: bool = False) -> Iterator[Wish]:
        """Let everybody decide until nobody has heard anything new; what is to be done, in order.

        What came up while something was done about it (`disconnect`) is dealt with, too. With `is_due` the cores are
        asked even if nothing has happened: the time they wanted to be woken at has come.
        """
        outgoing, self._acceptor.outgoing = self._acceptor.outgoing, []
        for each in outgoing:
            self.sent[type(each.message)] += 1
        yield from outgoing
        agent = self._agent
        while is_due or self._events or self._acceptor.unread or (agent is not None and agent.has_news):
            if is_due or self._events or self._acceptor.unread:
                events, self._events = [*self._events, *self._acceptor.unread], []
                self._acceptor.unread.clear()
                for effect in self._core.handle(events, now):
                    if agent is not None and type(effect) is ev.Send and effect.number == LOCAL_AGENT:
                        self.sent[type(effect.message)] += 1
                        agent.hear(effect.message)
                        continue
                    wish = self._translate(effect)
                    if wish is not None:
                        yield wish
            if agent is not None and (is_due or agent.has_news):
                for message in agent.handle(now):
                    if type(message) is DisconnectRequest:
                        self._greeting = None
                    self.received[type(message)] += 1
                    self._events.append(ev.Received(LOCAL_AGENT, message))
            is_due = False

    def _translate(self, effect: ev.Effect) -> Wish | None:
        """What the shell has to do about what the core wants, but for what this host's agent hears; None if nothing."""
        if type(effect) is ev.Send:
            return self.send(effect.number, effect.message)
        if type(effect) is ev.Forget and effect.number == LOCAL_AGENT:
            self._greet()
            return None
        if type(effect) is ev.Forget:
            connection = self._acceptor.forget(effect.number)
            if connection is not None and effect.is_told:
                return Outgoing(connection, 0, 0, Refused(f"this peer {effect.reason}"), last=True)
            return Disconnect(connection) if connection is not None else None
        return effect
