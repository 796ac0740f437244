"""Connections to the scheduler, and what a client or agent does with them.

A connection is FIFO in each direction, with its own delays. "unix" ones tell both ends when they close; "tcp" ones are
like ZeroMQ's: the scheduler never hears of a close, and a broken one is silently replaced, losing what was under way.
"""

from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Any

from scaler.common.attempts import Attempts
from scaler.errors import ProtocolError
from scaler.protocol.channel import Envelope
from scaler.protocol.codec import decode, encode
from scaler.protocol.hello import term_of
from scaler.protocol.initiator import Broken, Established, Initiator, Rejected
from scaler.protocol.messages import Ack, Heartbeat, HeartbeatEcho, Hello, Message, Welcome
from scaler.transport import Address, Candidates
from simulator.checks import require
from simulator.world import Process, World

#: what was said, as it travels: frames, or the envelope itself
Frames = list[Any] | Envelope

#: messages that tell nothing but that somebody lives
QUIET = frozenset({Heartbeat, HeartbeatEcho, Ack})
#: directions of a connection: to the scheduler, and from it
UP, DOWN = 0, 1


def decoded(frames: Frames) -> Envelope:
    """What came. Raises ProtocolError."""
    return frames if isinstance(frames, Envelope) else decode(frames)


class Connection:
    """One connection; numbered as the scheduler's listener does."""

    def __init__(self, network: "Network", process: Process, kind: str, host: str, site: int = 0) -> None:
        self.network = network
        #: where the scheduler is
        self.site = site
        self.process = process
        self.kind = kind
        self.host = host
        self.number = network.new_number(self)
        self.open = True
        #: what is under way belongs to a generation; a break starts the next
        self._generation = 0
        #: when the last message arrives in each direction
        self._last = [0.0, 0.0]
        #: what happens to the next message: "lost", "late", or nothing
        self.disturbance = ""

    def _deliver(self, way: int, call: Callable[[Any], None], item: Any) -> None:
        """Have `call` be given the item when it arrives; None is the end of the connection, no message."""
        network = self.network
        world = network.world
        now, healed = world.now, network.healed(self.host, self.site)
        # as `expovariate(1 / delay)` has it
        at = (now if now > healed else healed) - log(1.0 - world.lot()) / (1 / network.delay) + 20e-6
        if self.disturbance and item is not None:
            disturbance, self.disturbance = self.disturbance, ""
            world.note("network", f"a message of {self.process.name} is {disturbance}")
            if disturbance == "late":  # others overtake it
                world.after(at - now + world.random.uniform(0, 0.2), self._arrive, self._generation, call, item)
            return
        soonest = self._last[way] + 1e-9
        if at < soonest:
            at = soonest
        self._last[way] = at
        world.after(at - now, self._arrive, self._generation, call, item)

    def _arrive(self, generation: int, call: Callable[[Any], None], item: Any) -> None:
        if generation == self._generation:
            call(item)

    def up(self, frames: Frames) -> None:
        """Peer to scheduler."""
        if self.open:
            self._deliver(UP, self._post_up, ("frames", self.number, frames))

    def _post_up(self, item: Any) -> None:
        server = self.network.servers.get(self.site)
        if server is not None:
            server.post(item)

    def down(self, frames: Frames) -> None:
        """Scheduler to peer."""
        if self.open:
            self._deliver(DOWN, self.process.post, ("frames", self, frames))

    def close_by_peer(self) -> None:
        """The peer closed it, or ended."""
        if self.open:
            if self.kind == "unix":
                self._deliver(UP, self._post_up, ("closed", self.number))
            elif self.network.tells_ends:
                self._deliver(UP, self._post_up, ("parted", self.number))
            self.open = False

    def close_by_server(self) -> None:
        """The scheduler closed it, or ended."""
        if self.open:
            self._deliver(DOWN, self._eof, None)
            if self.kind == "unix":
                self.open = False

    def _eof(self, item: None) -> None:
        if self.kind == "unix":
            self.process.post(("eof", self))

    def snap(self) -> None:
        """It breaks: what is under way is lost."""
        if not self.open:
            return
        self.network.world.note("network", f"{self.kind} connection {self.number} of {self.process.name} breaks")
        self._generation += 1
        if self.kind == "unix":
            self.open = False
            self._post_up(("closed", self.number))
            self.process.post(("eof", self))
        else:
            self.number = self.network.new_number(self)

    def reset(self) -> None:
        """Something between the two ends it, and tells both."""
        if self.open and self.kind == "tcp":
            self.network.world.note("network", f"connection {self.number} of {self.process.name} is reset")
            self._generation += 1
            self.open = False
            self._post_up(("parted", self.number))
            self.process.post(("eof", self))


