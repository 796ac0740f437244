"""The agent's process on a host without the scheduler: its connection, its core, its workers.

When the connection closes it is made anew for as long as it takes; the scheduler decides whether the session goes on or
the agent begins anew. The connection is made by a thread, since that may block, while the workers go on.

Where workers have a call to make before they take rows (`--preload`), nobody is told of this host until one has made
it: a host on which it fails gets no rows.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from typing import NamedTuple

from scaler.agent.alive_file import AliveFile
from scaler.agent.core.events import Event, Welcomed
from scaler.agent.host_store import HostStore, store_context
from scaler.agent.later import LATER, OF_DAEMONS
from scaler.agent.lending import lent_to_workers
from scaler.agent.limits import limits_of
from scaler.agent.preemption import watch_for_notice
from scaler.agent.shell import AgentShell, core_of, log_output
from scaler.agent.trouble_log import TroubleLog
from scaler.agent.worker_processes import EXTRA_SLOTS, Zygote, check_descriptors
from scaler.common.attempts import FIRST_PAUSE, Attempts
from scaler.common.findings import InvalidState
from scaler.common.later_modules import LaterModules
from scaler.common.long_lived import collect_rarely, keep_little_memory
from scaler.common.loop import Ending, ending_signals, ignore_ending_signals, make_loop
from scaler.common.process_limits import words_of
from scaler.common.side_thread import SideThread
from scaler.common.unexpected_end import tell_end
from scaler.config import AgentConfig, OptionError
from scaler.errors import (
    AddressInUse,
    ConnectionFailed,
    ConnectionTimeout,
    HandshakeRefused,
    ObjectTooLarge,
    ProtocolError,
    ScalerError,
)
from scaler.protocol.channel import Envelope
from scaler.protocol.codec import decode, encode
from scaler.protocol.codes import Role
from scaler.protocol.hello import hello_of, new_number
from scaler.protocol.initiator import Broken, Established, Initiator, Rejected
from scaler.protocol.messages import BalanceResponse, Hello
from scaler.protocol.unsendable import OF_TASKS, send_instead
from scaler.serialize.versions import packages
from scaler.transport import (
    GREETING_BYTES,
    PROBE,
    Address,
    Candidates,
    Connection,
    Security,
    check_size,
    connect,
    joining_security,
    size_of,
)

logger = logging.getLogger("scaler.agent")

#: at most one such part of its walltime an agent takes to leave
WALLTIME_PARTS = 4
#: bytes of a greeting that are kept free for what is known later
LATER_BYTES = 1024
#: what the documents call it; objects are released by reference counting, so nothing waits for it
OBJECT_RETENTION_SECONDS = 3600


class _Reached(NamedTuple):
    """A scheduler is there."""

    connection: Connection
    #: the one of its addresses
    address: Address
    #: where this machine is, as the scheduler sees it; None if that is not known
    host: str | None


class Daemon:
    """An agent that reaches its scheduler over a connection, and makes a new one whenever that is lost. One thread."""

    def __init__(
        self, config: AgentConfig, address: Address, security: Security, zygote: Zygote | None, store: HostStore
    ) -> None:
        """`address` is the scheduler's; without a zygote this is a store and has no workers."""
        self._address = address.for_client()
        self._store = store
        self._candidates = Candidates(address)
        self._security = security
        self._limit = config.max_message_bytes
        #: bytes of a message that the scheduler hears, too
        self._heard_bytes = self._limit
        self._heartbeat = config.heartbeat_interval
        name = config.name or os.uname().nodename
        workers = 0 if zygote is None else config.worker_count
        role, versions = (Role.STORE, "") if zygote is None else (Role.AGENT, packages())
        hello = hello_of(
            role,
            name,
            new_number(),
            workers,
            config.capabilities,
            store.hello,
            versions,
            config.job or "",
            self._candidates.others,
        )
        _check_length(hello)
        self._grace = config.drain_grace
        #: its end was announced
        self._is_announced = False
        #: when its batch system ends this process, seconds; infinite: it does not
        self._ends = math.inf if config.walltime is None else time.monotonic() + config.walltime
        self._initiator = Initiator(hello)
        self.loop = make_loop(config.event_loop, self._step)
        limits = limits_of(config)
        context = {
            "address": self._address.url, "security": security.to_env(), "limit": self._limit, "log_output": True,
            "preload": config.preload, **store_context(store, limits, workers),
        }  # fmt: skip
        #: seconds for which a scheduler is looked for
        self._patience = math.inf if config.death_timeout is None else config.death_timeout
        core = core_of(workers, limits, config.validate)
        self._shell = AgentShell(core, zygote, store, self.loop, context, log_output)
        self.loop.on_signal(signal.SIGUSR1, self._shell.log_holdings)
        if self._ends < math.inf:
            self._shell.limit(self._ends, min(self._grace, (config.walltime or 0.0) / WALLTIME_PARTS))
        if zygote is not None:
            self.loop.on_signal(signal.SIGTERM, self._take_notice)
            if signal.SIGHUP in ending_signals():  # which shells and the system may send both
                self.loop.on_signal(signal.SIGHUP, self._take_first_notice)
            if config.preemption_signal != "SIGTERM":
                self.loop.on_signal(getattr(signal, config.preemption_signal), self._take_notice)
        if zygote is not None and config.preemption_url is not None:
            watch_for_notice(config.preemption_url, self.loop, self._take_first_notice)
        #: no worker has started yet, and none may be able to: the scheduler is not looked for
        self._is_unproven = zygote is not None and config.preload is not None
        #: no worker can start any more: it ends
        self.is_unfit = False
        self._connection: Connection | None = None
        #: it makes a connection, or finds that there will be none
        self._connecting: SideThread[bool, _Reached | None] = SideThread("scaler-connect", self._connect, self._give_up)
        self.loop.watch(self._connecting.fileno(), self._connecting)
        self._planned: float | None = None
        self._later = LaterModules((*LATER, *OF_DAEMONS), time.monotonic())
        #: what the log says of a scheduler that is not there
        self._troubles = TroubleLog()
        #: those to be welcomed since the last Welcome was lost; None: the session is open
        self._attempts: Attempts | None = None
        #: the last connection ended without a word
        self._is_in_vain = False
        #: why the agent can't go on
        self.failure: str | None = None
        try:
            self._alive = None if config.alive_file is None else AliveFile(config.alive_file)
        except OSError as error:
            said = f"cannot be written: {error.strerror or error}: {config.alive_file!r}"
            raise OptionError("alive_file", said) from error

    def run(self, ending: Ending | None = None) -> None:
        """Serve until stopped."""
        if not self._is_unproven:
            self._reconnect()
        self.loop.soon()
        self.loop.run(self._close, ending)

    def _close(self) -> None:
        if self._connection is not None and self._initiator.is_open:
            for message in self._shell.leave():
                self._send(self._initiator.send(message))
            self._connection.close(0.3)
        self._shell.close()
        if self._alive is not None:
            self._alive.remove()

    # ---- the connection --------------------------------------------------------------------------------------------
    def _reconnect(self) -> None:
        if self._attempts is None:
            self._attempts = Attempts(time.monotonic(), self._patience, self._candidates.longest_pause)
        self._connecting.put(True)

    def _give_up(self, is_wanted: bool, error: Exception) -> None:
        self.failure = f"no connection to the scheduler can be made: {type(error).__name__}: {error}"
        self._connecting.tell(None)

    def _connect(self, is_wanted: bool) -> None:
        attempts = self._attempts
        assert attempts is not None
        if self._is_in_vain or self._initiator.is_elsewhere:
            if attempts.are_over(time.monotonic()):
                self.failure = self._impatience(self._initiator.trouble)
            time.sleep(FIRST_PAUSE if self._initiator.is_elsewhere else attempts.next_pause(time.monotonic()))
        while self.failure is None:
            address, patience = self._candidates.current, PROBE if self._candidates.others else 5.0
            try:
                connection = connect(address, self._security, patience, max_message_bytes=self._limit)
                self._connecting.tell(_Reached(connection, address, address.way()))
                return
            except ConnectionFailed as error:
                self._candidates.turn(time.monotonic(), isinstance(error, ConnectionTimeout))
                if isinstance(error, HandshakeRefused) and self._initiator.welcome is None:
                    self.failure = str(error)
                    break  # in place of one that had welcomed us the right one may follow
                if attempts.are_over(time.monotonic()):
                    self.failure = self._impatience(str(error))
                    break
                if self._troubles.is_news(str(error)):
                    logger.warning("%s; trying until it is there", error)
                time.sleep(attempts.next_pause(time.monotonic()))
        self._connecting.tell(None)

    def _impatience(self, trouble: str) -> str:
        return f"{trouble}; nobody came within {self._patience:g} s (--death-timeout)"

    def _take_connection(self) -> None:
        made = next(iter(self._connecting.take()), None)
        if made is None:
            return
        self._connection, store = made.connection, self._store
        if self._initiator.welcome is None and store.widen(self._address, self.loop):
            self._initiator.introduce(data=store.address)
        elif store.move(made.address, made.host):
            self._initiator.introduce(data=store.address)
            logger.info("others find the store of this host at %s from now on", store.address)
        store.introduced()
        now = time.monotonic()
        if self._ends < math.inf:
            self._initiator.introduce(walltime=max(1, round(1000 * (self._ends - now))))
        self._initiator.introduce(leaving=int(self._shell.leaving))
        self._send(self._initiator.greet(now))
        self.loop.watch(made.connection.fileno(), self)

    def _drop_connection(self, reason: str) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            is_elsewhere, is_silent = self._initiator.is_elsewhere, self._initiator.is_silent
            is_waiting = self._attempts is not None
            if not (is_waiting or is_elsewhere) or self._troubles.is_news(reason):
                logger.warning("the connection to the scheduler at %s is lost: %s", self._candidates.current, reason)
            self._is_in_vain = is_waiting and not is_elsewhere
            if is_elsewhere or is_silent:
                self._candidates.turn(time.monotonic(), is_silent)
            self._initiator.disconnect(reason)
            self.loop.forget(connection.fileno())
            connection.close(0)
            self._reconnect()

    def _receive(self) -> list[Event]:
        events: list[Event] = []
        connection = self._connection
        if connection is None:
            return events
        now = time.monotonic()
        for frames in connection.receive():
            try:
                said = self._initiator.receive(decode(frames), now)
            except ProtocolError as error:
                said = self._initiator.reject(str(error))
            if type(said) is Established:
                events.append(self._go_on(said))
            elif type(said) is Rejected and said.elsewhere:
                self._drop_connection(said.reason)
            elif type(said) is Rejected:
                self.failure = f"the scheduler at {self._address} refused: {said.reason}"
            elif type(said) is Broken:
                self._drop_connection(said.reason)
            elif said is not None:
                events += self._shell.heard(said)
        self._send(self._initiator.take_ack())
        if connection.is_closed:
            self._drop_connection(connection.trouble() or "it was closed")
        else:
            silent = self._initiator.check_silence(now, connection.carried_bytes)
            if silent is not None:
                self._drop_connection(silent.reason)
        return events

    def _go_on(self, established: Established) -> Welcomed:
        self._heard_bytes = min(self._limit, established.welcome.limit)
        for envelope in established.again:
            self._send(envelope)
        logger.info("connected to the scheduler at %s", self._candidates.current)
        welcome = established.welcome
        self._attempts, self._is_in_vain = None, False
        self._troubles.clear()
        heartbeat = min(self._initiator.heartbeat, self._heartbeat)
        return Welcomed(established.resumed, heartbeat, welcome.number, established.returned, welcome.limit)

    def _send(self, envelope: Envelope | None) -> None:
        """Send this, if anything; what can't be sent now the session keeps."""
        connection = self._connection
        if envelope is None or connection is None:
            return
        try:
            self._send_over(connection, envelope)
        except Exception as error:  # ObjectTooLarge, or what the codec does not take
            if not envelope.seq:
                raise
            message, initiator = envelope.message, self._initiator
            words = send_instead(
                message, error, lambda other: self._send_over(connection, initiator.replace(envelope, other))
            )
            is_told = isinstance(error, ObjectTooLarge) or type(message) in OF_TASKS
            logger.error("%s", words, exc_info=None if is_told else error)

    def _send_over(self, connection: Connection, envelope: Envelope) -> None:
        frames = encode(envelope.message, envelope.seq, envelope.ack)
        check_size(sum(map(size_of, frames)), self._heard_bytes)
        connection.send(frames)

    def _take_notice(self) -> None:
        """The end of this host was announced: it drains; announced again, or with nobody to drain to, it ends."""
        if self._is_announced or self._is_lonely:
            self.loop.stop()
            return
        self._is_announced = True
        self._shell.announce_end(self._grace)

    @property
    def _is_lonely(self) -> bool:
        """Nobody is there to drain to, and nothing is here that a scheduler has to hear of."""
        initiator = self._initiator
        if initiator.is_open:
            return False
        return initiator.welcome is None or not (self._shell.may_be_missed or initiator.has_unsaid(BalanceResponse))

    def _take_first_notice(self) -> None:
        """The end of this host was announced, perhaps by others as well."""
        if not self._is_announced:
            self._take_notice()

    def _end_unfit(self, reason: str) -> None:
        """No worker can start: this host drains, and ends."""
        self.is_unfit = True
        logger.error("%s", reason)
        self._take_first_notice()

    # ---- the loop --------------------------------------------------------------------------------------------------
    def _step(self) -> None:
        if self.failure is not None:
            self.loop.stop()
            return
        now = time.monotonic()
        due = self._planned is not None and now >= self._planned
        events: list[Event] = []
        ready = self.loop.ready
        self._later.attend(now, is_busy=bool(ready))
        if self._connecting in ready:
            del ready[self._connecting]
            self._take_connection()
        if self in ready or due:
            ready.pop(self, None)
            events = self._receive()
        events += self._shell.gather()
        if events or due or self._planned is None:
            for message in self._shell.handle(events, now):
                self._send(self._initiator.send(message))
        if self._is_unproven and self._shell.has_workers:
            self._is_unproven = False
            self._reconnect()
        if self._shell.failure is not None and not self.is_unfit:
            self._end_unfit(self._shell.failure)
        if self._is_announced and self._is_lonely and not self._shell.stopped:
            logger.info(
                "ClusterProcess: this host has nothing that anybody may want, and its scheduler is gone: it ends"
            )
            self.loop.stop()
        if self._shell.stopped:
            self.loop.stop()
        self.loop.is_idle = self._shell.is_nearly_idle
        wake = self._shell.wake
        if wake is None or wake <= now:
            wake = now + 1.0
        if self._alive is not None:
            wake = min(wake, self._alive.renew(self._initiator.is_open, now))
        wake = min(wake, self._later.wake)
        if due or wake != self._planned:
            self._planned = wake
            self.loop.wake_at(wake)


