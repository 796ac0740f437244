"""A scheduler with durable jobs among peers that say anything, which is killed now and then; one job has to end.

A monitor submits parts that make no sense and asks for what is not there, an agent and a client say anything about the
rows of jobs, and the scheduler starts again from what is on disk. The process itself ends at nothing that is said.
"""

import json
from dataclasses import replace

from simulator.bad_reads import StrictKeeper
from simulator.hostile_messages import Hostile, Lot
from simulator.limits import default_limits
from simulator.scripted import as_heard, graph, hello, result, task

from scaler.protocol import messages as m
from scaler.protocol.acceptor import Acceptor, Outgoing, Terms
from scaler.protocol.channel import Envelope
from scaler.protocol.codec import decode, encode
from scaler.protocol.results import ResultBuilder
from scaler.protocol.views import encode_view
from scaler.scheduler.composition import LOCAL_AGENT, Composition, Disconnect
from scaler.scheduler.core import events as se
from scaler.scheduler.core.returning import PATIENCE
from scaler.scheduler.core.scheduler_core import SchedulerCore
from scaler.scheduler.jobs.jobs_core import GATHER, JobTerms
from scaler.scheduler.state.batch_records import AGENT
from scaler.scheduler.state.validate import validate
from support.made_up_jobs import Paper

#: ids of batches, rows and objects of the job that has to end, and of others
IDS = (1, *range(10, 20), 1_000_014, 2_000_010)
#: what the decent one submits: parts by their keys
PARTS = {
    "0": [
        m.ObjectAnnounce(m.u64([1]), m.u8([m.INLINE]), [b"function"]),
        replace(graph(10, [[], [0], [0, 1]], [0, 1, 2]), flags=m.KEEP | m.INLINE_VALUES),
    ],
    "1": [task(14, 4, flags=m.INLINE_VALUES), task(18, 2, m.TOGETHER, flags=m.INLINE_VALUES)],
}
ROWS, TOKEN = 9, 77
#: seconds until those are given up who are silent, or have not come back
UNTIL_LOST = 30.0 + PATIENCE


class Peer:
    """Somebody with a connection, which is made anew when it was lost."""

    def __init__(self, server: "Server", role: str, workers: int = 0) -> None:
        self.server, self.role, self.workers = server, role, workers
        self.connection = self.seq = 0
        #: its own number at the scheduler
        self.number = 0
        self.heard: list[m.Message] = []
        server.peers.append(self)
        self.connect()

    def connect(self, number: int = 0) -> None:
        """Say Hello, as somebody new; or as the one that had this number at the scheduler before."""
        self.connection, self.seq = self.server.new_connection(self), 0
        name = f"{self.role}-{self.connection}"
        about = ("here", "/store") if self.role == "agent" else ("", "")
        made = hello(self.role, name, self.workers, (), *about)
        made.session = 1_000 + self.connection
        if number:
            made.number, made.epoch = number, 1
        self.server.receive(self.connection, Envelope(0, 0, made))

    def say(self, message: m.Message) -> None:
        """Over the connection."""
        if not self.connection:
            self.connect()
        self.seq += 1
        envelope = decode([bytes(frame) for frame in encode(message, self.seq, 0)])
        self.server.receive(self.connection, envelope)


class Server:
    """A scheduler with jobs, put together as in its process; its journal is in memory."""

    def __init__(self) -> None:
        self.now = 0.0
        self.paper = Paper(most=2_000)
        self.peers: list[Peer] = []
        self._connections: dict[int, Peer] = {}
        self._last = 0
        #: lines of the log
        self.log: list[str] = []
        self.start()

    def start(self) -> None:
        """From what is on disk; nobody is connected."""
        self._connections.clear()
        for peer in self.peers:
            peer.connection = peer.number = 0
        self.paper = Paper({number: bytes(data) for number, data in self.paper.segments.items()}, self.paper.most)
        limits = default_limits()
        self.core = SchedulerCore(limits, strict=True)
        terms = Terms(7 + self._last, m.PROTOCOL_VERSION, True, 1.0, 30.0, 30.0, 1 << 20)
        self.composition = Composition(self.core, Acceptor(terms, LOCAL_AGENT, 2 + 100 * self._last))
        self.keeper = StrictKeeper(self.paper, JobTerms(1.0, 1_000.0, limit=1 << 20))
        self.composition.lodge(self.keeper)
        self.settle()

    def new_connection(self, peer: Peer) -> int:
        """Its number."""
        self._last += 1
        self._connections[self._last] = peer
        return self._last

    def receive(self, connection: int, envelope: Envelope) -> None:
        """Something came."""
        self.composition.receive(connection, envelope, self.now)
        self.settle()

    def lose(self, peer: Peer) -> None:
        """Its connection closes."""
        if peer.connection:
            connection, peer.connection = peer.connection, 0
            self.composition.disconnect(connection, self.now)
            self.settle()

    def wait(self, seconds: float, is_synced: bool) -> None:
        """Time goes by; the disk is done with what was written, or is not."""
        self.now += seconds
        if is_synced:
            self.paper.sync()
            self.keeper.gather()
        self.settle(is_due=True)

    def settle(self, is_due: bool = False) -> None:
        """All decide, and what they want is done."""
        for wish in self.composition.settle(self.now, is_due):
            if isinstance(wish, Outgoing):
                message = as_heard(wish.message)
                peer = self._connections.get(wish.connection)
                if peer is not None and isinstance(message, m.Welcome):
                    peer.number = message.number
                if peer is not None:
                    peer.heard.append(message)
                if wish.last:
                    self._close(wish.connection)
            elif isinstance(wish, Disconnect):
                self._close(wish.connection)
            elif isinstance(wish, se.Publish):
                encode_view(wish.view)
            elif isinstance(wish, se.Log):
                self.log.append(wish.text)
        found = validate(self.core.state)
        assert found == [], found

    def _close(self, connection: int) -> None:
        peer = self._connections.pop(connection, None)
        if peer is not None and peer.connection == connection:
            peer.connection = peer.number = 0


