"""One established stream socket with its buffers, and what becomes of sockets in a forked child.

A forked child would keep connections open that its parent, or the death of its parent, should close. Whatever registers
with `forget_in_children` is therefore closed in every forked child.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Protocol
from weakref import WeakSet

from scaler.errors import ProtocolError
from scaler.transport.framing import Decoder, encode
from scaler.transport.port import Message, Sendable

#: Bytes asked for in one `recv`; more would make malloc map and unmap the buffer each time.
_READ_BYTES = 1 << 16
#: Bytes of large messages that one call of `receive` takes before others have their turn.
_PASS_BYTES = 1 << 23
#: Wanted size of the kernel's buffer, so that a message of a megabyte leaves at once (the kernel may give less).
_SOCKET_BUFFER_BYTES = 4 << 20
#: What a buffer takes beside its bytes while it waits to be sent.
_BUFFER_BYTES = 256
#: Buffers in one `sendmsg`; the kernel's limit is 1024.
_SEND_BUFFERS = 512


class Stream:
    """One established socket with its buffers, at either end. One thread receives, any thread sends."""

    __slots__ = (
        "__weakref__",
        "_decoder",
        "_limit",
        "_lock",
        "_on_backlog",
        "_socket",
        "_unsent",
        "fd",
        "reason",
        "unsent",
    )

    def __init__(
        self, connected: socket.socket, limit: int, on_backlog: Callable[[int, bool], None], is_welcome: bool = True
    ) -> None:
        """Until `welcome` is called, if not `is_welcome`, a message that arrives may only be a greeting."""
        connected.setblocking(False)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        self._socket = connected
        self._decoder = Decoder(limit, is_welcome)
        self._limit = limit
        #: Called with (descriptor, True) when bytes are left to send, with False when they are gone.
        self._on_backlog = on_backlog
        #: What the kernel did not take yet, in order, without empty buffers. Guarded by `_lock`.
        self._unsent: deque[memoryview] = deque()
        #: The memory that those take, in bytes.
        self.unsent = 0
        self._lock = Lock()
        self.fd = connected.fileno()
        #: Why nothing arrives any more; None while the stream is well.
        self.reason: str | None = None
        forget_in_children(self)

    def welcome(self) -> None:
        """The other side has said who it is."""
        self._decoder.welcome()

    def receive(self, messages: list[Message], small_bytes: int = _READ_BYTES) -> None:
        """Append what has arrived; sets `reason` when the stream has ended.

        Of small messages it takes no more than `small_bytes` at a time.
        """
        decoder = self._decoder
        taken = 0
        try:
            while taken < _PASS_BYTES:
                wanted = decoder.wanted
                if wanted is None:
                    data = self._socket.recv(min(small_bytes, _READ_BYTES))
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
                self._keep(buffers)
                return
            try:
                sent = self._socket.sendmsg(buffers[:_SEND_BUFFERS], (), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # the peer is gone; `receive` will find the end after its last words
            if len(buffers) == 1 and sent == len(buffers[0]):
                return
            self._keep(buffers)
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
            self.unsent = 0
            if self.fd >= 0:
                self._on_backlog(self.fd, False)
            return True

    def _keep(self, buffers: Sequence[Sendable]) -> None:
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            self._unsent.append(view)
            self.unsent += len(view) + _BUFFER_BYTES

    def _consume(self, sent: int) -> None:
        unsent = self._unsent
        self.unsent -= sent
        while sent:
            size = len(unsent[0])
            if size > sent:
                unsent[0] = unsent[0][sent:]
                return
            sent -= size
            unsent.popleft()
            self.unsent -= _BUFFER_BYTES

    @property
    def has_backlog(self) -> bool:
        """True while bytes wait for the kernel to take them."""
        return bool(self._unsent)

    @property
    def has_input(self) -> bool:
        """Something has arrived, or the other side has closed the connection."""
        arrived = select.poll()
        arrived.register(self.fd, select.POLLIN)
        return bool(arrived.poll(0))

    def close(self) -> None:
        """Close at once."""
        with self._lock:
            self.reason = self.reason or "closed by this side"
            self._unsent.clear()
            self.unsent = 0
            self.fd = -1
            self._socket.close()

    def abandon(self) -> None:
        """In a forked child: drop this copy of the descriptor, the parent's connection is untouched."""
        self.reason = "the connection belongs to the parent of this forked process"
        self.fd = -1
        self._socket.close()


def flush_all(streams: Iterable[Stream], linger: float) -> None:
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


class Abandonable(Protocol):
    """Something with a descriptor that a forked child should not keep."""

    def abandon(self) -> None:
        """In a forked child: drop this copy of the descriptor."""


_open_sockets: WeakSet[Abandonable] = WeakSet()


def forget_in_children(opened: Abandonable) -> None:
    """Have `abandon` called in every child forked from now on, for as long as `opened` lives."""
    _open_sockets.add(opened)


def _abandon_in_child() -> None:
    for opened in list(_open_sockets):
        opened.abandon()


os.register_at_fork(after_in_child=_abandon_in_child)
