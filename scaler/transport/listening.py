"""`listen`: one address, two listeners. The tcp port decides who owns the address; the local socket follows it.

ZeroMQ is loaded when the first visitor comes to the tcp port: programs of this machine come by the local socket.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from scaler import defaults
from scaler.common.poller import Poller
from scaler.errors import AddressError
from scaler.transport import tcp_listening, unix
from scaler.transport.address import Address
from scaler.transport.listener_state import ListenerState
from scaler.transport.port import Listener, Message, Sendable
from scaler.transport.security import Security

if TYPE_CHECKING:
    from scaler.transport.zeromq import ZeroMQPeers

_log = logging.getLogger(__name__)


def listen(
    address: str | Address,
    security: Security,
    *,
    shortcut: bool = True,
    max_message_bytes: int = defaults.MAX_MESSAGE_BYTES,
    awaits_welcome: bool = False,
) -> Listener:
    """Listen at `address` for every user who has the keys, and (`shortcut`) for this user's programs on this machine.

    Whoever says nothing has to go after seconds. With `awaits_welcome` so has whoever is not welcomed
    (`Listener.welcome`), and may not say more than a short greeting before.

    Port 0 picks a free one: see `address` of the result. Raises `AddressError`, `AddressInUse`, and
    `ConnectionFailed` if the host is a name that nobody knows.
    """
    state = ListenerState(max_message_bytes, awaits_welcome, _log)
    wanted = Address.parse(address)
    if wanted.others:
        raise AddressError(f"only one address can be listened at, not {wanted.url}")
    return _TwoListeners(wanted, security, shortcut and unix.AVAILABLE, state)


class _TwoListeners:
    """A `Listener` over both transports."""

    def __init__(self, address: Address, security: Security, shortcut: bool, state: ListenerState) -> None:
        numeric = address.resolve()[0]
        self._pid = os.getpid()
        self._poller = Poller()
        #: until somebody comes to the tcp port
        self._reserved: socket.socket | None = tcp_listening.reserve(numeric)
        port = self._reserved.getsockname()[1]
        self._far_of = partial(_zeromq_peers, numeric.with_port(port), security, self._poller, state)
        self._far: ZeroMQPeers | None = None
        self.address = address.with_port(port)
        self.state = state
        self._near: unix.UnixPeers | None = None
        try:
            if shortcut:  # first: who finds the port open looks for the local socket once more
                self._near = unix.listen_unix(numeric.with_port(port), self._poller, state)
            tcp_listening.let_in(self._reserved, numeric.with_port(port))
            self._poller.add(self._reserved.fileno())
        except BaseException:
            if self._near is not None:
                self._near.close(0)
            self._reserved.close()
            self._poller.close()
            raise
        self._open = True
        self.fileno = self._poller.fileno

    def receive(self) -> list[tuple[int, Message]]:
        inbox: list[tuple[int, Message]] = []
        far = False
        for fd, events in self._poller.poll():
            if self._reserved is not None and fd == self._reserved.fileno():
                self._poller.remove(fd)
                self._far, self._reserved = self._far_of(self._reserved), None
                far = True
            elif self._near is None or not self._near.handle(fd, events, inbox):
                far = True
        if far and self._far is not None:
            self._far.receive(inbox)
        return inbox

    def send(self, peer: int, frames: Sequence[Sendable]) -> None:
        if (self._near is None or not self._near.send(peer, frames)) and self._far is not None:
            self._far.send(peer, frames)

    def origin_of(self, peer: int) -> str:
        return (None if self._far is None else self._far.origin_of(peer)) or unix.HERE

    def welcome(self, peer: int) -> None:
        for peers in (self._near, self._far):
            if peers is not None:
                peers.welcome(peer)

    def stirring(self, now: float) -> list[int]:
        return [] if self._far is None else self._far.stirring(now)

    def tend(self, now: float) -> float | None:
        near = None if self._near is None else self._near.tend(now)
        far = None if self._far is None else self._far.tend(now)
        wake = near if far is None else far if near is None else min(near, far)
        self.state.has_strangers = wake is not None
        return wake

    def unsent(self, peer: int) -> int:
        near = None if self._near is None else self._near.unsent(peer)
        return near if near is not None else 0 if self._far is None else self._far.unsent(peer)

    def disconnect(self, peer: int) -> None:
        if (self._near is None or not self._near.disconnect(peer)) and self._far is not None:
            self._far.disconnect(peer)

    def close(self, linger: float = 1.0) -> None:
        if not self._open or os.getpid() != self._pid:
            return
        self._open = False
        if self._near is not None:
            self._near.close(linger)
        if self._reserved is not None:
            self._poller.remove(self._reserved.fileno())
            self._reserved.close()
        if self._far is not None:
            self._far.close(linger)
        self._poller.close()


def _zeromq_peers(
    address: Address, security: Security, poller: Poller, state: ListenerState, sock: socket.socket
) -> ZeroMQPeers:
    from scaler.transport.zeromq import ZeroMQPeers  # here, so that what is local never loads ZeroMQ

    return ZeroMQPeers(sock, address, security, poller, state)
