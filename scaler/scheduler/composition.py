"""What a scheduler's process decides: sessions, the core and, in a local cluster, this host's agent, put together.

Pure: the shell, or the simulator, hands in what came and carries out what `settle` wants. Between the scheduler's core
and the agent in the same process no message is encoded, and nobody waits.

    connections ──► acceptor ──► scheduler's core ──► acceptor ──► connections
                                     │    ▲
                                     ▼    │
                                  local agent
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from scaler.agent.core.events import Event as AgentEvent
from scaler.agent.core.events import FromScheduler, Welcomed
from scaler.protocol.acceptor import Acceptor, Outgoing
from scaler.protocol.channel import Envelope
from scaler.protocol.messages import Hello, Message
from scaler.scheduler.core import events as ev

#: the number of the agent in the scheduler's own process; others begin behind it
LOCAL_AGENT = 1


class Core(Protocol):
    """The scheduler's core."""

    @property
    def workers(self) -> int:
        """How many the cluster has."""

    def handle(self, events: list[ev.Event], now: float) -> list[ev.Effect]:
        """What is to be done about this."""


class LocalAgent(Protocol):
    """This host's agent, with what carries out its wishes."""

    def handle(self, events: list[AgentEvent], now: float) -> list[Message]:
        """Let its core decide, and do what it wants; what it says to the scheduler. Without events: time has passed."""


class Disconnect(NamedTuple):
    """Close this connection: nobody is behind it any more."""

    connection: int


#: what the shell is asked to do
Wish = Outgoing | Disconnect | ev.Effect


class Composition:
    """The parts of a scheduler's process that decide, and what they have to tell each other."""

    def __init__(self, core: Core, acceptor: Acceptor) -> None:
        """`acceptor` gives numbers from `LOCAL_AGENT` + 1."""
        self._core = core
        self._acceptor = acceptor
        self._agent: LocalAgent | None = None
        #: for the scheduler's core
        self._events: list[ev.Event] = []
        #: for the local agent
        self._agent_events: list[AgentEvent] = []

    def host(self, agent: LocalAgent, hello: Hello, heartbeat: float) -> None:
        """Put this host's agent beside the core; as if it had said Hello and been welcomed."""
        self._agent = agent
        self._events.append(ev.Joined(LOCAL_AGENT, hello))
        self._agent_events.append(Welcomed(False, heartbeat, LOCAL_AGENT))

    def receive(self, connection: int, envelope: Envelope) -> None:
        """A message came over a connection."""
        self._events += self._acceptor.receive(connection, envelope, self._core.workers)

    def reject(self, connection: int, reason: str) -> None:
        """What came over a connection was no message."""
        self._events += self._acceptor.reject(connection, reason)

    def disconnect(self, connection: int, reason: str = "its connection closed") -> None:
        """A connection is gone, or can't be used any more."""
        self._events += self._acceptor.disconnect(connection, reason)

    def tell_agent(self, events: list[AgentEvent]) -> None:
        """Something happened that the local agent has to know."""
        self._agent_events += events

    def settle(self, now: float, is_due: bool = False) -> Iterator[Wish]:
        """Let everybody decide until nobody has heard anything new; what is to be done, in order.

        What came up while something was done about it (`disconnect`) is dealt with, too. With `is_due` the cores are
        asked even if nothing has happened: the time they wanted to be woken at has come.
        """
        outgoing, self._acceptor.outgoing = self._acceptor.outgoing, []
        yield from outgoing
        while is_due or self._events or self._agent_events:
            if is_due or self._events:
                events, self._events = self._events, []
                for effect in self._core.handle(events, now):
                    wish = self._translate(effect)
                    if wish is not None:
                        yield wish
            if self._agent is not None and (is_due or self._agent_events):
                agent_events, self._agent_events = self._agent_events, []
                for message in self._agent.handle(agent_events, now):
                    self._events.append(ev.Received(LOCAL_AGENT, message))
            is_due = False

    def _translate(self, effect: ev.Effect) -> Wish | None:
        """What the shell has to do about what the core wants; None if nothing."""
        if type(effect) is ev.Send:
            if effect.number == LOCAL_AGENT and self._agent is not None:
                self._agent_events.append(FromScheduler(effect.message))
                return None
            return self._acceptor.send(effect.number, effect.message)
        if type(effect) is ev.Forget:
            connection = self._acceptor.forget(effect.number)
            return Disconnect(connection) if connection is not None else None
        return effect
