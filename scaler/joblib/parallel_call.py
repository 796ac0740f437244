"""What is under way for one call of a `Parallel`.

A batch of joblib's is one task. What its calls are given becomes arguments of the task one by one, each only once, so
that the client stores what is large, and recognises an array that the next batch has too. Batches that have ended are
reported by a thread of each `Parallel`: joblib then asks the user's iterator for more, which may take its time.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import threading
from collections.abc import Callable
from typing import Any

import joblib

from scaler.client import Client, Future
from scaler.errors import SerializationError
from scaler.extension import (
    SCALAR_TYPES,
    CallbackThread,
    name_of,
    pickled_if_small,
    wait_in_steps,
    with_memmaps_shared,
)
from scaler.joblib.worker_batch import BatchRunner, BatchSettings, Calls, ValueAt

#: texts and bytes longer than this are passed as arguments of their own
LONG = 1_024

Report = Callable[["concurrent.futures.Future[Any]"], object]


class ParallelCall:
    """The batches of one call of a `Parallel`: at most `limit` at the cluster, the others wait here for their turn.

    Any thread may call the methods.
    """

    def __init__(
        self, client: Client, limit: int | None, settings: BatchSettings, parallel: joblib.Parallel | None
    ) -> None:
        self._client = client
        self._limit = limit
        self._settings = settings
        self._lock = threading.Lock()
        self._aborted = False
        self._parallel = parallel
        #: batches whose ends it has not been told of
        self._unreported = 0
        #: told when there is nothing to wait for any more
        self._settled = threading.Condition(self._lock)
        #: what the cluster has -> the future that joblib has
        self._sent: dict[Future, concurrent.futures.Future[Any]] = {}
        #: how many are at the cluster or about to be
        self._away = 0
        #: those whose turn has not come
        self._waiting: collections.deque[tuple[Callable[[], Any], Report | None, concurrent.futures.Future[Any]]] = (
            collections.deque()
        )
        #: calls `report` of batches that have ended
        self._reports = CallbackThread("scaler-joblib")

    def submit(self, batch: Callable[[], Any], report: Report | None) -> concurrent.futures.Future[Any]:
        """Send a batch, or keep it until its turn comes: the future of its results.

        `report` is called with that when it has ended, on a thread of this object's own. Blocks while a large argument
        is stored. Raises nothing: what can't be sent is the error of the future.
        """
        outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self._lock:
            self._unreported += 1
            if self._limit is not None and self._away >= self._limit:
                self._waiting.append((batch, report, outcome))
                return outcome
            self._away += 1
        self._send(batch, report, outcome)
        return outcome

    def _send(self, batch: Callable[[], Any], report: Report | None, outcome: concurrent.futures.Future[Any]) -> None:
        calls, values = taken_apart(batch)
        try:
            runner = BatchRunner(self._settings, name_of(values[0]))
            submit = functools.partial(self._client.submit, runner, calls, *values)
            future = with_memmaps_shared(self._client, submit, elsewhere=True)
        except Exception as error:
            said = _named(error, calls, values) if isinstance(error, SerializationError) else error
            self._reports.run(functools.partial(self._ended, said, report, outcome))
            return
        with self._lock:
            aborted = self._aborted
            if not aborted:
                self._sent[future] = outcome
        if aborted:
            self._client.cancel([future], force=True)
            return
        ended = functools.partial(self._ended, future, report, outcome)
        future.add_done_callback(lambda _: self._reports.run(ended))

    def _ended(self, ended: Future | Exception, report: Report | None, outcome: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            if self._aborted:
                return
            following = self._waiting.popleft() if self._waiting else None
            if following is None:
                self._away -= 1
            if isinstance(ended, Future):
                del self._sent[ended]
        if following is not None:
            self._send(*following)
        error = _error_of(ended) if isinstance(ended, Future) else ended
        if isinstance(ended, Future) and error is None:
            outcome.set_result(ended.result())
        else:
            outcome.set_exception(error)
        try:
            if report is not None:
                report(outcome)  # which may submit the next one
        finally:
            with self._lock:
                self._unreported -= 1
                if self._is_settled():
                    self._settled.notify_all()

    def wait(self) -> None:
        """Block until joblib knows that all batches have ended, or gives up for an error, also one of its iterator."""
        with self._lock:
            wait_in_steps(lambda seconds: self._settled.wait_for(self._is_settled, seconds), None)

    def _is_settled(self) -> bool:
        return not self._unreported or self._aborted or getattr(self._parallel, "_aborting", True)

    def abort(self) -> None:
        """Take back all batches; those that run are ended with their workers. Blocks until that has happened."""
        with self._lock:
            self._aborted = True
            self._settled.notify_all()
            self._waiting.clear()
            sent = list(self._sent)
            self._sent.clear()
        self.close()
        if sent and not self._client.closed:
            self._client.cancel(sent, force=True)

    def successor(self) -> ParallelCall:
        """Another one with the same settings, on the same cluster."""
        return ParallelCall(self._client, self._limit, self._settings, self._parallel)

    def close(self) -> None:
        """End the thread that reports; what it has to do is done first."""
        self._reports.close()


def _error_of(ended: Future) -> BaseException | None:
    """What a call ended with, if not with a result. It is raised only if it is a cancellation's, here and nowhere else.

    An error has each frame that it passes: with one that knows the future it would wait for the garbage collector.
    """
    try:
        return ended.exception()
    except BaseException as error:
        return error


def taken_apart(batch: Callable[[], Any]) -> tuple[Calls | None, list[Any]]:
    """The calls of a batch, and the functions and values that they name by their place in a list, each there once."""
    items = getattr(batch, "items", None)
    if items is None:
        return None, [batch]
    values: list[Any] = []
    places: dict[int, int] = {}

    def place_of(value: Any) -> int:
        place = places.get(id(value))
        if place is None:
            place = places[id(value)] = len(values)
            values.append(value)
        return place

    def stand_in(value: Any) -> Any:
        kind = type(value)
        if kind in SCALAR_TYPES and not ((kind is str or kind is bytes) and len(value) > LONG):
            return value
        return ValueAt(place_of(value))

    calls = [
        (
            place_of(function),
            tuple([stand_in(value) for value in args]),
            {name: stand_in(value) for name, value in kwargs.items()},
        )
        for function, args, kwargs in items
    ]
    return calls, values


def _named(whole: SerializationError, calls: Calls | None, values: list[Any]) -> SerializationError:
    """The error of the first function or argument that can't be pickled alone, named as the user's call has it."""
    for function, args, kwargs in calls or ():
        name = name_of(values[function])
        parts = [(f"argument {place!r} of {name}", value) for place, value in [*enumerate(args), *kwargs.items()]]
        for what, value in [(f"function {name}", ValueAt(function)), *parts]:
            if isinstance(value, ValueAt):
                try:
                    pickled_if_small(values[value.place])
                except SerializationError as error:
                    named = SerializationError(f"{what}: {error}")
                    named.__cause__ = error.__cause__
                    return named
    return whole
