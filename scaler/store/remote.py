"""The store of another host, for a client that has none on its own: put and get, blocking."""

from __future__ import annotations

import mmap
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from scaler.common.attempts import is_under_way
from scaler.errors import ConnectionFailed, HandshakeRefused, ProtocolError, ScalerError
from scaler.store import ObjectMissing, StoreFull, TransferFailed
from scaler.store.layout import MAGIC, Key, StoredObject, decode, file_name, tag_of
from scaler.store.segments import parts_of
from scaler.store.window import Window
from scaler.store.wire import (
    CHUNK,
    IF_REFUSED,
    LIMITED,
    LONGEST_WAIT,
    REFERRED,
    VERSION,
    Kind,
    Note,
    pack,
    unpack,
)
from scaler.transport import Address, Connection, Security, connect

#: parts of an object that travel in one message, at most; more are joined
_MAX_PARTS = 16
#: seconds between attempts to connect again
_PAUSE = 0.1
#: how often it is looked at what is under way, before the patience is over
_LOOKS = 4

R = TypeVar("R")


class _Lost(Exception):
    """The connection is closed."""


class RemoteStore:
    """Calls of several threads take turns. A lost connection is made again, and what had arrived is not sent again.

    Every call ends: it raises `TransferFailed` when nothing was heard from the store for `patience` seconds.
    """

    def __init__(
        self, address: str | Address, security: Security, *, patience: float = 5.0, shortcut: bool = True
    ) -> None:
        """Connects when it is needed. `patience`: seconds."""
        self._address = Address.parse(address)
        self._security = security
        self._patience = patience
        self._shortcut = shortcut
        #: one call at a time
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        #: arrived and not looked at
        self._inbox: deque[Note] = deque()
        #: chunks under way on it
        self._window = Window()
        #: answers to reads that have arrived on this connection
        self._answers = 0
        #: when the store said something last
        self._heard = 0.0

    def put(self, key: Key, inband: bytes | memoryview, buffers: Sequence[memoryview] = ()) -> int:
        """Store an object and return the bytes it takes. The buffers have to be contiguous.

        Raises `StoreFull`, `TransferFailed`.
        """
        parts, size = parts_of(key, inband, buffers)
        parts[0] = MAGIC + parts[0][len(MAGIC) :]
        with self._lock:
            return self._insist(lambda: self._put(key, parts, size))

    def get(self, key: Key) -> StoredObject:
        """An object in memory of its own. Raises `ObjectMissing`, `TransferFailed`."""
        download = _Download(key)
        with self._lock:
            return self._insist(lambda: self._get(download))

    def tidy(self) -> bool:
        """Close a connection that the store has closed: that takes descriptors and threads. Does not wait for calls.

        Whether it is in use: there is a connection, or a call.
        """
        if not self._lock.acquire(blocking=False):
            return True
        try:
            if self._connection is not None:
                self._inbox.extend(unpack(frames, asking=False) for frames in self._connection.receive())
                if self._connection.is_closed:
                    self._hang()
        except ProtocolError:
            self._hang()
        finally:
            is_connected = self._connection is not None
            self._lock.release()
        return is_connected

    def close(self) -> None:
        """Close the connection. Blocks until calls of other threads have ended."""
        with self._lock:
            self._hang()

    def _insist(self, operation: Callable[[], R]) -> R:
        """Do it, again if the connection is lost meanwhile."""
        self._heard = time.monotonic()
        reached = False
        try:
            while True:
                try:
                    self._connect()
                    reached = True
                    return operation()
                except (_Lost, ConnectionFailed, TimeoutError) as error:
                    self._hang()
                    gone = isinstance(error, HandshakeRefused) or not (reached or isinstance(error, _Lost))
                    if gone or time.monotonic() + _PAUSE - self._heard >= self._patience:
                        raise TransferFailed(f"the store at {self._address}: {error}") from None
                    time.sleep(_PAUSE)
        except StoreFull:  # an answer like others: the same is asked again soon, on this connection
            raise
        except (ProtocolError, ScalerError, OSError, ValueError, MemoryError, OverflowError) as error:
            self._hang()
            raise TransferFailed(f"the store at {self._address}: {error}") from error
        except BaseException:
            self._hang()
            raise

    def _connect(self) -> None:
        if self._connection is not None and not self._connection.is_closed:
            return
        self._hang()
        left = max(0.1, self._patience - (time.monotonic() - self._heard))
        self._connection = connect(
            self._address, self._security, left,
            shortcut=self._shortcut, max_message_bytes=CHUNK, if_refused=IF_REFUSED,
        )  # fmt: skip
        self._inbox.clear()
        self._answers = 0
        self._window = Window()
        self._say(Note(Kind.HELLO, offset=VERSION))

    def _hang(self) -> None:
        if self._connection is not None:
            self._connection.close(0)
            self._connection = None

    def _say(self, note: Note) -> None:
        assert self._connection is not None
        self._connection.send(pack(note))

    def _next(self, key: Key) -> Note:
        """The next answer about an object. Raises `_Lost`, TimeoutError, `ProtocolError`."""
        connection = self._connection
        assert connection is not None
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        began = time.monotonic()
        while True:
            while self._inbox:
                note = self._inbox.popleft()
                self._heard = time.monotonic()
                if note.kind is Kind.WAIT:
                    if self._heard - began >= LONGEST_WAIT:
                        raise ProtocolError(f"it has not made {file_name(key)} ready in {LONGEST_WAIT:g} s")
                    continue
                self._answers += note.kind in (Kind.CHUNK, Kind.MISSING)
                if note.key != key:
                    raise ProtocolError(f"a store spoke of {file_name(note.key)}")
                return note
            if connection.is_closed:
                raise _Lost(connection.trouble() or "it closed the connection")
            looked = time.monotonic()
            left = self._heard + self._patience - looked
            if left <= 0:
                raise TimeoutError(f"no answer for {self._patience:g} s")
            carried = connection.carried_bytes()
            poll.poll(min(left, self._patience / _LOOKS) * 1000)
            self._inbox.extend(unpack(frames, asking=False) for frames in connection.receive())
            now = time.monotonic()
            if is_under_way(connection.carried_bytes() - carried, now - looked):
                self._heard = now  # on a narrow way a chunk takes longer than the patience

    def _get(self, download: _Download) -> StoredObject:
        key = download.key
        download.restart()
        while True:
            while (offset := download.next(self._window.size)) is not None:
                self._say(Note(Kind.READ, key, offset, number=self._answers, flags=REFERRED))
            if download.is_complete:
                return decode(download.view, key)
            note = self._next(key)
            if note.kind is Kind.MISSING:
                raise ObjectMissing(f"the store at {self._address} has no {file_name(key)}: {note.text}")
            if note.kind is not Kind.CHUNK:
                raise ProtocolError(f"a store answered {note.kind.name}")
            self._window.note(download.take(note))

    def _put(self, key: Key, parts: list[bytes | memoryview], size: int) -> int:
        self._say(Note(Kind.BEGIN, key, 0, size, tag_of(parts[0])))
        sent = taken = self._taken(key, size)
        pieces = _pieces(parts, taken)
        #: of each piece that is under way: where it ends, and when it was sent
        under_way: deque[tuple[int, float]] = deque()
        while taken < size:
            while sent < size and len(under_way) < self._window.size:
                data = next(pieces)
                self._say(Note(Kind.PIECE, key, sent, size, data=data))
                sent += sum(map(len, data))
                under_way.append((sent, time.monotonic()))
            taken = self._taken(key, sent)
            while under_way and under_way[0][0] <= taken:
                self._window.note(time.monotonic() - under_way.popleft()[1])
        return size

    def _taken(self, key: Key, most: int) -> int:
        note = self._next(key)
        if note.kind is Kind.FULL:
            largest, total = (note.number, None) if note.flags & LIMITED else (None, note.number or None)
            raise StoreFull(f"{self._address}: {note.text}", note.offset, note.size, largest, total)
        if note.kind is Kind.REFUSED:
            raise TransferFailed(f"the store at {self._address} does not take {file_name(key)}: {note.text}")
        if note.kind is not Kind.TAKEN or note.offset > most:
            raise ProtocolError(f"a store answered {note.kind.name}, {note.offset} of {most}")
        return note.offset