class Network:
    """All connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        #: mean delay of a message, seconds
        self.delay = 100e-6
        #: the schedulers that are up, by site: there is one, or a pair
        self.servers: dict[int, Process] = {}
        self.sites = 1
        #: a scheduler hears that connections from other machines have ended
        self.tells_ends = False
        self.connections: dict[int, Connection] = {}
        #: host -> when its partition heals; and of a host and a site that do not reach each other
        self.partitioned: dict[str, float] = {}
        self.cut: dict[tuple[str, int], float] = {}
        #: the names of two hosts, of which the one does not reach the other's store -> when it does again
        self.ways: dict[tuple[str, str], float] = {}
        self._next = 1

    def new_number(self, connection: Connection) -> int:
        """Numbers are never used twice."""
        number = self._next
        self._next += 1
        self.connections[number] = connection
        return number

    def encoded(self, envelope: Envelope) -> Frames:
        """A message as it travels; most heartbeats are as they are, in worlds where most time is quiet."""
        seq, ack, message = envelope
        return envelope if self.world.skips(type(message) in QUIET) else encode(message, seq, ack)

    def healed(self, host: str, site: int) -> float:
        """When a host reaches a site again."""
        whole = self.partitioned.get(host, 0.0)
        return max(whole, self.cut.get((host, site), 0.0)) if self.cut else whole

    def connect(self, process: Process, kind: str, host: str, site: int = 0) -> Connection | None:
        """A new connection, None if the scheduler can't be reached."""
        server = self.servers.get(site)
        if server is None or not server.alive or self.healed(host, site) > self.world.now:
            return None
        return Connection(self, process, kind, host, site)

    def all_close(self, site: int = 0) -> None:
        """The scheduler died."""
        for connection in [each for each in self.connections.values() if each.site == site]:
            connection.close_by_server()
            if connection.kind == "tcp":
                connection.snap()


