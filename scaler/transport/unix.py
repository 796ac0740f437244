"""Programs of one user on one Linux machine: an abstract stream socket, checked by the kernel.

An abstract name is no file: it needs no directory, leaves nothing behind, is gone with its socket, and belongs to the
network namespace as tcp ports do. Anybody may connect to one or take one, so both ends ask the kernel for the user id
of the other (SO_PEERCRED), the listener when it accepts and the client before it says a word.

A forked child would keep connections open that its parent, or the death of its parent, should close. The sockets are
therefore closed in every forked child.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Protocol
from weakref import WeakSet

from scaler.errors import AddressInUse, ProtocolError
from scaler.transport.address import Address
from scaler.transport.framing import Decoder, encode
from scaler.transport.poller import READABLE, WRITABLE, Poller, new_poller
from scaler.transport.port import Message, Sendable

#: False where there are no abstract names: everything goes over tcp.
AVAILABLE = sys.platform == "linux"

_log = logging.getLogger(__name__)

#: Bytes asked for in one `recv`.
_READ_BYTES = 1 << 18
#: Bytes of large messages that one call of `receive` takes before others have their turn.
_PASS_BYTES = 1 << 23
#: Wanted size of the kernel's buffer, so that a message of a megabyte leaves at once (the kernel may give less).
_SOCKET_BUFFER_BYTES = 4 << 20
#: Buffers in one `sendmsg`; the kernel's limit is 1024.
_SEND_BUFFERS = 512


class Stream:
    """One established socket with its buffers, at either end. One thread receives, any thread sends."""

    __slots__ = ("__weakref__", "_decoder", "_limit", "_lock", "_on_backlog", "_socket", "_unsent", "fd", "reason")

    def __init__(self, connected: socket.socket, limit: int, on_backlog: Callable[[int, bool], None]) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        self._socket = connected
        self._decoder = Decoder(limit)
        self._limit = limit
        #: Called with (descriptor, True) when bytes are left to send, with False when they are gone.
        self._on_backlog = on_backlog
        #: What the kernel did not take yet, in order, without empty buffers. Guarded by `_lock`.
        self._unsent: deque[memoryview] = deque()
        self._lock = Lock()
        self.fd = connected.fileno()
        #: Why nothing arrives any more; None while the stream is well.
        self.reason: str | None = None
        _open_sockets.add(self)

    def receive(self, messages: list[Message]) -> None:
        """Append what has arrived; sets `reason` when the stream has ended."""
        decoder = self._decoder
        taken = 0
        try:
            while taken < _PASS_BYTES:
                wanted = decoder.wanted
                if wanted is None:
                    data = self._socket.recv(_READ_BYTES)
                    if not data:
                        self.reason = "the other side closed the connection"
                        return
                    messages += decoder.feed(data)
                    if decoder.wanted is None:
                        return
                    taken += len(data)
                    continue
                count = self._socket.recv_into(wanted)
                if not count:
                    self.reason = "the other side closed the connection in the middle of a message"
                    return
                message = decoder.filled(count)
                if message is not None:
                    messages.append(message)
                    return
                taken += count
        except BlockingIOError:
            return
        except ProtocolError as error:
            self.reason = f"the other side broke the protocol: {error}"
        except (OSError, MemoryError) as error:
            self.reason = f"the connection broke: {error}"

    def send(self, frames: Sequence[Sendable]) -> None:
        """Give one message to the kernel, keep what it does not take."""
        buffers = encode(frames, self._limit)
        with self._lock:
            if self.reason is not None:
                return
            if self._unsent:
                self._unsent.extend(memoryview(buffer).cast("B") for buffer in buffers)
                return
            try:
                sent = self._socket.sendmsg(buffers[:_SEND_BUFFERS], (), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # the peer is gone; `receive` will find the end after its last words
            if len(buffers) == 1 and sent == len(buffers[0]):
                return
            self._unsent.extend(memoryview(buffer).cast("B") for buffer in buffers)
            self._consume(sent)
            if self._unsent:
                self._on_backlog(self.fd, True)

    def flush(self) -> bool:
        """Give the kernel more of what is queued; True when nothing is left."""
        with self._lock:
            while self._unsent and self.reason is None:
                try:
                    buffers = [self._unsent[index] for index in range(min(len(self._unsent), _SEND_BUFFERS))]
                    self._consume(self._socket.sendmsg(buffers, (), socket.MSG_NOSIGNAL))
                except BlockingIOError:
                    return False
                except OSError:
                    self._unsent.clear()
            self._unsent.clear()
            if self.fd >= 0:
                self._on_backlog(self.fd, False)
            return True

    def _consume(self, sent: int) -> None:
        unsent = self._unsent
        while sent:
            size = len(unsent[0])
            if size > sent:
                unsent[0] = unsent[0][sent:]
                return
            sent -= size
            unsent.popleft()

    @property
    def has_backlog(self) -> bool:
        """True while bytes wait for the kernel to take them."""
        return bool(self._unsent)

    def close(self, reason: str = "closed by this side") -> None:
        """Close at once."""
        with self._lock:
            self.reason = self.reason or reason
            self._unsent.clear()
            self.fd = -1
            self._socket.close()

    def abandon(self) -> None:
        """In a forked child: drop this copy of the descriptor, the parent's connection is untouched."""
        self.reason = "the connection belongs to the parent of this forked process"
        self.fd = -1
        self._socket.close()