def submission(key: str, number: int, is_last: bool) -> m.JobSubmit:
    """A part of the job that has to end."""
    frames = [[bytes(frame) for frame in encode(message)] for message in PARTS[key]]
    bodies = [b"note", *(frame for each in frames for frame in each)]
    return m.JobSubmit(number, "decent", "me", TOKEN, key, False, is_last, m.u32(map(len, frames)), bodies)


def end_all(server: Server, agent: Peer, random: Lot) -> None:
    """An agent ends what it has of all clients."""
    for number, client in list(server.core.state.clients.items()):
        for batch in list(client.batches.values()):
            for lo, hi in list(batch.spans_in(AGENT + agent.number)):
                builder = ResultBuilder(number)
                builder.add(result(batch.id, lo, hi, random.choice([m.VALUES_EACH, m.VALUES_LIST])))
                agent.say(builder.build())


class JobsAmongEnemies:
    """One life of a scheduler: anything is said for a while, then the decent job has to end."""

    def __init__(self, random: Lot, apart: Lot) -> None:
        """All is drawn from `random`, but for what came later, so that seeds mean what they did: that from `apart`."""
        self.random, self.apart = random, apart
        self.server = server = Server()
        self.hostile, self.decent = Peer(server, "agent", 2), Peer(server, "agent", 2)
        self.client, self.attacker, self.user = Peer(server, "client"), Peer(server, "monitor"), Peer(server, "monitor")
        self._said = 0
        self.submit()

    def submit(self) -> None:
        """As a user does: until all that was said is acknowledged."""
        last = list(PARTS)[-1]
        for key in PARTS:
            self._said += 1
            self.user.say(submission(key, self._said, is_last=key == last))

    def live(self) -> None:
        """Anything is said, and the scheduler is killed now and then."""
        for _ in range(self.random.choice([3, 8, 20, 40])):
            self.step()

    def step(self) -> None:
        """One thing happens."""
        random, server = self.random, self.server
        hostile, decent, client = self.hostile, self.decent, self.client
        peers = tuple({*server.core.state.clients, hostile.number, decent.number, client.number} - {0}) or (2,)
        drawn = Hostile(random, peers, (*IDS, TOKEN))
        act = random.randrange(10)
        if act < 3:
            self.attacker.say(attack(random, drawn))
        elif act < 5:
            hostile.say(drawn.message())
        elif act < 6:
            client.say(drawn.message())
        elif act < 7:
            end_all(server, random.choice([hostile, decent]), random)
        elif act < 9:
            server.wait(random.choice([0.001, GATHER, 1.0]), is_synced=random.random() < 0.7)
        elif random.random() < 0.3:
            self.restart(peers)
        else:
            server.lose(random.choice([self.attacker, hostile, client]))

    def restart(self, peers: tuple[int, ...]) -> None:
        """The scheduler is killed, and starts again."""
        hostile = self.hostile
        had = hostile.number
        self.server.start()
        if had and self.apart.random() < 0.5:
            hostile.connect(had)
            hostile.say(Hostile(self.apart, peers, (*IDS, TOKEN)).message(m.Inventory))
        for peer in (self.decent, self.user):
            peer.connect()
        self.submit()

    def end(self, random: Lot) -> None:
        """Nobody means harm any more: the job ends, and its results can be read."""
        server, user = self.server, self.user
        server.lose(self.hostile)
        server.lose(self.client)
        self.submit()
        for _ in range(12):
            server.wait(UNTIL_LOST / 6, is_synced=True)
            self.decent.say(m.Heartbeat(server.now, 2))
            end_all(server, self.decent, random)
            server.wait(GATHER, is_synced=True)
        user.heard.clear()
        user.say(m.JobQuestion(1_000, "state", "decent"))
        user.say(m.JobQuestion(1_001, "ordered", "decent"))
        answers = {said.number: said for said in user.heard if isinstance(said, m.JobAnswer)}
        state = json.loads(answers[1_000].text)
        assert state["state"] in ("done", "failed"), state
        assert answers[1_001].next == ROWS, answers[1_001]


def attack(random: Lot, drawn: Hostile) -> m.Message:
    """What a monitor may say, but for what may be done to anybody's rows: those who are let in may cancel them."""
    while True:
        said = drawn.message(random.choice((m.JobSubmit, m.JobSubmit, m.JobQuestion, m.Watch, None)))
        if isinstance(said, (m.Command, m.ClientShutdown)):
            continue
        if isinstance(said, m.JobQuestion) and said.kind not in ("cancel", "delete") and random.random() < 0.5:
            said.name = "decent"
        if isinstance(said, m.JobSubmit) and random.random() < 0.2:
            said.name, said.joins = "decent", False
            if said.token == TOKEN:
                continue
        return said
