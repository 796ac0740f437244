"""Which chunk is asked of whom: pure, all fetches of one store together.

    fetch ── part ── line      fetch: an object and what of it is missing
          ╲        ╱           line:  the connection to another store, shared by all fetches
            part ─ line        part:  what a fetch has to do with a line

A chunk is in its fetch's pool until it is asked of a line; it goes back when the line breaks, and another takes it.
Each line has a window: so many chunks are asked at a time, more of a source by a long way (see `window`). A source may
name another store for a chunk instead of sending it (see `serving`); that store becomes a part, too, which is asked
only for what it was named for, and a chunk that does not come from there within a short time is asked of the source
again, which is told not to name that store. A source for whose chunk a useless one was named, or that would have to be
told of many, is asked to send by itself: one that names another all the same has its connection closed.

Connections take descriptors: beyond `MOST_LINES` one that no fetch needs makes room for the next, that of who was heard
least lately. If there is none, a named store is not asked, and a source not yet, but by a fetch that has no other.

A store that was reached before is tried again until nothing was heard from it for `patience` seconds, or it has
answered nothing for so long since a connection was lost; others at once no more. But who could not be reached a while
ago and is named as a source once more is tried for as long, too: there may be no other way. A fetch ends when it has
all, or when no source is left.
"""

import math
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from scaler.store.layout import Key
from scaler.store.window import Window
from scaler.store.wire import LONGEST_WAIT, chunks_of

#: chunks asked of a store at a time that was named
NAMED_WINDOW = 4
#: the same with chunks that wait for an object to be made ready, which do not count otherwise
_MOST_ASKED = 48
#: named stores of one fetch that are connected to
MAX_NAMED = 32
#: stores that a source is told not to name; if there are more, it is to name none
MAX_LISTED = 64
#: characters of an address that another store names, at most: many of them have to fit into one message
LONGEST_ADDRESS = 255
#: connections that there are at a time, and one more for each fetch that has no other source
MOST_LINES = 64
#: seconds for which a chunk waits for the connection to a store that was named for it
_CONNECTING = 1.0
#: for so many times the patience with a store a connection may be made, should nobody tell what has become of it
_OVERDUE = 2
#: seconds after which a connection that nobody needs is closed
_IDLE = 60.0
#: seconds between attempts to connect again
_PAUSE = 0.2
#: seconds for which a store that could not be reached isn't tried when another names it, and for longer as a source
_UNREACHABLE = 60.0


class Connect(NamedTuple):
    """Connect to this store; say `connected` or `lost`."""

    address: str


class Hang(NamedTuple):
    """Close this connection."""

    address: str


class Ask(NamedTuple):
    """Ask for a chunk. The other stores are not to be named, or (`only`) no others are."""

    address: str
    key: Key
    chunk: int
    referred: bool
    others: tuple[str, ...]
    only: bool


class Tell(NamedTuple):
    """Say that this store has all of the object now."""

    address: str
    key: Key


class Ended(NamedTuple):
    """The fetch is over; why it failed (None: all is there)."""

    key: Key
    error: str | None


Effect: TypeAlias = Connect | Hang | Ask | Tell | Ended


class _Line:
    __slots__ = (
        "address",
        "alone",
        "asked",
        "connecting",
        "heard",
        "hungry",
        "lost_at",
        "ready",
        "retry_at",
        "since",
        "stalled",
        "users",
        "was_ready",
        "window",
    )

    def __init__(self, address: str, now: float) -> None:
        self.address = address
        #: a connection is being made, and since when
        self.connecting = False
        self.since = now
        self.ready = False
        self.was_ready = False
        #: what was asked and not answered yet, and when
        self.asked: dict[tuple[Key, int], float] = {}
        #: those of them for which no other store may be named
        self.alone: set[tuple[Key, int]] = set()
        #: when an answer came last, or the first of what is asked now was asked
        self.heard = now
        #: how many are asked at a time while it is a source
        self.window = Window()
        #: when a connection was lost first since it has answered something
        self.lost_at: float | None = None
        #: when to connect again
        self.retry_at: float | None = None
        #: fetches that have a part here
        self.users: dict[Key, None] = {}
        #: those that may have something to ask; they take turns
        self.hungry: dict[Key, None] = {}
        #: objects that are being made ready there
        self.stalled: dict[Key, None] = {}

    @property
    def is_open(self) -> bool:
        """It takes descriptors."""
        return self.ready or self.connecting

    @property
    def is_needless(self) -> bool:
        """No fetch has to do with it, and no answer is under way."""
        return not self.users and not self.asked

    def has_room(self, window: int) -> bool:
        """May one more chunk be asked for?"""
        if len(self.asked) < window:
            return True
        if not self.stalled or len(self.asked) >= _MOST_ASKED:
            return False
        return sum(key not in self.stalled for key, _ in self.asked) < window


