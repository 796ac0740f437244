"""What an executor sends its calls with, apart from what users hold."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

from scaler.client import Client, Future
from scaler.cluster import SchedulerClusterCombo
from scaler.errors import SerializationError
from scaler.executor.ending import Ending
from scaler.executor.worker_calls import InitializedCall, Initializer, PickledFunction, called_by
from scaler.extension import (
    MapJob,
    PreparedFunctions,
    TaskTemplate,
    capture_function,
    fail_future,
    fresh_function,
    name_of,
    pickled_if_small,
    submit_call,
    submit_map,
)

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler.executor.initializer_failed import InitializerFailed
    from scaler.provisioning.cluster import Cluster

_Sent = TypeVar("_Sent")

#: where the standard executors say that an initializer has failed
_log = logging.getLogger("concurrent.futures")


class Runner:
    """Sends an executor's calls. Any thread may call its methods."""

    def __init__(
        self,
        client: Client,
        cluster: SchedulerClusterCombo | Cluster | None,
        initializer: Initializer | None,
        custom: bool,
    ) -> None:
        self.client = client
        #: what ends all this, and outlives it while calls are under way
        self.ending = Ending(client, cluster)
        #: the user's serializer writes functions
        self._custom = custom
        self._initializer = initializer
        #: what is called in the place of functions, after the initializer
        self._initialized: PreparedFunctions | None = None
        if initializer is not None:
            self._initialized = PreparedFunctions(client, partial(InitializedCall, initializer))
        #: held by who breaks this
        self._breaking = threading.RLock()

    @property
    def has_initializer(self) -> bool:
        """Whether workers are prepared before their first task."""
        return self._initializer is not None

    def submit(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future:
        """See `Executor.submit`."""
        return self._submit(fn, None, args, kwargs)

    def _submit(
        self, fn: Callable[..., Any], captured: TaskTemplate | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future:
        calls, token = self.ending.calls, object()
        try:
            calls.begin(token)
            future = submit_call(self.client, captured or self._prepared(fn), args, kwargs)
            calls.keep_future(future)
        finally:
            calls.sending.pop(token, None)
            calls.end()
        if self.has_initializer:
            future.add_done_callback(self._break_if_initializer_failed)
            if self.ending.broken is not None:  # since it was sent
                fail_future(future, self.ending.refusal())
        return future

    def submit_each(self, fn: Callable[..., Any]) -> Callable[..., Future]:
        """What submits calls of `fn` as it was at the first of them; raises like `submit`."""
        captured: TaskTemplate | None = None

        def submit(*args: Any) -> Future:
            nonlocal captured
            if captured is None:
                captured = self._told_of(partial(self._capture, fn))
            return self._submit(fn, captured, args, {})

        return submit

    def _capture(self, fn: Callable[..., Any]) -> TaskTemplate:
        prepared = self._prepared(fn)
        return prepared if isinstance(prepared, TaskTemplate) else capture_function(self.client, prepared)

    def _told_of(self, send: Callable[[], _Sent]) -> _Sent:
        """What this returns; it counts as a call that is being sent meanwhile."""
        calls, token = self.ending.calls, object()
        try:
            calls.begin(token)
            return send()
        finally:
            calls.sending.pop(token, None)
            calls.end()

    def _prepared(self, fn: Callable[..., Any]) -> Callable[..., Any] | TaskTemplate:
        """What to submit instead of `fn`."""
        if self._initialized is None:
            return self._without_object(fn)
        called = called_by(fn)
        return self._initialized.of(called, called is not fn)

    def submit_map(self, fn: Callable[..., Any], items: list[Any], single: bool, chunksize: int) -> MapJob:
        """Send the items of a map in blocks: arguments if they are `single`, else tuples of arguments."""

        def send() -> MapJob:
            job = submit_map(self.client, self._without_object(fn), items, single, chunksize, fails_apart=True)
            self.ending.calls.keep_map(job)
            return job

        return self._told_of(send)

    def _without_object(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """What to submit instead of `fn`, if it is an object or has one that must not be kept."""
        if isinstance(fn, (FunctionType, BuiltinFunctionType, type)) or self._custom:
            return fn
        try:
            pickled = pickled_if_small(fresh_function(fn))
        except SerializationError:
            return fn  # which says what is the matter
        return fn if pickled is None else PickledFunction(pickled, name_of(called_by(fn)))

    def end(self, cancel_futures: bool) -> None:
        """Take no more calls, and cancel what has not begun. Blocks for an answer if something is to be cancelled."""
        if self.ending.is_forked:
            return
        self.ending.take_no_more_after_shutdown()
        if cancel_futures:
            self._cancel()

    def _cancel(self) -> None:
        calls, cluster = self.ending.calls, self.ending.cluster
        maps = calls.maps()
        for job in maps:
            job.cancel()
        futures = calls.futures()
        if isinstance(cluster, SchedulerClusterCombo) and not maps:
            # All workers are ours, so the oldest calls have one each, also those that are on their way there.
            futures = futures[cluster.n_workers :]
        self.client.cancel(futures)

    def _break_if_initializer_failed(self, future: concurrent.futures.Future[Any]) -> None:
        """A future has ended: if that is since the initializer raised, all do."""
        assert isinstance(future, Future)
        if future.cancelled() or future.is_stored:
            return
        error = future.exception()
        if error is None or self._initializer is None:
            return
        from scaler.executor.initializer_failed import InitializerFailed

        if isinstance(error, InitializerFailed) and error.key == self._initializer.key:
            self._break(error)

    def _break(self, error: InitializerFailed) -> None:
        ending = self.ending
        with self._breaking:
            if ending.broken is not None:
                return
            ending.broken = str(error)
        ending.take_no_more()
        _log.critical("Exception in initializer:\n%s", error.remote_traceback.rstrip("\n"))
        for future in ending.calls.futures():
            fail_future(future, ending.refusal())
        ending.finish_in_background()
