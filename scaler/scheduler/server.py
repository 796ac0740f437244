"""The scheduler's process: sockets, time and the log around what `composition.py` decides."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING, cast

from scaler.common.attempts import Attempts
from scaler.common.findings import InvalidState
from scaler.common.host_memory import available_memory
from scaler.common.later_modules import LaterModules
from scaler.common.long_lived import HeapTrim, collect_rarely
from scaler.common.loop import Ending, ignore_ending_signals, make_loop
from scaler.common.process_limits import lack_of_descriptors
from scaler.common.unexpected_end import tell_end
from scaler.config import SchedulerConfig
from scaler.errors import AddressError, AddressInUse, ObjectTooLarge, ProtocolError, ScalerError
from scaler.protocol.acceptor import UNREAD_BYTES, UNREAD_OF_ALL, Acceptor, Outgoing, Terms, TurnedAway
from scaler.protocol.codec import decode, encode
from scaler.protocol.codes import Role
from scaler.protocol.hello import epoch_of, first_number, new_number
from scaler.protocol.messages import PROTOCOL_VERSION, Hello, Welcome
from scaler.protocol.unsendable import OF_TASKS, send_instead
from scaler.scheduler.composition import LOCAL_AGENT, Composition, Disconnect, LocalAgent, Wish
from scaler.scheduler.core import crowding
from scaler.scheduler.core import events as ev
from scaler.scheduler.core.scheduler_core import Limits, SchedulerCore
from scaler.scheduler.later import LATER, OF_PAIRS, modules_of
from scaler.scheduler.pace import Pace
from scaler.scheduler.publishing import Publisher
from scaler.scheduler.standalone_store import StandaloneStoreProcess
from scaler.scheduler.succession_wishes import KeepJobs, StepDown, Tell
from scaler.transport import (
    FIRST_PEER,
    Address,
    Listener,
    MonitorListener,
    Security,
    SocketFile,
    exposure,
    listen,
    open_monitor_listener,
    security_of,
)
from scaler.version import __version__

if TYPE_CHECKING:
    from scaler.scheduler.copies.copies import Copies
    from scaler.scheduler.durable_jobs import DurableJobs
    from scaler.scheduler.jobs.keeper import JobKeeper
    from scaler.scheduler.jobs_opener import JobsOpener
    from scaler.scheduler.missing_agents import MissingAgents
    from scaler.scheduler.partner import Partner
    from scaler.scheduler.succession import Succession

logger = logging.getLogger("scaler.scheduler")

#: seconds without a row after which memory that is free is given back
HEAP_PAUSE = 0.25
#: seconds for which the address of a scheduler that has stepped down may be in use
REOPEN_SECONDS = 10.0
#: connections for which there is to be room: an agent and a client
FEWEST_CONNECTIONS = 2
#: descriptors that it opens when it serves, beside those
OWN_DESCRIPTORS = 6
#: what all clients and monitors leave unread may take this part of the memory that the scheduler may use, but at least
#: so many bytes: the rows of one that is slow wait before it is given up
UNREAD_PART, LEAST_UNREAD = 8, 2 * UNREAD_BYTES
#: characters of a line of the log that a stranger may fill
_LONGEST_WORDS = 300


class Server:
    """A scheduler that listens, and in a local cluster has this host's agent in its process."""

    def __init__(
        self,
        config: SchedulerConfig,
        listener: Listener,
        security: Security,
        monitor_listener: MonitorListener | None = None,
        jobs: JobKeeper | None = None,
        succession: Succession | None = None,
        copies: Copies | None = None,
    ) -> None:
        """`monitor_listener` is for monitors of this machine; those of others come to `listener`, as everybody does.

        `jobs` are durable, and `close` ends what they are written by. With `succession` this may be one of a pair,
        with `copies` of their journal.
        """
        self._listener = listener
        self._monitor_listener = monitor_listener
        self._listeners = (listener,) if monitor_listener is None else (listener, monitor_listener)
        self._standalone_store = StandaloneStoreProcess(
            listener.address, config.standalone_store_port, security, config.max_message_bytes, config.log_level
        )
        memory = available_memory()
        limits = Limits(
            config.client_timeout, config.agent_timeout, config.retries_on_loss, config.protected,
            config.max_message_bytes, memory // crowding.PART,
        )  # fmt: skip
        self._core = SchedulerCore(limits)
        self._succession = succession
        epoch = epoch_of(0, new_number()) if succession is None else succession.epoch
        self._unread_of_all = max(LEAST_UNREAD, min(UNREAD_OF_ALL, memory // UNREAD_PART))
        terms = Terms(
            epoch, PROTOCOL_VERSION, config.protected,
            config.heartbeat_interval, config.client_timeout, config.agent_timeout, config.max_message_bytes,
            roster=0 if succession is None else succession.roster,
            unread_of_all=self._unread_of_all,
        )  # fmt: skip
        core = _watched(self._core) if config.validate else self._core
        acceptor = Acceptor(terms, LOCAL_AGENT, first_number(LOCAL_AGENT))
        self._composition = Composition(core, acceptor, succession)
        self._publisher = Publisher(
            terms.epoch, listener.address.url, self._composition, succession, insecure=security.insecure
        )
        self._heartbeat = config.heartbeat_interval
        self._pace = Pace()
        #: bytes of the messages that this step has received
        self._taken = 0
        self.loop = make_loop(config.event_loop, self._step)
        for each in self._listeners:
            self.loop.watch(each.fileno(), each)
        self._config = config
        self._partner: Partner | None = None
        self._durable: DurableJobs | None = None
        if jobs is not None or succession is not None:
            self._keep_jobs(jobs, copies, succession, security)
        #: everything is to be made anew: this scheduler stands by from now on
        self.has_stepped_down = False
        self._agent: LocalAgent | None = None
        #: looks for agents that have not come from the last scheduler; None until it has to
        self._missing: MissingAgents | None = None
        paired = () if succession is None else (*OF_PAIRS, *modules_of(config))
        self._later = LaterModules((*LATER, *paired), time.monotonic())
        self._heap = HeapTrim(HEAP_PAUSE, math.inf)
        self._wake: float | None = None
        #: when the loop wakes up though nothing has happened, seconds
        self._planned = math.inf
        self._stopping = False
        self.loop.on_signal(signal.SIGUSR1, self._log_holdings)

    def _keep_jobs(
        self, jobs: JobKeeper | None, copies: Copies | None, succession: Succession | None, security: Security
    ) -> None:
        from scaler.scheduler.durable_jobs import DurableJobs  # here, as a local cluster has none of it
        from scaler.scheduler.partner import Partner

        if succession is not None:
            pairing, limit = self._composition.pairing, self._config.max_message_bytes
            assert pairing is not None
            self._partner = Partner(succession, pairing, security, limit, self.loop)
        self._durable = DurableJobs(self._composition, self, jobs, copies, succession, self._partner)

    # ---- what keeps jobs asks for (`durable_jobs.Shell`) -----------------------------------------------------------
    def new_opener(self) -> JobsOpener:
        """Opens the journal."""
        from scaler.scheduler.jobs_opener import JobsOpener, open_jobs

        return JobsOpener(partial(open_jobs, self._config))

    @property
    def directories(self) -> str:
        """Of durable jobs, in words."""
        results = "" if self._config.results is None else f", or {self._config.results} for large results,"
        return f"the journal {self._config.journal}{results}"

    def log(self, level: str, text: str) -> None:
        """Say something in the log."""
        logger.log(getattr(logging, level), "%s", text)

    def _log_holdings(self) -> None:
        """Say in a line what is here, and in another what is expected; asked for with `kill -USR1`."""
        state = self._core.state
        clients, agents = state.clients.values(), state.agents.values()
        logger.info(
            "Scheduler: holds %d clients, %d agents, %d rows, %d queued, %d at agents, %d objects; keeps %s",
            len(clients), len(agents), sum(client.outstanding for client in clients), state.queues.rows,
            sum(agent.load.rows for agent in agents), sum(len(client.values.objects) for client in clients),
            crowding.megabytes(state.kept),
        )  # fmt: skip
        known = [(each.duration_us, each.name) for client in clients for each in client.functions.values()]
        longest = nlargest(10, [(us, name) for us, name in known if us])
        functions = ", ".join(f"{name} {us / 1e3:,.3f} ms" for us, name in longest)
        bandwidth = f"{state.bandwidth / 1e6:,.0f}"
        logger.info("Scheduler: expects %s MB/s between hosts; of tasks: %s", bandwidth, functions or "nothing yet")
        if self._agent is not None:
            self._agent.log_holdings()

    def host_agent(self, agent: LocalAgent, hello: Hello, later: Sequence[str] = ()) -> None:
        """Run this host's agent here, which stands on this server's `loop` and would say this Hello.

        `later`: modules that it may need (see `LaterModules`).
        """
        self._agent = agent
        self._later = LaterModules((*LATER, *later), time.monotonic())
        self._composition.host(agent, hello, self._heartbeat)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address

    @property
    def monitor_address(self) -> SocketFile | None:
        """Where monitors of this machine connect; None: where everybody does."""
        return None if self._monitor_listener is None else self._monitor_listener.address

    def serve(self, program: socket.socket) -> None:
        """Tell a program at the other end of this socket where it listens, and serve until that closes it.

        One that is gone already has closed it.
        """
        self.loop.watch_with(program.fileno(), self.loop.stop)
        self.loop.on_signal(signal.SIGINT, lambda: None)
        monitor = self.monitor_address or self.address.for_client()
        with contextlib.suppress(OSError):  # of a program that is gone; the loop sees that it is
            program.sendall(json.dumps({"address": self.address.url, "monitor": monitor.url}).encode() + b"\n")
        collect_rarely()
        self.run()

    def run(self, ending: Ending | None = None) -> None:
        """Serve until stopped."""
        self.loop.soon()
        self.loop.run(self.close, ending)

    def close(self) -> None:
        """Remove and close what it has opened, as `run` does in the end. Blocks for a moment."""
        if not self.has_stepped_down:
            for outgoing in self._composition.say_farewell():
                self._send(outgoing)
        self._standalone_store.stop()
        if self._missing is not None:
            self._missing.close()
        if self._durable is not None:
            self._durable.close()
        if self._partner is not None:
            self._partner.close(says_goodbye=not self.has_stepped_down)
        if self._monitor_listener is not None:
            self._monitor_listener.close(0)
        self._listener.close(0.2)
        if self._agent is not None:
            self._agent.close()  # last: clients in its workers take leave, and need no answer where nobody listens

    def _step(self) -> None:
        now = time.monotonic()
        ready = self.loop.ready
        self._later.attend(now, is_busy=bool(ready))
        if self._partner is not None:
            self._partner.attend(now)
        for listener in self._listeners:
            if listener in ready:
                del ready[listener]
                self._receive(listener)
        if self._missing is not None and self._missing in ready:
            del ready[self._missing]
            for missing in self._missing.take():
                self._composition.miss(*missing)
        if self._durable is not None:
            self._durable.attend(now)
        agent = self._agent
        if agent is not None:
            agent.gather()
        due = now >= self._planned
        if due:
            for connection in self._listener.stirring(now):
                self._composition.stir(connection)
        for wish in self._composition.settle(now, due):
            if isinstance(wish, Outgoing):
                self._send(wish)
            else:
                self._carry_out(wish)
        if self._taken:
            self._note_pace(now)
        if self._composition.has_more:
            self.loop.soon()
        if self._stopping or (agent is not None and agent.stopped):
            self.loop.stop()
        is_idle = self._core.is_idle
        if agent is None and (due or is_idle is not self.loop.is_idle):  # one that is here does that itself
            self._heap.look(not is_idle and self._core.has_rows, now)
        wishes = [
            self._wake, self._composition.wake, None if agent is None else agent.wake, self._later.wake, self._heap.due,
        ]  # fmt: skip
        for listener in self._listeners:
            if listener.state.has_strangers:
                wishes.append(listener.tend(now))
                self._disconnect_gone(listener, now)
        if self._durable is not None:
            wishes += self._durable.wakes
        if self._succession is not None:
            wishes.append(self._succession.wake)
        self._plan(wishes, now, due)
        self.loop.is_idle = is_idle

    def _note_pace(self, began: float) -> None:
        """What was said has been dealt with: as much is taken the next time as others may wait for."""
        taken, self._taken = self._taken, 0
        if self._pace.note(taken, time.monotonic() - began):
            for listener in self._listeners:
                listener.state.pass_bytes = self._pace.bytes

    def _plan(self, wishes: list[float | None], now: float, due: bool) -> None:
        """Have the loop wake up at the first of these times; a later one than was planned may wait until that."""
        first = math.inf
        for wish in wishes:
            if wish is not None and now < wish < first:
                first = wish
        if first < self._planned or due:
            self._planned = first
            if first < math.inf:
                self.loop.wake_at(first)

    def _receive(self, listener: Listener | MonitorListener) -> None:
        now = time.monotonic()
        for connection, frames in listener.receive():
            self._taken += sum(map(len, frames))
            try:
                envelope = decode(frames)
            except ProtocolError as error:
                origin = listener.origin_of(connection)
                listener.state.notices.warn("a connection from %s sent bytes that are no message: %s", origin, error)
                self._composition.reject(connection, str(error), now)
            else:
                said = envelope.message
                if listener is self._monitor_listener and type(said) is Hello and said.role != Role.MONITOR:
                    self._composition.reject(connection, "only monitors connect here", now)
                else:
                    self._composition.receive(connection, envelope, now)
                    if type(said) is Hello:
                        listener.state.share_unsent(self._unread_of_all)
        if listener.state.swamped:
            self._disconnect_swamped(listener, now)
        if listener.state.gone:
            self._disconnect_gone(listener, now)

    def _disconnect_swamped(self, listener: Listener | MonitorListener, now: float) -> None:
        """Close connections over which much waits to be sent that their peers say they have read.

        What waits is gone then. An honest peer that was wronged comes back, and is sent what it has not acknowledged.
        """
        for connection, waiting in listener.state.take_swamped().items():
            if not self._composition.is_believed(connection, waiting):
                words = "a peer at %s says that it has read %d MB that wait for it: its connection is closed"
                listener.state.notices.warn(words, listener.origin_of(connection), waiting / 1e6)
                listener.disconnect(connection)
                self._composition.part(connection, now)

    def _disconnect_gone(self, listener: Listener | MonitorListener, now: float) -> None:
        for connection, is_over in listener.state.take_gone().items():
            if is_over:
                self._composition.disconnect(connection, now)
            else:
                self._composition.part(connection, now)

    def _listener_of(self, connection: int) -> Listener | MonitorListener:
        return self._listeners[0 if connection < FIRST_PEER else -1]

    def _send(self, outgoing: Outgoing) -> None:
        listener = self._listener_of(outgoing.connection)
        try:
            _send_by(listener, outgoing)
        except Exception as error:  # ObjectTooLarge, or a defect of ours, from which nobody else shall suffer
            if not self._send_instead(listener, outgoing, error):
                trace = None if isinstance(error, ObjectTooLarge) else error
                words = "a message for connection %d can't be sent: %s"
                logger.error(words, outgoing.connection, error, exc_info=trace)
                self._composition.disconnect(outgoing.connection, time.monotonic(), str(error))
        if outgoing.last:
            listener.disconnect(outgoing.connection)
        elif type(outgoing.message) is Welcome:
            listener.welcome(outgoing.connection)

    def _send_instead(self, listener: Listener | MonitorListener, outgoing: Outgoing, error: Exception) -> bool:
        """Send something in the place of what a task has made too large; False if that can't be."""
        if type(outgoing.message) not in OF_TASKS:
            return False
        try:
            words = send_instead(
                outgoing.message, error, lambda other: _send_by(listener, self._composition.replace(outgoing, other))
            )
        except Exception:  # it is the connection that is of no use
            return False
        logger.error("connection %d: %s", outgoing.connection, words)
        return True

    def _carry_out(self, wish: Wish) -> None:
        if isinstance(wish, Disconnect):
            self._listener_of(wish.connection).disconnect(wish.connection)
        elif isinstance(wish, TurnedAway):
            listener, who = self._listener_of(wish.connection), " ".join(f"{wish.role} {wish.name}".split())
            origin, why = listener.origin_of(wish.connection), wish.reason
            listener.state.notices.warn("refused %s from %s: %s", who[:_LONGEST_WORDS], origin, why[:_LONGEST_WORDS])
        elif isinstance(wish, ev.Publish):
            snapshot = self._publisher.complete(wish)
            for number in wish.monitors:
                outgoing = self._composition.send(number, snapshot)
                if outgoing is not None:
                    self._send(outgoing)
        elif isinstance(wish, ev.WakeAt):
            self._wake = wish.when
        elif isinstance(wish, ev.Log):
            logger.log(getattr(logging, wish.level), "%s", wish.text)
        elif isinstance(wish, ev.LookFor):
            if self._missing is None:
                from scaler.scheduler.missing_agents import MissingAgents  # here, as few schedulers look for any

                self._missing = MissingAgents()
                self.loop.watch(self._missing.fileno(), self._missing)
            self._missing.look_for(wish.agents)
        elif isinstance(wish, ev.StartStore):
            try:
                self._standalone_store.start()
            except OSError as error:
                logger.error("the standalone store can't be started: %s", error)
        elif isinstance(wish, Tell):
            assert self._partner is not None
            self._partner.report(wish.report)
        elif isinstance(wish, KeepJobs):
            assert self._durable is not None
            self._durable.keep(wish.here, time.monotonic(), wish.asks)
        elif isinstance(wish, StepDown):
            self._stopping = self.has_stepped_down = True
        elif isinstance(wish, ev.Stop):
            self._stopping = True


def _send_by(listener: Listener | MonitorListener, outgoing: Outgoing) -> None:
    listener.send(outgoing.connection, encode(outgoing.message, outgoing.seq, outgoing.ack))


def _watched(core: SchedulerCore) -> SchedulerCore:
    from scaler.common.validating import ValidatingCore  # here, as few want it and all would load it
    from scaler.scheduler.state.validate import validate

    return cast(SchedulerCore, ValidatingCore(core, validate))


def open_server(
    config: SchedulerConfig, security: Security, succession: Succession | None = None, ending: Ending | None = None
) -> Server:
    """A scheduler that listens, also for monitors of this machine, and has durable jobs if it keeps a journal.

    With `succession` it may be one of a pair. Blocks while the journal is read; `ending` begins when that is done, and
    before there is a file. Raises `ScalerError`s; nothing is open then.
    """
    listener = listen(config.address, security, max_message_bytes=config.max_message_bytes, awaits_welcome=True)
    monitor_listener = jobs = None
    try:
        if succession is not None:
            succession.address = _seen_by(succession.partner, listener.address)
        copies = None if succession is None or config.journal is None else _copies(config.journal, succession)
        jobs = _first_jobs(config, copies) if succession is None or succession.leads else None
        if ending is not None:
            ending.begin()
        monitor_listener = open_monitor_listener(config.monitor_address, listener.address, config.max_message_bytes)
        if lack := lack_of_descriptors(OWN_DESCRIPTORS + FEWEST_CONNECTIONS):
            raise ScalerError(f"nobody could connect: {lack}")
        return Server(config, listener, security, monitor_listener, jobs, succession, copies)
    except BaseException:
        if monitor_listener is not None:
            monitor_listener.close(0)
        if jobs is not None:
            jobs.close()
        listener.close(0)
        raise


def _first_jobs(config: SchedulerConfig, copies: Copies | None) -> JobKeeper | None:
    """Those of one that is started as one that leads; None, too, if its partner does, and has their journal."""
    if config.journal is None:
        return None
    from scaler.journal.directory import Locked  # here, as few want it and all would load it
    from scaler.scheduler.jobs_opener import open_jobs

    now = time.monotonic()
    opening = None if copies is None else copies.begin(now, may_hold=True)
    try:
        return open_jobs(config, opening)
    except Locked:
        if copies is None or not copies.is_shared:
            raise
        return None
    finally:
        if copies is not None and opening is not None:
            copies.opened(opening, now)


def _copies(journal: str, succession: Succession) -> Copies:
    from scaler.scheduler.copies.copies import Copies  # here, as few want it and all would load it

    return Copies(journal, succession)


def _succession_of(config: SchedulerConfig) -> Succession:
    """Who leads. Raises `AddressError` for another scheduler that can't be."""
    partner = config.standby_of
    if partner is not None and Address.parse(partner) == Address.parse(config.address):
        raise AddressError(f"{partner} is this scheduler itself: --standby-of names the other one of a pair")
    if partner is not None and not Address.parse(partner).port:
        raise AddressError(f"{partner} has no port at which the other scheduler could be found: --standby-of needs it")
    from scaler.scheduler.succession import Succession  # here, as a local cluster is none of a pair

    return Succession(config.address, new_number(), partner or "", stands_by=partner is not None)


def _seen_by(partner: str, address: Address) -> str:
    """Where the other one of a pair finds a scheduler that listens here."""
    reached = address.for_client()
    if reached.host == address.host or not partner:
        return reached.url
    return Address(Address.parse(partner).reached_from(), address.port).url


def _reopened(config: SchedulerConfig, security: Security, succession: Succession) -> Server:
    """A scheduler that has stepped down listens anew, at the same address. Blocks for a moment; `ScalerError`s."""
    attempts = Attempts(time.monotonic(), REOPEN_SECONDS)
    while True:
        try:
            return open_server(config, security, succession)
        except AddressInUse:
            if attempts.are_over(time.monotonic()):
                raise
        time.sleep(attempts.next_pause(time.monotonic()))


def run(config: SchedulerConfig) -> int:
    """The program: serve until a signal, or a client's shutdown, ends it; the exit code."""
    try:
        security = security_of(config.key_file, config.insecure)
        exposed = exposure(security, Address.parse(config.address), config.insecure)
        succession = _succession_of(config)
        ending = Ending()
        server = open_server(config, security, succession, ending)
    except AddressError:
        raise  # the program was called wrongly, which its command line says
    except ScalerError as error:
        tell_end(str(error))
        return 1
    if security.is_ephemeral:
        logger.warning("no key file could be made: only programs that were given $SCALER_KEY can connect by tcp")
    if exposed is not None:
        logger.warning("%s", exposed)
    logger.info("use event loop: %s", server.loop.name)
    logger.info("Scheduler: monitor address is %s", server.monitor_address or server.address)
    logger.info("Scheduler: version %s listens at %s", __version__, server.address)
    try:
        server.run(ending)
        while server.has_stepped_down:
            config = replace(config, address=server.address.url)
            server = _reopened(config, security, succession)
            server.run(ending)
    except InvalidState as error:
        logger.critical("Scheduler: a defect, the state does not add up %s", error)
        return 1
    except ScalerError as error:
        tell_end(str(error))
        return 1
    finally:
        ignore_ending_signals()
    logger.info("Scheduler: ended")
    return 0