class _Part:
    __slots__ = ("named", "since", "todo")

    def __init__(self, named: bool, now: float) -> None:
        #: true while it is asked only for what it was named for
        self.named = named
        #: chunks that it was named for
        self.todo: deque[int] = deque()
        #: when it was first named while there was no connection
        self.since = now


class _Fetch:
    __slots__ = ("alone", "avoid", "have", "key", "left", "parts", "pool", "size", "tag", "troubles")

    def __init__(self, key: Key, size: int, first: int) -> None:
        self.key = key
        self.size = size
        #: of the file, once a chunk is here
        self.tag: int | None = None
        count = chunks_of(size)
        #: chunks that are not here
        self.left = count
        #: one byte a chunk: is it here?
        self.have = bytearray(count)
        #: chunks that nobody is asked for; may also have some that are here
        self.pool = deque(range(first, count))
        self.pool.extend(range(first))
        self.parts: dict[str, _Part] = {}
        #: stores that should not be named again; once there are `MAX_LISTED` it does not matter which
        self.avoid: dict[str, None] = {}
        #: chunks for which a store of no use was named: a source is to send them by itself
        self.alone: set[int] = set()
        #: why sources were dropped
        self.troubles: dict[str, str] = {}


class Fetching:
    """See the module's text. Every method may have effects: `take` them afterwards."""

    def __init__(self, patience: float, own: str = "") -> None:
        #: seconds
        self.patience = patience
        #: where this store itself can be asked, if it is known
        self.own = own
        self._fetches: dict[Key, _Fetch] = {}
        self._lines: dict[str, _Line] = {}
        #: those to be connected, in order
        self._unopened: dict[str, None] = {}
        #: stores that could not be reached, and when
        self._unreachable: dict[str, float] = {}
        self._effects: list[Effect] = []

    # ---- what is wanted --------------------------------------------------------------------------------------------
    def begin(self, key: Key, size: int, sources: Iterable[str], first: int, now: float) -> None:
        """Fetch an object, beginning with chunk `first`; one that is being fetched gets more sources."""
        fetch = self._fetches.get(key)
        if fetch is None:
            fetch = self._fetches[key] = _Fetch(key, size, first)
            self._unreachable = {
                address: when for address, when in self._unreachable.items() if now - when < _UNREACHABLE
            }
            fetch.avoid.update(dict.fromkeys(list(self._unreachable)[-MAX_LISTED // 2 :]))
        for address in sources:
            part = fetch.parts.get(address)
            if part is not None:
                part.named = False
            elif address and address != self.own:
                self._add_part(fetch, address, False, now)
            self._feed(fetch)
        self._check_sources(fetch)

    def cancel(self, key: Key, error: str) -> None:
        """End a fetch; one that is not there does not matter."""
        fetch = self._fetches.get(key)
        if fetch is not None:
            self._end(fetch, error)

    def progress(self, key: Key) -> bytearray | None:
        """One byte a chunk, 1 if it is here; None if the object is not being fetched."""
        fetch = self._fetches.get(key)
        return None if fetch is None else fetch.have

    # ---- what happens ----------------------------------------------------------------------------------------------
    def connected(self, address: str, now: float) -> None:
        """A connection is made."""
        line = self._lines.get(address)
        if line is None:
            self._effects.append(Hang(address))
            return
        line.ready = line.was_ready = True
        self._unreachable.pop(address, None)
        line.connecting = False
        line.retry_at = None
        self._unopened.pop(address, None)
        line.heard = now
        line.hungry = dict.fromkeys(line.users)

    def lost(self, address: str, reason: str, now: float, *, final: bool = False) -> None:
        """A connection is closed or could not be made; `final`: another attempt is pointless."""
        line = self._lines.get(address)
        if line is None or not line.is_open:
            return
        line.ready = line.connecting = False
        has_hope = line.was_ready or now - self._unreachable.get(address, -math.inf) < _UNREACHABLE
        if not line.was_ready:
            self._unreachable[address] = now
        line.stalled.clear()
        asked, line.asked = line.asked, {}
        line.alone.clear()
        for key, index in asked:
            self._give_back(key, index)
        line.lost_at = now if line.lost_at is None else line.lost_at
        again = has_hope and not final and now - min(line.heard, line.lost_at) < self.patience
        for key in list(line.users):
            fetch = self._fetches[key]
            if not again or fetch.parts[address].named:
                self._drop(fetch, address, reason)
            else:
                self._unload(fetch, fetch.parts[address])
        if again and line.users:
            line.retry_at = now + _PAUSE
        else:
            self._forget(line)

    def arrived(self, address: str, key: Key, index: int, size: int, tag: int, now: float) -> bool:
        """A chunk has come; true if it is needed, and then it counts as being here.

        Raises ValueError if nobody asked for it there.
        """
        self._answered(address, key, index, now)
        fetch = self._wanting(key, index)
        if fetch is None:
            return False
        if size != fetch.size or fetch.tag not in (None, tag):
            self._give_back(key, index)
            if address in fetch.parts:
                self._drop(fetch, address, "has another version of it")
            return False
        fetch.tag = tag
        fetch.have[index] = 1
        fetch.left -= 1
        if not fetch.left:
            for used in fetch.parts:
                if self._lines[used].ready:
                    self._effects.append(Tell(used, key))
            self._end(fetch, None)
        return True

    def elsewhere(self, address: str, key: Key, index: int, other: str, now: float, *, usable: bool = True) -> None:
        """Another store has this chunk; it is not asked unless it is `usable`. Raises ValueError if nobody asked."""
        if self._answered(address, key, index, now):
            raise ValueError(f"{address} names another store for what it was to send by itself")
        fetch = self._wanting(key, index)
        if fetch is None:
            return
        part = fetch.parts.get(other)
        is_strange = part is None and (not usable or other in ("", self.own) or other in fetch.avoid)
        if is_strange or not self._may_reach(other):
            self._avoid(fetch, other)
            fetch.alone.add(index)
            self._give_back(key, index)
            return
        if part is None:
            if self._named(fetch) >= MAX_NAMED:
                fetch.alone.add(index)
                self._give_back(key, index)
                return
            part = self._add_part(fetch, other, True, now)
        part.todo.append(index)
        self._lines[other].hungry[key] = None

    def missing(self, address: str, key: Key, index: int, reason: str, now: float) -> None:
        """That store does not have the object, or no longer. Raises ValueError if nobody asked."""
        self._answered(address, key, index, now)
        fetch = self._fetches.get(key)
        if fetch is not None:
            self._give_back(key, index)
            if address in fetch.parts:
                self._drop(fetch, address, reason or "does not have it")

    def waiting(self, address: str, key: Key, now: float) -> None:
        """That store makes an object ready: other objects need not wait, and other sources may be faster."""
        line = self._lines.get(address)
        if line is None:
            return
        line.heard = now
        asked = {index: when for (of, index), when in line.asked.items() if of == key}
        if asked and key not in line.stalled:
            line.stalled[key] = None
            for index in reversed(asked):
                self._give_back(key, index)
        elif asked and key in line.users and now - max(asked.values()) >= LONGEST_WAIT:
            self._drop(self._fetches[key], address, f"has not made it ready in {LONGEST_WAIT:g} s")

    def stirs(self, address: str, now: float) -> None:
        """A part of an answer has come of that store: on a narrow way a chunk takes longer than the patience."""
        line = self._lines.get(address)
        if line is not None:
            line.heard = now

    def tick(self, now: float) -> None:
        """Look at the time."""
        for line in list(self._lines.values()):
            if line.ready and line.asked and now - line.heard >= self.patience:
                self._effects.append(Hang(line.address))
                self.lost(line.address, f"no answer for {self.patience:g} s", now, final=True)
            elif line.connecting and now - line.since >= _OVERDUE * self.patience:
                self.lost(line.address, f"no connection for {_OVERDUE * self.patience:g} s", now, final=True)
            elif line.retry_at is not None and now >= line.retry_at:
                line.retry_at = None
                self._unopened[line.address] = None
            elif line.is_needless and now - line.heard >= _IDLE:
                self._hang(line)
            else:
                self._hurry(line, now)

    @property
    def is_idle(self) -> bool:
        """True if there is nothing to look at the time for, but connections that are open."""
        return not self._fetches

    def take(self, now: float) -> list[Effect]:
        """What is to be done now."""
        if self._unopened:
            self._open_lines(now)
        for line in self._lines.values():
            if line.ready and line.hungry:
                self._fill(line, now)
        effects, self._effects = self._effects, []
        return effects

    # ---- inside ----------------------------------------------------------------------------------------------------
    def _add_part(self, fetch: _Fetch, address: str, named: bool, now: float) -> _Part:
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = _Line(address, now)
            self._unopened[address] = None
        if line.is_needless:
            line.heard = now
        line.users[fetch.key] = line.hungry[fetch.key] = None
        part = fetch.parts[address] = _Part(named, now)
        return part

    def _open_lines(self, now: float) -> None:
        """Have connections made, as far as there is room for them."""
        opened, spare = self._opened(), self._spare()
        for address in list(self._unopened):
            line = self._lines[address]
            if not line.users:
                self._forget(line)
                continue
            while opened >= MOST_LINES and spare:
                self._hang(spare.pop())
                opened -= 1
            if opened < MOST_LINES or self._is_needed(line):
                del self._unopened[address]
                line.connecting, line.since = True, now
                self._effects.append(Connect(address))
                opened += 1

    def _opened(self) -> int:
        return sum(line.is_open for line in self._lines.values())

    def _spare(self) -> list[_Line]:
        """Connections that no fetch needs, the last one that of the store that was heard least lately."""
        needless = [line for line in self._lines.values() if line.ready and line.is_needless]
        return sorted(needless, key=lambda line: line.heard, reverse=True)

    def _is_needed(self, line: _Line) -> bool:
        """Some fetch is connected to no other source."""
        return any(not self._has_source(self._fetches[key]) for key in line.users)

    def _has_source(self, fetch: _Fetch) -> bool:
        return any(self._lines[address].is_open for address, part in fetch.parts.items() if not part.named)

    def _may_reach(self, address: str) -> bool:
        """Whether a store can be asked without waiting for others."""
        if address in self._lines and address not in self._unopened:
            return True
        wanted = self._opened() + len({*self._unopened, address}) - len(self._spare())
        return wanted <= MOST_LINES

    def _hang(self, line: _Line) -> None:
        self._effects.append(Hang(line.address))
        self._forget(line)

    def _forget(self, line: _Line) -> None:
        del self._lines[line.address]
        self._unopened.pop(line.address, None)

    def _fill(self, line: _Line, now: float) -> None:
        """Ask for as much as the window allows, a chunk for each fetch in turn."""
        while line.hungry:
            key = next(iter(line.hungry))
            fetch = self._fetches.get(key)
            part = fetch.parts.get(line.address) if fetch else None
            if fetch is None or part is None or key in line.stalled:
                del line.hungry[key]
                continue
            if not line.has_room(NAMED_WINDOW if part.named else line.window.size):
                return
            del line.hungry[key]
            referred = bool(part.todo)
            index = self._next(fetch, part)
            if index is None:
                continue
            line.hungry[key] = None
            if not line.asked:
                line.heard = now
            before = (key, index) in line.asked  # by a fetch that was cancelled
            line.asked[key, index] = now
            if before:
                continue
            is_alone = referred or part.named or index in fetch.alone
            others, only = ((), False) if is_alone else self._others(fetch, line.address)
            if is_alone or len(others) > MAX_LISTED:
                line.alone.add((key, index))
                is_alone, others = True, ()
            self._effects.append(Ask(line.address, key, index, is_alone, others, only))

    def _others(self, fetch: _Fetch, source: str) -> tuple[tuple[str, ...], bool]:
        """Stores that a source should not name, since they are of no use or asked anyway; or the only ones to name."""
        named = [address for address, part in fetch.parts.items() if part.named]
        if len(named) >= MAX_NAMED:
            return tuple(named), True
        asked = [address for address, part in fetch.parts.items() if not part.named and address != source]
        return (*fetch.avoid, *asked), False

    def _avoid(self, fetch: _Fetch, address: str) -> None:
        if len(fetch.avoid) <= MAX_LISTED and len(address) <= LONGEST_ADDRESS:
            fetch.avoid[address] = None

    def _next(self, fetch: _Fetch, part: _Part) -> int | None:
        for queue in (part.todo,) if part.named else (part.todo, fetch.pool):
            while queue:
                index = queue.popleft()
                if not fetch.have[index]:
                    return index
        return None

    def _answered(self, address: str, key: Key, index: int, now: float) -> bool:
        """Whether the store that has answered was to send it by itself. Raises ValueError if nobody asked."""
        line = self._lines.get(address)
        asked = None if line is None else line.asked.pop((key, index), None)
        if line is None or asked is None:
            raise ValueError(f"an answer that nobody asked {address} for")
        was_alone = (key, index) in line.alone
        line.alone.discard((key, index))
        line.heard, line.lost_at = now, None
        if key not in line.stalled:
            line.window.note(now - asked)
        else:
            del line.stalled[key]
            if key in line.users:
                line.hungry[key] = None
        return was_alone

    def _wanting(self, key: Key, index: int) -> _Fetch | None:
        """The fetch that lacks a chunk; it may have been asked for by an earlier one, when the object was larger."""
        fetch = self._fetches.get(key)
        return fetch if fetch is not None and index < len(fetch.have) and not fetch.have[index] else None

    def _give_back(self, key: Key, index: int) -> None:
        """A chunk has to be asked for again."""
        fetch = self._wanting(key, index)
        if fetch is not None:
            fetch.pool.appendleft(index)
            self._feed(fetch)

    def _feed(self, fetch: _Fetch) -> None:
        for address in fetch.parts:
            self._lines[address].hungry[fetch.key] = None

    def _drop(self, fetch: _Fetch, address: str, reason: str) -> None:
        """A store is of no use to a fetch any more."""
        part = fetch.parts.pop(address)
        line = self._lines[address]
        line.users.pop(fetch.key)
        line.hungry.pop(fetch.key, None)
        self._avoid(fetch, address)
        self._unload(fetch, part)
        if not part.named:
            fetch.troubles[address] = reason
            self._check_sources(fetch)

    def _unload(self, fetch: _Fetch, part: _Part) -> None:
        """What a store was named for may be asked of any."""
        if part.todo:
            fetch.pool.extend(part.todo)
            part.todo.clear()
            self._feed(fetch)

    def _check_sources(self, fetch: _Fetch) -> None:
        """Without sources the stores that were named are asked for everything; without those it is over."""
        if any(not part.named for part in fetch.parts.values()):
            return
        if not fetch.parts:
            reasons = "; ".join(f"{address}: {reason}" for address, reason in fetch.troubles.items())
            self._end(fetch, reasons or "no other store has it")
            return
        for part in fetch.parts.values():
            part.named = False
        self._feed(fetch)

    def _end(self, fetch: _Fetch, error: str | None) -> None:
        del self._fetches[fetch.key]
        for address in fetch.parts:
            line = self._lines[address]
            del line.users[fetch.key]
            line.hungry.pop(fetch.key, None)
        self._effects.append(Ended(fetch.key, error))

    def _hurry(self, line: _Line, now: float) -> None:
        """Ask the source again for what a named store does not deliver."""
        for key in list(line.users):
            fetch = self._fetches.get(key)
            part = fetch.parts.get(line.address) if fetch else None
            if fetch is None or part is None or not part.named:
                continue
            late = [index for (of, index), when in line.asked.items() if of == key and now - when >= self.patience]
            if late or (part.todo and not line.ready and now - part.since >= _CONNECTING):
                waits = [index for of, index in line.asked if of == key]
                if line.connecting and not line.was_ready:
                    self._unreachable[line.address] = now
                self._drop(fetch, line.address, "too slow")
                for index in waits:
                    self._give_back(key, index)

    def _named(self, fetch: _Fetch) -> int:
        return sum(part.named for part in fetch.parts.values())
