"""A scheduler's process: the real Composition with its acceptor and core, and in a local cluster also an agent."""

from collections.abc import Callable, Sequence
from typing import Any

from scaler.cluster.local_agent import LocalAgentShell
from scaler.defaults import HEARTBEAT_INTERVAL
from scaler.errors import ProtocolError
from scaler.protocol.acceptor import UNREAD_BYTES, Acceptor, Outgoing, Terms
from scaler.protocol.codec import encode_view
from scaler.protocol.hello import BEGINNINGS, NUMBERS, epoch_of, hello_of
from scaler.protocol.messages import PROTOCOL_VERSION, Snapshot
from scaler.scheduler.composition import LOCAL_AGENT, Composition, Disconnect
from scaler.scheduler.core import events as ev
from scaler.scheduler.core.scheduler_core import Limits, SchedulerCore
from scaler.scheduler.state.cluster_facts import Fact, PeerLeft
from simulator.checks import check_scheduler
from simulator.explained import check_explanations
from simulator.hosts import Host
from simulator.mirror import Mirror
from simulator.network import QUIET, Network, decoded
from simulator.world import TICK, Process, World

#: bytes that a client may leave unread at every other scheduler: so few that its rows have to wait now and then
UNREAD = 4_000


class CheckedCore(SchedulerCore):
    """The real core; each step is told to the story and checked."""

    def __init__(self, world: World, limits: Limits) -> None:
        super().__init__(limits, strict=True)
        self._world = world
        self._mirror = Mirror(self.state)
        self.state.facts.subscribe(self._observe)
        self.state.facts.subscribe(world.moves.note_scheduler)
        check_explanations(world, self)

    def _observe(self, now: float, facts: Sequence[Fact]) -> None:
        self._world.losses += sum(isinstance(fact, PeerLeft) and fact.role != "client" for fact in facts)

    def handle(self, events: Any, now: float) -> list[ev.Effect]:
        """As the core does."""
        is_quiet = all(type(event) is ev.Received and type(event.message) in QUIET for event in events)
        effects = super().handle(events, now)
        if not self._world.skips(is_quiet):
            check_scheduler(self._world, self, self._mirror)
        for effect in effects:
            if isinstance(effect, ev.Log) and "goes on without" in effect.text:
                self._world.losses += 1
            if isinstance(effect, ev.Send):
                self._world.note("scheduler", (effect.number, effect.message))
        return effects


class Server(Process):
    """A scheduler; `start_store` starts the store beside it."""

    def __init__(
        self,
        world: World,
        network: Network,
        limits: Limits,
        start_store: Callable[[], None] = lambda: None,
        heartbeat: float = HEARTBEAT_INTERVAL,
    ) -> None:
        super().__init__(world, "scheduler")
        self._network = network
        self._start_store = start_store
        self._heartbeat = heartbeat
        self.core = CheckedCore(world, limits)
        epoch = epoch_of(0, world.random.getrandbits(63))
        terms = Terms(
            epoch, PROTOCOL_VERSION, limits.protected, heartbeat, limits.client_timeout, limits.agent_timeout, 1 << 30,
            UNREAD if epoch & 2 else UNREAD_BYTES,
        )  # fmt: skip
        first = LOCAL_AGENT + 1 + world.random.randrange(BEGINNINGS) * NUMBERS
        self._composition = Composition(self.core, Acceptor(terms, LOCAL_AGENT, first))
        self.local: Host | None = None
        self._hosted: LocalAgentShell | None = None
        self.keeper: Any = None
        network.server = self

    def keep_jobs(self, keeper: Any) -> None:
        """Have durable jobs beside the core."""
        self.keeper = keeper
        self._composition.lodge(keeper)
        self.post(TICK)

    def host_agent(self, host: Host) -> None:
        """Run an agent in this process, without a connection and a codec between."""
        self.local = host
        about = f"/store/{host.name}", "token", f"tcp://{host.name}:1"
        hello = hello_of("agent", "local", LOCAL_AGENT, host.core.state.workers.target, host.capabilities, about)
        self._hosted = LocalAgentShell(host)  # type: ignore[arg-type]
        self._composition.host(self._hosted, hello, self._heartbeat)
        self.post(TICK)

    def step(self, items: list[Any]) -> None:
        """Like `Server._step` of the shell."""
        for item in items:
            if item[0] == "frames":
                self._receive(item[1], item[2])
        for item in items:
            if item[0] == "closed":
                self._composition.disconnect(item[1], self.world.now)
            elif item[0] == "local":
                assert self.local is not None
                self.local.seen.append(item[1])
        if self._hosted is not None:
            self._hosted.gather()
        wish = None
        for wish in self._composition.settle(self.world.now, is_due=True):
            self.world.boundary("scheduler", self)
            self._carry_out(wish)
        if wish is not None:
            self.world.boundary("scheduler", self)

    def _receive(self, connection: int, frames: list[Any]) -> None:
        try:
            envelope = decoded(frames)
        except ProtocolError as error:
            self._composition.reject(connection, str(error), self.world.now)
        else:
            self._composition.receive(connection, envelope, self.world.now)

    def _carry_out(self, wish: Outgoing | Disconnect | ev.Effect) -> None:
        if isinstance(wish, Outgoing):
            connection = self._network.connections.get(wish.connection)
            if connection is not None and connection.number == wish.connection:
                connection.down(self._network.encoded(wish.message, wish.seq, wish.ack))
                if wish.last:
                    connection.close_by_server()
        elif isinstance(wish, Disconnect):
            connection = self._network.connections.get(wish.connection)
            if connection is not None and connection.number == wish.connection:
                connection.close_by_server()
        elif isinstance(wish, ev.WakeAt):
            self.wake_at(wish.when)
        elif isinstance(wish, ev.Log):
            self.world.note(self.name, wish.text)
        elif isinstance(wish, ev.Publish):
            snapshot = Snapshot(wish.number, [encode_view(wish.view), wish.workers])
            for outgoing in [self._composition.send(number, snapshot) for number in wish.monitors]:
                if outgoing is not None:
                    self._carry_out(outgoing)
        elif isinstance(wish, ev.StartStore):
            self.world.after(0.1, self._start_store)

    def die(self) -> None:
        """With it goes its own agent."""
        super().die()
        self._network.all_close()
        self._network.server = None
        if self.keeper is not None:
            self.keeper.close()
        if self.local is not None:
            self.local.die()
