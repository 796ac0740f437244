"""A host of the simulation: the real AgentCore, simulated workers and store, and a line if it needs one."""

import math
from typing import Any

from scaler.agent.core import events as ev
from scaler.agent.core.agent_core import AgentCore
from scaler.agent.core.leaving import may_be_missed
from scaler.agent.state.memory import AgentLimits
from scaler.protocol.hello import hello_of
from scaler.protocol.initiator import Established
from scaler.protocol.messages import BalanceResponse, Message, ObjectFetch, Task, TaskRunning
from scaler.worker_protocol import messages as wm
from simulator.checks import check_agent, require
from simulator.network import QUIET, Line
from simulator.returns import Returns, rows_at_workers
from simulator.stores import SimStore
from simulator.workers import SimWorker
from simulator.world import TICK, Process

#: what a core is told when nothing else has happened
TIME_PASSED = (ev.Tick(),)


class Host(Process):
    """See the module's text. `cluster` is the run it belongs to."""

    #: as the shell of an agent in the scheduler's process has it; here an agent wakes by itself
    wake: float | None = None

    def __init__(
        self,
        cluster: Any,
        name: str,
        workers: int,
        capabilities: tuple[str, ...],
        kind: str | None,
        role: str = "agent",
        walltime: float = math.inf,
    ) -> None:
        super().__init__(cluster.world, name)
        self.cluster = cluster
        #: as which its boundaries count: "agent" or "store"
        self.role = role
        self.capabilities = capabilities
        total = self.world.random.choice((20_000_000, 100_000_000, 1 << 40))
        if "memory" in cluster.mix.without:
            total = 1 << 40
        #: bytes of values that a worker may keep
        self.live_limit = self.world.random.choice((0, 1_000_000, 1 << 40))
        self.core = AgentCore(workers, AgentLimits(total), strict=True, may_return=kind is not None)
        self._returns = Returns()
        #: rows that workers had when it last began anew: nobody wants them any more
        self._stale: set[tuple[int, int, int]] = set()
        self.store = SimStore(self)
        self.workers: dict[int, SimWorker] = {}
        #: (client, batch, row) of all that its workers have ever begun
        self.begun: set[tuple[int, int, int]] = set()
        #: chance that a worker ends while it starts
        self.bad_starts = 0.0
        self._timer_wish: float | None = None
        #: it got SIGTERM, and has not ended
        self._is_announced = False
        #: of a local cluster: what happened in it since the last `gather`
        self.seen: list[Any] = []
        #: when its batch system ends it
        self._ends = self.world.now + walltime
        if cluster.mix.stop_worker:
            self.world.after(0.1, self.sample)
        self.kind = kind
        self.line = None
        if kind is not None:
            about = f"/store/{name}", "token", f"tcp://{name}:1"
            self.line = Line(self, cluster.network, kind, name, hello_of(role, name, 0, workers, capabilities, about))
            self._wish(self.world.now + 1.0)
            if walltime < math.inf:
                self.tell(ev.Limited(self._ends, walltime / 4))
                self.world.after(walltime + 0.2, self._is_ended)

    def before_hello(self, line: Line) -> None:
        """What is said of it may have changed since the last time."""
        if self._ends < math.inf:
            line.introduce(walltime=max(1, round(1000 * (self._ends - self.world.now))))
        line.introduce(leaving=int(self.core.state.departure.reason))

    def announce(self, grace: float) -> None:
        """SIGTERM, and SIGKILL later."""
        self.world.note(self.name, f"SIGTERM, {grace} s")
        self._is_announced = True
        self.tell(ev.Leave(grace))
        self.world.after(grace + 0.2, self._is_ended)

    def _is_ended(self) -> None:
        """SIGKILL of its batch system."""
        if self.alive:
            self.die()
            self._replace()

    def _replace(self) -> None:
        if self in self.cluster.hosts:
            self.cluster.hosts.remove(self)
            target = self.core.state.workers.target
            self.world.after(self.world.random.uniform(0, 3), self.cluster.add_host, target, self.capabilities)

    def _leaves(self) -> None:
        if self.alive and not self.stopped:
            self.world.note(self.name, "ends in order")
            self.leave()
            self._replace()
        elif self.alive:
            self.world.after(0.5, self._leaves)

    # ---- events ----------------------------------------------------------------------------------------------------
    @property
    def number(self) -> int:
        """The scheduler's number for it; 0 before it has one."""
        if self.line is None:
            return 1
        welcome = self.line.welcome
        return welcome.number if welcome is not None else 0

    def tell(self, event: Any) -> None:
        """Something happened in this process; its core hears of it soon."""
        if self.line is None:
            self.cluster.server.post(("local", event))
        else:
            self.post(("worker", event))

    def step(self, items: list[Any]) -> None:
        """Like `Daemon._step` of the shell."""
        assert self.line is not None
        events: list[Any] = []
        for heard in self.line.receive(items):
            if isinstance(heard, Established):
                if not (heard.resumed or heard.returned):
                    self._stale = {row for here in rows_at_workers(self.core.state) for row in here}
                events.append(ev.Welcomed(heard.resumed, self.cluster.heartbeat, heard.welcome.number, heard.returned))
            else:
                events += self.heard(heard)
        events += [item[1] for item in items if item[0] == "worker"]
        world = self.world
        said = self.handle(events, world.now)
        if said:
            for message in said:
                world.boundary(self.role, self)
                self.line.send(message)
            world.boundary(self.role, self)
        if self._is_announced and self._is_lonely:
            self._is_announced = False
            world.after(1e-4, self._leaves)
        if self._timer_wish is None:
            self._wish(world.now + 1.0)

    @property
    def _is_lonely(self) -> bool:
        """Like that of the daemon: there is nobody to drain to, and no need."""
        line = self.line
        if line.is_open:
            return False
        return line.welcome is None or not (may_be_missed(self.core.state) or line.has_unsaid(BalanceResponse))

    def heard(self, message: Any) -> list[Any]:
        """Like that of the shell: what its core is told when the scheduler has said something."""
        if type(message) in QUIET:
            return [ev.FromScheduler(message)]
        if type(message) is Task and self.cluster.journals is not None:
            for lo, hi in zip(message.spans[::2], message.spans[1::2], strict=True):
                rows = {(message.client, message.batch, row) for row in range(lo, hi)}
                new = rows - self._stale
                twice = [here & new for here in rows_at_workers(self.core.state) if here & new]
                require(not twice, f"{self.name} is given rows that it has: {twice}", f"batch={message.batch}")
        keys = zip(message.clients, message.ids, strict=True) if type(message) is ObjectFetch else ()
        return [*(ev.FileMissing(key) for key in keys if self.store.find(key) is None), ev.FromScheduler(message)]

    def gather(self) -> list[Any]:
        """What happened here since the last time."""
        seen, self.seen = self.seen, []
        return seen

    def handle(self, events: list[Any], now: float) -> list[Message]:
        """Let the core decide, carry out what it wants; what it says to the scheduler."""
        world = self.world
        said: list[Message] = []
        if self.store.written:
            self.store.sweep()
        self._returns.note(self.core.state, events)
        effects = self.core.handle(events or TIME_PASSED, now)
        is_quiet = True
        for event in events:
            if type(event) is not ev.FromScheduler or type(event.message) not in QUIET:
                is_quiet = False
                break
        if not world.skips(is_quiet):
            check_agent(world, self.name, self.core, self._returns)
        for effect in effects:
            if type(effect) is ev.ToScheduler:
                if type(effect.message) is TaskRunning:
                    self._check_running(effect.message)
                said.append(effect.message)
                continue
            world.boundary(self.role, self)
            if type(effect) is ev.WakeAt:  # the most frequent one
                self._wish(effect.when)
                continue
            if isinstance(effect, ev.ToWorker):
                worker = self.workers.get(effect.slot)
                if worker is not None:
                    worker.tell(effect.message, effect.control)
            elif isinstance(effect, ev.StartWorker):
                self._start(effect.slot)
            elif isinstance(effect, ev.KillWorker):
                worker = self.workers.get(effect.slot)
                self.world.note(self.name, f"kills worker {effect.slot}")
                self.world.kills += 1
                if worker is not None:
                    self.world.after(self.world.random.uniform(1e-5, 1e-3), self._killed, worker)
            elif isinstance(effect, ev.LookAt):
                worker = self.workers.get(effect.slot)
                self.tell(ev.Looked(effect.slot, worker.begun if worker is not None else (0, -1)))
            elif isinstance(effect, ev.Revoke):
                world.note(self.name, f"revokes dispatches of worker {effect.slot} up to {effect.dispatch}")
                world.revoked["asked"] += 1
                worker = self.workers.get(effect.slot)
                if worker is not None:
                    worker.revoked = effect.dispatch
            elif isinstance(effect, ev.Stop):
                self.world.kills += self.core.state.departure.is_over  # whatever it has is lost
                self.world.after(1e-4, self._leaves)
            elif isinstance(effect, ev.Log):
                self.world.note(self.name, effect.text)
            else:
                self.store.carry_out(effect)
        if len(effects) > len(said):
            world.boundary(self.role, self)
        return said

    def _check_running(self, message: TaskRunning) -> None:
        """No cancellation is refused for a row that has not begun."""
        for client, batch, lo, hi in message:
            for row in range(lo, hi):
                is_true = (client, batch, row) in self.begun
                require(is_true, f"{self.name}: row {batch + row} of client {client} has not begun, and is said to run")

    def sample(self) -> None:
        """Look at what the workers are at, as the shell does ten times a second."""
        if self.alive:
            if not self.stopped:
                self.tell(ev.Sampled({}, reached={slot: worker.begun[0] for slot, worker in self.workers.items()}))
            self.world.after(0.1, self.sample)

    def _wish(self, when: float) -> None:
        self._timer_wish = when
        self.world.after(max(when - self.world.now, 1e-6), self._wished, when)

    def _wished(self, when: float) -> None:
        if self._timer_wish == when and self.alive:
            self._timer_wish = None
            if self.line is None:
                self.cluster.server.post(TICK)
            else:
                self.post(TICK)

    def check_slots(self) -> None:
        """Rows that take several slots and those beside them fit into the host."""
        taken = [worker.slots for worker in self.workers.values() if worker.alive and worker.slots]
        slots = self.core.state.workers.target
        fits = max(taken) == 1 or sum(taken) <= slots
        require(fits, f"{self.name}: rows that run take {taken} of {slots} slots")

    # ---- workers ---------------------------------------------------------------------------------------------------
    def _start(self, slot: int) -> None:
        assert slot not in self.workers, "two workers in one slot"
        worker = self.workers[slot] = SimWorker(self, slot, self.world.next_id())
        if self.world.random.random() < self.bad_starts:
            self.world.after(0.001, worker.die, 1 << 8)
        else:
            self.world.after(self.world.random.uniform(0.001, 0.03), self._ready, worker)

    def _ready(self, worker: SimWorker) -> None:
        if worker.alive:
            self.from_worker(worker, wm.Ready(worker.pid))

    @staticmethod
    def _killed(worker: SimWorker) -> None:
        if worker.current is not None and worker.alive:
            worker.current[2].deaths -= 1  # it is told why: not one that was lost
        worker.die(9)

    def from_worker(self, worker: SimWorker, message: wm.FromWorker) -> None:
        """A worker said something."""
        if self.alive and self.workers.get(worker.slot) is worker:
            self.world.after(30e-6, self._hear, worker, message)

    def _hear(self, worker: SimWorker, message: wm.FromWorker) -> None:
        if self.alive:
            self.tell(ev.FromWorker(worker.slot, message))

    def worker_ended(self, worker: SimWorker, status: int) -> None:
        """What it said before comes first."""
        self.world.after(60e-6, self._reap, worker, status)

    def _reap(self, worker: SimWorker, status: int) -> None:
        if self.alive and self.workers.get(worker.slot) is worker:
            del self.workers[worker.slot]
            self.tell(ev.WorkerExited(worker.slot, worker.pid, status, worker.begun, claimed=worker.claimed))

    def die(self) -> None:
        """With it go its workers."""
        if not self.alive:
            return
        super().die()
        self.world.deaths += 1
        self.world.kills += any(worker.current is not None for worker in self.workers.values())
        self.store.die()
        for worker in list(self.workers.values()):
            worker.die(9)
        if self.line is not None:
            self.line.close()

    def leave(self) -> None:
        """An orderly end."""
        if self.line is not None and self.line.is_open and not self.stopped:
            for effect in self.core.leave():
                if isinstance(effect, ev.ToScheduler):
                    self.line.send(effect.message)
        self.die()