class Line:
    """A simulated connection and the real `Initiator`."""

    def __init__(
        self, process: Process, network: Network, kind: str, host: str, hello: Hello, begins_anew: bool = False
    ) -> None:
        """With `begins_anew` each connection is another session, as a monitor's is."""
        hello.session = process.world.random.getrandbits(63) | 1
        #: of a pair: where to look next; ports are sites, from 1 on
        others = tuple(Address("site", number) for number in range(2, 1 + network.sites))
        self._candidates = Candidates(Address("site", 1, others))
        hello.others = self._candidates.others
        #: the highest term that has welcomed it
        self._term = 0
        self.process = process
        self._hello = hello
        self._begins_anew = begins_anew
        self._initiator = Initiator(hello)
        #: the number of its session, the first one if it begins anew
        self.session = hello.session
        self._network = network
        self._kind = kind
        self._host = host
        self._connection: Connection | None = None
        self._attempts = Attempts(process.world.now)
        #: when it said Hello last
        self.introduced = 0.0
        self.connect()

    @property
    def welcome(self) -> Welcome | None:
        """What the scheduler last said of itself."""
        return self._initiator.welcome

    @property
    def is_open(self) -> bool:
        """What is said now is sent now."""
        return self._initiator.is_open

    def has_unsaid(self, kind: type[Message]) -> bool:
        """Messages of a kind may not have come."""
        return self._initiator.has_unsaid(kind)

    def introduce(self, **changes: Any) -> None:
        """Say otherwise who this is from the next Hello on."""
        self._initiator.introduce(**changes)

    def connect(self) -> None:
        """Try to connect; again later if that fails."""
        site = self._candidates.current.port - 1
        self._connection = self._network.connect(self.process, self._kind, self._host, site)
        self.introduced = self.process.world.now
        if self._connection is None:
            is_silent = self._network.healed(self._host, site) > self.process.world.now
            self._candidates.turn(self.process.world.now, is_silent)
            self.process.world.after(self._attempts.next_pause(self.process.world.now), self._again)
        else:
            if self._begins_anew:
                self._term = 0
                self._initiator = Initiator(replace(self._hello, session=self.process.world.random.getrandbits(63) | 1))
            before_hello = getattr(self.process, "before_hello", None)
            if before_hello is not None:
                before_hello(self)
            self._up(self._initiator.greet(self.process.world.now))

    def _again(self) -> None:
        if self.process.alive and self._connection is None:
            self.connect()

    def drop(self, reason: str) -> None:
        """Give the connection up and make another."""
        self.process.world.note(self.process.name, f"drops its connection: {reason}")
        if self._initiator.is_elsewhere or self._initiator.is_silent:
            self._candidates.turn(self.process.world.now, self._initiator.is_silent)
        self.close()
        if not self._initiator.is_elsewhere:
            self._attempts = Attempts(self.process.world.now, longest=self._candidates.longest_pause)
        self.process.world.after(self._attempts.next_pause(self.process.world.now), self._again)

    def close(self) -> None:
        """Close without making another."""
        if self._connection is not None:
            self._connection.close_by_peer()
        self._connection = None
        self._initiator.disconnect("closed")

    def snap(self) -> None:
        """A fault: the connection breaks."""
        if self._connection is not None:
            self._connection.snap()

    def reset(self) -> None:
        """A fault: something between the two ends the connection."""
        if self._connection is not None:
            self._connection.reset()

    def disturb(self, how: str) -> None:
        """A fault: the next message is lost, or comes late."""
        if self._connection is not None:
            self._connection.disturbance = how

    def send(self, message: Message) -> None:
        """Send, or keep until the session goes on."""
        self.process.world.note(self.process.name, message)
        self._up(self._initiator.send(message))

    def _up(self, envelope: Envelope | None) -> None:
        if envelope is not None and self._connection is not None:
            self._connection.up(self._network.encoded(envelope))

    def receive(self, items: list[Any]) -> list[Message | Established]:
        """What came, and where the session began or went on."""
        heard: list[Message | Established] = []
        now = self.process.world.now
        for item in items:
            what = item[0]
            if what not in ("frames", "eof") or item[1] is not self._connection:
                continue
            if what == "eof":
                self.drop("closed")
                continue
            try:
                said = self._initiator.receive(decoded(item[2]), now)
            except ProtocolError as error:
                said = self._initiator.reject(str(error))
            if isinstance(said, (Rejected, Broken)):
                self.drop(said.reason)
                if self._initiator.is_final:
                    self.process.world.note(self.process.name, "ends: what it says is refused for good")
                    self.process.die()
                    break
            elif said is not None:
                heard.append(said)
                if isinstance(said, Established):
                    term = term_of(said.welcome.epoch)
                    require(term >= self._term or not self._candidates.others, f"{self.process.name}: an older term")
                    self._term = term
                    for envelope in said.again:
                        self._up(envelope)
        ack = self._initiator.take_ack()
        if ack is not None:
            self._up(ack)
        silent = self._initiator.check_silence(now)
        if silent is not None:
            self.drop(silent.reason)
        return heard
