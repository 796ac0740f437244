"""What a scheduler's process decides: sessions, the core and, in a local cluster, this host's agent, put together.

Pure: the shell, or the simulator, hands in what came and carries out what `settle` wants. Between the scheduler's core
and the agent in the same process no message is encoded, and nobody waits.

    connections ──► acceptor ──► scheduler's core ──► acceptor ──► connections
                                     │    ▲
                                     ▼    │
                          local agent, residents (durable jobs)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from scaler.common.effects import Log
from scaler.protocol import codes
from scaler.protocol.acceptor import Acceptor, Lost, Outgoing, Received, TurnedAway
from scaler.protocol.channel import Envelope
from scaler.protocol.codes import Role
from scaler.protocol.messages import (
    Command,
    DisconnectRequest,
    Drain,
    Hello,
    JobAnswer,
    JobQuestion,
    JobSubmit,
    Message,
    Query,
    Refused,
)
from scaler.scheduler.core import events as ev
from scaler.scheduler.residents import Hold, Join, Reply, Residents, Say
from scaler.scheduler.state.agent_records import LOCAL_AGENT as LOCAL_AGENT
from scaler.scheduler.succession_wishes import PairWish, StepDown
from scaler.scheduler.turns import MOST, Turns

if TYPE_CHECKING:
    from scaler.scheduler.core.scheduler_core import SchedulerCore
    from scaler.scheduler.pairing import Pairing
    from scaler.scheduler.succession import Succession


class LocalAgent(Protocol):
    """This host's agent, with what carries out its wishes."""

    #: it was told something, or something happened in it, that it has not dealt with
    has_news: bool
    #: when it should be looked after though nothing happened
    wake: float | None
    #: it has ended, and the cluster with it
    stopped: bool

    def welcome(self, heartbeat: float, number: int) -> None:
        """The scheduler has taken it in, and knows nothing of what it had; `heartbeat` in seconds."""

    def hear(self, message: Message) -> None:
        """The scheduler says something."""

    def handle(self, now: float) -> list[Message]:
        """Let its core decide, and do what it wants; what it says to the scheduler. Without news: time has passed."""

    def gather(self) -> None:
        """Take in what workers said and did; never blocks."""

    def log_holdings(self) -> None:
        """Say in one line what is here."""

    def close(self) -> None:
        """End it and its workers; blocks for a moment."""


class Disconnect(NamedTuple):
    """Close this connection: nobody is behind it any more."""

    connection: int


#: what the shell is asked to do
Wish = Outgoing | TurnedAway | Disconnect | ev.Effect | PairWish


#: seconds in which a client or agent of another machine may come back whose connection has closed: what is between may
#: have done that, as a firewall does that forgets its connections
RETURN = 1.0
#: messages about durable jobs that are kept for a moment until there are some
MOST_EARLY = 16
#: what a monitor has answered one by one
_QUESTIONS = (Query, Command, JobQuestion)
#: what the residents are told, if it is its sender's to say
_ABOUT_JOBS = (JobSubmit, JobQuestion)
#: why there are no durable jobs
NO_JOURNAL = "this scheduler keeps no durable jobs: start it with --journal DIRECTORY"
#: why somebody is to ask again who was there before the jobs
ANEW = "durable jobs are kept here since a moment ago, and what was asked before may be over: ask again"