class UnixConnection:
    """The client's end (see `port.Connection`)."""

    kind = "unix"

    def __init__(self, address: Address, connected: socket.socket, limit: int) -> None:
        self.address = address
        self._poller = new_poller()
        self.fileno = self._poller.fileno
        self._stream = Stream(connected, limit, self._poller.want_write)
        self._poller.add(self._stream.fd)
        self.send = self._stream.send

    @property
    def is_closed(self) -> bool:
        """See `port.Connection`."""
        return self._stream.reason is not None

    def receive(self) -> list[Message]:
        """See `port.Connection`."""
        messages: list[Message] = []
        if self._stream.reason is None:
            if self._stream.has_backlog:
                self._stream.flush()
            self._stream.receive(messages)
        return messages

    def trouble(self) -> str | None:
        """See `port.Connection`."""
        return self._stream.reason

    def close(self, linger: float = 1.0) -> None:
        """See `port.Connection`."""
        if self._stream.fd < 0:
            return
        _flush_all([self._stream], linger)
        self._stream.close()
        self._poller.close()


class UnixPeers:
    """The listener's end: accepts, and holds one stream a peer."""

    def __init__(self, address: Address, poller: Poller, new_peer: Callable[[], int], limit: int) -> None:
        """Listen under the name of the numeric `address`. Raises OSError (EADDRINUSE)."""
        self._poller = poller
        self._new_peer = new_peer
        self._limit = limit
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listening.setblocking(False)
            self._listening.bind(address.local_name(os.geteuid()))
            self._listening.listen(4096)
        except OSError:
            self._listening.close()
            raise
        self._streams: dict[int, Stream] = {}
        #: Peer of each descriptor.
        self._peers: dict[int, int] = {}
        #: False while the process is out of descriptors: nobody is accepted until one is free.
        self._accepting = True
        #: Peers that left by themselves since the shell last asked.
        self.closed: list[int] = []
        poller.add(self._listening.fileno())
        _open_sockets.add(self)

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
            stream.receive(messages)
            inbox.extend([(peer, message) for message in messages])
            if stream.reason is not None:
                _log.debug("local peer %d left: %s", peer, stream.reason)
                self._forget(peer)
                self.closed.append(peer)
        return True

    def send(self, peer: int, frames: Sequence[Sendable]) -> bool:
        """Send or queue; False if the peer is none of ours."""
        stream = self._streams.get(peer)
        if stream is None:
            return False
        stream.send(frames)
        return True

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
        _flush_all(self._streams.values(), linger)
        for peer in list(self._streams):
            self._forget(peer)

    def abandon(self) -> None:
        """In a forked child: drop this copy of the descriptor."""
        self._listening.close()

    def _forget(self, peer: int) -> None:
        stream = self._streams.pop(peer)
        fd = stream.fd
        del self._peers[fd]
        self._poller.remove(fd)
        stream.close()
        if not self._accepting:
            self._accepting = True
            self._poller.add(self._listening.fileno())

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                _log.error("no new local connections for now: %s", error)
                self._poller.remove(self._listening.fileno())
                self._accepting = False
                return
            uid = _uid_of(connected)
            if uid != os.geteuid():
                _log.warning("refused a local connection of another user (uid %d)", uid)
                connected.close()
                continue
            stream = Stream(connected, self._limit, self._poller.want_write)
            peer = self._new_peer()
            self._streams[peer] = stream
            self._peers[stream.fd] = peer
            self._poller.add(stream.fd)


