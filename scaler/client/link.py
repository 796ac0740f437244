"""The client's I/O thread and what it owns: connection, channel, session.

    user's threads ──outbox──► I/O thread ──► connection            results: I/O thread ──► futures
                   ──wake fd─►     │
                                   └ session core, packer, channel: touched only under `lock`

A thread that submits while nothing is under way sends by itself, under the lock, which saves waking the I/O thread; in
a burst the I/O thread takes everything queued at once. Results are unpickled and futures fulfilled outside the lock, by
the I/O thread; or by a thread that waits for the only task under way, which then watches the connection itself and so
saves being woken (`lead`). The I/O thread never waits: if a callback of the user's has to, another thread does it, and
meanwhile the I/O thread sees to all but results (`apart`). When the connection closes it is made anew until `patience`
seconds are over; then all futures fail.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from scaler.client import events as ev
from scaler.client.future import Future
from scaler.client.outbox import ROUND, Call, Packer, Plain
from scaler.client.session import SessionCore
from scaler.common.poller import new_poller
from scaler.errors import (
    ClientClosed,
    ConnectionFailed,
    ConnectionTimeout,
    HandshakeRefused,
    ProtocolError,
    ScalerError,
)
from scaler.protocol.channel import Envelope
from scaler.protocol.codec import decode, encode
from scaler.protocol.codes import Role
from scaler.protocol.hello import hello_of, new_number
from scaler.protocol.initiator import Broken, Established, Initiator, Rejected
from scaler.protocol.messages import Frame, Message, Welcome
from scaler.protocol.reconnecting import Attempts
from scaler.serialize.versions import packages
from scaler.transport import Address, Connection, Security, connect

#: seconds between looks at the time while nothing happens
IDLE = 0.5
#: seconds for which a thread that waits for a lone task looks without sleeping, if the last one was as quick
SPIN = 0.001
#: effects that a thread may wait for which the I/O thread waits for
_ABOUT_STORES = (ev.Told, ev.Renewed, ev.Supply, ev.Restore)

T = TypeVar("T")

#: only epoll can be changed by one thread while another waits in it
CAN_LEAD = sys.platform == "linux"


class Link:
    """See the module's text. All methods may be called from any thread."""

    def __init__(
        self,
        address: Address,
        security: Security,
        name: str,
        timeout: float,
        patience: float,
        react: Callable[[list[ev.Effect]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.address = address
        self._security = security
        self._initiator = Initiator(hello_of(Role.CLIENT, name, new_number(), packages=packages()))
        self._patience = patience
        #: carries out effects for the user's side; called by the I/O thread only, without the lock
        self._react = react
        #: told when there is no scheduler any more
        self._failed = failed
        #: called by the I/O thread about twice a second
        self.look: Callable[[], None] = lambda: None
        self._next_look = 0.0
        self.lock = threading.RLock()
        self.session = SessionCore()
        self.outbox: deque[Plain | Call] = deque()
        #: events queued for the session, in order behind the outbox
        self._events: deque[ev.Event] = deque()
        self.packer = Packer(self.session.take_ids)
        self._awake = False
        self._bell, self._rope = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        self._poller = new_poller()
        self._poller.add(self._bell)
        #: held by a thread that watches the connection in the I/O thread's stead
        self._leading = threading.Lock()
        #: the last answer that a thread waited for in this way came at once
        self._quick = False
        #: tells that thread that the I/O thread has received something after all
        self._leader_bell, self._leader_rope = os.pipe()
        self._closing = False
        #: a goodbye was sent, and this waits for its answer: a closed connection will do
        self.leaving: threading.Event | None = None
        #: why there is no scheduler any more; None while there is one
        self.failure: BaseException | None = None
        self._effects: list[ev.Effect] = []
        deadline = time.monotonic() + timeout
        try:
            self._connection = self._introduce(deadline)
        except BaseException:
            self._close_descriptors()
            raise
        self._thread = threading.Thread(target=self._run, name=f"scaler-client-{address}", daemon=True)
        self._thread.start()

    @property
    def welcome(self) -> Welcome:
        """What the scheduler last said of itself."""
        assert self._initiator.welcome is not None
        return self._initiator.welcome

    # ---- sending ---------------------------------------------------------------------------------------------------
    def submit(self, item: Plain | Call) -> None:
        """Queue a call; it is on its way when this returns or shortly after."""
        self.outbox.append(item)
        if not self._awake:
            if not self.session.pending and self._flush_here():
                return
            self.wake()

    def tell(self, *events: ev.Event) -> None:
        """Queue events for the session."""
        self._events.extend(events)
        if not self._flush_here():
            self.wake()

    def _flush_here(self) -> bool:
        """Send what is queued in the calling thread, if the lock is free; False if the I/O thread has to look."""
        if not self.lock.acquire(False):
            return False
        try:
            self._flush()
        finally:
            self.lock.release()
        return not self._effects

    def later(self, event: ev.Event) -> None:
        """Queue an event without waking anybody; takes no lock."""
        self._events.append(event)

    def release(self, object_id: int) -> None:
        """An object is not needed. Called by the garbage collector, on any thread at any point: takes no lock."""
        if not self._closing:
            self._events.append(ev.Release([object_id]))

    def flush(self, *events: ev.Event) -> None:
        """Send what is queued, also calls, which then have their ids, and after it these events; waits for the lock."""
        with self.lock:
            self._flush()
            self._handle(events)
            wake = bool(self._effects)
        if wake:
            self.wake()

    def take_id(self) -> int:
        """An id for an object; waits for the lock."""
        with self.lock:
            return self.session.take_ids(1)

    def wake(self) -> None:
        """Make the I/O thread look."""
        self._awake = True
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._rope, b"x")

    def _flush(self) -> None:
        """Send what is queued. Needs the lock."""
        while self.outbox or self._events:
            if self.failure is not None:
                return
            # Events first, calls next: a call that was queued before an event is then packed before it is handled.
            events = [self._events.popleft() for _ in range(len(self._events))]
            for _ in range(-(-len(self.outbox) // ROUND)):
                self._handle(self.packer.pack(self.outbox))
            self._handle(_merged(events) if len(events) > 1 else events)

    def _handle(self, events: Iterable[ev.Event]) -> None:
        for effect in self.session.handle(events, time.monotonic()):
            if type(effect) is ev.Transmit:
                self._transmit(effect.message)
            else:
                self._effects.append(effect)

    def _transmit(self, message: Message) -> None:
        envelope = self._initiator.send(message)
        if envelope is not None:
            self._send(envelope)

    def _send(self, envelope: Envelope) -> None:
        self._connection.send(encode(envelope.message, envelope.seq, envelope.ack))

    # ---- the I/O thread --------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._closing:
            try:
                if not self._turn(IDLE):
                    break
            except BaseException as error:
                if self._closing:
                    break  # type: ignore[unreachable]  # another thread sets it
                self.fail(
                    error if isinstance(error, ScalerError) else ConnectionFailed(f"the client's I/O failed: {error!r}")
                )
                break
        self._end()

    def _turn(self, timeout: float, about_stores: bool = False) -> bool:
        """Send and receive what there is, after waiting for it, and react to it; False when there is nothing to do
        any more. With `about_stores` only what concerns stores is reacted to, the rest stays for the next turn.
        """
        ready = self._poller.poll(timeout)
        if self._closing:
            return False
        with self.lock:
            self._awake = False
            rung = not ready
            for fd, _ in ready:
                if fd == self._bell:
                    os.read(fd, 4096)
                    rung = True
                else:
                    self._receive()
            if rung or self.outbox or self._events:
                self._flush()
                self._handle(())
            effects, self._effects = self._effects, []
            if about_stores:
                self._effects = [effect for effect in effects if type(effect) not in _ABOUT_STORES]
                effects = [effect for effect in effects if type(effect) in _ABOUT_STORES]
            if not ready:
                self._initiator.check_silence(time.monotonic())
            lost = self._connection.is_closed or not self._initiator.is_open
        if effects:
            self._react(effects)
            if self._leading.locked():
                os.write(self._leader_rope, b"x")
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + IDLE
            self.look()
        if lost and self.leaving:
            self.leaving.set()
            return False
        if lost and not self._closing:
            self._reconnect()
        return True

    def apart(self, work: Callable[[], T]) -> T:
        """Do something that may block until the I/O thread has received an answer; on the I/O thread also."""
        if threading.current_thread() is not self._thread:
            return work()
        done: list[tuple[bool, Any]] = []

        def run() -> None:
            try:
                done.append((True, work()))
            except BaseException as error:
                done.append((False, error))
            self.wake()

        threading.Thread(target=run, name="scaler-client-apart", daemon=True).start()
        while not done:
            if not self._turn(0.1, about_stores=True):
                raise ClientClosed("this client is disconnected: make a new Client")
        good, result = done[0]
        self.wake()  # for what was left
        if not good:
            raise result
        return result  # type: ignore[no-any-return]

    def lead(self, done: Callable[[], bool], timeout: float | None) -> None:
        """Wait for the only task under way by watching the connection here, in the stead of the I/O thread.

        Returns when `done()`, after `timeout` seconds, or when the I/O thread should go on: the caller then waits as
        usual.
        """
        if not CAN_LEAD or self._awake or not self.session.is_lone or not self._leading.acquire(False):
            return
        connection = self._connection
        began = time.monotonic()
        deadline = None if timeout is None else began + timeout
        try:
            fd = connection.fileno()
            self._poller.pause(fd, True)
            try:
                self._lead(connection, done, deadline)
            finally:
                self._poller.pause(fd, False)
        except (OSError, ValueError, KeyError):
            pass  # the connection was closed meanwhile: the I/O thread sees to that
        finally:
            self._quick = time.monotonic() - began < SPIN
            self._leading.release()

    def _lead(self, connection: Connection, done: Callable[[], bool], deadline: float | None) -> None:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        poll.register(self._leader_bell, select.POLLIN)
        while not done() and self._connection is connection:
            left = IDLE if deadline is None else min(IDLE, deadline - time.monotonic())
            if left <= 0:
                return
            ready = self._spin(poll) or poll.poll(left * 1000)
            if any(fd == self._leader_bell for fd, _ in ready):
                os.read(self._leader_bell, 4096)
            if not ready:
                continue
            with self.lock:
                self._receive()
                effects, self._effects = self._effects, []
                lost = connection.is_closed
            if not all(map(_is_plain, effects)):
                with self.lock:
                    self._effects[:0] = effects
                self.wake()
                return
            self._react(effects)
            if lost or self.outbox or self._events:
                return

    def _spin(self, poll: select.poll) -> list[tuple[int, int]]:
        """Look without sleeping, as long as an answer that is as quick as the last one may take.

        Waking a processor that sleeps takes as long as a short task. After a slow answer the next wait just sleeps.
        """
        began = now = time.monotonic()
        if not self._quick:
            return []
        while now - began < SPIN:
            ready = poll.poll(0)
            if ready:
                return ready
            now = time.monotonic()
        return []

    def _receive(self) -> None:
        self._take(self._connection.receive())

    def _take(self, messages: list[list[Frame]]) -> None:
        """Take in what has come, in order. Needs the lock."""
        arrived: list[ev.Event] = []
        receive, now = self._initiator.receive, time.monotonic()
        for frames in messages:
            said = receive(decode(frames), now)
            if isinstance(said, (Broken, Established, Rejected)):
                self._connection.close(0)  # a new connection, and a new Hello, mend it
                break
            if said is not None:
                arrived.append(ev.Arrived(said))
        if arrived:
            self._handle(arrived)
            ack = self._initiator.take_ack()
            if ack is not None:
                self._send(ack)

    def _reconnect(self) -> None:
        attempts = Attempts(time.monotonic(), self._patience)
        with self.lock:
            self._initiator.disconnect(self._connection.trouble() or "it was closed")
            reason = self._initiator.trouble
        with self._leading, contextlib.suppress(OSError, ValueError, KeyError):
            self._poller.remove(self._connection.fileno())
        self._connection.close(0)
        while not (self._closing or self.leaving):
            try:
                self._introduce(attempts.deadline)
            except ConnectionFailed as error:
                if attempts.are_over(time.monotonic()):
                    if isinstance(error, HandshakeRefused):  # not at once: one that is just ending seems to refuse
                        raise
                    gone = f"the scheduler at {self.address} is gone ({reason})"
                    raise ConnectionFailed(f"{gone} and did not come back within {self._patience:g} s") from error
                threading.Event().wait(attempts.next_pause())
                continue
            return

    def _introduce(self, deadline: float) -> Connection:
        """Connect and shake hands; tells the session. Raises ConnectionFailed and its kinds."""
        connection = connect(self.address, self._security, timeout=max(0.1, deadline - time.monotonic()))
        try:
            with self.lock:
                _, _, hello = self._initiator.greet(time.monotonic())
            connection.send(encode(hello))
            self._await_welcome(connection, deadline)
        except BaseException as error:
            with self.lock:
                self._initiator.disconnect(str(error))
            connection.close(0)
            raise
        return connection

    def _await_welcome(self, connection: Connection, deadline: float) -> None:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                trouble = connection.trouble()
                raise ConnectionTimeout(
                    f"the scheduler at {self.address} did not answer in time{f': {trouble}' if trouble else ''}"
                )
            poll.poll(min(left, 0.1) * 1000)
            with self.lock:
                arrived = iter(connection.receive())
                for frames in arrived:
                    try:
                        said = self._initiator.receive(decode(frames), time.monotonic())
                    except ProtocolError as error:
                        raise HandshakeRefused(
                            f"what answers at {self.address} is no scheduler of this version: {error}"
                        ) from None
                    if type(said) is Rejected:
                        raise HandshakeRefused(f"the scheduler at {self.address} refused: {said.reason}")
                    if type(said) is Established:
                        self._go_on(connection, said)
                        self._take(list(arrived))
                        return
            if connection.is_closed:
                raise ConnectionFailed(connection.trouble() or f"the scheduler at {self.address} closed the connection")

    def _go_on(self, connection: Connection, established: Established) -> None:
        """The session goes on over this connection, or begins. Needs the lock."""
        self._connection = connection
        self._poller.add(connection.fileno())
        for envelope in established.again:
            self._send(envelope)
        welcome = established.welcome
        self._handle((ev.Welcomed(established.resumed, welcome.heartbeat, welcome.workers),))

    # ---- the end ---------------------------------------------------------------------------------------------------
    def fail(self, error: BaseException) -> None:
        """There is no scheduler any more: everything asked of it ends with this."""
        with self.lock:
            self.failure = error
            effects, self._effects = self._effects, []
        if effects:
            self._react(effects)
        self._failed(error)

    def close(self, linger: float = 1.0) -> None:
        """End the I/O thread; blocks for at most about `linger` seconds."""
        self._closing = True
        self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(linger + 1.0)

    def _end(self) -> None:
        with self.lock:
            self._connection.close(0.2)
            self._close_descriptors()

    def _close_descriptors(self) -> None:
        self._poller.close()
        for fd in (self._bell, self._rope, self._leader_bell, self._leader_rope):
            os.close(fd)
        self._bell = self._rope = self._leader_bell = self._leader_rope = -1


def _is_plain(effect: ev.Effect) -> bool:
    """It can be carried out by a thread that waits: few results, and no callbacks of the user's to be called."""
    if type(effect) is not ev.Resolve or len(effect.tokens) > 16:
        return False
    return all(type(token) is Future and "_done_callbacks" not in token.__dict__ for token in effect.tokens)


def _merged(events: list[ev.Event]) -> list[ev.Event]:
    """The same with one event for releases that follow each other: the collector lets go of many at a time."""
    merged: list[ev.Event] = []
    ids: list[int] = []
    for event in events:
        if type(event) is not ev.Release:
            ids = []
        elif ids:
            ids.extend(event.ids)
            continue
        else:
            ids = list(event.ids)
            event = ev.Release(ids)
        merged.append(event)
    return merged
