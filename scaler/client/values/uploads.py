"""Storing large values: once, as long as they stay as they are; and again, when they are lost with their stores."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from scaler.client.core import events as ev
from scaler.client.io.driver import SessionDriver
from scaler.client.values.content import Content, Key, key_of
from scaler.client.values.remembered import RememberedValues, SentObject, StoredValue
from scaler.client.values.stores import Stores
from scaler.client.values.value_codec import ValueCodec
from scaler.errors import ObjectLost, SerializationError
from scaler.protocol.messages import INLINE_LIMIT
from scaler.serialize.call import Slot
from scaler.serialize.outofband import Packed
from scaler.serialize.payload import SCALARS

#: bytes that are written before `keep` has a look at what can go
LOOK_BYTES = 64 << 20


class Uploads:
    """Any thread. `keep`, `store` and `restore` block while something is written."""

    def __init__(
        self,
        driver: SessionDriver,
        stores: Stores,
        remembered: RememberedValues,
        codec: ValueCodec,
        step_aside: Callable[[], None],
    ) -> None:
        """`step_aside`: the calling thread may be going to block, and is not the I/O thread any more."""
        self._driver = driver
        self._stores = stores
        self._remembered = remembered
        self._codec = codec
        self._step_aside = step_aside
        #: bytes that were written since `keep` had a look, about
        self._unlooked = 0

    def keep(self, value: Any, packed: Packed, pack: Callable[[Any], Packed], what: str) -> StoredValue | None:
        """Have a value in a store, as what calls need; None if there is no store at all.

        `pack` packs it again. `what` names it for messages. Raises `StoreFull`, `ConnectionFailed`.
        """
        self._step_aside()
        if self._unlooked > LOOK_BYTES:
            self._unlooked = 0
            self._remembered.forget_unneeded()
        key = key_of(packed)
        entry = self._remembered.entry(key)
        with entry.lock:
            sent = entry.sent
            if sent is not None and not sent.content.is_same(packed, functools.partial(self._stored_buffers, sent)):
                sent = None
            if sent is None:
                self._remembered.replace(entry, self._send(packed, key, pack, what), value)
            return self._remembered.use(entry, value)

    def keep_large(self, value: Any, what: str) -> StoredValue | None:
        """An argument as an object, if it is large and there is a store; it is written unless it is stored already.

        `what` names it for messages. Blocks while it is written. Raises `SerializationError`, `StoreFull`,
        `ConnectionFailed`.
        """
        kind = type(value)
        if kind is Slot or (kind in SCALARS and not ((kind is str or kind is bytes) and len(value) >= INLINE_LIMIT)):
            return None
        try:
            packed = self._codec.pack(value)
        except SerializationError as error:
            raise SerializationError(f"{what}: {error}") from error.__cause__
        return self.keep(value, packed, self._codec.pack, what) if packed.size >= INLINE_LIMIT else None

    def store(self, value: Any, packed: Packed, pack: Callable[[Any], Packed], what: str) -> int | None:
        """Store a value that is not looked for again, and keep it; its object id, to be released by the caller.

        None if there is no store at all. Raises like `keep`.
        """
        self._step_aside()
        content = Content(packed)
        object_id = self._driver.take_ids(1)
        written = self._stores.write(object_id, packed, what)
        if written is None:
            return None
        self._driver.flush(written.announce(functools.partial(pack_again, value, content, pack)))
        return object_id

    def restore(self, objects: Sequence[ev.Announce]) -> None:
        """Write objects again that were lost with their stores, and say so."""
        for announce in objects:
            made = None
            try:
                written = self._stores.write(announce.id, announce.source(), f"object {announce.id}")
                made = written.announce(announce.source) if written is not None else None
            except BaseException:  # of a finaliser or a pickler of the user's, say
                pass  # rows that need it are told when they ask
            self._driver.tell(ev.Restored(announce.id, made))

    def tidy(self) -> None:
        """Let go of what cannot be given again; called by the I/O thread about twice a second. Does not block."""
        self._remembered.forget_unneeded()

    def clear(self) -> None:
        """The scheduler forgets all objects. Any thread; does not block."""
        self._remembered.clear()

    def _send(self, packed: Packed, key: Key, pack: Callable[[Any], Packed], what: str) -> SentObject | None:
        content = Content(packed, key)
        self._unlooked += packed.size
        object_id = self._driver.take_ids(1)
        written = self._stores.write(object_id, packed, what)
        if written is None:
            return None
        if not self._stores.is_local:
            content.take_digests(packed)
        self._driver.flush(written.announce(functools.partial(self._pack_again, object_id, content, pack)))
        return SentObject(object_id, written.size, content, self._driver.release)

    def _stored_buffers(self, sent: SentObject) -> Sequence[memoryview] | None:
        found = self._stores.look_up(sent.id)
        return found.buffers if found is not None else None

    def _pack_again(self, object_id: int, content: Content, pack: Callable[[Any], Packed]) -> Packed:
        return pack_again(self._remembered.value_of(object_id), content, pack)


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
