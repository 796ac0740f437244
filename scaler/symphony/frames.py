"""What thin workers and the session process say to each other: a kind, a length, a body."""

from __future__ import annotations

import socket
import struct

_HEAD = struct.Struct("<cQ")

#: from a worker: its token, by which rows are known at the side door; then calls, one at a time
TOKEN, CALL = b"T", b"C"
#: to a worker: where the side door is; what the service returned; what its own code raised; that the container is lost
DOOR, VALUE, RAISED, LOST = b"A", b"V", b"X", b"L"
#: to a worker, from the row it waits for: it waits for tasks of its own, it goes on
BLOCKED, UNBLOCKED = b"B", b"U"

TOKEN_BYTES = 16


def send(sock: socket.socket, kind: bytes, body: bytes = b"") -> None:
    """Send a frame; blocks until it is sent. Raises OSError."""
    sock.sendall(_HEAD.pack(kind, len(body)))
    if body:
        sock.sendall(body)


def receive(sock: socket.socket) -> tuple[bytes, bytes]:
    """Wait for a frame: (kind, body). Raises EOFError when the other side is gone, OSError."""
    kind, size = _HEAD.unpack(exactly(sock, _HEAD.size))
    return kind, exactly(sock, size)


def exactly(sock: socket.socket, size: int) -> bytes:
    """Wait for so many bytes. Raises EOFError, OSError."""
    data = bytearray(size)
    view, have = memoryview(data), 0
    while have < size:
        got = sock.recv_into(view[have:])
        if not got:
            raise EOFError
        have += got
    return bytes(data)
