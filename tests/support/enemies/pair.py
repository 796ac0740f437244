"""A scheduler that may be one of a pair, among peers that claim to be the other and agents that have heard anything.

It leads or stands by as it is told, is made anew when it steps down, and does not end. When they are gone and somebody
promotes it, it hands out rows.
"""

from simulator.hostile_messages import Hostile, Lot
from simulator.limits import default_limits
from simulator.scripted import as_heard, hello, task

from scaler.protocol import messages as m
from scaler.protocol.acceptor import Acceptor, Outgoing, Terms
from scaler.protocol.channel import Envelope
from scaler.protocol.codec import decode, encode
from scaler.protocol.hello import epoch_of
from scaler.protocol.messages.succession import MAX_VERSION
from scaler.scheduler.composition import LOCAL_AGENT, Composition, Disconnect
from scaler.scheduler.core.scheduler_core import SchedulerCore
from scaler.scheduler.state.validate import validate
from scaler.scheduler.succession import MAX_TERM, StepDown, Succession, Tell

HERE, THERE = "tcp://here:1", "tcp://there:1"
ABOUT_JOURNALS = (m.JournalState, m.JournalStart, m.JournalSlice, m.JournalSynced)


class Peer:
    """Somebody with at most one connection."""

    def __init__(self, role: str, session: int) -> None:
        self.role = role
        self.session = session
        self.connection = self.seq = 0
        #: the highest seq that it was sent
        self.heard = 0
        #: of the last scheduler that welcomed it, and how many agents counted there
        self.epoch = self.roster = 0
        self.number = 0


