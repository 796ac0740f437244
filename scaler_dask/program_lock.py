"""A lock for tasks, wherever they run: it is held by the program that made it, which takes it on their behalf.

A task that wants it connects to the program, which answers once the lock is the task's; the end of the connection gives
it back, whatever becomes of the worker or its host. Nobody gets it without the key that travels with the lock, and no
bytes are unpickled:

    program ── 32 bytes by lot ──► worker
            ◄── HMAC-SHA256(key, bytes by lot + request), request: number, seconds ──
            ── 1: it is yours; 0: not within these seconds ──►
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
import threading
from typing import Any

from scaler.extension import RenewedLock

#: the number of a lock, and for how many seconds it is waited for; negative: for as long as it takes
_REQUEST = struct.Struct("!Qd")
_DIGEST = 32
#: seconds in which a connection has to say what it wants, and be answered if it need not wait
_PATIENCE = 10.0
#: seconds after which a silent host is asked for a sign of life, how often, and how many may be missed
_ALIVE = (10, 5, 3)


class _Lock:
    """What the lock is wherever it is: a context, which travels as where it is asked for."""

    def __init__(self, host: str, port: int, key: bytes, number: int) -> None:
        self._host, self._port, self._key, self._number = host, port, key, number

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it. Blocks until nobody else has it, up to `timeout` seconds if that is not negative."""
        raise NotImplementedError

    def release(self) -> None:
        """Give it back."""
        raise NotImplementedError

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __dask_tokenize__(self) -> tuple[str, int]:
        """What tells it apart for dask."""
        return ("ProgramLock", self._number)

    def __reduce__(self) -> tuple[Any, ...]:
        return _lock_at, (self._host, self._port, self._key, self._number)


class ProgramLock(_Lock):
    """Like `threading.Lock`; copies that tasks get are the same lock. Any thread may use it.

    `acquire` and `release` of one copy belong together. Raises ConnectionError in a task from which the program is not
    reached.
    """

    def __init__(self, host: str, number: int | None = None) -> None:
        """`host`: the address of this machine by which workers reach it; two of one `number` are the same lock."""
        door = _door_at(host)
        number = secrets.randbits(64) if number is None else number
        super().__init__(host, door.port, door.key, number)
        self._lock = door.locks.setdefault(number, threading.Lock())

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it. Blocks until nobody else has it, up to `timeout` seconds if that is not negative."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Give it back."""
        self._lock.release()

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self._lock.locked()


class RemoteLock(_Lock):
    """What a task gets of it."""

    def __init__(self, host: str, port: int, key: bytes, number: int) -> None:
        super().__init__(host, port, key, number)
        self._held: socket.socket | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it. Blocks until nobody else has it, up to `timeout` seconds if that is not negative."""
        seconds = timeout if blocking else 0.0
        place = f"{self._host}:{self._port}"
        try:
            connection = socket.create_connection((self._host, self._port), _PATIENCE)
        except OSError as error:
            raise ConnectionError(
                f"the program whose lock this task needs is not reached at {place} from here ({error}): "
                "give a lock that is, or compute with scheduler='threads'"
            ) from None
        try:
            connection.sendall(_request(self._key, _received(connection, _DIGEST), self._number, seconds))
            connection.settimeout(None if seconds < 0 else seconds + _PATIENCE)
            _keep_alive(connection)
            is_taken = _received(connection, 1) == b"\1"
        except OSError:
            connection.close()
            raise ConnectionError(f"the program at {place} has ended, or does not know this lock any more") from None
        except BaseException:  # the task is interrupted
            connection.close()
            raise
        if is_taken:
            self._held = connection
        else:
            connection.close()
        return is_taken

    def release(self) -> None:
        """Give it back."""
        held, self._held = self._held, None
        if held is None:
            raise RuntimeError("release unlocked lock")
        held.close()

    def locked(self) -> bool:
        """Whether somebody has it."""
        if self._held is not None or not self.acquire(False):
            return True
        self.release()
        return False


def _lock_at(host: str, port: int, key: bytes, number: int) -> ProgramLock | RemoteLock:
    door = _doors.get(host)
    if door is None or door.key != key or door.process != os.getpid():
        return RemoteLock(host, port, key, number)
    return ProgramLock(host, number)


# ---- the program's side ----------------------------------------------------------------------------------------------
class _Door:
    """Where tasks ask for locks of this process; a thread for each that waits for one or has it."""

    def __init__(self, host: str) -> None:
        self.host = host
        #: forked ones have a copy of all this, and not the locks
        self.process = os.getpid()
        self.key = secrets.token_bytes(32)
        #: stay for as long as the process: nobody tells when the last task is done with one
        self.locks: dict[int, threading.Lock] = {}
        self._listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="scaler-dask-locks", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # too few descriptors for a moment
                threading.Event().wait(0.1)
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name="scaler-dask-lock", daemon=True).start()
            except RuntimeError:  # too few threads: others are served all the same
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_PATIENCE)
            nonce = secrets.token_bytes(_DIGEST)
            connection.sendall(nonce)
            said = _received(connection, _DIGEST + _REQUEST.size)
            number, seconds = _REQUEST.unpack(said[_DIGEST:])
            lock = self.locks.get(number)
            if lock is None or not hmac.compare_digest(said, _request(self.key, nonce, number, seconds)):
                return
            _keep_alive(connection)
            connection.settimeout(None)
            if not lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX) if seconds >= 0 else -1):
                connection.sendall(b"\0")
                return
            try:
                connection.sendall(b"\1")
                connection.recv(1)  # nothing comes but the end
            finally:
                lock.release()


_doors: dict[str, _Door] = {}
_making = RenewedLock()


def _door_at(host: str) -> _Door:
    with _making.lock:
        door = _doors.get(host)
        if door is None or door.process != os.getpid():
            door = _doors[host] = _Door(host)
        return door


# ---- both sides ------------------------------------------------------------------------------------------------------
def _request(key: bytes, nonce: bytes, number: int, seconds: float) -> bytes:
    request = _REQUEST.pack(number, seconds)
    return hmac.digest(key, nonce + request, "sha256") + request


def _received(connection: socket.socket, size: int) -> bytes:
    """So many bytes. Raises ConnectionError if the connection ends before."""
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise ConnectionError("the connection has ended")
        found += more
    return found


def _keep_alive(connection: socket.socket) -> None:
    """A host that is gone for good is noticed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in zip(("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"), _ALIVE, strict=True):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
