"""`connect`: the local socket if the listener is on this machine and of this user, tcp otherwise.

Before ZeroMQ is loaded a plain tcp connection asks if anybody listens, because the kernel's answer is immediate and
exact ("refused", "no route") where ZeroMQ would go on trying in silence.

A scheduler with another key closes the connection in the handshake, without a word; so does one that is killed then,
and a proxy with nobody behind it. Trying again tells them apart: who is there each time, and says what it speaks before
it hangs up, does not accept the key.
"""

from __future__ import annotations

import errno
import math
import socket
import time

from scaler import defaults
from scaler.common.attempts import Attempts
from scaler.common.process_limits import words_of
from scaler.errors import ConnectionFailed, ConnectionTimeout, HandshakeRefused, ScalerError
from scaler.transport import unix
from scaler.transport.address import Address
from scaler.transport.failures import HandshakeCut, nobody, refusal, silence
from scaler.transport.port import Connection
from scaler.transport.security import Security

#: seconds in which whoever takes a connection says what it speaks
GREETING = 2.0
#: seconds until a handshake that was cut off is begun again, each time; if the last one is, too, the key is refused
AGAIN = (0.05, 0.25)
#: seconds that there are for it, at least: what is wrong can be said also when time is nearly over
AT_LEAST = 0.5
#: seconds that one of several addresses has to answer, at most, before the next is tried
SHARE = 2.0
#: seconds after which an address that does not answer is tried anew
ANEW = 5.0
#: seconds in which a key is refused; a scheduler too busy to look at it hangs up later (`pending_peers.PATIENCE`)
PROMPT = 2.0


def connect(
    address: str | Address,
    security: Security,
    timeout: float | None = 5.0,
    *,
    retry: bool = False,
    shortcut: bool = True,
    max_message_bytes: int = defaults.MAX_MESSAGE_BYTES,
    if_refused: str = "start one with: scaler_scheduler {url}",
) -> Connection:
    """A connection whose handshake is done. Blocks for at most `timeout` seconds (None: no limit), a second longer if
    somebody closes it in the handshake; any thread.

    When nobody can be reached there, or this process lacks descriptors: raises `ConnectionFailed` at once, or tries
    again until `timeout` has passed if `retry` is set (for programs that may be started before the scheduler). Raises
    `HandshakeRefused` if the other side has another key or is no scheduler, `ConnectionTimeout` if it says nothing,
    `AddressError`. `if_refused` is what people can do where nothing listens.
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
        except ConnectionFailed as error:
            if not retry or attempts.are_over(time.monotonic()):
                if not isinstance(error, _Refused):
                    raise
                raise ConnectionFailed(f"{error}; {if_refused.format(url=wanted.url)}") from None
        time.sleep(attempts.next_pause(time.monotonic()))


def _attempt(wanted: Address, security: Security, deadline: float | None, shortcut: bool, limit: int) -> Connection:
    try:
        return _reach(wanted, security, deadline, shortcut, limit)
    except ScalerError:
        raise
    except OSError as error:  # what this process runs into itself
        raise ConnectionFailed(f"{wanted.url} cannot be reached: {words_of(error)}") from error


def _reach(wanted: Address, security: Security, deadline: float | None, shortcut: bool, limit: int) -> Connection:
    candidates = wanted.for_client().resolve()
    local = _by_local_socket(wanted, candidates, deadline, limit) if shortcut else None
    if local is None:
        listening = _find_listening(wanted, candidates, deadline, greets=False)
        if shortcut:  # it may have begun to listen just now, and by the local socket first
            local = _by_local_socket(wanted, candidates, deadline, limit, is_again=True)
    return _shake_hands(wanted, candidates, listening, security, deadline, limit) if local is None else local


def _by_local_socket(
    wanted: Address, candidates: list[Address], deadline: float | None, limit: int, *, is_again: bool = False
) -> Connection | None:
    for numeric in candidates:
        local = unix.connect_unix(wanted, numeric, limit, min(1.0, _left(deadline) or 1.0), is_again=is_again)
        if local is not None:
            return local
    return None


def _shake_hands(
    wanted: Address,
    candidates: list[Address],
    listening: Address,
    security: Security,
    deadline: float | None,
    limit: int,
) -> Connection:
    """A connection by tcp to the candidate that listens, after several handshakes if need be: see the top."""
    from scaler.transport.zeromq import open_connection  # here, so that local clients never load ZeroMQ

    for pause in (0.0, *AGAIN):
        if pause:
            time.sleep(pause)
            listening = _find_listening(wanted, candidates, deadline, greets=True)
        began = time.monotonic()
        try:
            return open_connection(wanted, listening, security, limit, deadline)
        except HandshakeCut:
            now = time.monotonic()
            if now - began > PROMPT:
                raise silence(wanted) from None
            deadline = None if deadline is None else max(deadline, now + AT_LEAST)
    raise refusal(wanted, security)


def _find_listening(wanted: Address, candidates: list[Address], deadline: float | None, greets: bool) -> Address:
    """The first candidate where a tcp port is open; if it `greets`, somebody is there who says what it speaks.

    Where nobody answers it is tried anew until the deadline: the kernel asks less and less often.
    """
    while True:
        try:
            return _look(wanted, candidates, deadline, greets)
        except _Unanswered:
            if deadline is None or time.monotonic() >= deadline:
                raise


class _Unanswered(ConnectionTimeout):
    """Nobody has answered, not even that nobody listens."""


class _Refused(ConnectionFailed):
    """The host has answered that nobody listens, or a firewall in its name."""


def _look(wanted: Address, candidates: list[Address], deadline: float | None, greets: bool) -> Address:
    """One look at each. One that does not answer leaves the others their shares of the time."""
    failure: ConnectionFailed | None = None
    for tried, numeric in enumerate(candidates):
        try:
            with socket.socket(socket.AF_INET6 if ":" in numeric.host else socket.AF_INET) as probe:
                left, others = _left(deadline), len(candidates) - tried - 1
                if left is not None or others:
                    most = SHARE if others else ANEW
                    probe.settimeout(most if left is None else min(most, left / (others + 1)))
                probe.connect((numeric.host, numeric.port))
                if probe.getsockname() == probe.getpeername():  # a free port of the ephemeral range can meet itself
                    raise ConnectionRefusedError
                if greets:
                    _await_greeting(probe, wanted, deadline)
                return numeric
        except ConnectionFailed:
            raise  # it is known what listens there
        except ConnectionRefusedError:
            failure = _Refused(f"nothing listens at {wanted.url}")
        except TimeoutError:
            text = f"no answer from {wanted.url}: is the host up, and does a firewall let it through?"
            failure = failure or _Unanswered(text)
        except OSError as error:
            failure = failure or ConnectionFailed(f"{wanted.url} cannot be reached: {_reason_of(error)}")
    assert failure is not None
    try:
        raise failure
    finally:
        del failure  # its traceback has this frame: they would keep each other, and the socket


def _reason_of(error: OSError) -> str:
    return words_of(error) if error.errno == errno.EMFILE else error.strerror or str(error)


def _await_greeting(probe: socket.socket, wanted: Address, deadline: float | None) -> None:
    probe.settimeout(min(GREETING, _left(deadline) or GREETING))
    try:
        if probe.recv(1):
            return
    except TimeoutError:
        raise silence(wanted) from None
    except OSError:
        pass  # it was reset
    raise nobody(wanted)


def _left(deadline: float | None) -> float | None:
    """Seconds until `deadline`, a little more than none."""
    return None if deadline is None else max(0.001, deadline - time.monotonic())
