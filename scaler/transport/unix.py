"""Programs of one user on one Linux machine: an abstract stream socket, checked by the kernel.

An abstract name is no file: it needs no directory, leaves nothing behind, is gone with its socket, and belongs to the
network namespace as tcp ports do. Anybody may connect to one or take one, so both ends ask the kernel for the user id
of the other (SO_PEERCRED), the listener when it accepts and the client before it says a word.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
import sys
import time
from collections.abc import Sequence

from scaler.common.poller import READABLE, WRITABLE, Poller
from scaler.errors import AddressInUse
from scaler.transport.address import Address
from scaler.transport.listener_state import ListenerState
from scaler.transport.pending_peers import GRACE, PendingPeers
from scaler.transport.port import Message, Named, Sendable
from scaler.transport.stream import Stream, flush_all, forget_in_children

#: False where there are no abstract names: everything goes over tcp.
AVAILABLE = sys.platform == "linux"

_log = logging.getLogger(__name__)

#: seconds that a second look waits for somebody who was too busy at the first
_AT_ONCE = 0.001
#: looks at a name that is taken where nobody listens yet, and seconds between them
_LOOKS, _BETWEEN = 50, 0.002
#: What all local connections have as their address.
HERE = "this machine"


class UnixConnection:
    """The client's end (see `port.Connection`)."""

    kind = "unix"

    def __init__(self, address: Named, connected: socket.socket, limit: int) -> None:
        self.address = address
        self._poller = Poller()
        self.fileno = self._poller.fileno
        self._stream = Stream(connected, limit, self._poller.want_write)
        self._poller.add(self._stream.fd)
        self.send = self._stream.send

    @property
    def is_closed(self) -> bool:
        return self._stream.reason is not None

    def receive(self) -> list[Message]:
        messages: list[Message] = []
        if self._stream.reason is None:
            if self._stream.has_backlog:
                self._stream.flush()
            self._stream.receive(messages)
        return messages

    def carried_bytes(self) -> int:
        """See `port.Connection`: on one machine nothing is long under way."""
        return 0

    def trouble(self) -> str | None:
        return self._stream.reason

    def close(self, linger: float = 1.0) -> None:
        if self._stream.fd < 0:
            return
        flush_all([self._stream], linger)
        self._stream.close()
        self._poller.close()


class UnixPeers:
    """The listener's end: accepts, and holds one stream a peer."""

    def __init__(self, name: bytes, poller: Poller, state: ListenerState) -> None:
        """Listen under a name, abstract or the path of a file, for this user alone. Raises OSError (EADDRINUSE)."""
        self._poller = poller
        self._state = state
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listening.setblocking(False)
            os.fchmod(self._listening.fileno(), 0o600)  # so that a file is nobody else's from its first moment
            self._listening.bind(name)
            self._listening.listen(4096)
        except OSError:
            self._listening.close()
            raise
        self._streams: dict[int, Stream] = {}
        #: Peer of each descriptor.
        self._peers: dict[int, int] = {}
        #: Peers that were not welcomed.
        self._pending = PendingPeers()
        #: False while there is no room: those who come wait until somebody leaves.
        self._accepting = True
        poller.add(self._listening.fileno())
        forget_in_children(self)

    def handle(self, fd: int, events: int, inbox: list[tuple[int, Message]]) -> bool:
        """Deal with a ready descriptor; False if it is none of ours."""
        peer = self._peers.get(fd)
        if peer is None:
            if fd != self._listening.fileno():
                return False
            self._accept()
            return True
        stream = self._streams[peer]
        if events & WRITABLE:
            stream.flush()
        if events & READABLE:
            messages: list[Message] = []
            stream.receive(messages, self._state.pass_bytes)
            if messages:
                inbox.extend([(peer, message) for message in messages])
                if not self._state.awaits_welcome and self._pending.peers:
                    self._pending.remove(peer)
            if stream.reason is not None:
                _log.debug("local peer %d left: %s", peer, stream.reason)
                self._forget(peer)
                self._state.gone[peer] = True
        return True

    def welcome(self, peer: int) -> None:
        stream = self._streams.get(peer)
        if stream is not None:
            self._pending.remove(peer)
            stream.welcome()

    def tend(self, now: float) -> float | None:
        if not self._pending.peers and self._accepting:
            return None
        for peer in self._pending.overdue(now):
            self._show_out(peer)
        if not self._accepting:
            self._accept()
        return now + GRACE if not self._accepting else self._pending.wake(now)

    def send(self, peer: int, frames: Sequence[Sendable]) -> bool:
        """Send or queue; False if the peer is none of ours."""
        stream = self._streams.get(peer)
        if stream is None:
            return False
        stream.send(frames)
        if stream.unsent > self._state.most_unsent:
            self._state.swamped[peer] = stream.unsent
        return True

    def unsent(self, peer: int) -> int | None:
        """See `port.Listener`; None if the peer is none of ours."""
        stream = self._streams.get(peer)
        return None if stream is None else stream.unsent

    def disconnect(self, peer: int) -> bool:
        """Close the stream of a peer, with what the kernel still takes for it; False if it is none of ours."""
        if peer not in self._streams:
            return False
        self._streams[peer].flush()
        self._forget(peer)
        return True

    def close(self, linger: float) -> None:
        """Stop listening, send what is queued for at most `linger` seconds, close."""
        if self._accepting:
            self._poller.remove(self._listening.fileno())
        self._listening.close()
        self._accepting = True
        flush_all(self._streams.values(), linger)
        for peer in list(self._streams):
            self._forget(peer)

    def abandon(self) -> None:
        """In a forked child: drop this copy of the descriptor."""
        self._listening.close()

    def _forget(self, peer: int) -> None:
        stream = self._streams.pop(peer)
        fd = stream.fd
        del self._peers[fd]
        self._state.connections -= 1
        self._pending.remove(peer)
        self._poller.remove(fd)
        stream.close()
        if not self._accepting:
            self._pause(False)

    def _show_out(self, peer: int) -> None:
        """Close the connection of a peer that was not welcomed."""
        self._state.notices.warn("closed a local connection: it did not say who it is")
        self._forget(peer)
        self._state.gone[peer] = True

    def _pause(self, paused: bool) -> None:
        if self._accepting is not paused:
            return
        self._accepting = not paused
        if paused:
            self._state.has_strangers = True
            self._poller.remove(self._listening.fileno())
        else:
            self._poller.add(self._listening.fileno())

    def _make_room(self, now: float) -> bool:
        """Show out who has been silent for longest; False if nobody has been for long."""
        peer = self._pending.oldest(now)
        if peer is None or self._streams[peer].has_input:
            return False
        self._show_out(peer)
        return True

    def _accept(self) -> None:
        """Let in who has come, as long as there is room; the others wait where the kernel keeps them."""
        now, state = time.monotonic(), self._state
        while True:
            if (state.is_full(now) or self._pending.is_crowded(HERE)) and not self._make_room(now):
                self._pause(True)
                return
            try:
                connected, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                self._pause(False)
                return
            except OSError as error:
                state.notices.warn("no new local connections for now: %s", error)
                self._pause(True)
                return
            uid = uid_of(connected)
            if uid != os.geteuid():
                state.notices.warn("refused a local connection of another user (uid %d)", uid)
                connected.close()
                continue
            stream = Stream(connected, state.limit, self._poller.want_write, not state.awaits_welcome)
            state.connections += 1
            peer = state.new_peer()
            self._streams[peer] = stream
            self._peers[stream.fd] = peer
            self._pending.add(peer, HERE, now)
            state.has_strangers = True
            self._poller.add(stream.fd)


