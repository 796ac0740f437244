"""What a value was when it was sent: enough to see later whether it is the same, and whether anybody else has it.

A value is packed again each time it is given, which is cheap where its bytes are in buffers of its own. The in-band
part and the places of the buffers in memory are the *key* under which it is found again. What the buffers hold may have
changed since. Of a `bytes` object it can't have; of others the kernel may know (`Watch`); the rest has to be compared
with the bytes that were sent: those in the store, or, where they can't be read from here, their digest. When the store
is lost and the value has to be sent again, checksums tell whether it is still the same.

A Watch costs a descriptor, and half a microsecond for each page when it is written to the first time; a checksum costs
three times as much at once, so small buffers, and those that can't be watched, have that.
"""

from __future__ import annotations

import hashlib
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from scaler.common.buffers import address_of, checksums, equal
from scaler.common.renewed_lock import RenewedLock
from scaler.serialize.outofband import Packed
from scaler.store.unchanged import Watch, available

#: a longer in-band part is remembered by its digest
_SHORT = 4_096
#: buffers of fewer bytes are compared: a Watch would save little
WATCHED_FROM = 1 << 20
#: watches in this process, at most
MAX_WATCHES = 128

Key = tuple[bytes, tuple[tuple[int, int], ...]]


def key_of(packed: Packed) -> Key:
    """Under which a value is found again: what is in band, address and size of each buffer."""
    inband = packed.inband
    if len(inband) > _SHORT:
        inband = hashlib.sha256(inband).digest()
    return inband, tuple([(address_of(buffer), buffer.nbytes) for buffer in packed.buffers])


class Content:
    """A packed value as it was; made before its bytes are copied. Any thread, one at a time."""

    __slots__ = ("_digests", "_memories", "key", "outdated")

    def __init__(self, packed: Packed, key: Key | None = None) -> None:
        self.key = key if key is not None else key_of(packed)
        #: the value is known to have changed since
        self.outdated = False
        self._memories = [_Memory(buffer) for buffer in packed.buffers]
        self._digests: list[bytes] = []

    def take_digests(self, packed: Packed) -> None:
        """Remember the bytes by their digests: they will not be seen again."""
        self._digests = [
            b"" if memory.is_certain(buffer) else hashlib.sha256(buffer).digest()
            for memory, buffer in zip(self._memories, packed.buffers, strict=True)
        ]

    def is_same(self, packed: Packed, stored: Callable[[], Sequence[memoryview] | None]) -> bool:
        """Whether a value of this key has the same bytes; `stored()` gives those that were sent, if it can.

        If it hasn't, this is `outdated` for good, and keeps the buffers watched for the one that is made of them next.
        """
        if self.outdated:
            return False
        doubtful = [
            index
            for index, (memory, buffer) in enumerate(zip(self._memories, packed.buffers, strict=True))
            if not memory.is_certain(buffer)
        ]
        if not doubtful:
            return True
        # watched again first, compared then: what changes meanwhile shows the next time
        watched = [_Memory(packed.buffers[index], self._memories[index].sums) for index in doubtful]
        if self._digests:
            same = all(hashlib.sha256(packed.buffers[index]).digest() == self._digests[index] for index in doubtful)
        else:
            sent = stored()
            same = sent is not None and all(equal(packed.buffers[index], sent[index]) for index in doubtful)
        self.outdated = not same
        for index, memory in zip(doubtful, watched, strict=True):
            self._memories[index] = memory
        return same

    def may_be(self, packed: Packed) -> bool:
        """Whether a value that was packed again has the bytes that were sent, when those are gone."""
        inband, places = key_of(packed)
        same = (
            inband == self.key[0]
            and len(places) == len(self._memories)
            and all(
                memory.has_stayed(buffer, place == before)
                for memory, buffer, place, before in zip(
                    self._memories, packed.buffers, places, self.key[1], strict=True
                )
            )
        )
        return same and not self.outdated  # asked last: another thread may have seen that meanwhile, in `is_same`

    def is_referenced(self, value: Callable[[], Any]) -> bool:
        """Whether anybody but this still has the value."""
        return _others(value, self._references()[id(value())]) > 0

    @property
    def has_owners(self) -> bool:
        """Whether there are buffers, and somebody has the memory of each, if perhaps in other values than this one."""
        memories, ours = self._memories, self._references()
        return bool(memories) and all(
            memory.owner is not None and _others(memory.owner, ours[id(memory.owner())]) > 0 for memory in memories
        )

    def _references(self) -> Counter[int]:
        """How many references this has to objects, by their ids."""
        counts: Counter[int] = Counter()
        for memory in self._memories:
            counts.update(memory.references())
        return counts


