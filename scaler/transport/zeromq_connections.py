"""The tcp connections under a ZeroMQ socket, by their descriptors: where they come from, what arrived, how they end.

ZeroMQ tells the descriptors but has no call that ends one connection. It owns them: nothing here keeps or closes one.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from collections.abc import Iterator

#: Where `tcp_info` has the bytes that were acknowledged and received, and how long it is up to there.
_COUNTS = struct.Struct("=120xQQ")


@contextlib.contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """The connection, for a moment."""
    connection = socket.socket(fileno=fd)
    try:
        yield connection
    finally:
        connection.detach()


def address_of(fd: int) -> str:
    """The host at the other end; empty if the connection is over."""
    try:
        with _borrowed(fd) as connection:
            return str(connection.getpeername()[0])
    except (OSError, IndexError):
        return ""


def received_by(fd: int) -> int:
    """How many bytes came over a connection so far; 0 where the system does not tell."""
    return _counts(fd)[1]


def acknowledged_by(fd: int) -> int:
    """How many bytes came to the other host so far; 0 where the system does not tell."""
    return _counts(fd)[0]


def carried_by(fd: int) -> int:
    """How many bytes came so far, here and at the other host; 0 where the system does not tell."""
    return sum(_counts(fd))


def _counts(fd: int) -> tuple[int, int]:
    if sys.platform != "linux" or fd < 0:
        return 0, 0
    try:
        # asked of each silent peer, many times a second: not to say what it is would take three more system calls
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fd)
        try:
            told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS.size)
        finally:
            connection.detach()
    except OSError:
        return 0, 0
    return _COUNTS.unpack(told) if len(told) == _COUNTS.size else (0, 0)


def shut(fd: int) -> None:
    """Have ZeroMQ find that a connection has ended."""
    with contextlib.suppress(OSError), _borrowed(fd) as connection:
        connection.shutdown(socket.SHUT_RDWR)