class PairAmongEnemies:
    """One life of a scheduler."""

    def __init__(self, random: Lot) -> None:
        self.random = random
        self.now = 0.0
        stands_by = random.random() < 0.4
        self.succession = Succession(HERE, 12_345, THERE if stands_by else "", stands_by=stands_by)
        self.other = Peer("scheduler", 50)
        self.agents = [Peer("agent", 60), Peer("agent", 61), Peer("agent", 62)]
        self.hostile = Peer("agent", 70)
        self.monitor = Peer("monitor", 80)
        self._peers: dict[int, Peer] = {}
        self._connections = 0
        #: answers to commands
        self.answers: list[m.CommandResult] = []
        self._build()

    def _build(self) -> None:
        for peer in self._peers.values():
            peer.connection = 0
        self._peers.clear()
        self.core = SchedulerCore(default_limits(), strict=True)
        succession = self.succession
        terms = Terms(
            succession.epoch, m.PROTOCOL_VERSION, True, 1.0, 30.0, 30.0, 1 << 20, roster=succession.roster
        )  # fmt: skip
        self.composition = Composition(self.core, Acceptor(terms, LOCAL_AGENT, 100), succession)
        self.settle()

    # ---- what is said ----------------------------------------------------------------------------------------------
    def connect(self, peer: Peer, epoch: int | None = None, roster: int | None = None) -> None:
        """It says Hello, as coming from the last scheduler that has welcomed it, or from another one."""
        self.lose(peer)
        self._connections += 1
        peer.connection, peer.seq, peer.heard = self._connections, 0, 0
        self._peers[peer.connection] = peer
        about = ("here", "/store") if peer.role == "agent" else ("", "")
        made = hello(peer.role, f"{peer.role}-{peer.session}", 2 if peer.role == "agent" else 0, (), *about)
        made.session = peer.session
        made.epoch = peer.epoch if epoch is None else epoch
        made.roster = peer.roster if roster is None else roster
        made.number = peer.number if made.epoch else 0
        self._receive(peer.connection, Envelope(0, 0, made))

    def say(self, peer: Peer, message: m.Message) -> None:
        """Over its connection, if it has one."""
        if peer.connection:
            peer.seq += 1
            self._receive(peer.connection, Envelope(peer.seq, peer.heard, message))

    def _receive(self, connection: int, envelope: Envelope) -> None:
        arrived = decode([bytes(frame) for frame in encode(envelope.message, envelope.seq, envelope.ack)])
        self.composition.receive(connection, arrived, self.now)
        self.settle()

    def lose(self, peer: Peer) -> None:
        """Its connection closes."""
        if peer.connection:
            del self._peers[peer.connection]
            connection, peer.connection = peer.connection, 0
            self.composition.disconnect(connection, self.now)
            self.settle()

    def settle(self) -> None:
        """All decide, and what they want is done."""
        is_over = False
        for wish in self.composition.settle(self.now, True):
            if isinstance(wish, Outgoing):
                self._hear(wish)
            elif isinstance(wish, Disconnect):
                self._close(wish.connection)
            elif isinstance(wish, Tell):
                encode(wish.report)
                self.composition.pairing.tell(wish.report)
            elif isinstance(wish, StepDown):
                is_over = True
        self.composition.pairing.take_about_journals()
        found = validate(self.core.state)
        assert found == [], found
        if is_over:
            self._build()

    def _hear(self, wish: Outgoing) -> None:
        message = as_heard(wish.message)
        peer = self._peers.get(wish.connection)
        if peer is not None:
            peer.heard = max(peer.heard, wish.seq)
        if peer is not None and isinstance(message, m.Welcome):
            peer.epoch, peer.roster, peer.number = message.epoch, message.roster, message.number
        elif peer is not None and isinstance(message, m.CommandResult):
            self.answers.append(message)
        if wish.last:
            self._close(wish.connection)

    def _close(self, connection: int) -> None:
        peer = self._peers.pop(connection, None)
        if peer is not None:
            peer.connection = 0

    # ---- one thing after the other -----------------------------------------------------------------------------------
    def step(self) -> None:
        """One thing happens."""
        random, action = self.random, self.random.randrange(16)
        if action < 4:
            self._report()
        elif action < 5:
            self.connect(self.other)
        elif action < 6:
            drawn = Hostile(random, (60, 61, 70), (1, 2, 50, 60))
            self.say(self.other, drawn.message(random.choice((*ABOUT_JOURNALS, m.DisconnectRequest, None))))
        elif action < 7:
            self.lose(random.choice((self.other, self.hostile, *self.agents)))
        elif action < 9:
            self._hostile_agent()
        elif action < 12:
            self._agents_go_on()
        elif action < 13:
            self.ask(random.choice(("promote", "hand-over")))
        else:
            self.wait(random.choice((0.1, 0.5, 3.0, 12.0)))

    def _epoch(self) -> int:
        term = self.succession.term
        return self.random.choice((
            0, 1, self.succession.epoch, epoch_of(term, 7), epoch_of(min(term, MAX_TERM) + 1, 7), self.other.epoch,
            epoch_of(MAX_TERM - 1, 7), epoch_of(MAX_TERM, 7), 2**64 - 1,
        ))  # fmt: skip

    def _report(self) -> None:
        """The other one says how it sees things: over its connection, or over the one that this one has made."""
        random = self.random
        changed, leading = random.random() < 0.6, random.random() < 0.5
        sessions = random.choice(((), (60,), (60, 61), (60, 61, 62), (70, 71, 72), (1, 2**64 - 1)))
        version = random.choice((0, 1, 2, 3, MAX_VERSION - 2, MAX_VERSION - 1))
        report = m.PartnerReport(
            self._epoch(), leading, random.choice((THERE, HERE, "nowhere")), version, changed,
            m.u64(sessions if changed else ()), leading and random.random() < 0.3,
        )  # fmt: skip
        if random.random() < 0.5:
            self.succession.hear_partner(report, self.now)
            self.settle()
        else:
            self.say(self.other, report)

    def _hostile_agent(self) -> None:
        random = self.random
        if random.random() < 0.5:
            self.connect(self.hostile, self._epoch(), random.choice((0, 1, 3, 2**32 - 1)))
        else:
            self.say(self.hostile, Hostile(random, (100, 101), (1, 10)).message())

    def _agents_go_on(self) -> None:
        """Those who mean no harm are heard, and come again where they were lost."""
        for peer in self.agents:
            if peer.connection:
                self.say(peer, m.Heartbeat(self.now, 2))
            else:
                self.connect(peer)

    def ask(self, kind: str) -> None:
        """Somebody wants to have it lead, or the other one."""
        if not self.monitor.connection:
            self.connect(self.monitor)
        self.say(self.monitor, m.Command(len(self.answers) + 1, kind))

    def wait(self, seconds: float) -> None:
        """Time goes by."""
        self.now += seconds
        self.settle()

    def end(self) -> None:
        """Nobody is there any more but agents that mean no harm, and somebody who promotes it: it hands out rows."""
        for peer in (self.other, self.hostile):
            self.lose(peer)
        self.succession.lose_partner(self.now, said_goodbye=False)
        for _ in range(60):
            self._agents_go_on()
            self.wait(0.5)
        self.ask("promote")
        for _ in range(8):
            self._agents_go_on()
            self.wait(0.5)
        succession = self.succession
        assert succession.leads, (succession.trouble, self.answers)
        assert succession.hands_out, (succession.trouble, self.answers)
        client = Peer("client", 90)
        self.connect(client)
        assert client.connection, "a client is not welcome"
        self.say(client, m.ObjectAnnounce(m.u64([1]), m.u8([0]), [b"function"]))
        self.say(client, task(10, 2))
        assert sum(agent.load.outstanding for agent in self.core.state.agents.values()) == 2
