"""A tcp port that waits for its first visitor: only then is there ZeroMQ behind it.

Loading ZeroMQ takes as long as a tenth of a local cluster's start, whose programs come by the local socket.
"""

from __future__ import annotations

import errno
import socket

from scaler.errors import AddressError, AddressInUse
from scaler.transport.address import Address

#: connections that wait to be accepted: beyond them the kernel has those who come wait for a second and more
_BACKLOG = 4096


def reserve(address: Address) -> socket.socket:
    """Take a numeric address, at which nobody is let in yet; port 0 picks a free one.

    Raises `AddressInUse`, `AddressError`.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((address.host, address.port))
    except OSError as error:
        sock.close()
        raise _trouble(address, error) from None
    return sock


def let_in(sock: socket.socket, address: Address) -> None:
    """Listen at an address that was reserved. Raises `AddressInUse` if somebody does who reserved it, too."""
    try:
        sock.listen(_BACKLOG)
    except OSError as error:
        raise _trouble(address, error) from None


def _trouble(address: Address, error: OSError) -> AddressError | AddressInUse:
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(f"another program listens at {address.url}: choose another port")
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return AddressError(f"{address.url}: {address.host} is no address of this machine")
    return AddressError(f"cannot listen at {address.url}: {error}")
