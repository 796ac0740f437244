"""ZeroMQ sockets the way both ends want them: options, monitors, draining, closing."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence

import zmq

from scaler.transport.address import Address
from scaler.transport.framing import LARGE
from scaler.transport.listener_state import PASS_BYTES
from scaler.transport.port import SLACK_BYTES, Message, Sendable

#: Messages and bytes one call of `receive` takes before others have their turn.
_PASS_MESSAGES = 1024
_PASS_BYTES = 1 << 24
#: Messages of one peer that have come to a listener and were not received. Behind them its connection is not read, so
#: who says more than is dealt with fills no memory but its own; nothing is dropped.
_WAITING_MESSAGES = 128
#: A peer that says nothing useful for this long while shaking hands is dropped, in milliseconds.
_HANDSHAKE_MILLISECONDS = 10_000
#: What monitors tell of: connections that come and go, and how handshakes end.
_MONITORED = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
)


#: What there is at least to send what is queued. Without it ZeroMQ ends the process if the other side hangs up in the
#: same moment, in the middle of a message: it wants the other frames, and has given them up.
LEAST_LINGER_MILLISECONDS = 5


def make_socket(context: zmq.Context[zmq.Socket[bytes]], kind: int, address: Address, limit: int) -> zmq.Socket[bytes]:
    """A socket with our options: a limit on the size of frames, keep-alive, and no limit on what waits to be sent."""
    made = context.socket(kind)
    made.setsockopt(zmq.LINGER, LEAST_LINGER_MILLISECONDS)
    made.setsockopt(zmq.SNDHWM, 0)
    made.setsockopt(zmq.RCVHWM, _WAITING_MESSAGES if kind == zmq.ROUTER else 0)
    made.setsockopt(zmq.MAXMSGSIZE, limit + SLACK_BYTES)
    made.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MILLISECONDS)
    made.setsockopt(zmq.IPV6, int(":" in address.host))
    # A machine that vanished is noticed by the kernel within half a minute; the engine's heartbeats may be faster.
    made.setsockopt(zmq.TCP_KEEPALIVE, 1)
    made.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 15)
    made.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 5)
    made.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)
    return made


def monitor_of(observed: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """A socket that tells of connections and handshakes of `observed`."""
    monitor = observed.get_monitor_socket(_MONITORED)
    monitor.setsockopt(zmq.LINGER, 0)
    return monitor


def events_of(monitor: zmq.Socket[bytes]) -> list[tuple[int, int]]:
    """(event, value) of everything the monitor has to tell."""
    events: list[tuple[int, int]] = []
    while has_input(monitor):
        event, value = struct.unpack("=hi", monitor.recv_multipart()[0])
        events.append((event & 0xFFFF, value))
    return events


def has_input(asked: zmq.Socket[bytes]) -> bool:
    """True if something can be received; asking also silences the descriptor (see the top of zeromq.py)."""
    return bool(int(asked.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


def drain(receive_one: Callable[[], int], small_bytes: int = PASS_BYTES) -> bool:
    """Call `receive_one` (it returns the bytes taken) until nothing is left; True if it stopped before that.

    Of messages below `LARGE` it takes no more than `small_bytes`: peers take turns message by message, so nobody's next
    one waits for more than this of the others'.
    """
    taken = small = 0
    for _ in range(_PASS_MESSAGES):
        try:
            size = receive_one()
        except zmq.Again:
            return False
        taken += size
        small += size if size < LARGE else 0
        if taken > _PASS_BYTES or small > small_bytes:
            break
    return True


def bind(router: zmq.Socket[bytes], address: Address, sock: socket.socket) -> None:
    """Take over a socket that listens at this address, with whoever has come there already."""
    router.setsockopt(zmq.USE_FD, sock.detach())
    router.bind(address.url)


def send_message(via: zmq.Socket[bytes], frames: Sequence[Sendable]) -> None:
    """Send or queue; dropped if nobody is there."""
    try:
        via.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:
        pass


def receive_rest(via: zmq.Socket[bytes], frame: zmq.Frame | None = None) -> Message:
    """All frames of the message that has begun (with `frame`, if that was read already)."""
    message: Message = []
    if frame is None:
        frame = via.recv(zmq.NOBLOCK, copy=False)
    while True:
        message.append(frame.bytes if len(frame) < LARGE else memoryview(frame.buffer).toreadonly())
        if not frame.more:
            return message
        frame = via.recv(zmq.NOBLOCK, copy=False)


def connection_of(frame: zmq.Frame) -> int | None:
    """The descriptor of the connection that a message came through.

    None if it is not of this wire: without keys ZeroMQ takes what other programs say, a browser for one, for messages
    of its first versions, whose peers never said hello. Nothing tells which of the silent connections that was.
    """
    try:
        return int(frame.get("__fd"))
    except zmq.ZMQError:
        return None


def close_all(
    context: zmq.Context[zmq.Socket[bytes]],
    talking: list[zmq.Socket[bytes]],
    inner: list[zmq.Socket[bytes]],
    linger: float,
) -> None:
    """Close the sockets and wait for the context to end: about `linger` seconds at most. The port is free then."""
    for each in talking:
        each.disable_monitor()
        each.close(max(int(linger * 1000), LEAST_LINGER_MILLISECONDS))
    for each in inner:
        each.close(0)
    context.term()
