"""Giving the scheduler the values that it asks for, and storing again what was lost with its stores.

A thread of its own does that: it packs and writes, which may block.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

from scaler.client.core import events as ev
from scaler.client.future import Future
from scaler.client.io.driver import SessionDriver
from scaler.client.values.stores import Stores
from scaler.client.values.uploads import Uploads
from scaler.client.values.value_codec import ValueCodec
from scaler.common.callback_thread import CallbackThread
from scaler.errors import ObjectLost
from scaler.protocol import failures
from scaler.protocol.messages import INLINE_LIMIT
from scaler.serialize.outofband import Packed, joined
from scaler.serialize.record import exception_record

#: seconds between looks at connections to stores: those that are gone take descriptors and threads until then
TIDY_SECONDS = 5.0


class ValueProvider:
    """Carries out what concerns stores and values in them, on the I/O thread without blocking."""

    def __init__(
        self, driver: SessionDriver, codec: ValueCodec, stores: Stores, uploads: Uploads, background: CallbackThread
    ) -> None:
        self._driver = driver
        self._codec = codec
        self._stores = stores
        self._uploads = uploads
        #: when connections to stores were looked at last, seconds
        self._tidied = 0.0
        #: packs and stores what the scheduler asks for
        self._background = background
        #: by kind of effect: does what it says, now or on the thread in the background
        self.handlers: dict[type, Callable[[Any], None]] = {
            ev.StoreAnswered: lambda effect: stores.take_answer(effect.message),
            ev.StoresRenewed: lambda effect: stores.renew(effect.kept),
            ev.ProvideObject: lambda effect: background.run(partial(self._provide, effect.id)),
            ev.RestoreObjects: lambda effect: background.run(partial(uploads.restore, effect.objects)),
        }

    def tidy(self) -> None:
        """Let go of values that cannot be given again. On the I/O thread, about twice a second."""
        self._uploads.tidy()
        now = time.monotonic()
        if now >= self._tidied + TIDY_SECONDS:
            self._tidied = now
            if self._stores.has_connections:  # a client that has none needs no thread for it
                self._background.run(self._stores.tidy)

    def end(self) -> None:
        """There is no scheduler any more: nobody waits for stores."""
        self._stores.end()

    def _provide(self, value_id: int) -> None:
        """Send an object, or the value of a row, that the scheduler asked for. In the background."""
        session = self._driver.session
        with self._driver.lock:
            source, payload = session.objects.source_of(value_id), session.objects.payload_of(value_id)
            need = session.pending.need(value_id) or session.lineage.need(value_id)
        if source is None and isinstance(need, Future) and not need.done():
            need.add_done_callback(lambda _: self._background.run(partial(self._provide, value_id)))
            return
        try:
            if source is not None:
                announce = self._store(value_id, source)
            elif payload is not None:
                announce = ev.Announce(value_id, payload)
            elif isinstance(need, Future):
                announce = self._value_of_future(value_id, need)
            else:
                raise ObjectLost(f"object {value_id} is not known to its client any more")
        except ObjectLost as error:
            announce = ev.Announce(value_id, failures.object_lost(str(error)).encode(), failed=True)
        except BaseException as error:
            announce = ev.Announce(value_id, exception_record(error, "an argument"), failed=True)
        self._driver.tell(announce)

    def _store(self, value_id: int, source: Callable[[], Packed]) -> ev.Announce:
        written = self._stores.write(value_id, source(), f"object {value_id}", is_repeated=True)
        if written is None:
            raise ObjectLost(f"object {value_id} is lost with its host, and there is no other store")
        return written.announce(source)

    def _value_of_future(self, value_id: int, future: Future) -> ev.Announce:
        if future.is_unread:  # the scheduler, asked for it, would wait for the answer to this
            found = self._stores.look_up(value_id)
            if found is None:
                raise ObjectLost(f"the result of row {value_id} is lost with its host, and never came to its client")
            value = self._codec.unpack(found)
        else:
            error = CancelledError() if future.cancelled() else future.exception()
            if error is not None:
                raise error
            value = future.held_result()
        packed = self._codec.pack(value)
        if packed.size >= INLINE_LIMIT:
            written = self._stores.write(value_id, packed, f"the result of row {value_id}", is_repeated=True)
            if written is not None:
                return written.announce(None)
        return ev.Announce(value_id, joined(packed, value))