def connect_unix(
    address: Address, numeric: Address, limit: int, timeout: float, *, is_again: bool = False
) -> UnixConnection | None:
    """A connection to the user's listener that `numeric` leads to, None if there is none on this machine.

    One that is busy is given so many seconds to accept; it was, and what there is to say was said, if this `is_again`.
    """
    uid = os.geteuid()
    if is_again:
        timeout = _AT_ONCE
    for name in numeric.local_names(uid):
        attempt = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            limit_waiting(attempt, timeout)
            attempt.connect(name)
            if uid_of(attempt) == uid:
                limit_waiting(attempt, 0)
                return UnixConnection(address, attempt, limit)
            if not is_again:
                _log.warning("another user holds the name of the local socket of %s: using tcp", address.url)
        except OSError:
            pass  # nobody there, or too busy to accept: tcp tells which
        attempt.close()
    return None


def owner_of_name(address: Address) -> int | None:
    """The user who listens under the local name of the numeric `address`; None if nobody does at this moment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        attempt.setblocking(False)
        try:
            attempt.connect(address.local_name(os.geteuid()))
        except BlockingIOError:  # somebody does, who has many to accept: whoever took the name of this user's port
            return os.geteuid()
        except OSError:
            return None
        return uid_of(attempt)


def listen_unix(address: Address, poller: Poller, state: ListenerState) -> UnixPeers | None:
    """Listen under the local name of the numeric `address`, None if another user squats on it (tcp works without).

    Who has taken it and does not listen yet is given a moment. Raises `AddressInUse` if this user listens there.
    """
    for _ in range(_LOOKS):
        try:
            return UnixPeers(address.local_name(os.geteuid()), poller, state)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                _log.warning("no local socket for %s: %s", address.url, error)
                return None
        owner = owner_of_name(address)
        if owner == os.geteuid():
            raise AddressInUse(f"another scheduler of yours listens at {address.url}: choose another port")
        if owner is not None:
            break
        time.sleep(_BETWEEN)  # it is gone again, or begins to listen: which of the two begin at once has the port?
    _log.warning("another user holds the name of the local socket of %s: everybody will use tcp", address.url)
    return None


def uid_of(connected: socket.socket) -> int:
    """User id of the process at the other end, as the kernel noted it."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def limit_waiting(attempt: socket.socket, seconds: float) -> None:
    """How long a blocking `connect` waits for room in the listener's queue; 0 is for ever."""
    microseconds = int(seconds * 1e6)
    value = struct.pack("ll", microseconds // 1_000_000, microseconds % 1_000_000)
    attempt.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
