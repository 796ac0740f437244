"""Messages between an agent and its workers, one after the other over a stream socketpair: a head and the message.

The head is a u64: the length, and above it a mark. A task may write to its worker's descriptors; behind a few bytes of
its own a length would be another one, and the rest of a message that nobody sends would be waited for.
What the messages look like is `encoding.py`'s to say; each end reads with the one of its functions that is for it.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

from scaler.worker_protocol.encoding import MalformedMessage, from_worker, to_worker
from scaler.worker_protocol.messages import FromWorker, ToWorker

M = TypeVar("M")

_HEAD = struct.Struct("=Q")
#: the upper bytes of a head, which differ from each other and from those of a length
_MARK, _MARK_SHIFT = 0xA7C5, 48
_CHUNK = 1 << 18
#: pieces for one system call
_PIECES = 64

#: bytes that one payload in a message may take: marshal can't write a larger one
LARGEST_PAYLOAD = (1 << 31) - 1
#: bytes of a message to a worker, at most, and of one from a worker for an agent that sets no bound; a length beyond
#: that is none
LARGEST_MESSAGE = 1 << 33
#: bytes of a message beyond those of the largest result in it: its other results, of a moment, and what is said of each
COMPANY = 64 << 20
#: bytes of a large message that one `read` in turns takes: more than a socket keeps, whose other end may be gone
_PASS = 1 << 22


def framed(body: bytes) -> tuple[bytes, ...]:
    """A message with its length before it, as pieces to send one after the other; a large one is not copied."""
    begin = head(len(body))
    return (begin + body,) if len(body) < _CHUNK else (begin, body)


def head(length: int) -> bytes:
    """What comes before a message of so many bytes."""
    return _HEAD.pack(_MARK << _MARK_SHIFT | length)


class Receiver(Generic[M]):
    """Takes messages from a socket without blocking; to be used by one thread at a time."""

    def __init__(
        self,
        sock: socket.socket,
        decode: Callable[[memoryview], M],
        turn: int | None = None,
        largest: int = LARGEST_MESSAGE,
    ) -> None:
        """`decode` makes a message of its bytes, or raises MalformedMessage; one has at most the `largest` bytes.

        `turn`: bytes after which a `read` ends, so that others are heard, if they have a whole message. None: it reads
        all there is.
        """
        self._socket = sock
        self._decode = decode
        self._turn = turn
        self._largest = largest
        #: bytes read and not yet parsed are `_buffer[:_filled]`; another one while a larger message comes
        self._buffer: bytearray | mmap.mmap = bytearray(_CHUNK)
        self._filled = 0
        #: what has come is no message, and why; nothing after it can be read
        self.broken: str | None = None

    def read(self) -> list[M]:
        """Return complete messages, maybe none: all there are, or those of a turn.

        Raises EOFError when the other end is gone, and there is none.

        What comes after bytes that are no message is left unread; `broken` says so then.
        """
        messages: list[M] = []
        most, taken = self._turn or _CHUNK, 0
        while True:
            with memoryview(self._buffer) as view, view[self._filled : self._filled + most] as room:
                try:
                    count = self._socket.recv_into(room, 0, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return messages
                except ConnectionResetError:
                    count = 0
                if count == 0:
                    if messages:
                        return messages  # the end is told by the next call
                    raise EOFError
                full = count == len(room)
                self._filled += count
                taken += count
                try:
                    wanted = self._parse(view, messages)
                except MalformedMessage as error:
                    self.broken = str(error)
                    return messages
            if wanted > len(self._buffer):
                larger = mmap.mmap(-1, wanted, mmap.MAP_PRIVATE)  # a length may lie: it takes memory as it is filled
                larger[: self._filled] = self._buffer[: self._filled]
                self._buffer = larger
            elif self._filled == 0 and len(self._buffer) > _CHUNK:
                self._buffer = bytearray(_CHUNK)
            if not full or (self._turn is not None and (messages or taken >= _PASS)):
                return messages
            most = max(most, wanted - self._filled)

    def _parse(self, view: memoryview, messages: list[M]) -> int:
        """Move complete messages from the buffer to `messages`; return the size of buffer that the next one needs."""
        begin, filled, wanted = 0, self._filled, 0
        while filled - begin >= 8:
            (found,) = _HEAD.unpack_from(view, begin)
            if found >> _MARK_SHIFT != _MARK:
                raise MalformedMessage("it does not begin as one does: a task may have written to its descriptor")
            length = found & (1 << _MARK_SHIFT) - 1
            end = begin + 8 + length
            if end > filled:
                if length > self._largest:
                    raise MalformedMessage(f"its length would be {length:,} bytes, of at most {self._largest:,}")
                wanted = end - begin
                break
            messages.append(self._decode(view[begin + 8 : end]))
            begin = end
        if begin:
            rest = filled - begin
            if rest:
                view[:rest] = bytes(view[begin:filled])
            self._filled = rest
        return wanted


class QueuingSender:
    """Sends messages without blocking: what the socket does not take waits here (the agent's side)."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        #: pieces that wait for the socket to be writable
        self.waiting: deque[memoryview] = deque()

    def send(self, message: ToWorker, more: bool = False) -> bool:
        """Send a message now or later, with `more` together with the next one; False if something waits for the socket.

        Says nothing when the other end is gone.
        """
        self.waiting.extend(map(memoryview, framed(to_worker(message))))
        if more:
            return True
        self.flush()
        return not self.waiting

    def flush(self) -> None:
        """Send what the socket takes; to be called when it is writable."""
        waiting = self.waiting
        while waiting:
            try:
                if len(waiting) == 1:  # as a rule; this takes half as long
                    sent = self._socket.send(waiting[0], socket.MSG_DONTWAIT)
                else:
                    sent = self._socket.sendmsg(list(islice(waiting, _PIECES)), (), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                waiting.clear()
                return
            while waiting and sent >= len(waiting[0]):
                sent -= len(waiting.popleft())
            if sent:
                waiting[0] = waiting[0][sent:]


class BlockingSender:
    """Sends messages from any thread, blocking while the agent does not read (the worker's side).

    A message is sent whole or the process ends: when the agent is gone, there is nobody to work for; when a signal
    handler of the user raises in the middle of a message, the rest of the stream would be garbage.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.RLock()
        self._waiting: deque[bytes] = deque()
        #: this thread is inside `send`, so a signal handler that interrupts it only adds to `_waiting`
        self._sending = False

    def send(self, message: FromWorker) -> None:
        """Send a message; does not return when the agent is gone."""
        data = framed(from_worker(message))
        with self._lock:
            self._waiting.extend(data)
            if self._sending:
                return
            self._sending = True
            try:
                while self._waiting:
                    self._socket.sendall(self._waiting.popleft())
            except BaseException:
                os._exit(1)
            self._sending = False
