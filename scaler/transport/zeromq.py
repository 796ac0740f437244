"""Programs on other machines: ZeroMQ over tcp with CURVE, a ROUTER here and a DEALER there.

What ZeroMQ leaves out is added so that both transports look alike:

* Who may enter is decided by the listener itself: ZeroMQ asks (protocol ZAP, one request a handshake, over a socket
  inside the process) and gets "yes" for the user's own key alone.
* A dealer does not reconnect; its end shows, and the layer above makes a new one and introduces itself again.
* How a handshake failed is told by the dealer's monitor, as far as it can be known. A key that does not fit the other
  side's is no word of it: a router that cannot open the Hello of CURVE closes the connection, as one does that dies.
* A router does not say who left. Its monitor tells the descriptors of connections that came and went, and every message
  carries the descriptor that it came through.
* ZeroMQ's own descriptor is edge-triggered: it falls silent after any call that looked at the socket, even if messages
  are waiting. `receive` therefore drains, and whoever stops early or sends looks again and raises a flag of our own (a
  `Waker`).

Every end has a context (an I/O thread) of its own: ZAP is per context, and closing one end never waits for another.
ZeroMQ sockets belong to one thread at a time, which a lock ensures where a caller may send from any thread. A forked
child must not touch them; `close` there does nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from threading import Lock

import zmq
import zmq.utils.z85

from scaler.common.attempts import is_under_way
from scaler.common.poller import Poller, Waker
from scaler.common.process_limits import lack_of_descriptors
from scaler.errors import ConnectionFailed
from scaler.transport.address import Address
from scaler.transport.failures import HandshakeCut, openness, refusal, silence
from scaler.transport.framing import GREETING_BYTES, check_size, size_of
from scaler.transport.listener_state import ListenerState
from scaler.transport.pending_peers import GRACE, PATIENCE, PendingPeers
from scaler.transport.port import Message, Sendable
from scaler.transport.security import Security
from scaler.transport.zeromq_connections import acknowledged_by, address_of, carried_by, received_by, shut
from scaler.transport.zeromq_handshakes import OTHER_KEY, Handshakes
from scaler.transport.zeromq_sockets import (
    bind,
    close_all,
    connection_of,
    drain,
    events_of,
    has_input,
    make_socket,
    monitor_of,
    receive_rest,
    send_message,
)

_log = logging.getLogger(__name__)

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_ZAP_DOMAIN = b"scaler"
#: What connections of peers that were disconnected have instead of an address.
_UNWANTED = "a peer that was disconnected"
#: What a line of the log says of those who had left before their address was asked for.
_GONE = "an address that is not known any more"
#: What ZeroMQ adds to each frame that it sends, at least: sizes and flags, and what CURVE needs.
_FRAME_BYTES, _SEALED_FRAME_BYTES = 2, 35
#: Seconds between looks at what is under way.
_LOOK_SECONDS = 0.4
#: A dealer that may not reconnect at all (-1) drops what it has received when the other side leaves; one that would
#: wait for days keeps it until it is read.
_NEVER_MILLISECONDS = 7 * 86_400_000
#: What a connection takes, with its context.
DESCRIPTORS = 12
#: Connections that take theirs just now, in several threads.
_taking: set[object] = set()


def open_connection(
    address: Address, numeric: Address, security: Security, limit: int, deadline: float | None
) -> ZeroMQConnection:
    """A connection whose handshake is done: see `ZeroMQConnection`, whatever ZeroMQ says."""
    try:
        return ZeroMQConnection(address, numeric, security, limit, deadline)
    except zmq.ZMQError as error:
        raise ConnectionFailed(f"{address.url} cannot be reached: {error}") from error


@contextlib.contextmanager
def _descriptors_for(address: Address) -> Iterator[None]:
    """Descriptors for a connection. ZeroMQ ends a process that runs out of them while it makes a context or a socket.

    Raises `ConnectionFailed` if there are too few.
    """
    this = object()
    _taking.add(this)
    try:
        if lack := lack_of_descriptors(DESCRIPTORS * len(_taking)):
            raise ConnectionFailed(f"{address.url} cannot be reached: {lack}")
        yield
    finally:
        _taking.discard(this)


class ZeroMQConnection:
    """The client's end (see `port.Connection`)."""

    kind = "tcp"

    def __init__(
        self, address: Address, numeric: Address, security: Security, limit: int, deadline: float | None
    ) -> None:
        """Connect to `numeric` and wait until the handshake is done.

        Raises `HandshakeRefused`, `HandshakeCut`, `ConnectionTimeout` after `deadline` (of the monotonic clock),
        `ConnectionFailed`.
        """
        self.address = address
        self._limit = limit
        self._pid = os.getpid()
        #: Why nothing arrives any more; None while all is well.
        self._reason: str | None = None
        #: True once the other side has left; messages it sent before may still be unread.
        self._ended = False
        #: Descriptor of the connection, once there is one.
        self._fd = -1
        #: Guards every use of `_dealer`.
        self._lock = Lock()
        with _descriptors_for(address):
            self._context = zmq.Context()
            self._dealer = make_socket(self._context, zmq.DEALER, numeric, limit)
            self._monitor = monitor_of(self._dealer)
            self._waker = Waker()
            self._poller = Poller()
        self._dealer.setsockopt(zmq.RECONNECT_IVL, _NEVER_MILLISECONDS)
        if not security.insecure:
            self._dealer.curve_serverkey = security.public
            self._dealer.curve_publickey = security.public
            self._dealer.curve_secretkey = security.secret
        self.fileno = self._poller.fileno
        try:
            self._dealer.connect(numeric.url)
            self._await_handshake(deadline, security)
            for fd in (self._dealer.fileno(), self._monitor.fileno(), self._waker.fileno()):
                self._poller.add(fd)
        except BaseException:
            self.close(0)
            raise

    @property
    def is_closed(self) -> bool:
        return self._reason is not None

    def receive(self) -> list[Message]:
        messages: list[Message] = []
        with self._lock:
            if self._reason is not None:
                return messages
            self._waker.clear()
            # First: when the end has been told, all that came before it can be received.
            if any(event == zmq.EVENT_DISCONNECTED for event, _ in events_of(self._monitor)):
                self._ended = True
            if drain(lambda: self._receive_one(messages)):
                self._waker.wake()
            elif self._ended:
                self._reason = "the other side closed the connection"
        return messages

    def send(self, frames: Sequence[Sendable]) -> None:
        check_size(sum(map(size_of, frames)), self._limit)
        with self._lock:
            if self._reason is None:
                send_message(self._dealer, frames)
                if has_input(self._dealer):
                    self._waker.wake()

    def carried_bytes(self) -> int:
        with self._lock:
            return carried_by(self._fd) if self._reason is None and not self._ended else 0

    def trouble(self) -> str | None:
        return self._reason

    def close(self, linger: float = 1.0) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._context.closed:
                return
            unsent = self._reason is None
            self._reason = self._reason or "closed by this side"
            self._poller.close()
            close_all(self._context, [self._dealer], [self._monitor], linger if unsent else 0)
            self._waker.close()

    def _receive_one(self, messages: list[Message]) -> int:
        messages.append(receive_rest(self._dealer))
        return sum(map(len, messages[-1]))

    def _await_handshake(self, deadline: float | None, security: Security) -> None:
        url = self.address.url
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._monitor.poll(None if left is None else int(left * 1000)):
                raise silence(self.address)
            events = events_of(self._monitor)
            for event, value in events:
                if event == zmq.EVENT_CONNECTED:
                    self._fd = value
                    continue
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    if any(later == zmq.EVENT_DISCONNECTED for later, _ in events):
                        self._ended = True
                        self._waker.wake()
                    return
                if event == zmq.EVENT_CLOSED:
                    raise ConnectionFailed(f"the connection to {url} could not be made")
                if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                    raise HandshakeCut(f"{url} closed the connection in the handshake")
                if value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH and not security.insecure:
                    raise openness(self.address)
                raise refusal(self.address, security)  # it said so, or what it said makes no sense


