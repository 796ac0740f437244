"""A scheduler's process: the real Composition with its acceptor and core, and in a local cluster also an agent."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from scaler.cluster.local_agent import LocalAgentShell
from scaler.defaults import HEARTBEAT_INTERVAL
from scaler.errors import ProtocolError
from scaler.journal.directory import Locked
from scaler.protocol.acceptor import UNREAD_BYTES, Acceptor, Outgoing, Terms
from scaler.protocol.channel import Envelope
from scaler.protocol.hello import BEGINNINGS, NUMBERS, epoch_of, hello_of
from scaler.protocol.messages import PROTOCOL_VERSION, BalanceRequest, PartnerReport, Snapshot, Task
from scaler.protocol.views import encode_view
from scaler.scheduler.composition import LOCAL_AGENT, RETURN, Composition, Disconnect, Wish
from scaler.scheduler.copies.copies import Copies
from scaler.scheduler.copies.opening import Opening
from scaler.scheduler.core import events as ev
from scaler.scheduler.core.scheduler_core import Limits, SchedulerCore
from scaler.scheduler.durable_jobs import DurableJobs
from scaler.scheduler.jobs.jobs_core import JobTerms
from scaler.scheduler.jobs.keeper import JobKeeper
from scaler.scheduler.pairing import AboutJournals
from scaler.scheduler.state.cluster_facts import Fact, PeerLeft
from scaler.scheduler.succession import KeepJobs, StepDown, Succession, Tell
from simulator.bad_reads import SparedKeeper
from simulator.checks import check_scheduler, require
from simulator.hosts import Host
from simulator.journals import Journals, SimFollower, SimJournal, SimOpener
from simulator.mirror import Mirror
from simulator.network import QUIET, Network, decoded
from simulator.pair import Pair, PartnerLine
from simulator.recalls import check_request, note_answers
from simulator.shared_files import SimFiles
from simulator.world import TICK, Process, World

#: makes files for large results at a site, which are told of by a wakeup
FilesOf = Callable[[int, Callable[[], None], int], SimFiles]
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

    def _observe(self, now: float, facts: Sequence[Fact]) -> None:
        self._world.losses += sum(isinstance(fact, PeerLeft) and fact.role != "client" for fact in facts)

    def handle(self, events: Any, now: float) -> list[ev.Effect]:
        """As the core does."""
        is_quiet = True
        for event in events:
            if type(event) is not ev.Received or type(event.message) not in QUIET:
                is_quiet = False
                break
        if not is_quiet:
            note_answers(self._world, self.state, events)
        effects = super().handle(events, now)
        require(self.state.kept <= self._limits.kept_bytes, "more is kept than may be")
        if not self._world.skips(is_quiet):
            check_scheduler(self._world, self, self._mirror)
        for effect in effects:
            if type(effect) is ev.Send:
                self._world.note("scheduler", (effect.number, effect.message))
                if type(effect.message) is BalanceRequest:
                    check_request(self._world, self.state, effect.number, effect.message)
            elif type(effect) is ev.Log and "goes on without" in effect.text:
                self._world.losses += 1
        return effects


class SimLoop:
    """What a loop is to those who wait for the disk: bells that are rung in this process."""

    def __init__(self, server: Process) -> None:
        self._server = server
        self._watched: dict[int, object] = {}
        self.ready: dict[object, None] = {}

    def new_wakeup(self) -> int:
        """Another one; as the number of a descriptor."""
        return self._server.world.next_id()

    def ring(self, wakeup: int) -> None:
        """From elsewhere: something is done."""
        self._server.post(("wakeup", wakeup))

    def heard(self, wakeup: int) -> None:
        """A wakeup came."""
        if wakeup in self._watched:
            self.ready[self._watched[wakeup]] = None

    def watch(self, fd: int, source: object) -> None:
        """As the real one; what came before is heard, too."""
        self._watched[fd] = source
        self.ring(fd)

    def forget(self, fd: int) -> None:
        """As the real one."""
        self._watched.pop(fd, None)


class Server(Process):
    """A scheduler; `start_store` starts the store beside it."""

    def __init__(
        self,
        world: World,
        network: Network,
        limits: Limits,
        start_store: Callable[[], None] = lambda: None,
        heartbeat: float = HEARTBEAT_INTERVAL,
        site: int = 0,
        pair: Pair | None = None,
        succession: Succession | None = None,
        on_step_down: Callable[[int, Succession | None], None] | None = None,
    ) -> None:
        """With `succession` it is at a `site` of a `pair`."""
        super().__init__(world, f"scheduler-{site}" if pair else "scheduler")
        self.site = site
        self._pair = pair
        self.succession = succession
        self._network = network
        self._start_store = start_store
        self._heartbeat = heartbeat
        self.core = CheckedCore(world, limits)
        epoch = epoch_of(0, world.random.getrandbits(63)) if succession is None else succession.epoch
        terms = Terms(
            epoch, PROTOCOL_VERSION, limits.protected, heartbeat, limits.client_timeout, limits.agent_timeout, 1 << 30,
            UNREAD if epoch & 2 else UNREAD_BYTES, 0 if succession is None else succession.roster,
        )  # fmt: skip
        first = LOCAL_AGENT + 1 + world.random.randrange(BEGINNINGS) * NUMBERS
        self._composition = Composition(self.core, Acceptor(terms, LOCAL_AGENT, first), succession)
        self._partner = None if succession is None else PartnerLine(self, network, site)
        if pair is not None:
            pair.servers[site] = self
            self._pulse()
        self.local: Host | None = None
        self._hosted: LocalAgentShell | None = None
        self.keeper: Any = None
        #: of one of a pair that keeps durable jobs: its directory, files for large results, and who keeps them
        self._journals: Journals | None = None
        self._files: FilesOf | None = None
        self._copies: Copies | None = None
        self.keeping: DurableJobs | None = None
        self.loop = SimLoop(self)
        #: journals and copies that are closed when it is killed
        self.opened: list[SimJournal | SimFollower] = []
        self._looks_at = math.inf
        #: what makes it anew when it steps down
        self._on_step_down = on_step_down
        network.servers[site] = self
        #: some agent listens there
        self.is_listening: Callable[[str], bool] = lambda whereabouts: True
        #: is told of rows that are handed out: by whom, to whom, and what is said
        self.on_task: Callable[[Server, Process, Task], None] | None = None

    def _pulse(self) -> None:
        """The succession of a pair wakes its shell a few times a second."""
        if self.alive:
            self.post(TICK)
            self.world.after(0.25, self._pulse)

    def keep_jobs(self, keeper: Any) -> None:
        """Have durable jobs beside the core."""
        self.keeper = keeper
        self._composition.lodge(keeper)
        self.post(TICK)

    # ---- what keeps jobs asks for (`Shell`) ------------------------------------------------------------------------
    def begin_keeping(self, journals: Journals, files: FilesOf | None) -> None:
        """Keep durable jobs, or a copy of them. Raises `JournalError`."""
        assert self.succession is not None
        self._journals, self._files = journals, files
        with journals.worked_by(self):
            self._copies = Copies(
                journals.of(self.site), self.succession, partial(SimJournal, self, journals),
                partial(SimFollower, self, journals),
            )  # fmt: skip
            jobs = None
            if self.succession.leads:
                opening = self._copies.begin(self.world.now, may_hold=True)
                try:
                    jobs = self.open_jobs(opening)
                except Locked:
                    if not self._copies.is_shared:
                        raise
                finally:
                    self._copies.opened(opening, self.world.now)
            assert self._partner is not None
            self._partner.composition = self._composition
            self.keeping = DurableJobs(
                self._composition,
                self,
                jobs,
                self._copies,
                self.succession,
                self._partner,  # type: ignore[arg-type]
            )

    def open_jobs(self, opening: Opening) -> JobKeeper | None:
        """Like `open_jobs` of the shell."""
        try:
            journal = opening.run()
            if journal is None:
                return None
            wakeup = self.loop.new_wakeup()
            files = None if self._files is None else self._files(self.site, lambda: self.loop.ring(wakeup), wakeup)
            bad_reads = journal._journal.bad_reads  # type: ignore[attr-defined]
            terms = JobTerms(1.0, 0.0, patience=10.0)
            self.keeper = SparedKeeper(bad_reads, journal, terms, files, lambda: not journal.has_partner)
        except BaseException:
            opening.discard()
            raise
        return self.keeper

    def new_opener(self) -> SimOpener:
        """Opens the journal, at once or later."""
        assert self._journals is not None
        return SimOpener(self, self._journals)

    #: of durable jobs, in words
    directories = "the journal"

    def log(self, level: str, text: str) -> None:
        """Add to the story; what is said of jobs that may be missing is remembered."""
        self.world.note(self.name, text)
        if self._pair is not None and "may be missing" in text:
            self._pair.warned = self.world.now
        if self._pair is not None and self._pair.on_lead is not None and "leads from now on" in text:
            self._pair.on_lead(self)

    def token_of(self, client: int) -> int | None:
        """The token of the durable job that is this client of the core."""
        job = self.keeper._core._table.by_client.get(client) if self.keeper is not None else None
        return None if job is None else job.token

    def _plan_wakes(self) -> None:
        """Jobs and copies want to be looked after some time."""
        assert self.keeping is not None
        assert self.succession is not None
        now = self.world.now
        wakes = *self.keeping.wakes, self.succession.wake
        require(all(each is None or each > now for each in wakes), f"{self.name}: due and not done: {wakes}", self.name)
        soonest = min((each for each in wakes if each is not None), default=math.inf)
        if soonest < math.inf and not now < self._looks_at <= soonest:
            self._looks_at = soonest
            self.world.after(soonest - now, self.post, TICK)

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
        if self._journals is None:
            self._step(items)
            return
        with self._journals.worked_by(self):
            self._step(items)

    def _step(self, items: list[Any]) -> None:
        if self._partner is not None and self.succession is not None:
            reports, is_lost = self._partner.receive(items)
            for said in reports:
                if isinstance(said, PartnerReport):
                    self.succession.hear_partner(said, self.world.now)
                else:
                    self._partner.said.append(said)
            if is_lost:
                self.succession.lose_partner(self.world.now, said_goodbye=False)
            if self.succession.seeks(self.world.now):
                self._partner.dial()
        others = []
        for item in items:
            if item[0] != "frames":
                others.append(item)
            elif isinstance(item[1], int):
                self._receive(item[1], item[2])
        for item in others:
            if item[0] == "closed":
                self._composition.disconnect(item[1], self.world.now)
            elif item[0] == "parted":
                self._composition.part(item[1], self.world.now)
                self.world.after(RETURN + 1e-6, self.post, TICK)
            elif item[0] == "local":
                assert self.local is not None
                self.local.seen.append(item[1])
            elif item[0] == "wakeup":
                self.loop.heard(item[1])
        if self.keeping is not None:
            self.keeping.attend(self.world.now)
        if self._hosted is not None:
            self._hosted.gather()
        world, wish = self.world, None
        for wish in self._composition.settle(world.now, is_due=True):
            world.boundary("scheduler", self)
            self._carry_out(wish)
        if wish is not None:
            world.boundary("scheduler", self)
        if self._composition.has_more:
            self.post(TICK)
        if self._pair is not None:
            self._pair.check(self.site)
        if self.keeping is not None:
            self._plan_wakes()

    def _receive(self, connection: int, frames: list[Any]) -> None:
        try:
            envelope = decoded(frames)
        except ProtocolError as error:
            self._composition.reject(connection, str(error), self.world.now)
        else:
            self._composition.receive(connection, envelope, self.world.now)

    def send(self, outgoing: Outgoing) -> None:
        """Send a message over its connection."""
        if self._pair is not None and isinstance(outgoing.message, AboutJournals):
            self.world.note(self.name, outgoing.message)
        connection = self._network.connections.get(outgoing.connection)
        if connection is not None and connection.number == outgoing.connection:
            if self.on_task is not None and isinstance(outgoing.message, Task):
                self.on_task(self, connection.process, outgoing.message)
            _, seq, ack, message, last = outgoing
            connection.down(self._network.encoded(Envelope(seq, ack, message)))
            if last:
                connection.close_by_server()

    def _carry_out(self, wish: Wish) -> None:
        if isinstance(wish, Outgoing):
            self.send(wish)
        elif isinstance(wish, Disconnect):
            connection = self._network.connections.get(wish.connection)
            if connection is not None and connection.number == wish.connection:
                connection.close_by_server()
        elif isinstance(wish, ev.WakeAt):
            self.wake_at(wish.when)
        elif isinstance(wish, ev.Log):
            self.log(wish.level, wish.text)
        elif isinstance(wish, KeepJobs) and self.keeping is not None:
            self.keeping.keep(wish.here, self.world.now, wish.asks)
        elif isinstance(wish, ev.Publish):
            snapshot = Snapshot(wish.number, [encode_view(wish.view), wish.workers])
            for outgoing in [self._composition.send(number, snapshot) for number in wish.monitors]:
                if outgoing is not None:
                    self._carry_out(outgoing)
        elif isinstance(wish, ev.LookFor):
            self.world.after(self.world.habits.uniform(0.001, 0.5), self._look_for, wish.agents)
        elif isinstance(wish, ev.StartStore):
            self.world.after(0.1, self._start_store)
        elif isinstance(wish, Tell):
            assert self._partner is not None
            self._partner.send(wish.report)
            self._composition.pairing.tell(wish.report)
        elif isinstance(wish, StepDown):
            self.world.after(0.0, self._step_down)

    def _look_for(self, agents: list[tuple[int, str]]) -> None:
        """A host whose process has ended refuses connections, unless it is gone as a whole: then nobody answers."""
        for number, whereabouts in agents:
            if self.alive and not self.is_listening(whereabouts) and self.world.habits.random() < 0.7:
                self.world.vanished += 1
                self._composition.miss(number, whereabouts)
                self.post(TICK)

    def _step_down(self) -> None:
        """Everything is made anew, but for the succession."""
        if self.alive and self._on_step_down is not None:
            self.end(says_goodbye=False)
            self.world.after(0.05, self._on_step_down, self.site, self.succession)

    def end(self, says_goodbye: bool = True) -> None:
        """An orderly end."""
        if self.alive and self.keeping is not None:
            self.keeping.close()
        if self.alive and self._partner is not None:
            self._partner.close(says_goodbye)
        self.die()

    def die(self) -> None:
        """With it goes its own agent."""
        super().die()
        for each in self.opened:
            each.kill()
        self._network.all_close(self.site)
        if self._partner is not None:
            self._partner.close()
        if self._network.servers.get(self.site) is self:
            del self._network.servers[self.site]
        if self.keeper is not None and self.keeping is None:
            self.keeper.close()
        if self.local is not None:
            self.local.die()