class _Download:
    """The bytes of an object as far as they have come."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.view = memoryview(b"")
        #: of the file; unknown until the first chunk is here
        self.size = -1
        self._tag = 0
        self._missing: deque[int] = deque([0])
        #: offset of the first chunk that was never asked for: they are not listed, as the size may be a lie
        self._following = CHUNK
        #: offsets that were asked for, and when
        self._asked: dict[int, float] = {}

    def restart(self) -> None:
        """There is a new connection: nothing that was asked for will come."""
        self._missing.extendleft(self._asked)
        self._asked.clear()

    def next(self, window: int) -> int | None:
        """The offset to ask for now, if so many may be under way."""
        if len(self._asked) >= window:
            return None
        if self._missing:
            offset = self._missing.popleft()
        elif self._following < self.size:
            offset, self._following = self._following, self._following + CHUNK
        else:
            return None
        self._asked[offset] = time.monotonic()
        return offset

    def take(self, note: Note) -> float:
        """A chunk has come; how long it took, seconds. Raises `ProtocolError`."""
        offset, length = note.offset, sum(map(len, note.data))
        if offset not in self._asked or length != min(CHUNK, note.size - offset):
            raise ProtocolError(f"a store sent {length} bytes at {offset}")
        if self.size < 0:
            self.size, self._tag = note.size, note.number
            self.view = memoryview(mmap.mmap(-1, note.size))
        elif (note.size, note.number) != (self.size, self._tag):
            raise ProtocolError("the object has changed")
        took = time.monotonic() - self._asked.pop(offset)
        for data in note.data:
            self.view[offset : offset + len(data)] = data
            offset += len(data)
        return took

    @property
    def is_complete(self) -> bool:
        """True if all is here."""
        return not (self._missing or self._asked) and self._following >= self.size


def _pieces(parts: Sequence[bytes | memoryview], start: int) -> Iterator[list[bytes | memoryview]]:
    """The bytes of the parts from `start` on, a chunk at a time, each as a few buffers."""
    piece: list[bytes | memoryview] = []
    room = CHUNK
    for part in parts:
        rest = memoryview(part)
        skipped = min(start, len(rest))
        start -= skipped
        rest = rest[skipped:]
        while len(rest):
            piece.append(rest[:room])
            rest = rest[room:]
            room -= len(piece[-1])
            if not room:
                yield piece if len(piece) <= _MAX_PARTS else [b"".join(piece)]
                piece, room = [], CHUNK
    if piece:
        yield piece if len(piece) <= _MAX_PARTS else [b"".join(piece)]
