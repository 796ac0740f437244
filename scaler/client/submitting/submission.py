"""Submitting single calls, which are queued with their futures, and objects that many calls use."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any

from scaler.client.core import events as ev
from scaler.client.core.batching import QueuedCall
from scaler.client.core.task_template import TaskTemplate, check_size
from scaler.client.future import Future
from scaler.client.io.driver import SessionDriver
from scaler.client.liveness import Liveness
from scaler.client.reference import ObjectRef
from scaler.client.values.arguments import Arguments
from scaler.client.values.remembered import StoredValue
from scaler.client.values.uploads import Uploads
from scaler.client.values.value_codec import ValueCodec
from scaler.client.waiting.owner import ClientOwner
from scaler.graph import RemoteValue
from scaler.protocol.messages import INLINE_LIMIT
from scaler.serialize.call import Slot
from scaler.serialize.outofband import joined
from scaler.serialize.payload import SCALARS

#: strings and bytes longer than this are not pickled together with other rows' arguments
LONG = 16_384


class Submission:
    """Of one client and all its views. Any thread."""

    def __init__(
        self,
        driver: SessionDriver,
        liveness: Liveness,
        owner: ClientOwner,
        arguments: Arguments,
        uploads: Uploads,
        codec: ValueCodec,
    ) -> None:
        self._driver = driver
        self._liveness = liveness
        self._owner = owner
        self._arguments = arguments
        self._uploads = uploads
        self._pack = codec.pack
        #: rows of scalars may be pickled together
        self.is_pickling = codec.serializer is None
        self._queue = driver.submit

    def submit(self, template: TaskTemplate, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Future:
        """Queue a call; its future. A `StoredValue` stands for the argument that it is of.

        Blocks and raises like `Client.submit`.
        """
        liveness = self._liveness
        if liveness.failure is not None:
            liveness.check()
        future = Future(self._owner)
        if not kwargs and self.is_pickling:
            for value in args:
                kind = type(value)
                if kind not in SCALARS or ((kind is str or kind is bytes) and len(value) > LONG):
                    break
            else:
                driver = self._driver
                driver.outbox.append((template, args, future))  # as `submit`, with a call less for each task
                if not driver.is_awake:
                    driver.send_queued()
                if liveness.failure is not None:  # since it was looked at above
                    liveness.check()
                return future
        self._submit_by_itself(template, args, kwargs or {}, future)
        return future

    def failed(self, error: BaseException) -> Future:
        """The future of a call that can't be sent, since its packing has raised this."""
        future = Future(self._owner)
        future.fail(error.with_traceback(None))  # which has what was to be packed
        return future

    def send_object(self, value: Any, name: str | None) -> ObjectRef:
        """Send an object that many tasks use; what stands for it. Blocks and raises like `Client.send_object`."""
        self._liveness.check()
        what = f"the object {name or type(value).__name__}"
        packed = self._pack(value)
        object_id = self._uploads.store(value, packed, self._pack, what) if packed.size >= INLINE_LIMIT else None
        if object_id is None:
            payload = joined(packed, value)
            check_size(len(payload), self._driver.welcome.limit, what)
            object_id = self._driver.take_ids(1)
            self._driver.flush(ev.Announce(object_id, payload))
        return ObjectRef(self._owner, object_id, packed.size, name)

    def _submit_by_itself(
        self, template: TaskTemplate, args: tuple[Any, ...], kwargs: dict[str, Any], future: Future
    ) -> None:
        """Queue a call whose arguments are packed here and now."""
        self._liveness.check_process()
        needs: list[Any] = []
        try:
            args = tuple([self._slot(value, needs) for value in args])
            kwargs = {name: self._slot(value, needs) for name, value in kwargs.items()}
        except _FailedArgument as failed:
            future.fail(failed.error)
            return
        limit = self._driver.welcome.limit
        payload = self._arguments.encode(args, kwargs, template.captured.name, needs, limit)
        self._queue(QueuedCall(template, payload, needs, future))
        self._driver.check_sent()

    def _slot(self, value: Any, needs: list[Any]) -> Any:
        """An argument as it travels: what stands for another value becomes a Slot."""
        if type(value) is StoredValue:
            needs.append(value)
            return Slot(len(needs) - 1)
        if not isinstance(value, RemoteValue):
            return value
        self._owner.check_own(value)
        if isinstance(value, Future) and value.done() and not value.is_stored:
            error = CancelledError() if value.cancelled() else value.exception()
            if error is not None:
                raise _FailedArgument(error)
            return value.value_or_self()
        needs.append(value)
        return Slot(len(needs) - 1)


class _FailedArgument(Exception):
    """A future given as an argument has failed, and so has the call."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
