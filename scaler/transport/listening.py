"""`listen`: one address, two doors. The tcp port decides who owns the address; the local socket follows it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from scaler.common.poller import new_poller
from scaler.config import DEFAULT_MAX_MESSAGE_BYTES
from scaler.transport import unix
from scaler.transport.address import Address
from scaler.transport.port import Listener, Message, Sendable
from scaler.transport.security import Security


def listen(
    address: str | Address,
    security: Security,
    *,
    shortcut: bool = True,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
) -> Listener:
    """Listen at `address` for every user who has the keys, and (`shortcut`) for this user's programs on this machine.

    Port 0 picks a free one: see `address` of the result. Raises `AddressError`, `AddressInUse`, and
    `ConnectionFailed` if the host is a name that nobody knows.
    """
    return _Doors(Address.parse(address), security, shortcut and unix.AVAILABLE, max_message_bytes)


class _Doors:
    """A `Listener` over both transports."""

    def __init__(self, address: Address, security: Security, shortcut: bool, limit: int) -> None:
        from scaler.transport.zeromq import ZeroMQPeers  # here, so that local clients never load ZeroMQ

        numeric = address.resolve()[0]
        self._pid = os.getpid()
        self._poller = new_poller()
        numbers = itertools.count(1)
        new_peer = numbers.__next__
        self._far = ZeroMQPeers(numeric, security, self._poller, new_peer, limit)
        self.address = address.with_port(self._far.port)
        self._near: unix.UnixPeers | None = None
        if shortcut:
            try:
                self._near = unix.listen_unix(numeric.with_port(self._far.port), self._poller, new_peer, limit)
            except BaseException:
                self._far.close(0)
                self._poller.close()
                raise
        self._open = True
        self.fileno = self._poller.fileno

    def receive(self) -> list[tuple[int, Message]]:
        """See `port.Listener`."""
        inbox: list[tuple[int, Message]] = []
        far = False
        for fd, events in self._poller.poll():
            if self._near is None or not self._near.handle(fd, events, inbox):
                far = True
        if far:
            self._far.receive(inbox)
        return inbox

    def send(self, peer: int, frames: Sequence[Sendable]) -> None:
        """See `port.Listener`."""
        if self._near is None or not self._near.send(peer, frames):
            self._far.send(peer, frames)

    def closed(self) -> list[int]:
        """See `port.Listener`."""
        gone, self._far.closed = self._far.closed, []
        if self._near is not None and self._near.closed:
            gone += self._near.closed
            self._near.closed = []
        return gone

    def disconnect(self, peer: int) -> None:
        """See `port.Listener`."""
        if self._near is None or not self._near.disconnect(peer):
            self._far.disconnect(peer)

    def close(self, linger: float = 1.0) -> None:
        """See `port.Listener`."""
        if not self._open or os.getpid() != self._pid:
            return
        self._open = False
        if self._near is not None:
            self._near.close(linger)
        self._far.close(linger)
        self._poller.close()
