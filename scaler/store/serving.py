"""What a store answers to others: chunks of its objects, or where else they are; and objects that are put into it.

A chunk of an object that is still being fetched is sent when it has come. An object that isn't here may be somewhere
else in this host: on its way from disk, or in a worker. The owner is asked (`on_demand`), and whoever wants it waits
for some time.

A chunk takes memory from when it is read from its file until it has gone to its peer, and a peer may ask for many and
read none. So there is a bound for all peers together, `MOST_UNREAD`, of which one may have as much as is free: each
that comes gets a part of what others leave. As much again is there for those who have nothing unread, a chunk each.
READs beyond that wait in line, a peer after the other, and who does not read at all is disconnected.
"""

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from scaler.errors import ProtocolError
from scaler.store import ObjectMissing
from scaler.store.layout import HEADER_BYTES, Key, file_name, tag_of
from scaler.store.puts import Puts
from scaler.store.segments import find_file, is_shortage
from scaler.store.spreading import Spreading
from scaler.store.wire import CHUNK, ONLY, REFERRED, VERSION, Kind, Note, pack, unpack

What: TypeAlias = Literal["fetch", "full", "put", "wanted"]
#: what happened, to which object, its bytes, and why it failed (None: it did not)
Result: TypeAlias = tuple[What, Key, int, str | None]

#: objects from this size on, in bytes, are spread
SPREAD_FROM = 8 * CHUNK
#: chunks under way to one peer, at most
MAX_UNDER_WAY = 64
#: bytes of chunks that were sent and have not gone to their peers, of all these together
MOST_UNREAD = 128 * CHUNK
#: seconds for which a peer may have unread chunks and read nothing; others may wait for that, up to `LONGEST_WAIT`
LONGEST_UNREAD = 10.0
#: seconds between looks at what they have read, and the same while somebody is in line
_LOOKS, _LOOKS_IN_LINE = 0.1, 0.01
#: characters of a peer's address
_LONGEST_ADDRESS = 255
#: files that are open at a time
_MOST_OPEN = 64
#: seconds for which a file stays open after it was read, and somebody waits for an object to be made ready
_KEEP_OPEN, _HOLD = 1.0, 30.0
#: seconds of silence from which on a peer may go that asks for nothing, to make room; connections of a host of which no
#: busy one goes
_IDLE, _MOST_BUSY = 1.0, 16
#: seconds between words to those who wait
_CONSOLE = 1.0

#: what answers a READ
_ANSWERS = frozenset({Kind.CHUNK, Kind.ELSEWHERE, Kind.MISSING})

_log = logging.getLogger(__name__)


class Partial(NamedTuple):
    """An object that is being fetched."""

    fd: int
    size: int
    tag: int
    #: one byte a chunk, 1 if it is here
    have: bytearray


class _Asking:
    """A peer that reads, and what of its questions can be true."""

    __slots__ = ("answered", "before", "heard", "host", "line", "read_at", "reads", "turn", "unread")

    def __init__(self, host: str, now: float) -> None:
        #: where it is, and when it said something last
        self.host = host
        self.heard = now
        #: READs that wait until there is room for what they ask for; whether the owner was asked for it
        self.line: deque[tuple[Note, bool]] = deque()
        #: bytes of chunks that have not gone to it, at most, and when they last became fewer or the first was sent
        self.unread = 0
        self.read_at = 0.0
        #: READs that it sent
        self.reads = 0
        #: answers to those that were sent to it, and how many they were when this turn began
        self.answered = self.before = 0
        self.turn = 0


class _Opened:
    __slots__ = ("fd", "size", "tag", "used")

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self.tag = tag_of(os.pread(fd, HEADER_BYTES, 0))
        #: when it was read last
        self.used = 0.0


class _Held:
    __slots__ = ("consoled", "reads", "since")

    def __init__(self, now: float) -> None:
        self.since = self.consoled = now
        #: who waits for what
        self.reads: list[tuple[int, Note]] = []


