"""`connect`: the local socket if the listener is on this machine and of this user, tcp otherwise.

Before ZeroMQ is loaded a plain tcp connection asks if anybody listens, because the kernel's answer is immediate and
exact ("refused", "no route") where ZeroMQ would go on trying in silence.
"""

from __future__ import annotations

import math
import socket
import time

from scaler import defaults
from scaler.common.attempts import Attempts
from scaler.errors import ConnectionFailed, ConnectionTimeout, HandshakeRefused
from scaler.transport import unix
from scaler.transport.address import Address
from scaler.transport.port import Connection
from scaler.transport.security import Security

#: seconds in which whoever takes a connection says what it speaks
GREETING = 0.5


def connect(
    address: str | Address,
    security: Security,
    timeout: float | None = 5.0,
    *,
    retry: bool = False,
    shortcut: bool = True,
    max_message_bytes: int = defaults.MAX_MESSAGE_BYTES,
) -> Connection:
    """A connection whose handshake is done. Blocks for at most `timeout` seconds (None: no limit); any thread.

    When nobody can be reached there: raises `ConnectionFailed` at once, or tries again until `timeout` has passed if
    `retry` is set (for programs that may be started before the scheduler). Raises `HandshakeRefused` if the other side
    has another key or is no scheduler, `ConnectionTimeout` if it says nothing, `AddressError`.
    """
    wanted = Address.parse(address)
    began = time.monotonic()
    deadline = None if timeout is None else began + timeout
    attempts = Attempts(began, math.inf if timeout is None else timeout)
    while True:
        try:
            return _attempt(wanted, security, deadline, shortcut and unix.AVAILABLE, max_message_bytes)
        except HandshakeRefused:
            raise
        except ConnectionFailed:
            if not retry or attempts.are_over(time.monotonic()):
                raise
        time.sleep(attempts.next_pause(time.monotonic()))


def _attempt(wanted: Address, security: Security, deadline: float | None, shortcut: bool, limit: int) -> Connection:
    candidates = wanted.for_client().resolve()
    if shortcut:
        for numeric in candidates:
            local = unix.connect_unix(wanted, numeric, limit, min(1.0, _left(deadline) or 1.0))
            if local is not None:
                return local
    listening = _find_listening(wanted, candidates, deadline)
    from scaler.transport.zeromq import ZeroMQConnection  # here, so that local clients never load ZeroMQ

    try:
        return ZeroMQConnection(wanted, listening, security, limit, deadline)
    except HandshakeRefused:
        if not _hangs_up(listening, deadline):
            raise
    reason = "what listens there hangs up at once, as a proxy does while there is none behind it"
    raise ConnectionFailed(f"no scheduler at {wanted.url}: {reason}")


def _hangs_up(numeric: Address, deadline: float | None) -> bool:
    """Whether what listens there closes a connection without a word. Who refuses a key says first what it speaks."""
    patience = min(GREETING, _left(deadline) or GREETING)
    try:
        with socket.socket(socket.AF_INET6 if ":" in numeric.host else socket.AF_INET) as probe:
            probe.settimeout(patience)
            probe.connect((numeric.host, numeric.port))
            return not probe.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


def _find_listening(wanted: Address, candidates: list[Address], deadline: float | None) -> Address:
    """The first candidate where a tcp port is open."""
    failure: ConnectionFailed | None = None
    for numeric in candidates:
        try:
            with socket.socket(socket.AF_INET6 if ":" in numeric.host else socket.AF_INET) as probe:
                probe.settimeout(_left(deadline))
                probe.connect((numeric.host, numeric.port))
                if probe.getsockname() != probe.getpeername():  # a free port of the ephemeral range can meet itself
                    return numeric
                raise ConnectionRefusedError
        except ConnectionRefusedError:
            failure = ConnectionFailed(
                f"nothing listens at {wanted.url}; start one with: scaler_scheduler {wanted.url}"
            )
        except TimeoutError:
            text = f"no answer from {wanted.url}: is the host up, and does a firewall let it through?"
            raise ConnectionTimeout(text) from None
        except OSError as error:
            failure = failure or ConnectionFailed(f"{wanted.url} cannot be reached: {error.strerror or error}")
    assert failure is not None
    try:
        raise failure
    finally:
        del failure  # its traceback has this frame: they would keep each other, and the socket


def _left(deadline: float | None) -> float | None:
    """Seconds until `deadline`, a little more than none."""
    return None if deadline is None else max(0.001, deadline - time.monotonic())
