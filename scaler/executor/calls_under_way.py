"""The calls of one executor that may not have ended: those that are being sent, its futures, and its maps."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from scaler.client import Future
from scaler.extension import MapJob

#: futures among which those that have ended are looked for
MANY = 1_000


class CallsUnderWay:
    """Any thread may call the methods; `wait_until_sent` alone blocks."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # who is interrupted as it waits would let go of a plain one twice
        #: `_sending` is 0 again
        self._all_sent = threading.Condition(self._lock)
        #: calls that are being sent at this moment
        self._sending = 0
        #: makes what the next call raises; None while calls are taken
        self._refusal: Callable[[], Exception] | None = None
        #: those that may not have ended, in the order of their calls; kept by the client, not here
        self._futures: list[weakref.ref[Future]] = []
        #: when there are so many, those that have ended are forgotten
        self._many = MANY
        #: those whose rows may not have ended
        self._maps: weakref.WeakSet[MapJob] = weakref.WeakSet()

    def begin_sending(self) -> None:
        """A call is about to be sent. Raises what `refuse` has said."""
        with self._lock:
            if self._refusal is not None:
                raise self._refusal()
            self._sending += 1

    def end_sending(self, sent: Future | MapJob | None) -> None:
        """A call has been sent; None if that failed."""
        with self._lock:
            if isinstance(sent, Future):
                self._futures.append(weakref.ref(sent))
                if len(self._futures) > self._many:
                    self._futures = [known for known in self._futures if not _is_over(known)]
                    self._many = max(MANY, 2 * len(self._futures))
            elif sent is not None:
                self._maps.add(sent)
            self._sending -= 1
            if not self._sending:
                self._all_sent.notify_all()

    def refuse(self, refusal: Callable[[], Exception]) -> None:
        """Take no more calls: each raises what this makes."""
        with self._lock:
            self._refusal = refusal

    def wait_until_sent(self) -> None:
        """Block until no call is being sent."""
        with self._lock:
            self._all_sent.wait_for(lambda: not self._sending)

    def futures(self) -> list[Future]:
        """Those that have not ended, in the order of their calls."""
        with self._lock:
            futures = [known() for known in self._futures]
            return [future for future in futures if future is not None and not future.done()]

    def maps(self) -> list[MapJob]:
        """Those whose rows have not all ended."""
        with self._lock:
            return [job for job in self._maps if not job.has_ended]


def _is_over(known: weakref.ref[Future]) -> bool:
    future = known()
    return future is None or future.done()