class Serving:
    """See the module's text. One thread."""

    def __init__(
        self,
        directory: str,
        on_demand: bool,
        send: Callable[[int, list[bytes | memoryview]], None],
        report: Callable[[Result], None],
        partial: Callable[[Key], Partial | None],
        unsent: Callable[[int], int] = lambda peer: 0,
        host_of: Callable[[int], str] = lambda peer: "",
    ) -> None:
        self._directory = directory
        self._on_demand = on_demand
        self._send = send
        self._report = report
        #: an object that is being fetched
        self._partial = partial
        #: bytes that were sent to a peer and have not gone there, as far as that is known
        self._unsent = unsent
        self._host_of = host_of
        #: peers that have READs in line, in turn, and those that have chunks unread
        self._in_line: dict[int, None] = {}
        self._reading: dict[int, None] = {}
        #: bytes that all have unread, at most
        self._unread = 0
        #: the turn in which it was looked how much that is, the time, and when it was said last that they wait
        self._looked = -1
        self._looked_at = 0.0
        self._consoled = 0.0
        #: where each peer can be asked in turn; "" if it can't
        self._addresses: dict[int, str] = {}
        self._asking: dict[int, _Asking] = {}
        #: counts the times that what peers have said was fetched
        self._turn = 0
        self._spreading = Spreading(self._addresses)
        self._puts = Puts(directory, self._find, self._say, self._put_done)
        #: the one that was read last comes last
        self._opened: dict[Key, _Opened] = {}
        #: who waits for an object to be made ready
        self._held: dict[Key, _Held] = {}
        #: who waits for chunks that are being fetched
        self._deferred: dict[Key, dict[int, list[int]]] = {}
        self._now = 0.0
        #: bytes of chunks that were sent
        self.served_bytes = 0

    @property
    def is_idle(self) -> bool:
        """True if there is nothing to look at the time for."""
        return not (self._opened or self._spreading or self._puts or self._held or self._in_line or self._reading)

    # ---- peers -----------------------------------------------------------------------------------------------------
    def begin_turn(self) -> None:
        """What peers have said is about to be fetched: it was said before they had the answers to come."""
        self._turn += 1

    def said(self, number: int, frames: Sequence[bytes | memoryview], now: float) -> None:
        """A peer has said something. Raises `ProtocolError` if that was odd: it should be disconnected."""
        self._now = now
        note = unpack(frames, asking=True)
        if number not in self._addresses:
            if note.kind is not Kind.HELLO or note.offset != VERSION:
                raise ProtocolError("a store of another version")
            if len(note.text) > _LONGEST_ADDRESS:
                raise ProtocolError(f"an address of {len(note.text):,} characters")
            self._addresses[number], self._asking[number] = note.text, _Asking(self._host_of(number), now)
            return
        self._asking[number].heard = now
        if note.kind is Kind.READ:
            self._check_read(self._asking[number], note)
            self._line_up(number, note)
        elif note.kind is Kind.DONE:
            self._spreading.has_all(note.key, number)
        elif note.kind is Kind.BEGIN:
            self._puts.begin(number, note, now)
        elif note.kind is Kind.PIECE:
            self._puts.piece(number, note, now)
        else:
            raise ProtocolError("a store introduced itself twice")

    def _check_read(self, peer: _Asking, note: Note) -> None:
        """Raise `ProtocolError` for a READ beyond those that may be under way, or with answers that never came."""
        if peer.turn != self._turn:
            peer.turn, peer.before = self._turn, peer.answered
        peer.reads += 1
        under_way = peer.reads - note.number
        if not 0 < under_way <= MAX_UNDER_WAY or note.offset % CHUNK:
            raise ProtocolError(f"a store asked for {note.offset} while {under_way} answers are under way")
        if note.number > peer.before:
            raise ProtocolError(f"a store has {note.number} answers of {peer.before}")

    def most_idle(self, now: float) -> int | None:
        """Who may go so that others can come: of the host that most peers are of, the one that was silent for longest.

        One that is busy goes only if its host has more connections than honest ones need; None if nobody may go.
        """
        peers = Counter(asking.host for asking in self._asking.values())

        def price(number: int) -> tuple[int, bool, float]:
            asking = self._asking[number]
            is_busy = asking.reads > asking.answered or asking.unread > 0 or self._puts.is_of(number)
            return -peers[asking.host], is_busy or now - asking.heard < _IDLE, asking.heard

        number = min(self._asking, key=price, default=None)
        if number is None:
            return None
        most, is_busy, _ = price(number)
        return None if is_busy and -most <= _MOST_BUSY else number

    def gone(self, number: int) -> None:
        """A peer is gone."""
        self._addresses.pop(number, None)
        asking = self._asking.pop(number, None)
        self._unread -= asking.unread if asking is not None else 0
        self._in_line.pop(number, None)
        self._reading.pop(number, None)
        self._spreading.gone(number)
        self._puts.gone(number, self._now)

    def _say(self, number: int, note: Note) -> None:
        if note.kind in _ANSWERS and number in self._asking:
            self._asking[number].answered += 1
        self._send(number, pack(note))

    # ---- whose turn it is ------------------------------------------------------------------------------------------
    def _line_up(self, number: int, note: Note, was_held: bool = False) -> None:
        asking = self._asking.get(number)
        if asking is None:
            return
        asking.line.append((note, was_held))
        self._in_line[number] = None
        if self._has_room(number):
            self._serve(number)

    def _serve_line(self) -> None:
        """Answer READs as far as there is room, one of each peer in turn."""
        passed = 0
        while passed < len(self._in_line):
            number = next(iter(self._in_line))
            if self._has_room(number):
                self._serve(number)
                passed = 0
            else:
                self._in_line[number] = self._in_line.pop(number)
                passed += 1

    def _serve(self, number: int) -> None:
        del self._in_line[number]
        line = self._asking[number].line
        note, was_held = line.popleft()
        if line:
            self._in_line[number] = None
        self._read(number, note, was_held)

    def _has_room(self, number: int) -> bool:
        asking = self._asking[number]
        if asking.unread + CHUNK > MOST_UNREAD - self._unread and self._looked != self._turn:
            self._look()
        if not asking.unread:
            return self._unread + CHUNK <= 2 * MOST_UNREAD
        return asking.unread + CHUNK <= MOST_UNREAD - self._unread

    def _look(self) -> None:
        """See what peers have read by now."""
        self._looked, self._looked_at = self._turn, self._now
        for number in list(self._reading):
            asking = self._asking[number]
            unread = min(asking.unread, self._unsent(number))
            if unread < asking.unread:
                self._unread -= asking.unread - unread
                asking.unread, asking.read_at = unread, self._now
            if not unread:
                del self._reading[number]

    def _overdue(self) -> list[tuple[int, str]]:
        """Those who read nothing; says to those in line that they have to be patient."""
        if self._now - self._consoled >= _CONSOLE:
            self._consoled = self._now
            for number in self._in_line:
                for key in {note.key for note, _ in self._asking[number].line}:
                    self._say(number, Note(Kind.WAIT, key))
        return [
            (number, f"it has read nothing for {LONGEST_UNREAD:g} s, while {asking.unread / 1e6:,.0f} MB wait for it")
            for number, asking in ((number, self._asking[number]) for number in self._reading)
            if self._now - asking.read_at >= LONGEST_UNREAD
        ]

    # ---- reads -----------------------------------------------------------------------------------------------------
    def _read(self, number: int, note: Note, was_held: bool) -> None:
        key = note.key
        try:
            opened = self._open(key)
            if opened is not None:
                self._answer(number, note, opened)
                return
        except OSError as error:
            _log.warning("cannot read %s: %s", file_name(key), error)
            self._refuse(number, note, str(error))
            return
        partial = self._partial(key)
        if partial is not None:
            index = note.offset // CHUNK
            if index >= len(partial.have):
                self._refuse(number, note, "is smaller here")
            elif partial.have[index]:
                self._send_chunk(number, note, partial.fd, partial.size, partial.tag)
            else:
                self._deferred.setdefault(key, {}).setdefault(index, []).append(number)
        elif self._on_demand and not was_held:
            self._hold(number, note)
        else:
            self._refuse(number, note)

    def _open(self, key: Key) -> _Opened | None:
        opened = self._opened.pop(key, None)
        if opened is None:
            here = self._find(key)
            if here is None:
                return None
            if len(self._opened) >= _MOST_OPEN:
                os.close(self._opened.pop(next(iter(self._opened))).fd)
            opened = _Opened(*here)
        opened.used = self._now
        self._opened[key] = opened
        return opened

    def _find(self, key: Key) -> tuple[int, int] | None:
        """Descriptor and size of an object's file."""
        try:
            return find_file(self._directory, key)
        except ObjectMissing:
            pass
        except OSError as error:
            if is_shortage(error):
                raise
            _log.warning("cannot read %s: %s", file_name(key), error)
        return None

    def _answer(self, number: int, note: Note, opened: _Opened) -> None:
        if note.offset >= opened.size:
            self._refuse(number, note, f"has {opened.size:,} bytes here")
            return
        if opened.size >= SPREAD_FROM:
            index = note.offset // CHUNK
            if note.flags & REFERRED:
                self._spreading.sent(note.key, index, number)
            else:
                others, only = frozenset(note.text.splitlines()), bool(note.flags & ONLY)
                place = self._spreading.place(note.key, index, number, others, only, self._now)
                if place is not None:
                    self._say(number, Note(Kind.ELSEWHERE, note.key, note.offset, text=place))
                    return
        self._send_chunk(number, note, opened.fd, opened.size, opened.tag)

    def _send_chunk(self, number: int, note: Note, fd: int, size: int, tag: int) -> None:
        offset = note.offset
        data = os.pread(fd, min(CHUNK, size - offset), offset)
        if len(data) < min(CHUNK, size - offset):
            self._refuse(number, note, "is damaged here")
            return
        self.served_bytes += len(data)
        asking = self._asking[number]
        if number not in self._reading:
            self._reading[number], asking.read_at = None, self._now
        asking.unread += len(data)
        self._unread += len(data)
        self._say(number, Note(Kind.CHUNK, note.key, offset, size, tag, data=(data,)))

    def _refuse(self, number: int, note: Note, reason: str = "") -> None:
        self._say(number, Note(Kind.MISSING, note.key, note.offset, text=reason))

    # ---- what is not here yet --------------------------------------------------------------------------------------
    def came(self, key: Key, index: int) -> None:
        """A chunk of an object that is being fetched is here."""
        waiting = self._deferred.get(key)
        for number in waiting.pop(index, ()) if waiting else ():
            self._line_up(number, Note(Kind.READ, key, index * CHUNK, flags=REFERRED))

    def fetched(self, key: Key, error: str | None) -> None:
        """A fetch is over."""
        for index, numbers in self._deferred.pop(key, {}).items():
            for number in numbers:
                if number in self._asking:
                    self._refuse(number, Note(Kind.READ, key, index * CHUNK), error or "")
        if error is None:
            self.available(key)

    def _hold(self, number: int, note: Note) -> None:
        held = self._held.get(note.key)
        if held is None:
            held = self._held[note.key] = _Held(self._now)
            self._report(("wanted", note.key, 0, None))
        held.reads.append((number, note))
        self._say(number, Note(Kind.WAIT, note.key))

    def available(self, key: Key) -> None:
        """An object that is wanted is in the directory now."""
        held = self._held.pop(key, None)
        for number, note in held.reads if held else ():
            self._line_up(number, note, was_held=True)

    def unavailable(self, key: Key, reason: str) -> None:
        """An object that is wanted will not come."""
        held = self._held.pop(key, None)
        for number, note in held.reads if held else ():
            self._refuse(number, note, reason)

    def _put_done(self, key: Key, size: int) -> None:
        self._report(("put", key, size, None))
        self.available(key)

    # ---- time ------------------------------------------------------------------------------------------------------
    def tick(self, now: float) -> list[tuple[int, str]]:
        """Look at the time. The peers that should be disconnected, and why."""
        self._now = now
        if now - self._looked_at >= (_LOOKS_IN_LINE if self._in_line else _LOOKS):
            self._look()
            self._serve_line()
        for key, opened in list(self._opened.items()):
            if now - opened.used >= _KEEP_OPEN:
                os.close(opened.fd)
                del self._opened[key]
        for key, held in list(self._held.items()):
            if now - held.since >= _HOLD:
                self.unavailable(key, "was not made ready in time")
            elif now - held.consoled >= _CONSOLE:
                held.consoled = now
                for number in {number for number, _ in held.reads}:
                    self._say(number, Note(Kind.WAIT, key))
        self._spreading.tick(now)
        self._puts.tick(now)
        return self._overdue()

    def close(self) -> None:
        """Close all files, and remove half puts."""
        for opened in self._opened.values():
            os.close(opened.fd)
        self._opened.clear()
        self._puts.close()
