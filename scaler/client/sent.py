"""Large values that were sent: stored once, recognised when they are given again, released when nobody can do that.

    entry (by key) ──► Object ◄── Stored ◄── calls that need it
       ┊ weakly                     │
       └┄┄┄┄┄┄┄┄► value ◄───────────┘

An `Object` stands for what was announced to the scheduler, and releases it when it goes. `Stored` is what calls have
among their needs; it keeps the value too, so that it can be written again while they are under way. Afterwards an entry
stays for as long as the value could be given again: as somebody else has it, or shortly, if somebody has the memory
that it was made of, since functions are often wrapped anew for each call. `look` sees to that.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from scaler.client import events as ev
from scaler.client.content import Content, Key, key_of, reference_to
from scaler.errors import ObjectLost
from scaler.serialize.outofband import Packed

if TYPE_CHECKING:
    from scaler.client.link import Link
    from scaler.client.stores import Stores

#: seconds for which an object is kept whose value is gone, while its memory is there
LINGER = 10.0
#: bytes of such objects, but for the last one used
LINGER_BYTES = 1 << 30
#: bytes that are written before `keep` has a look at what can go
LOOK_BYTES = 64 << 20


class Object:
    """An object of this client in a store."""

    __slots__ = ("_release", "content", "id", "size")

    def __init__(self, object_id: int, size: int, content: Content, release: Callable[[int], None]) -> None:
        self.id = object_id
        #: bytes
        self.size = size
        self.content = content
        self._release = release

    def __del__(self) -> None:
        self._release(self.id)


class Stored:
    """Stands for an object among the needs of a call, and keeps its value."""

    __slots__ = ("__weakref__", "_object", "id", "value")

    def __init__(self, sent: Object, value: Any) -> None:
        self._object = sent
        self.id = sent.id
        self.value = value


def _nothing() -> None:
    """Stands for a reference to a value that is gone."""


class _Entry:
    """What is stored of the values of one key."""

    __slots__ = ("lock", "sent", "used", "value")

    def __init__(self) -> None:
        #: held while the value is compared or written
        self.lock = threading.RLock()
        self.sent: Object | None = None
        self.value: Callable[[], Any] = _nothing
        #: when it was last needed, seconds
        self.used = 0.0


class SentValues:
    """See the module's text. Any thread, but for those that say otherwise."""

    def __init__(self, link: Link, stores: Stores, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._stores = stores
        self._clock = clock
        # the collector may run anybody's code, also while these are held
        self._lock = threading.RLock()
        self._entries: dict[Key, _Entry] = {}
        #: bytes that were written since `keep` had a look, about
        self._unlooked = 0
        #: by object id: what pending calls need
        self._stored: WeakValueDictionary[int, Stored] = WeakValueDictionary()

    def keep(self, value: Any, packed: Packed, pack: Callable[[Any], Packed], what: str) -> Stored | None:
        """Have a value in a store, as what calls need; None if there is no store at all.

        `pack` packs it again. `what` names it for messages. Blocks while it is written; not on the I/O thread. Raises
        `StoreFull`, `ConnectionFailed`.
        """
        if self._unlooked > LOOK_BYTES:
            self._unlooked = 0
            self.look()
        key = key_of(packed)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry()
        with entry.lock:
            entry.used = self._clock()
            sent = entry.sent
            if sent is not None and not sent.content.is_same(packed, functools.partial(self._stored_buffers, sent)):
                sent.content.outdated = True
                sent = None
            if sent is None:
                entry.sent = sent = self._send(packed, key, pack, what)
                entry.value = reference_to(value)
            elif entry.value() is None:
                entry.value = reference_to(value)
            if sent is None:
                return None
            stored = self._stored.get(sent.id)
            if stored is None:
                stored = self._stored[sent.id] = Stored(sent, value)
            return stored

    def _send(self, packed: Packed, key: Key, pack: Callable[[Any], Packed], what: str) -> Object | None:
        content = Content(packed, key)
        self._unlooked += packed.size
        object_id = self._link.take_id()
        written = self._stores.write(object_id, packed, what)
        if written is None:
            return None
        if not self._stores.is_here:
            content.take_digests(packed)
        source = functools.partial(self._pack_again, object_id, content, pack)
        self._link.flush(written.announce(source))
        return Object(object_id, written.size, content, self._link.release)

    def _stored_buffers(self, sent: Object) -> Sequence[memoryview] | None:
        found = self._stores.look_up(sent.id)
        return found.buffers if found is not None else None

    def _pack_again(self, object_id: int, content: Content, pack: Callable[[Any], Packed]) -> Packed:
        stored = self._stored.get(object_id)
        value = stored.value if stored is not None else self._value_of(object_id)
        return pack_again(value, content, pack)

    def _value_of(self, object_id: int) -> Any:
        with self._lock:
            entries = list(self._entries.values())
        for entry in entries:
            if entry.sent is not None and entry.sent.id == object_id:
                return entry.value()
        return None

    def store(self, value: Any, packed: Packed, pack: Callable[[Any], Packed], what: str) -> int | None:
        """Store a value that is not looked for again, and keep it; its object id, to be released by the caller.

        None if there is no store at all. Blocks and raises like `keep`.
        """
        content = Content(packed)
        object_id = self._link.take_id()
        written = self._stores.write(object_id, packed, what)
        if written is None:
            return None
        self._link.flush(written.announce(functools.partial(pack_again, value, content, pack)))
        return object_id

    def restore(self, objects: Sequence[ev.Announce]) -> None:
        """Write objects again that were lost with their stores. Blocks; never on the I/O thread."""
        for announce in objects:
            made = None
            try:
                written = self._stores.write(announce.id, announce.source(), f"object {announce.id}")
                made = written.announce(announce.source) if written is not None else None
            except Exception:
                pass  # rows that need it are told when they ask
            self._link.tell(ev.Restored(announce.id, made))

    def look(self) -> None:
        """Let go of what cannot be given again; called about twice a second, and while much is sent.

        Takes about a microsecond for each buffer.
        """
        if not self._entries:
            return
        now = self._clock()
        lingering: list[tuple[float, int, Key]] = []
        dropped: list[_Entry] = []  # die without the lock
        values: list[Callable[[], Any]] = []  # and so do these
        with self._lock:
            for key, entry in list(self._entries.items()):
                if not entry.lock.acquire(False):
                    continue  # it is being used
                try:
                    sent = entry.sent
                    if sent is None:
                        dropped.append(self._entries.pop(key))
                    elif sent.id in self._stored:
                        entry.used = now
                    elif not sent.content.is_held(entry.value):
                        values.append(entry.value)
                        entry.value = _nothing  # it may be all that keeps the memory
                        if now - entry.used < LINGER and sent.content.has_owners:
                            lingering.append((entry.used, sent.size, key))
                        else:
                            dropped.append(self._entries.pop(key))
                finally:
                    entry.lock.release()
            lingering.sort(reverse=True)
            total = 0
            for _, size, key in lingering[1:]:
                total += size
                if total > LINGER_BYTES:
                    dropped.append(self._entries.pop(key))

    def clear(self) -> None:
        """The scheduler forgets all objects."""
        with self._lock:
            entries, self._entries = self._entries, {}
            self._stored = WeakValueDictionary()
        entries.clear()


def pack_again(value: Any, content: Content, pack: Callable[[Any], Packed]) -> Packed:
    """A value that was sent, as it was then. Raises `ObjectLost` if it is gone, or is seen to have changed."""
    if value is None:
        raise ObjectLost("an object is lost with its host, and so is the value that it was made of")
    packed = pack(value)
    if not content.may_be(packed):
        raise ObjectLost(
            f"an object is lost with its host, and the {type(value).__name__} that it was made of has changed since"
        )
    return packed
