"""The calls of one executor that may not have ended: those that are being sent, its futures, and its maps."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from threading import get_ident

from scaler.client import Future
from scaler.extension import MapJob, wait_in_steps

#: futures among which those that have ended are looked for
MANY = 1_000


class CallsUnderWay:
    """Any thread may call the methods; `wait_until_sent` alone blocks. A call that is to be sent is told of like this,
    with a token of its own, so that no exception of a signal's handler leaves it there:

        try:
            calls.begin(token)
            ...
            calls.keep_future(future)
        finally:
            calls.sending.pop(token, None)  # what is written in C is not left before it has begun
            calls.end()
    """

    def __init__(self) -> None:
        #: the calls that are being sent at this moment: the thread that sends each
        self.sending: dict[object, int] = {}
        #: makes what the next call raises; None while calls are taken
        self._refusal: Callable[[], Exception] | None = None
        #: held by who forgets futures, or has to do with maps. Taken by itself: a signal's handler that raises
        #: may leave a Condition's own methods with it
        self._lock = threading.RLock()
        #: somebody waits until nothing is being sent: notified then, but for what was interrupted
        self._all_sent = threading.Condition(self._lock)
        #: those that may not have ended, in the order of their calls; kept by the client, not here
        self._futures: list[weakref.ref[Future]] = []
        #: when there are so many, those that have ended are forgotten
        self._many = MANY
        #: those whose rows may not have ended
        self._maps: weakref.WeakSet[MapJob] = weakref.WeakSet()

    def begin(self, token: object) -> None:
        """A call is about to be sent. Raises what `refuse` has said."""
        self.sending[token] = get_ident()  # first: who refuses looks at this last
        if self._refusal is not None:
            raise self._refusal()

    def end(self) -> None:
        """A call has been sent, or that has failed."""
        if self._refusal is not None:
            with self._lock:
                self._all_sent.notify_all()

    def keep_future(self, future: Future) -> None:
        """That of a call which has been sent."""
        self._futures.append(weakref.ref(future))
        if len(self._futures) > self._many:
            self._tidy()

    def keep_map(self, job: MapJob) -> None:
        """One that has been sent."""
        with self._lock:
            self._maps.add(job)

    def _tidy(self) -> None:
        with self._lock:
            many = len(self._futures)
            self._many = 2 * many  # who is called by the garbage collector only adds some
            self._futures[:many] = [known for known in self._futures[:many] if not _is_over(known)]
            self._many = max(MANY, 2 * len(self._futures))

    def refuse(self, refusal: Callable[[], Exception]) -> None:
        """Take no more calls: each raises what this makes."""
        self._refusal = refusal

    def wait_until_sent(self) -> None:
        """Block until no other thread sends a call."""
        with self._lock:
            wait_in_steps(lambda seconds: self._all_sent.wait_for(lambda: not self._are_sent_elsewhere, seconds), None)

    @property
    def _are_sent_elsewhere(self) -> bool:
        """Another thread sends calls. One that has ended in the midst of it does not."""
        threads = set(self.sending.copy().values()) - {get_ident()}
        return not threads.isdisjoint(sys._current_frames())

    def futures(self) -> list[Future]:
        """Those that have not ended, in the order of their calls."""
        futures = [known() for known in self._futures.copy()]
        return [future for future in futures if future is not None and not future.done()]

    def maps(self) -> list[MapJob]:
        """Those whose rows have not all ended."""
        with self._lock:
            return [job for job in self._maps if not job.has_ended]


def _is_over(known: weakref.ref[Future]) -> bool:
    future = known()
    return future is None or future.done()