class Composition:
    """The parts of a scheduler's process that decide, and what they have to tell each other."""

    def __init__(self, core: SchedulerCore, acceptor: Acceptor, succession: Succession | None = None) -> None:
        """`acceptor` gives numbers above `LOCAL_AGENT`. With `succession` this may be one of a pair of schedulers."""
        self._core = core
        self._acceptor = acceptor
        self._residents: Residents | None = None
        #: why there are none; and who asked already of those that there will be in a moment
        self._refusal = NO_JOURNAL
        self._early: list[tuple[int, JobSubmit | JobQuestion]] | None = None
        #: monitors that were there before the residents: what they say may have been dealt with elsewhere since
        self._earlier: set[int] = set()
        #: they can't be here yet, and the core knows
        self._are_due = False
        #: why they were told that the partner may lead
        self._doubt = ""
        #: they are with the partner from now on, and everybody is about to be sent there
        self._have_left = False
        #: the numbers that those have
        self._resident_numbers: set[int] = set()
        #: connections that are gone whose peers may come back until then
        self._parted: dict[int, float] = {}
        self._agent: LocalAgent | None = None
        #: what that would say in its Hello, and seconds between its heartbeats; None when it is not to join any more
        self._greeting: tuple[Hello, float] | None = None
        #: messages by their type, those of this host's agent among them
        self.sent: defaultdict[type[Message], int] = defaultdict(int)
        self.received: defaultdict[type[Message], int] = defaultdict(int)
        #: answers that are known at once
        self._replies: list[Reply] = []
        #: for the scheduler's core
        self._events: list[ev.Event] = []
        #: what monitors have asked and nobody has dealt with
        self._turns = Turns(acceptor.reads)
        #: with the other one of a pair of schedulers; None: this is none of a pair
        self.pairing = None if succession is None else _pairing(succession, acceptor)

    def host(self, agent: LocalAgent, hello: Hello, heartbeat: float) -> None:
        """Put this host's agent beside the core; as if it had said Hello and been welcomed."""
        self._agent = agent
        self._greeting = hello, heartbeat
        self._acceptor.include(LOCAL_AGENT, hello)
        self._greet()

    def lodge(self, residents: Residents) -> None:
        """Put clients beside the core that live in this process.

        Whoever asked before they were here asks again, if it still wants that: somebody else may have kept them
        meanwhile, and have dealt with it.
        """
        self._residents, self._doubt = residents, ""
        self._earlier = self._acceptor.numbers_of(Role.MONITOR)
        early, self._early = self._early or (), None
        self._refusal = NO_JOURNAL
        self._set_due(False)
        for monitor in dict.fromkeys(monitor for monitor, _ in early):
            self._events += self._acceptor.end(monitor, ANEW)

    def part_with_residents(self) -> None:
        """The partner has them from now on. Whoever asks something of them will be sent there, and asks again."""
        self._residents, self._early, self._have_left = None, None, True
        self._set_due(False)

    def await_residents(self, refusal: str, is_brief: bool) -> None:
        """There are none yet, for this reason; if that `is_brief`, whoever asks something of them may wait."""
        self._refusal = refusal
        self._set_due(True)
        if is_brief:
            self._early = self._early or []
            return
        early, self._early = self._early or (), None
        for monitor, message in early:
            self._refuse_job(monitor, message)

    def _set_due(self, are_due: bool) -> None:
        """The core gives up no client that has not come back while that may be one of those who will live here."""
        if are_due != self._are_due:
            self._are_due = are_due
            self._events.append(ev.AwaitResidents(are_due))

    def _greet(self) -> None:
        """The local agent joins; again, if the core took it for lost."""
        if self._agent is not None and self._greeting is not None:
            hello, heartbeat = self._greeting
            self._events.append(ev.Joined(LOCAL_AGENT, hello))
            self._agent.welcome(heartbeat, LOCAL_AGENT)

    def receive(self, connection: int, envelope: Envelope, now: float) -> None:
        """A message came over a connection."""
        pairing, said = self.pairing, envelope.message
        self.received[type(said)] += 1
        if pairing is not None and type(said) is Hello:
            is_understood = self._acceptor.speaks_with(said)  # else it is refused below, whoever leads
            if is_understood and not pairing.admits(connection, said, now):
                return
        events = self._acceptor.receive(connection, envelope, self._core.workers if type(said) is Hello else 0)
        if pairing is not None and pairing.concerns(said):
            events = tuple(event for event in events if not pairing.take(event, now))
        if isinstance(said, _QUESTIONS):
            events = tuple(event for event in events if not self._let_wait(event))
        for event in events:
            self._take(event)

    def _take(self, event: ev.Event) -> None:
        if type(event) is Received and isinstance(event.message, _ABOUT_JOBS) and self._take_about_jobs(event):
            return
        self._events.append(event)

    def _let_wait(self, event: ev.Event) -> bool:
        """Have a question of a monitor wait, if it is not its turn; False if somebody is to deal with it now."""
        if type(event) is not Received or self._acceptor.role_of(event.number) != Role.MONITOR:
            return False
        if self._turns.begin(event.number):
            return False
        if not self._turns.add(event):
            self._turns.forget(event.number)
            self._events += self._acceptor.end(event.number, f"more than {MOST:,} questions wait for their answers")
        return True

    @property
    def has_more(self) -> bool:
        """There is something to do at once, after others were heard."""
        return self._turns.has_more

    def miss(self, number: int, whereabouts: str) -> None:
        """The answer to a `LookFor`: nothing listens there."""
        self._events.append(ev.Vanished(number, whereabouts))

    def stir(self, connection: int) -> None:
        """A part of a message has come over a connection."""
        self._events += self._acceptor.stir(connection)

    def _take_about_jobs(self, event: Received) -> bool:
        """Hand a message about jobs to those who know them; False if it is not its sender's to send."""
        number, message = event.number, event.message
        if self._acceptor.role_of(number) != Role.MONITOR:
            return False
        assert isinstance(message, _ABOUT_JOBS)
        if self._residents is not None and number in self._earlier:
            self._events += self._acceptor.end(number, ANEW)
        elif self._residents is not None:
            self._residents.ask(number, message)
        elif not self._have_left:
            if self._early is not None and len(self._early) < MOST_EARLY:
                self._early.append((number, message))
            else:
                self._refuse_job(number, message)
        return True

    def _refuse_job(self, monitor: int, message: JobSubmit | JobQuestion) -> None:
        stands_by = "" if self.pairing is None else self.pairing.stands_by
        if stands_by:  # as clients are refused, who go on asking for a while
            self._events += self._acceptor.end(monitor, stands_by, elsewhere=True)
        else:
            self._replies.append(Reply(monitor, JobAnswer(message.number, self._refusal, bodies=[b""])))

    def send(self, number: int, message: Message) -> Outgoing | None:
        """Where and how a message goes that the shell has made for a peer, after a `Publish`; None if it is gone."""
        self.sent[type(message)] += 1
        return self._acceptor.send(number, message)

    def say_farewell(self) -> list[Outgoing]:
        """What tells agents that this scheduler ends in order."""
        told = [self.send(number, Drain(codes.Wish.FAREWELL.value)) for number in self._acceptor.numbers_of(Role.AGENT)]
        return [outgoing for outgoing in told if outgoing is not None]

    def replace(self, outgoing: Outgoing, message: Message) -> Outgoing:
        """What is to be sent in the place of a message that can't be."""
        return self._acceptor.replace(outgoing, message)

    def reject(self, connection: int, reason: str, now: float) -> None:
        """What came over a connection was no message."""
        self._lose(self._acceptor.reject(connection, reason), now)

    def disconnect(self, connection: int, now: float, reason: str = "its connection closed") -> None:
        """A connection is gone, or can't be used any more."""
        self._lose(self._acceptor.disconnect(connection, reason), now)

    def is_believed(self, connection: int, waiting: int) -> bool:
        """See `Acceptor.is_believed`."""
        return self._acceptor.is_believed(connection, waiting)

    def part(self, connection: int, now: float) -> None:
        """A connection from another machine is gone; who was behind it may come back over another one, soon."""
        if self._acceptor.may_resume(connection):
            self._parted[connection] = now + RETURN
        else:
            self.disconnect(connection, now)

    @property
    def wake(self) -> float | None:
        """When the first of those is given up who have parted; None if all are here."""
        return min(self._parted.values()) if self._parted else None

    def _give_up_parted(self, now: float) -> None:
        for connection in [connection for connection, until in self._parted.items() if now >= until]:
            del self._parted[connection]
            self.disconnect(connection, now)

    def _lose(self, events: tuple[Lost, ...], now: float) -> None:
        for event in events:
            if self.pairing is None or not self.pairing.take(event, now):
                self._events.append(event)

    def settle(self, now: float, is_due: bool = False) -> Iterator[Wish]:
        """Let everybody decide until nobody has heard anything new; what is to be done, in order.

        What came up while something was done about it (`disconnect`) is dealt with, too. With `is_due` the cores are
        asked even if nothing has happened: the time they wanted to be woken at has come.
        """
        pairing = self.pairing
        if self._parted:
            self._give_up_parted(now)
        if self._turns.has_any:
            question = self._turns.end_step()
            if question is not None:
                self._take(question)
        if pairing is not None and (self._residents is not None or not pairing.rests(now)):
            yield from self._attend(pairing, now)
        if self._acceptor.turned_away:  # said while their connections are still there
            yield from self._acceptor.turned_away
            self._acceptor.turned_away.clear()
        acceptor = self._acceptor
        if acceptor.outgoing:
            outgoing, acceptor.outgoing = acceptor.outgoing, []
            for each in outgoing:
                self.sent[type(each.message)] += 1
            yield from outgoing
        agent, residents = self._agent, self._residents
        if self._replies:
            yield from self._reply()
        goes_on = True
        while goes_on:
            goes_on = False
            if is_due or self._events or acceptor.unread:
                events, self._events = self._events, []
                if acceptor.unread:
                    events += acceptor.unread
                    acceptor.unread.clear()
                goes_on = True
                for effect in self._core.handle(events, now):
                    if agent is not None and type(effect) is ev.Send and effect.number == LOCAL_AGENT:
                        self.sent[type(effect.message)] += 1
                        agent.hear(effect.message)
                        continue
                    if self._resident_numbers and self._tell_resident(effect):
                        continue
                    if pairing is not None and type(effect) is ev.Forget:
                        pairing.lose_agent(effect.number)
                    wish = (
                        self.send(effect.number, effect.message) if type(effect) is ev.Send else self._translate(effect)
                    )
                    if wish is not None:
                        yield wish
            if agent is not None and (is_due or agent.has_news):
                goes_on = True
                for message in agent.handle(now):
                    if type(message) is DisconnectRequest:
                        self._greeting = None
                    self.received[type(message)] += 1
                    self._events.append(ev.Received(LOCAL_AGENT, message))
            if residents is not None and (is_due or residents.has_news):
                goes_on = True
                yield from self._let_residents(residents, now)
            is_due = False

    def _attend(self, pairing: Pairing, now: float) -> Iterator[Wish]:
        """Do what one of a pair wants; who has asked is answered before everybody is sent away."""
        wishes = pairing.attend(now)
        self._events = [*pairing.events, *self._events]  # whether rows are handed out is known before any can be
        self._replies += pairing.replies
        if self._residents is not None and (doubt := pairing.doubt(now)) != self._doubt:
            self._doubt = doubt
            self._residents.doubt(doubt)
        pairing.events.clear()
        pairing.replies.clear()
        for wish in wishes:
            if isinstance(wish, StepDown):
                yield from self._reply()
                yield from self._acceptor.dismiss(wish.reason)
            yield wish

    def _reply(self) -> Iterator[Wish]:
        for reply in self._replies:
            outgoing = self.send(reply.monitor, reply.message)
            if outgoing is not None:
                yield outgoing
        self._replies.clear()

    def _let_residents(self, residents: Residents, now: float) -> Iterator[Wish]:
        """Have those decide who live here; what they say is for the core to hear next."""
        for wish in residents.handle(now):
            if type(wish) is Say:
                self._events.append(ev.Received(wish.number, wish.message, wish.ack))
            elif type(wish) is Join:
                number = self._acceptor.lodge(wish.hello)
                self._resident_numbers.add(number)
                self._events.append(ev.Joined(number, replace(wish.hello, number=number), is_resident=True))
                residents.welcome(wish.resident, number)
            elif type(wish) is Hold:
                self._events.append(ev.Unread(wish.number, wish.bytes, 0))
            elif type(wish) is Reply:
                self._replies.append(wish)
            elif type(wish) is Log:
                yield wish
        yield from self._reply()

    def _tell_resident(self, effect: ev.Effect) -> bool:
        """Hand an effect to one of those who live here, if it concerns one."""
        if not isinstance(effect, (ev.Send, ev.Forget)) or effect.number not in self._resident_numbers:
            return False
        if self._residents is None:
            return True  # they have left, and this scheduler is about to stand by
        if isinstance(effect, ev.Send):
            self._residents.hear(effect.number, effect.message)
        else:
            self._resident_numbers.discard(effect.number)
            self._acceptor.forget(effect.number)
            self._residents.forget(effect.number, effect.reason)
        return True

    def _translate(self, effect: ev.Effect) -> Wish | None:
        """What the shell has to do about what the core wants, but for what it sends; None if nothing."""
        if type(effect) is ev.Forget and effect.number == LOCAL_AGENT:
            self._greet()
            return None
        if type(effect) is ev.Forget:
            if self._residents is not None:
                self._residents.lose_monitor(effect.number)
            self._earlier.discard(effect.number)
            self._turns.forget(effect.number)
            connection = self._acceptor.forget(effect.number)
            if connection is not None and effect.is_told:
                refused = Refused(f"this peer {effect.reason}", final=effect.is_final)
                return Outgoing(connection, 0, 0, refused, last=True)
            return Disconnect(connection) if connection is not None else None
        return effect


def _pairing(succession: Succession, acceptor: Acceptor) -> Pairing:
    from scaler.scheduler.pairing import Pairing  # here, as a local cluster is none of a pair

    return Pairing(succession, acceptor)