def connect_unix(address: Address, numeric: Address, limit: int, timeout: float) -> UnixConnection | None:
    """A connection to the user's listener that `numeric` leads to, None if there is none on this machine."""
    uid = os.geteuid()
    for name in numeric.local_names(uid):
        attempt = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _limit_waiting(attempt, timeout)
            attempt.connect(name)
            if _uid_of(attempt) == uid:
                _limit_waiting(attempt, 0)
                return UnixConnection(address, attempt, limit)
            _log.warning("another user holds the name of the local socket of %s: using tcp", address.url)
        except OSError:
            pass  # nobody there, or too busy to accept: tcp tells which
        attempt.close()
    return None


def name_is_mine(address: Address) -> bool:
    """True if the local name of the numeric `address` is taken by this user rather than by another."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        attempt.setblocking(False)
        try:
            attempt.connect(address.local_name(os.geteuid()))
        except BlockingIOError:
            return True
        except OSError:
            return False
        return _uid_of(attempt) == os.geteuid()


def listen_unix(address: Address, poller: Poller, new_peer: Callable[[], int], limit: int) -> UnixPeers | None:
    """Listen under the local name of the numeric `address`, None if another user squats on it (tcp works without).

    Raises `AddressInUse` if this user listens there already.
    """
    try:
        return UnixPeers(address, poller, new_peer, limit)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            _log.warning("no local socket for %s: %s", address.url, error)
            return None
        if name_is_mine(address):
            raise AddressInUse(f"another scheduler of yours listens at {address.url}: choose another port") from None
        _log.warning("another user holds the name of the local socket of %s: everybody will use tcp", address.url)
        return None


def _uid_of(connected: socket.socket) -> int:
    """User id of the process at the other end, as the kernel noted it."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def _limit_waiting(attempt: socket.socket, seconds: float) -> None:
    """How long a blocking `connect` waits for room in the listener's queue; 0 is for ever."""
    microseconds = int(seconds * 1e6)
    value = struct.pack("ll", microseconds // 1_000_000, microseconds % 1_000_000)
    attempt.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


def _flush_all(streams: Iterable[Stream], linger: float) -> None:
    """Send what is queued until it is gone or `linger` seconds have passed."""
    deadline = time.monotonic() + linger
    pending = {stream.fd: stream for stream in streams if stream.has_backlog}
    writable = select.poll()
    for fd in pending:
        writable.register(fd, select.POLLOUT)
    while pending and (left := deadline - time.monotonic()) > 0:
        for fd, _ in writable.poll(left * 1000):
            if pending[fd].flush():
                del pending[fd]
                writable.unregister(fd)


class _Abandonable(Protocol):
    def abandon(self) -> None: ...


_open_sockets: WeakSet[_Abandonable] = WeakSet()


def _abandon_in_child() -> None:
    for opened in list(_open_sockets):
        opened.abandon()


if AVAILABLE:
    os.register_at_fork(after_in_child=_abandon_in_child)