def _check_length(hello: Hello) -> None:
    """Raises `OptionError` for what no scheduler hears to its end. Addresses may be longer later, as the store's is."""
    size = sum(size_of(frame) for frame in encode(hello, 0, 0))
    if size > GREETING_BYTES - LATER_BYTES:
        said = f"a host that has them says {size:,} bytes of itself"
        raise OptionError("capabilities", f"are too many: {said}, and {GREETING_BYTES:,} are heard")


def _open(store: HostStore, security: Security, scheduler: Address) -> None:
    """Have a store listen. Raises `AddressInUse`, `AddressError`."""
    try:
        store.open(security, scheduler, on_its_host=False)
    except AddressInUse as error:
        raise AddressInUse(f"the store of this host can't listen: {error} (--store-port)") from error


def run(config: AgentConfig) -> int:
    """The program: serve until Ctrl-C, the cluster's shutdown or, after other signals, until drained; the exit code."""
    address = Address.parse(config.address)
    logger.info(
        "ClusterProcess: starting %d workers, heartbeat_interval_seconds=%g, object_retention_seconds=%d",
        config.worker_count, config.heartbeat_interval, OBJECT_RETENTION_SECONDS,
    )  # fmt: skip
    lent = lent_to_workers(config)
    check_descriptors(config.worker_count)
    zygote = Zygote.start(config.worker_count + EXTRA_SLOTS, lent)
    keep_little_memory()
    security = joining_security(config.key_file, config.insecure)
    if security.insecure:
        logger.warning("insecure: this host takes tasks of whoever answers at %s, in the clear", address.url)
    try:
        store = HostStore(limits_of(config).objects_soft, config.spill_directory, config.store_port)
    except OSError as error:
        raise ScalerError(f"no store can be made: {words_of(error)}") from error
    try:
        _open(store, security, address)
        daemon = Daemon(config, address, security, zygote, store)
    except BaseException:
        store.close()
        raise
    collect_rarely()
    ending = Ending()
    ending.begin()
    try:
        daemon.run(ending)
    except InvalidState as error:
        logger.critical("ClusterProcess: a defect, the agent's state does not add up %s", error)
        return 1
    finally:
        ignore_ending_signals()
    if daemon.failure is not None:
        tell_end(daemon.failure)
        return 1
    logger.info("ClusterProcess: ended")
    return 1 if daemon.is_unfit else 0