class Strong:
    """Like a `weakref.ref`, of what has none."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self) -> Any:
        return self._value


def reference_to(value: Any) -> Callable[[], Any]:
    """A weak reference where there can be one, else a strong one."""
    try:
        return weakref.ref(value)
    except TypeError:
        return Strong(value)


class _Memory:
    """One buffer."""

    __slots__ = ("_base", "_watch", "owner", "sums")

    def __init__(self, buffer: memoryview, sums: tuple[int, ...] = ()) -> None:
        """`sums` if they are known, else it is watched or they are made."""
        owner = base = buffer.obj
        while (below := getattr(owner, "base", None)) is not None:
            owner = below
        #: whose memory it is: weakly, or, of a bytes object, strongly
        self.owner: Callable[[], Any] | None = None
        if type(owner) is bytes:
            self.owner = Strong(owner)
        elif owner is not None:
            reference = reference_to(owner)
            self.owner = reference if not isinstance(reference, Strong) else None
        #: notices changes; None where it can't, is not worth it, or would keep the owner from growing, as a bytearray
        self._watch: Watch | None = None
        #: the object whose buffer the watch keeps
        self._base: Callable[[], Any] | None = None
        if buffer.nbytes >= WATCHED_FROM and type(base).__module__ == "numpy" and type(owner) is not bytes:
            self._watch = _watch(buffer)
            self._base = reference_to(base) if self._watch is not None else None
        #: checksums, of a buffer that may change and is not watched
        self.sums = sums
        if self._watch is None and type(owner) is not bytes and not sums:
            self.sums = checksums(buffer)

    def is_certain(self, buffer: memoryview) -> bool:
        """Whether a buffer at this place has the same bytes as then for certain."""
        if type(buffer.obj) is bytes:
            return self.owner is not None and self.owner() is buffer.obj
        return self._watch is not None and _is_unchanged(self._watch)

    def has_stayed(self, buffer: memoryview, is_same_place: bool) -> bool:
        """Whether a buffer of the value has the bytes of then, as far as can be told."""
        if self.sums:
            return checksums(buffer) == self.sums
        if self._watch is not None:
            return is_same_place and _is_unchanged(self._watch)
        before = self.owner() if self.owner is not None else None
        return type(before) is bytes and (
            is_same_place or (len(before) == buffer.nbytes and equal(memoryview(before), buffer))
        )

    def references(self) -> list[int]:
        """The ids of the objects that it has references to."""
        found = [id(self.owner())] if isinstance(self.owner, Strong) else []
        base = self._base() if self._base is not None else None
        if base is not None:
            found += [id(base), id(base.base)] if getattr(base, "base", None) is not None else [id(base)]
        return found


#: a watch is asked by one thread at a time
_watching = RenewedLock()
#: by address and size; values often share their memory, and only one can watch it
_watches: weakref.WeakValueDictionary[tuple[int, int], Watch] = weakref.WeakValueDictionary()


def _watch(buffer: memoryview) -> Watch | None:
    """A watch over a buffer that nobody has written to since it began; None if there can't be one."""
    if not available():
        return None
    place = address_of(buffer), buffer.nbytes
    with _watching.lock:
        watch = _watches.get(place)
        if watch is None or not watch.unchanged():
            if len(_watches) >= MAX_WATCHES:
                return None
            watch = Watch(buffer)
            if not watch.unchanged():
                return None
            _watches[place] = watch
        return watch


def _is_unchanged(watch: Watch) -> bool:
    with _watching.lock:
        return watch.unchanged()


def _others(reference: Callable[[], Any], ours: int) -> int:
    """How many references there are to what a reference leads to, but for `ours`, its own, and those of this call."""
    count = _count(reference)
    return count - _OWN - ours - isinstance(reference, Strong) if count else 0


def _count(reference: Callable[[], Any]) -> int:
    value = reference()
    return 0 if value is None else _getrefcount(value)


class _Probe:
    """Something that exactly one reference leads to."""


_getrefcount: Callable[[Any], int] = getattr(sys, "getrefcount", lambda value: 1 << 20)
_probe = _Probe()
#: what is counted of the counting itself
_OWN = _count(weakref.ref(_probe)) - 1
