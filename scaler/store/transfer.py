"""Bytes between the stores of hosts, in a thread of its own.

    owner's thread ──commands──► thread: Fetching (what is asked of whom)  ──READ──►  other stores
          ▲                              Serving (what others get)         ◄──READ──  other stores, clients
          └────results, a descriptor───── connections, files

Connections are made by short-lived threads, since that may block.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from scaler.common.attempts import is_under_way
from scaler.common.poller import Poller
from scaler.common.process_limits import words_of
from scaler.errors import AddressError, HandshakeRefused, ProtocolError, ScalerError
from scaler.store import ObjectMissing, StoreFull
from scaler.store.fetching import LONGEST_ADDRESS, Ask, Connect, Effect, Ended, Fetching, Hang
from scaler.store.layout import HEADER_BYTES, Key, check_header
from scaler.store.mailbox import Mailbox
from scaler.store.segments import Draft, open_file, write_all
from scaler.store.serving import Partial, Result, Serving
from scaler.store.wire import CHUNK, IF_REFUSED, ONLY, REFERRED, VERSION, Kind, Note, chunks_of, pack, unpack
from scaler.transport import Address, Connection, Listener, Security, connect, listen
from scaler.transport.notices import Notices

#: seconds between looks at the time while something is under way, and while nothing is
_BUSY, _QUIET = 0.1, 5.0
#: how often it is looked at what is under way, before the patience with a store is over
_LOOKS = 4
#: connections for which there is to be room: who comes by tcp looks with one of them who listens
_SPARE = 4
#: objects that are fetched at once; each has a file open, and its memory set aside
_MOST_FETCHES = 64

_log = logging.getLogger(__name__)


class _Arriving:
    """The file of an object that is being fetched."""

    __slots__ = ("draft", "tag")

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.tag = 0


class _Link:
    """The connection to another store that is asked."""

    __slots__ = ("answers", "carried", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        #: how many have arrived
        self.answers = 0
        #: bytes that it had carried when it was looked last
        self.carried = 0


class Transfer:
    """Fetches objects into a directory, lets others read those in it, and takes what clients put.

    One thread asks and takes; nothing blocks but `close`. Results are `(what, key, bytes, error)`:

    - "fetch": a fetch is over; the object is there, or the error says why not;
    - "full": a fetch is over, since there is no room for the object here;
    - "put": a client has put this object into the directory;
    - "wanted": with `on_demand`, somebody wants an object that isn't there: say `available` or `unavailable`.
    """

    def __init__(
        self,
        directory: str,
        security: Security,
        bind: str | Address = "tcp://0.0.0.0:0",
        *,
        patience: float = 5.0,
        on_demand: bool = False,
        shortcut: bool = True,
    ) -> None:
        """Listen at `bind`.

        `patience`: seconds after which a store that says nothing counts as gone. Raises `AddressInUse`, `AddressError`.
        """
        self._directory = directory
        self._security = security
        self._patience = patience
        self._shortcut = shortcut
        self._notices = Notices(_log)
        self._results: Mailbox[Result] = Mailbox()
        self._listener: Listener = listen(bind, security, shortcut=shortcut, max_message_bytes=CHUNK)
        #: where it listens, with the real port
        self.address = self._listener.address
        self._fetching = Fetching(patience)
        self._serving = Serving(
            directory, on_demand, self._listener.send, self._results.put, self._partial, self._listener.unsent,
            self._listener.origin_of,
        )  # fmt: skip
        self._arriving: dict[Key, _Arriving] = {}
        #: fetches that have not begun, in order: bytes and sources
        self._waiting: dict[Key, tuple[int, list[str]]] = {}
        self._links: dict[str, _Link] = {}
        #: address of each link by its descriptor
        self._fds: dict[int, str] = {}
        #: hardly any more connections fit in
        self._is_crowded = False
        #: when it was looked last what is under way, seconds
        self._looked = 0.0
        #: things for the thread to do; guarded by `_lock`, as are the two below
        self._commands: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._is_woken = False
        self._closing = False
        self._wake_reader, self._wake_writer = os.pipe()
        self._poller = Poller()
        self._poller.add(self._wake_reader)
        self._poller.add(self._listener.fileno())
        self._thread = threading.Thread(target=self._run, name="scaler-transfer", daemon=True)
        self._thread.start()

    # ---- for the owner ---------------------------------------------------------------------------------------------
    def fileno(self) -> int:
        """A descriptor that is readable while there are results."""
        return self._results.fileno()

    def take(self) -> list[Result]:
        """The results since the last call."""
        return self._results.take()

    def advertise(self, address: str) -> None:
        """Where other hosts can reach this store, tcp://host:port. Until it is known, none is sent here.

        If that has changed, nothing comes any more over connections from where this host was: they are made anew.
        """

        def told() -> None:
            self._fetching.own = address
            for other in list(self._links):
                self._hang(other)
                self._fetching.lost(other, "this host has another address now", time.monotonic())

        self._do(told)

    def fetch(self, key: Key, size: int, sources: Sequence[str]) -> None:
        """Have an object of so many bytes in the directory, from the stores at these addresses.

        There is one result, also if it is asked for again meanwhile (with other sources perhaps).
        """
        self._do(lambda: self._fetch(key, size, sources))

    def cancel(self, key: Key) -> None:
        """End a fetch; its result says so, if it isn't over already."""
        self._do(lambda: self._cancel(key))

    def available(self, key: Key) -> None:
        """An object that was "wanted" is in the directory now."""
        self._do(lambda: self._serving.available(key))

    def unavailable(self, key: Key, reason: str = "") -> None:
        """An object that was "wanted" will not be in the directory."""
        self._do(lambda: self._serving.unavailable(key, reason))

    @property
    def served_bytes(self) -> int:
        """Bytes of objects that were sent to others so far."""
        return self._serving.served_bytes

    def close(self) -> None:
        """End the thread, and remove what is half there. Blocks for a second at most. Can be repeated."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        os.write(self._wake_writer, b"x")
        self._thread.join()
        with self._lock:
            os.close(self._wake_reader)
            os.close(self._wake_writer)
        self._results.close()

    def _do(self, command: Callable[[], None]) -> None:
        with self._lock:
            if self._closing:
                return
            self._commands.append(command)
            if not self._is_woken:
                self._is_woken = True
                os.write(self._wake_writer, b"x")

    # ---- the thread ------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._closing:
            try:
                self._turn()
            except Exception as error:
                _log.exception("the transfer of objects failed")
                self._begin_anew(f"{type(error).__name__}: {error}")
        for command in self._commands:
            command()  # connections that were made just now
        for address in list(self._links):
            self._hang(address)
        for arriving in self._arriving.values():
            arriving.draft.discard()
        self._serving.close()
        self._poller.remove(self._listener.fileno())
        self._listener.close(0)
        self._poller.close()

    def _turn(self) -> None:
        busy = self._is_crowded or not (self._fetching.is_idle and self._serving.is_idle)
        ready = [fd for fd, _ in self._poller.poll(0 if self._commands else _BUSY if busy else _QUIET)]
        if self._wake_reader in ready:
            with self._lock:
                os.read(self._wake_reader, 16)
                self._is_woken = False
        # What was asked for before a message came counts before it, and what has ended before the same is asked again.
        for _ in range(len(self._commands)):
            self._commands.popleft()()  # those behind one that raises have their turn next
            self._drain()
        for fd in ready:
            if fd == self._listener.fileno():
                self._hear_peers()
            elif fd in self._fds:
                self._hear(self._fds[fd])
        now = time.monotonic()
        if busy and now - self._looked >= self._patience / _LOOKS:
            self._look(now)
        self._fetching.tick(now)
        for number, why in self._serving.tick(now):
            self._part(number, why)
        self._listener.tend(now)
        self._make_room(now)
        self._drain()

    def _make_room(self, now: float) -> None:
        """Part with peers while hardly any more fit in: one that is honest comes back when it wants something."""
        state = self._listener.state
        self._is_crowded = not state.has_room(now, _SPARE)
        for _ in range(_SPARE):  # they may need a moment to go
            if state.has_room(now, _SPARE) or (number := self._serving.most_idle(now)) is None:
                return
            state.notices.warn("closed an idle connection between stores: others need the descriptors")
            self._listener.disconnect(number)
            self._serving.gone(number)

    def _look(self, now: float) -> None:
        """See what is under way."""
        passed, self._looked = now - self._looked, now
        for address, link in self._links.items():
            before, link.carried = link.carried, link.connection.carried_bytes()
            if is_under_way(link.carried - before, passed):
                self._fetching.stirs(address, now)

    def _drain(self) -> None:
        while effects := self._fetching.take(time.monotonic()):
            for effect in effects:
                self._carry_out(effect)

    def _begin_anew(self, error: str) -> None:
        """After a defect: everything under way ends with an error, what was put half way stays."""
        for address in list(self._links):
            self._hang(address)
        self._fetching = Fetching(self._patience, self._fetching.own)
        for key in list(self._arriving):
            self._ended(key, error)

    def _hear_peers(self) -> None:
        now = time.monotonic()
        gone = set()
        self._serving.begin_turn()
        for number, frames in self._listener.receive():
            if number in gone:
                continue
            try:
                self._serving.said(number, frames, now)
            except ProtocolError as error:
                self._part(number, str(error))
                gone.add(number)
        for number, waiting in self._listener.state.take_swamped().items():  # more than it may have under way
            self._part(number, f"{waiting / 1e6:.0f} MB wait for who says that it has them")
        for number in self._listener.state.take_gone():
            self._serving.gone(number)

    def _part(self, number: int, why: str) -> None:
        self._notices.warn("a connection of a store at %s is closed: %s", self._listener.origin_of(number), why)
        self._listener.disconnect(number)
        self._serving.gone(number)

    def _hear(self, address: str) -> None:
        link = self._links[address]
        now = time.monotonic()
        try:
            for frames in link.connection.receive():
                self._heard(address, link, unpack(frames, asking=False), now)
        except (ProtocolError, ValueError) as error:
            self._notices.warn("the connection to the store at %s is closed: %s", address, error)
            self._hang(address)
            self._fetching.lost(address, str(error), now, final=True)
            return
        if link.connection.is_closed:
            reason = link.connection.trouble() or "it closed the connection"
            self._hang(address)
            self._fetching.lost(address, reason, now)

    def _heard(self, address: str, link: _Link, note: Note, now: float) -> None:
        if note.kind is Kind.WAIT:
            self._fetching.waiting(address, note.key, now)
            return
        link.answers += 1
        key, index = note.key, note.offset // CHUNK
        if note.kind is Kind.CHUNK:
            self._take_chunk(address, note, now)
        elif note.kind is Kind.ELSEWHERE:
            self._fetching.elsewhere(address, key, index, note.text, now, usable=_is_usable(address, note.text))
        elif note.kind is Kind.MISSING:
            self._fetching.missing(address, key, index, note.text, now)
        else:
            raise ProtocolError(f"a store answered {note.kind.name}")

    def _take_chunk(self, address: str, note: Note, now: float) -> None:
        key, index = note.key, note.offset // CHUNK
        if note.offset % CHUNK or sum(map(len, note.data)) != min(CHUNK, note.size - note.offset):
            raise ProtocolError("a chunk is not whole")
        if not self._fetching.arrived(address, key, index, note.size, note.number, now):
            return
        arriving = self._arriving[key]
        arriving.tag = note.number
        try:
            write_all(arriving.draft.fd, note.data, note.offset)
        except OSError as error:
            self._fetching.cancel(key, str(error))
            return
        self._serving.came(key, index)

    # ---- fetches ---------------------------------------------------------------------------------------------------
    def _fetch(self, key: Key, size: int, sources: Sequence[str]) -> None:
        if key in self._arriving:
            self._fetching.begin(key, size, sources, 0, time.monotonic())
        elif key in self._waiting:
            self._waiting[key] = size, [*self._waiting[key][1], *sources]
        elif len(self._arriving) < _MOST_FETCHES:
            self._start(key, size, sources)
        else:
            self._waiting[key] = size, list(sources)

    def _start(self, key: Key, size: int, sources: Sequence[str]) -> None:
        try:
            fd, size = open_file(self._directory, key)
            os.close(fd)
            self._results.put(("fetch", key, size, None))
            return
        except (ObjectMissing, OSError):
            pass
        try:
            if size < HEADER_BYTES:
                raise ObjectMissing(f"no object has {size} bytes")
            self._arriving[key] = _Arriving(Draft(self._directory, key, size))
        except StoreFull as error:
            self._results.put(("full", key, 0, str(error)))
            return
        except (ObjectMissing, OSError) as error:
            self._results.put(("fetch", key, 0, str(error)))
            return
        first = random.randrange(chunks_of(size))  # those who fetch it at the same time begin in different places
        self._fetching.begin(key, size, sources, first, time.monotonic())

    def _cancel(self, key: Key) -> None:
        error = "it was cancelled"
        if self._waiting.pop(key, None) is not None:
            self._results.put(("fetch", key, 0, error))
        self._fetching.cancel(key, error)

    def _partial(self, key: Key) -> Partial | None:
        arriving, have = self._arriving.get(key), self._fetching.progress(key)
        if arriving is None or have is None:
            return None
        return Partial(arriving.draft.fd, arriving.draft.size, arriving.tag, have)

    def _ended(self, key: Key, error: str | None) -> None:
        arriving = self._arriving.pop(key, None)
        if arriving is None:
            return
        draft = arriving.draft
        if error is None:
            try:
                check_header(os.pread(draft.fd, HEADER_BYTES, 0), key, draft.size)
                draft.commit(with_magic=False)
            except (ObjectMissing, OSError) as caught:
                error = str(caught)
        draft.discard()
        self._results.put(("fetch", key, 0 if error else draft.size, error))
        self._serving.fetched(key, error)
        while self._waiting and len(self._arriving) < _MOST_FETCHES:
            following = next(iter(self._waiting))
            self._start(following, *self._waiting.pop(following))

    # ---- connections -----------------------------------------------------------------------------------------------
    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Ask):
            link = self._links[effect.address]  # there is one as long as `Fetching` was not told otherwise
            flags = (REFERRED if effect.referred else 0) | (ONLY if effect.only else 0)
            text = "\n".join(effect.others)
            note = Note(Kind.READ, effect.key, effect.chunk * CHUNK, 0, link.answers, flags, text)
            link.connection.send(pack(note))
        elif isinstance(effect, Connect):
            try:
                threading.Thread(
                    target=self._connect, args=(effect.address,), name="scaler-transfer-connect", daemon=True
                ).start()
            except RuntimeError as error:
                self._fetching.lost(effect.address, words_of(error), time.monotonic())
        elif isinstance(effect, Hang):
            self._hang(effect.address)
        elif isinstance(effect, Ended):
            self._ended(effect.key, effect.error)
        elif effect.address in self._links:
            self._links[effect.address].connection.send(pack(Note(Kind.DONE, effect.key)))

    def _connect(self, address: str) -> None:
        """Make a connection; in a thread of its own."""
        made: Connection | None = None
        reason, final = "", False
        try:
            made = connect(
                address, self._security, self._patience,
                shortcut=self._shortcut, max_message_bytes=CHUNK, if_refused=IF_REFUSED,
            )  # fmt: skip
        except HandshakeRefused as error:
            reason, final = str(error), True
        except ScalerError as error:
            reason = str(error)
        except Exception as error:  # whatever it is, somebody waits for what becomes of it
            _log.exception("the connection to the store at %s", address)
            reason = f"{type(error).__name__}: {error}"

        def done() -> None:
            if made is None:
                self._fetching.lost(address, reason, time.monotonic(), final=final)
            else:
                self._connected(address, made)

        self._do(done)
        if made is not None and self._closing:
            made.close(0)

    def _connected(self, address: str, connection: Connection) -> None:
        if address in self._links:  # an earlier attempt that was given up has come to something
            connection.close(0)
            return
        self._links[address] = _Link(connection)
        self._fds[connection.fileno()] = address
        self._poller.add(connection.fileno())
        connection.send(pack(Note(Kind.HELLO, offset=VERSION, text=self._fetching.own)))
        self._fetching.connected(address, time.monotonic())

    def _hang(self, address: str) -> None:
        link = self._links.pop(address, None)
        if link is not None:
            fd = link.connection.fileno()
            del self._fds[fd]
            self._poller.remove(fd)
            link.connection.close(0)


def _is_usable(namer: str, named: str) -> bool:
    """Whether the store that another one names can be asked; an address of its own machine means nothing here."""
    if len(named) > LONGEST_ADDRESS:
        return False
    try:
        return not Address.parse(named).is_loopback or Address.parse(namer).is_loopback
    except AddressError:
        return False
