"""What a scheduler's composition does about its succession: which messages and peers concern it, and what it wants."""

from __future__ import annotations

from scaler.protocol.acceptor import Acceptor, Joined, Lost, Outgoing, Received
from scaler.protocol.codes import Role
from scaler.protocol.messages import (
    Command,
    CommandResult,
    DisconnectRequest,
    Hello,
    JournalSlice,
    JournalStart,
    JournalState,
    JournalSynced,
    Message,
    PartnerReport,
    Refused,
)
from scaler.scheduler.core import events as ev
from scaler.scheduler.residents import Reply
from scaler.scheduler.succession import Succession
from scaler.scheduler.succession_wishes import Announce, Answer, HandOut, PairWish

#: what is said of journals
AboutJournals = JournalState | JournalStart | JournalSlice | JournalSynced


class Pairing:
    """Between one acceptor and one succession, which outlives it."""

    def __init__(self, succession: Succession, acceptor: Acceptor) -> None:
        self._succession = succession
        self._acceptor = acceptor
        #: the session of each agent, by number, and of those heard since the succession was told
        self._agents: dict[int, int] = {}
        self._heard: set[int] = set()
        #: what had been sent to those agents, by number, that were there when this process went on after it was
        #: stopped: they count as heard again with something that they say later
        self._before: dict[int, int] = {}
        #: what had been sent to those agents, by number, that were there when more than half were to confirm that they
        #: listen; None: nobody asks
        self._asked: dict[int, int] | None = None
        #: the session that the partner has made, if it has one
        self.partner: int | None = None
        #: what the partner has said of its journal
        self.about_journals: list[AboutJournals] = []
        #: for the scheduler's core
        self.events: list[ev.Event] = [
            ev.HandOut(succession.hands_out, succession.trouble), ev.Announce(succession.roster)
        ]  # fmt: skip
        #: answers to commands
        self.replies: list[Reply] = []

    @property
    def stands_by(self) -> str:
        """Why this one does not lead; empty: it does."""
        succession = self._succession
        if succession.leads:
            return ""
        if succession.partner:
            return f"this scheduler stands by for the one at {succession.partner}: give the addresses of both"
        return "this scheduler was one of a pair, and waits for its partner or for more than half of the agents"

    def doubt(self, now: float) -> str:
        """Why the partner may lead meanwhile; empty: it does not."""
        succession = self._succession
        if succession.leads_for_sure(now):
            return ""
        quiet = "too few agents are heard" if succession.hands_out_at(now) else "it was stopped for a while"
        return f"{succession.trouble or quiet} (scaler promote {succession.address})"

    def admits(self, connection: int, hello: Hello, now: float) -> bool:
        """Whether somebody who says this over a connection belongs here; otherwise it is told to look elsewhere."""
        reason = self._succession.consider(hello, now)
        if reason is not None:
            self._acceptor.refuse(connection, reason)
            return False
        self._acceptor.announce(self._succession.epoch, self._succession.roster)
        return True

    def concerns(self, message: Message) -> bool:
        """What follows from a message is for `take` to see; while there is no partner, and nobody asks for agents, only
        that somebody comes, and what monitors want done."""
        kind = type(message)
        return kind is Hello or kind is Command or self.partner is not None or self._succession.counts_agents

    def take(self, event: ev.Event, now: float) -> bool:
        """An event of the acceptor's; False if others have to hear of it."""
        if isinstance(event, Received):
            return self._receive(event, now)
        if isinstance(event, Joined) and event.hello.role == Role.AGENT:
            self._agents[event.number] = event.hello.session
            self._succession.agent_joined(event.hello.session)
        elif isinstance(event, Joined) and event.hello.role == Role.SCHEDULER:
            if self.partner is not None:
                self._acceptor.forget(self.partner)
            self.partner = event.number
            return True
        elif isinstance(event, Lost) and event.number == self.partner:
            self.partner = None
            self._acceptor.forget(event.number)
            self._succession.lose_partner(now, said_goodbye=False)
            return True
        return False

    def _receive(self, event: Received, now: float) -> bool:
        succession, message = self._succession, event.message
        if event.number == self.partner:
            if isinstance(message, PartnerReport):
                succession.hear_partner(message, now)
            elif isinstance(message, AboutJournals):
                self.about_journals.append(message)
            elif isinstance(message, DisconnectRequest):
                succession.lose_partner(now, said_goodbye=True)
            return True
        if succession.counts_agents and event.number in self._agents and event.ack > self._before.get(event.number, -1):
            self._before.pop(event.number, None)
            self._heard.add(self._agents[event.number])
            if self._asked is not None and event.ack > self._asked.get(event.number, -1):
                succession.agents_confirmed([self._agents[event.number]])
        if isinstance(message, Command) and message.kind in ("promote", "hand-over"):
            return self._obey(event.number, message, now)
        return False

    def _obey(self, monitor: int, command: Command, now: float) -> bool:
        if self._acceptor.role_of(monitor) != Role.MONITOR:
            return False
        if command.kind == "promote":
            error = self._succession.promote(now)
        else:
            error = self._succession.hand_over(monitor, command.number, now)
        if error or command.kind == "promote":
            self.replies.append(_result(monitor, command.number, error))
        return True

    def tell(self, message: PartnerReport | AboutJournals) -> None:
        """Say something to the partner, if that has made a connection.

        It goes behind the Welcome if that has come in this step: what comes before is not listened to, and then
        missing.
        """
        outgoing = None if self.partner is None else self._acceptor.send(self.partner, message)
        if outgoing is not None:
            self._acceptor.outgoing.append(outgoing)

    def take_about_journals(self) -> list[AboutJournals]:
        """What the partner has said of its journal."""
        said, self.about_journals = self.about_journals, []
        return said

    def reject_partner(self, reason: str, now: float) -> None:
        """What the partner said makes no sense: its session is over."""
        if self.partner is not None:
            connection = self._acceptor.forget(self.partner)
            self.partner = None
            if connection is not None:
                self._acceptor.outgoing.append(Outgoing(connection, 0, 0, Refused(reason), last=True))
            self._succession.lose_partner(now, said_goodbye=False)

    def lose_agent(self, number: int) -> None:
        """The core has forgotten somebody, who may be an agent."""
        session = self._agents.pop(number, None)
        self._before.pop(number, None)
        if self._asked is not None:
            self._asked.pop(number, None)
        if session is not None:
            self._succession.agent_left(session)

    def rests(self, now: float) -> bool:
        """There is no other scheduler, and nothing that `attend` would do."""
        idle = not (self.events or self.replies or self._heard) and self._asked is None
        return idle and self._succession.rests(now)

    def attend(self, now: float) -> list[PairWish]:
        """Time has passed, and agents were heard; what the shell is to do. The rest is in `events` and `replies`."""
        succession = self._succession
        if succession.was_stopped(now):
            self._heard.clear()
            self._before = {number: self._acceptor.sent_to(number) for number in self._agents}
        if self._heard:
            succession.agents_heard(list(self._heard), now)
            self._heard.clear()
        if succession.asks_agents != (self._asked is not None):
            is_asked = succession.asks_agents
            self._asked = {each: self._acceptor.sent_to(each) for each in self._agents} if is_asked else None
        succession.tick(now)
        wanted: list[PairWish] = []
        for wish in succession.take():
            if isinstance(wish, (HandOut, Announce)):
                self.events.append(wish)
            elif isinstance(wish, Answer):
                self.replies.append(_result(wish.monitor, wish.number, wish.error))
            else:
                wanted.append(wish)
        return wanted


def _result(monitor: int, number: int, error: str) -> Reply:
    """What a command is answered: it is done, or why it is not."""
    return Reply(monitor, CommandResult(number, done=int(not error), error=error))
