"""A local socket that is a file: where a scheduler's log tells monitors of its user to connect.

The file is 0600, and both ends ask the kernel for the user id of the other, as with any local socket. It is where
people look for it, in /tmp, unless others could put something else in its place there: then it is where only its user
can write.

Of a scheduler that was killed the file stays. The next one of its user removes it, whatever its address.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import time
from collections.abc import Sequence

from scaler import defaults
from scaler.common.poller import Poller
from scaler.common.records import frozen
from scaler.errors import AddressError, AddressInUse, ConnectionFailed
from scaler.transport import unix
from scaler.transport.address import Address
from scaler.transport.listener_state import ListenerState
from scaler.transport.port import Message, Sendable
from scaler.transport.security import private_directory
from scaler.transport.unix import UnixConnection, UnixPeers, limit_waiting, uid_of

logger = logging.getLogger(__name__)

#: bytes of a path that a socket may have
_LONGEST = 107
#: numbers of connections begin here: no other listener of the process has so many
FIRST_PEER = 1 << 32
#: what the usual name of a file ends with
_END = "_monitor"
#: seconds after which who has made a file listens there, or is dead
_BEGINNING = 2.0


@frozen
class SocketFile:
    """Where a local socket is.

    >>> SocketFile.parse("ipc:///tmp/127.0.0.1_2345_monitor").path
    '/tmp/127.0.0.1_2345_monitor'
    """

    path: str

    @staticmethod
    def parse(text: str) -> SocketFile:
        """The file that an address names. Raises `AddressError`."""
        path = text.strip().removeprefix("ipc://")
        if not text.strip().startswith("ipc://") or not path.startswith("/"):
            raise AddressError(
                f"monitor address {text!r} is no file: the form is ipc:///path, for example "
                "ipc:///tmp/127.0.0.1_2345_monitor"
            )
        if len(os.fsencode(path)) > _LONGEST or "\0" in path:
            raise AddressError(f"monitor address {text!r} has a path of more than {_LONGEST} bytes: name a shorter one")
        return SocketFile(path)

    @property
    def url(self) -> str:
        """The address as users write it."""
        return f"ipc://{self.path}"

    def __str__(self) -> str:
        return self.url


class MonitorListener:
    """As `port.Listener`, for this user's monitors on this machine."""

    def __init__(self, address: SocketFile, limit: int = defaults.MAX_MESSAGE_BYTES) -> None:
        """Listen. Raises `AddressInUse` if somebody is there already, and OSError."""
        self.address = address
        self._pid = os.getpid()
        _remove_stale(address)
        self._poller = Poller()
        try:
            self.state = ListenerState(limit, True, logger, FIRST_PEER)
            self._peers = UnixPeers(os.fsencode(address.path), self._poller, self.state)
        except OSError:
            self._poller.close()
            raise
        status = os.lstat(address.path)
        #: the file that is ours, in case another one takes its name
        self._file: tuple[int, int] | None = (status.st_dev, status.st_ino)
        self.fileno = self._poller.fileno

    def receive(self) -> list[tuple[int, Message]]:
        inbox: list[tuple[int, Message]] = []
        for fd, events in self._poller.poll():
            self._peers.handle(fd, events, inbox)
        return inbox

    def send(self, peer: int, frames: Sequence[Sendable]) -> None:
        self._peers.send(peer, frames)

    def origin_of(self, peer: int) -> str:
        return unix.HERE

    def welcome(self, peer: int) -> None:
        self._peers.welcome(peer)

    def tend(self, now: float) -> float | None:
        wake = self._peers.tend(now)
        self.state.has_strangers = wake is not None
        return wake

    def disconnect(self, peer: int) -> None:
        self._peers.disconnect(peer)

    def close(self, linger: float = 1.0) -> None:
        """See `port.Listener`. The file is removed."""
        if self._file is None or os.getpid() != self._pid:
            return
        try:
            status = os.lstat(self.address.path)
            if (status.st_dev, status.st_ino) == self._file:
                os.unlink(self.address.path)
        except OSError:
            pass  # somebody else has removed it
        self._file = None
        self._peers.close(linger)
        self._poller.close()


