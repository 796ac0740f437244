"""A scheduler's process: the real Acceptor and SchedulerCore, and in a local cluster also an agent, as in its shell."""

from collections.abc import Callable
from typing import Any

from scaler.errors import ProtocolError
from scaler.protocol.acceptor import Acceptor, Outgoing, Terms
from scaler.protocol.codec import decode, encode
from scaler.protocol.hello import PYTHON, hello_of, packages
from scaler.protocol.messages import PROTOCOL_VERSION, Message
from scaler.scheduler.core import events as ev
from scaler.scheduler.core.core import Limits, SchedulerCore
from simulator.checks import check_scheduler
from simulator.hosts import Host
from simulator.network import Network
from simulator.world import TICK, Process, World

LOCAL = 1


class Server(Process):
    """See the module's text."""

    def __init__(
        self, world: World, network: Network, limits: Limits, start_store: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(world, "scheduler")
        self._network = network
        self._start_store = start_store
        self.core = SchedulerCore(limits)
        terms = Terms(
            world.random.getrandbits(63) | 1, PROTOCOL_VERSION, PYTHON, packages(), limits.protected, 1.0,
            min(limits.client_timeout, limits.agent_timeout), 1 << 30,
        )  # fmt: skip
        self.acceptor = Acceptor(terms, first_number=LOCAL + 1)
        self.local: Host | None = None
        self._events: list[ev.Event] = []
        self._local_events: list[Any] = []
        network.server = self

    def host_agent(self, host: Host) -> None:
        """Run an agent in this process, without a connection and a codec between."""
        self.local = host
        about = f"/store/{host.name}", "token", f"tcp://{host.name}:1"
        self._events.append(
            ev.Joined(LOCAL, hello_of("agent", "local", LOCAL, host.core.target, host.capabilities, about))
        )
        self._local_events.append(host.welcomed_event(False))
        self.post(TICK)

    def step(self, items: list[Any]) -> None:
        """Like `Server._step` of the shell."""
        now = self.world.now
        for item in items:
            if item[0] == "frames":
                self._frames(item[1], item[2])
        for item in items:
            if item[0] == "closed":
                self._events += self.acceptor.disconnect(item[1])
            elif item[0] == "local":
                self._local_events.append(item[1])
        outgoing, self.acceptor.outgoing = self.acceptor.outgoing, []
        for out in outgoing:
            self._send(out)
        first = True
        while first or self._events or self._local_events:
            if self._events or first:
                events, self._events = self._events, []
                effects = self.core.handle(events, now)
                check_scheduler(self.world, self.core)
                self._carry_out(effects)
            if self.local is not None and (self._local_events or first):
                local, self._local_events = self._local_events, []
                self._events += [ev.Received(LOCAL, message) for message in self.local.handle(local)]
            first = False

    def _frames(self, connection: int, frames: list[Any]) -> None:
        try:
            envelope = decode(frames)
        except ProtocolError as error:
            self._events += self.acceptor.reject(connection, str(error))
        else:
            self._events += self.acceptor.receive(connection, envelope, self.core.workers)

    def _send(self, out: Outgoing) -> None:
        connection = self._network.connections.get(out.connection)
        if connection is not None and connection.number == out.connection:
            connection.down(encode(out.message, out.seq, out.ack))
            if out.last:
                connection.close_by_server()

    def _carry_out(self, effects: list[ev.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ev.Send):
                self._deliver(effect.number, effect.message)
            elif isinstance(effect, ev.WakeAt):
                self.wake_at(effect.when)
            elif isinstance(effect, ev.Log):
                self.world.note(self.name, effect.text)
                self.world.losses += effect.text.startswith("agent") and "is gone" in effect.text
            elif isinstance(effect, ev.StartStore):
                self.world.after(0.1, self._start_store)
            elif isinstance(effect, ev.Forget):
                number = self.acceptor.forget(effect.number)
                connection = self._network.connections.get(number) if number is not None else None
                if connection is not None and connection.number == number:
                    connection.close_by_server()

    def _deliver(self, number: int, message: Message) -> None:
        self.world.note(self.name, (number, message))
        if number == LOCAL and self.local is not None:
            self._local_events.append(self.local.scheduler_event(message))
            return
        out = self.acceptor.send(number, message)
        if out is not None:
            self._send(out)

    def die(self) -> None:
        """With it goes its own agent."""
        super().die()
        self._network.all_close()
        self._network.server = None
        if self.local is not None:
            self.local.die()