class ZeroMQPeers:
    """The listener's end: admits, and numbers its peers."""

    def __init__(
        self, sock: socket.socket, address: Address, security: Security, poller: Poller, state: ListenerState
    ) -> None:
        """Take over a socket that listens at a numeric address."""
        self._state = state
        self._poller = poller
        #: Routing id of each peer and back.
        self._routes: dict[int, bytes] = {}
        self._peers: dict[bytes, int] = {}
        #: Routing ids of peers that were disconnected here: what still comes from them is dropped.
        self._unwanted: set[bytes] = set()
        #: Descriptors of open connections with the routing id that was seen on each (None: nothing arrived yet).
        self._connections: dict[int, bytes | None] = {}
        #: Descriptor of the connection of each routing id, where that is known.
        self._fd_of: dict[bytes, int] = {}
        #: Descriptors of connections that were not welcomed, or not any more.
        self._pending = PendingPeers()
        #: Descriptors of connections that were ended here and that ZeroMQ has not told the end of.
        self._shut: set[int] = set()
        self._handshakes = Handshakes(security.insecure)
        #: Routing ids whose connection ended but whose last messages may not have been read.
        self._ending: list[bytes] = []
        #: Bytes that were sent to each peer, at least, and how many of them it had when that was looked at last.
        self._handed: dict[int, int] = {}
        self._had: dict[int, int] = {}
        #: What the wire adds to each frame, at least.
        self._added = _FRAME_BYTES if security.insecure else _SEALED_FRAME_BYTES
        #: Peers of whom a whole message has come since it was looked at last what is under way, and when that was.
        self._spoke: set[int] = set()
        self._looked = 0.0
        #: Of the others: the bytes that had come of each.
        self._arrived: dict[int, int] = {}
        self._context = zmq.Context()
        self._admission = self._context.socket(zmq.REP)
        self._admitted = b"" if security.insecure else zmq.utils.z85.decode(security.public)
        self._router = make_socket(self._context, zmq.ROUTER, address, state.limit)
        self._router.setsockopt(zmq.HANDSHAKE_IVL, int(PATIENCE * 1000))
        self._monitor = monitor_of(self._router)
        self._waker = Waker()
        try:
            if not security.insecure:
                self._admission.bind(_ZAP_ENDPOINT)
                self._router.setsockopt(zmq.ZAP_DOMAIN, _ZAP_DOMAIN)
                self._router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
                self._router.curve_server = True
                self._router.curve_publickey = security.public
                self._router.curve_secretkey = security.secret
            bind(self._router, address, sock)
        except BaseException:
            close_all(self._context, [self._router], [self._admission, self._monitor], 0)
            self._waker.close()
            raise
        self._fds = [each.fileno() for each in (self._router, self._monitor, self._admission, self._waker)]
        for fd in self._fds:
            poller.add(fd)

    def receive(self, inbox: list[tuple[int, Message]]) -> None:
        """Admit, receive and note who left."""
        self._waker.clear()
        while has_input(self._admission):
            self._admission.send_multipart(self._admit(self._admission.recv_multipart()))
        self._read_monitor()
        more = drain(lambda: self._receive_one(inbox), self._state.pass_bytes)
        if more:
            self._waker.wake()
        else:
            for route in self._ending:
                self._forget(route)
            self._ending.clear()

    def send(self, peer: int, frames: Sequence[Sendable]) -> bool:
        """Send or queue; False if the peer is none of ours."""
        route = self._routes.get(peer)
        if route is None:
            return False
        size = sum(map(size_of, frames))
        check_size(size, self._state.limit)
        send_message(self._router, (route, *frames))
        handed = self._handed[peer] = self._handed.get(peer, 0) + size + self._added * len(frames)
        if handed - self._had.get(peer, 0) > self._state.most_unsent:
            self._look_whether_it_waits(peer, route, handed)
        if has_input(self._router):
            self._waker.wake()
        return True

    def _look_whether_it_waits(self, peer: int, route: bytes, handed: int) -> None:
        """Note it if much of what a peer was sent has not come to its machine."""
        waiting = self._waiting(peer, route, handed)
        if waiting > self._state.most_unsent:
            self._state.swamped[peer] = waiting

    def _waiting(self, peer: int, route: bytes, handed: int) -> int:
        fd = self._fd_of.get(route)
        had = 0 if fd is None else acknowledged_by(fd)
        if not had:
            return 0
        self._had[peer] = had
        return max(0, handed - had)

    def unsent(self, peer: int) -> int:
        route = self._routes.get(peer)
        return 0 if route is None else self._waiting(peer, route, self._handed.get(peer, 0))

    def welcome(self, peer: int) -> None:
        route = self._routes.get(peer)
        if route is not None and route in self._fd_of:
            self._pending.remove(self._fd_of[route])

    def origin_of(self, peer: int) -> str | None:
        """See `port.Listener`; None if the peer is none of ours."""
        route = self._routes.get(peer)
        if route is None:
            return None
        return (address_of(self._fd_of[route]) if route in self._fd_of else "") or _GONE

    def stirring(self, now: float) -> list[int]:
        passed = now - self._looked
        if passed < _LOOK_SECONDS:
            return []
        self._looked = now
        before, self._arrived = self._arrived, {}
        for peer, route in self._routes.items():
            if peer not in self._spoke and route in self._fd_of:
                self._arrived[peer] = received_by(self._fd_of[route])
        self._spoke.clear()
        return [peer for peer, has in self._arrived.items() if is_under_way(has - before.get(peer, has), passed)]

    def tend(self, now: float) -> float | None:
        if not self._pending.peers:
            return None
        overdue = set(self._pending.overdue(now))
        for fd in self._pending:
            if fd in overdue or (self._connections.get(fd) is None and received_by(fd) > 2 * GREETING_BYTES):
                self._show_out(fd)
        while self._state.is_full(now) and (oldest := self._pending.oldest(now)) is not None:
            self._show_out(oldest)
        return now + GRACE if self._pending.peers else None

    def disconnect(self, peer: int) -> bool:
        """Listen to a peer no longer, and close its connection, behind its last words if it has to hear why.

        False if it is none of ours.
        """
        route = self._routes.pop(peer, None)
        if route is None:
            return False
        del self._peers[route]
        self._forget_sent(peer)
        self._unwanted.add(route)
        fd = self._fd_of.get(route)
        if fd is not None:
            self._pending.add(fd, _UNWANTED, time.monotonic())
            self._state.has_strangers = True
            if not self._state.awaits_welcome:  # where nobody is told why
                self._show_out(fd)
        return True

    def close(self, linger: float) -> None:
        """Send what is queued for at most `linger` seconds, close."""
        for fd in self._fds:
            self._poller.remove(fd)
        close_all(self._context, [self._router], [self._admission, self._monitor], linger)
        self._waker.close()

    def _admit(self, request: list[bytes]) -> list[bytes]:
        """The answer to ZeroMQ's question whether the holder of a key may enter."""
        admitted = len(request) == 7 and request[5] == b"CURVE" and request[6] == self._admitted
        if not admitted:
            address = request[3].decode("ascii", "replace")
            self._turn_away(address, OTHER_KEY)
        status, text = (b"200", b"OK") if admitted else (b"400", b"another key")
        return [request[0], request[1], status, text, b"", b""]

    def _receive_one(self, inbox: list[tuple[int, Message]]) -> int:
        route = self._router.recv(zmq.NOBLOCK)
        peer = self._peers.get(route)
        if peer is not None:
            message = receive_rest(self._router)
        else:
            first = self._router.recv(zmq.NOBLOCK, copy=False)
            message = receive_rest(self._router, first)
            fd = connection_of(first)
            if fd is None or route in self._unwanted:
                return sum(map(len, message))
            peer = self._welcome(route, fd)
        inbox.append((peer, message))
        self._spoke.add(peer)
        return sum(map(len, message))

    def _welcome(self, route: bytes, fd: int) -> int:
        """A number for the peer behind `route`, whose first message came through the connection `fd`."""
        self._read_monitor()  # so that `fd` is known as the connection it is now, not one that had the number before
        if fd not in self._connections:
            self._ending.append(route)
        else:
            before = self._connections[fd]
            if before is not None:
                self._end(before)
            self._connections[fd] = route
            self._fd_of[route] = fd
            self._handshakes.speak()
            if not self._state.awaits_welcome:
                self._pending.remove(fd)
        peer = self._peers[route] = self._state.new_peer()
        self._routes[peer] = route
        return peer

    def _read_monitor(self) -> None:
        for event, value in events_of(self._monitor):
            if event == zmq.EVENT_ACCEPTED:
                self._connections[value] = None
                self._state.connections += 1
                self._let_in(value)
            elif event == zmq.EVENT_DISCONNECTED:
                address = self._pending.remove(value)
                why = self._handshakes.end(has_spoken=self._connections.get(value) is not None)
                if value in self._shut:
                    self._shut.remove(value)
                elif value in self._connections:
                    self._state.connections -= 1
                    if why is not None:
                        self._turn_away(address, why)
                route = self._connections.pop(value, None)
                if route is not None:
                    self._end(route)
            else:
                self._handshakes.hear(event, value)

    def _turn_away(self, address: str | None, why: str) -> None:
        self._state.notices.warn(f"refused a connection from %s: {why}", address or _GONE)

    def _end(self, route: bytes) -> None:
        self._fd_of.pop(route, None)
        self._ending.append(route)

    def _let_in(self, fd: int) -> None:
        """ZeroMQ has accepted a connection. It accepts all: who has been silent for longest makes room."""
        now = time.monotonic()
        self._pending.add(fd, address_of(fd), now)
        self._state.has_strangers = True
        if self._state.is_full(now):
            oldest = self._pending.oldest(now, grace=0.0)
            if oldest is not None:
                self._show_out(oldest)

    def _show_out(self, fd: int) -> None:
        """Close a connection that was not welcomed; the monitor tells when ZeroMQ has noticed."""
        address = self._pending.remove(fd)
        if address != _UNWANTED:
            self._state.notices.warn("closed a connection from %s: it did not say who it is", address)
        self._shut.add(fd)
        self._state.connections -= 1
        shut(fd)

    def _forget(self, route: bytes) -> None:
        self._unwanted.discard(route)
        peer = self._peers.pop(route, None)
        if peer is not None:
            del self._routes[peer]
            self._forget_sent(peer)
            self._state.gone[peer] = False

    def _forget_sent(self, peer: int) -> None:
        self._handed.pop(peer, None)
        self._had.pop(peer, None)