def open_monitor_listener(
    named: str | None, address: Address, limit: int = defaults.MAX_MESSAGE_BYTES, directory: str = "/tmp"
) -> MonitorListener | None:
    """Where monitors of a scheduler at `address` connect: the place that was named, or the usual one.

    None, and a warning, if there can be none. Raises `AddressError` and `AddressInUse` for a place that was named.
    """
    if not unix.AVAILABLE:
        return None
    if named is not None and named.strip().startswith("tcp://"):
        logger.warning("monitors connect by tcp at the scheduler's own address, %s, not at %s", address, named)
        named = None
    if named is not None:
        wanted = SocketFile.parse(named)
        if not _is_safe(os.path.dirname(wanted.path)):
            raise AddressError(
                f"monitor address {wanted}: its directory is not there, or other users could put something else in "
                "its place: name a directory that only you can write to"
            )
        try:
            return MonitorListener(wanted, limit)
        except AddressInUse:
            raise
        except OSError as error:
            raise AddressError(f"monitor address {wanted} can't be used: {error.strerror}") from None
    _remove_dead(directory)
    name, trouble = f"{address.host}_{address.port}{_END}", f"{directory} is not safe"
    for place in (directory, private_directory()):
        if place is None or not _is_safe(place):
            continue
        try:
            return MonitorListener(SocketFile.parse(f"ipc://{place}/{name}"), limit)
        except (OSError, AddressError) as error:
            trouble = str(error)
    logger.warning("there is no local socket for monitors (%s): they can use %s", trouble, address)
    return None


def connect_file(address: SocketFile, timeout: float = 5.0) -> UnixConnection:
    """A connection to the scheduler whose socket this is. Blocks for at most `timeout`; raises `ConnectionFailed`."""
    attempt = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        limit_waiting(attempt, timeout)
        attempt.connect(address.path)
        uid = uid_of(attempt)
        if uid != os.geteuid():
            raise ConnectionFailed(f"{address} belongs to another user (uid {uid}): it is not used")
        limit_waiting(attempt, 0)
        return UnixConnection(address, attempt, defaults.MAX_MESSAGE_BYTES)
    except ConnectionFailed:
        attempt.close()
        raise
    except PermissionError:
        attempt.close()
        raise ConnectionFailed(f"{address} belongs to another user: ask its owner, or watch your own cluster") from None
    except OSError as error:
        attempt.close()
        gone = isinstance(error, (FileNotFoundError, ConnectionRefusedError))
        trouble = "no scheduler is there" if gone else str(error.strerror or error)
        raise ConnectionFailed(
            f"{address}: {trouble}; the log of a scheduler says where its monitors connect, and its tcp:// address "
            "does as well"
        ) from None


def _is_safe(directory: str) -> bool:
    """Nobody but this user and root can put something in the place of a file of this user's there."""
    try:
        status = os.stat(directory)
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, os.geteuid()):
        return False
    return not status.st_mode & 0o022 or bool(status.st_mode & stat.S_ISVTX)


def _remove_stale(address: SocketFile) -> None:
    """Remove the socket of a scheduler that was killed. Raises `AddressInUse` if it is anything else."""
    try:
        status = os.lstat(address.path)
    except OSError:
        return
    if not _is_own_socket(status):
        raise AddressInUse(f"{address} can't be used: something else is there")
    if not _is_refused(address.path):
        raise AddressInUse(f"another scheduler of yours has its monitors at {address}")
    os.unlink(address.path)


def _remove_dead(directory: str) -> None:
    """Remove the sockets of this user's schedulers that were killed, at whatever address. Never raises nor blocks.

    They have to be of this machine: in a home the file of another one's scheduler would look like that of a dead one.
    """
    if not _is_safe(directory):
        return
    with contextlib.suppress(OSError):
        for name in filter(_is_usual, os.listdir(directory)):
            path = os.path.join(directory, name)
            with contextlib.suppress(OSError):  # somebody else has removed it
                status = os.lstat(path)
                has_begun = time.time() - status.st_mtime > _BEGINNING
                if has_begun and _is_own_socket(status) and _is_refused(path):
                    os.unlink(path)


def _is_usual(name: str) -> bool:
    """It is the usual name of the file of a scheduler that listens at a numeric address.

    >>> _is_usual("127.0.0.1_2345_monitor"), _is_usual("::1_2345_monitor")
    (True, True)
    >>> _is_usual("disk_1_monitor"), _is_usual("127.0.0.1_x_monitor"), _is_usual("127.0.0.1_2345_monitor.old")
    (False, False, False)
    """
    if not name.endswith(_END):
        return False
    host, _, port = name.removesuffix(_END).rpartition("_")
    return port.isdecimal() and Address(host, 0).is_numeric


def _is_own_socket(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and stat.S_ISSOCK(status.st_mode)


def _is_refused(path: str) -> bool:
    """Nobody listens at this socket. Does not block."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:  # one that has too many to accept, say
            pass
    return False
