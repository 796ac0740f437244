"""Sending objects that many tasks use."""

from __future__ import annotations

from typing import Any

from scaler.client.core import events as ev
from scaler.client.core.task_template import check_size
from scaler.client.io.driver import SessionDriver
from scaler.client.liveness import Liveness
from scaler.client.reference import ObjectRef
from scaler.client.values.arguments import Arguments
from scaler.client.values.value_codec import ValueCodec
from scaler.client.waiting.owner import ClientOwner
from scaler.protocol.messages import INLINE_LIMIT
from scaler.serialize.outofband import joined


class ObjectSender:
    """Of one client and all its views. Any thread."""

    def __init__(
        self, driver: SessionDriver, liveness: Liveness, owner: ClientOwner, codec: ValueCodec, arguments: Arguments
    ) -> None:
        self._driver = driver
        self._liveness = liveness
        self._owner = owner
        self._codec = codec
        self._arguments = arguments

    def send(self, value: Any, name: str | None) -> ObjectRef:
        """Send an object; what stands for it. Blocks and raises like `Client.send_object`."""
        self._liveness.check()
        what = f"the object {name or type(value).__name__}"
        pack = self._codec.pack
        packed = pack(value)
        object_id = self._arguments.store(value, packed, pack, what) if packed.size >= INLINE_LIMIT else None
        if object_id is None:
            payload = joined(packed, value)
            check_size(len(payload), self._driver.welcome.limit, what)
            object_id = self._driver.take_id()
            self._driver.flush(ev.Announce(object_id, payload))
        return ObjectRef(self._owner, object_id, packed.size, name)
