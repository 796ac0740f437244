"""Messages between an agent and its workers: u64 length and a marshalled tuple, over a stream socketpair.

Both ends run the same interpreter on one host, so marshal, the fastest encoding there is, is safe here.
"""

from __future__ import annotations

import marshal
import os
import socket
import struct
import threading
from collections import deque
from typing import Any

Message = tuple[Any, ...]

_LENGTH = struct.Struct("=Q")
_CHUNK = 1 << 18

#: The largest bytes object that marshal can write.
LARGEST_PAYLOAD = (1 << 31) - 1


def encode(message: Message) -> tuple[bytes, ...]:
    """Return a message with its length before it, as pieces to send one after the other; a large one is not copied."""
    body = marshal.dumps(message)
    length = _LENGTH.pack(len(body))
    return (length + body,) if len(body) < _CHUNK else (length, body)


class Incoming:
    """Takes messages from a socket without blocking; to be used by one thread at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        #: bytes read and not yet parsed are `_buffer[:_filled]`; grown for a larger message, shrunk after it
        self._buffer = bytearray(_CHUNK)
        self._filled = 0

    def read(self) -> list[Message]:
        """Return all complete messages there are, maybe none. Raises EOFError when the other end is gone."""
        messages: list[Message] = []
        while True:
            with memoryview(self._buffer) as view:
                try:
                    count = self._socket.recv_into(view[self._filled :], 0, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return messages
                except ConnectionResetError:
                    count = 0
                if count == 0:
                    if messages:
                        return messages  # the end is told by the next call
                    raise EOFError
                full = self._filled + count == len(view)
                self._filled += count
                wanted = self._parse(view, messages)
            if wanted > len(self._buffer):
                larger = bytearray(wanted)
                larger[: self._filled] = self._buffer[: self._filled]
                self._buffer = larger
            elif self._filled == 0 and len(self._buffer) > _CHUNK:
                self._buffer = bytearray(_CHUNK)
            if not full:
                return messages

    def _parse(self, view: memoryview, messages: list[Message]) -> int:
        """Move complete messages from the buffer to `messages`; return the size of buffer that the next one needs."""
        begin, filled, wanted = 0, self._filled, 0
        while filled - begin >= 8:
            end = begin + 8 + _LENGTH.unpack_from(view, begin)[0]
            if end > filled:
                wanted = end - begin
                break
            messages.append(marshal.loads(view[begin + 8 : end]))
            begin = end
        if begin:
            rest = filled - begin
            if rest:
                view[:rest] = bytes(view[begin:filled])
            self._filled = rest
        return wanted


class Outgoing:
    """Sends messages without blocking: what the socket does not take waits here (the agent's side)."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._waiting: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        """Say whether something waits for the socket to be writable."""
        return bool(self._waiting)

    def send(self, message: Message) -> None:
        """Send a message now or later; says nothing when the other end is gone."""
        self._waiting.extend(map(memoryview, encode(message)))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes; to be called when it is writable."""
        waiting = self._waiting
        while waiting:
            data = waiting[0]
            try:
                sent = self._socket.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                waiting.clear()
                return
            if sent < len(data):
                waiting[0] = data[sent:]
            else:
                waiting.popleft()


class Speaker:
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

    def send(self, message: Message) -> None:
        """Send a message; does not return when the agent is gone."""
        data = encode(message)
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
