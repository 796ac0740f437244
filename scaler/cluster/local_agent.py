"""This host's agent as the scheduler in the same process sees it: what one tells the other is not encoded."""

from scaler.agent.core.events import Event, Welcomed
from scaler.agent.shell import AgentShell
from scaler.protocol.messages import Message


class LocalAgentShell:
    """An agent that hears of the scheduler and of its workers in one step. Not thread-safe."""

    def __init__(self, shell: AgentShell) -> None:
        self._shell = shell
        #: what its core has not been told yet, and whether there is such
        self._events: list[Event] = []
        self.has_news = False
        #: when it should be looked after though nothing happened
        self.wake: float | None = None
        #: it has ended
        self.stopped = False

    def welcome(self, heartbeat: float, number: int) -> None:
        """The scheduler has taken it in, and knows nothing of what it had; `heartbeat` in seconds."""
        self._events.append(Welcomed(False, heartbeat, number))
        self.has_news = True

    def hear(self, message: Message) -> None:
        """The scheduler says something."""
        self._events += self._shell.heard(message)
        self.has_news = True

    def gather(self) -> None:
        """Take in what workers said and did; never blocks."""
        gathered = self._shell.gather()
        if gathered:
            self._events += gathered
            self.has_news = True

    def handle(self, now: float) -> list[Message]:
        """Deal with what it was told; what it says to the scheduler. Without news: time has passed."""
        events, self._events, self.has_news = self._events, [], False
        said = self._shell.handle(events, now)
        self.wake, self.stopped = self._shell.wake, self._shell.stopped
        return said

    def log_holdings(self) -> None:
        """Say in one line what is here."""
        self._shell.log_holdings()

    def close(self) -> None:
        """End it and its workers; blocks for a moment."""
        self._shell.close()
