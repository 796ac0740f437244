"""What a client asks the scheduler about stores, and the threads that wait for the answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from scaler.client.core import events as ev
from scaler.client.io.driver import SessionDriver
from scaler.client.liveness import Liveness
from scaler.common.records import record
from scaler.protocol.messages import ObjectRequest, ObjectResponse, StoreOffers, StoreRequest, u32, u64

A = TypeVar("A")

#: seconds that it has to answer once it is heard again, at least
AFTERWARDS = 5.0


@record
class _Question:
    """Where an object can be read."""

    #: threads that want to know
    askers: int = 0
    answer: ObjectResponse | None = None


class StoreQuestions:
    """Any thread may ask; the I/O thread brings the answers."""

    def __init__(self, driver: SessionDriver, liveness: Liveness) -> None:
        self._driver = driver
        self._liveness = liveness
        #: taken by itself: a signal's handler that raises may leave a Condition's own methods with it
        self._lock = threading.RLock()
        #: told of answers, and of the end
        self._changed = threading.Condition(self._lock)
        #: the last offer of stores, if it was asked for
        self._offers: StoreOffers | None = None
        #: by object id
        self._questions: dict[int, _Question] = {}
        #: raised when all that was asked has to be asked again
        self._round = 0

    # ---- for the I/O thread ----------------------------------------------------------------------------------------
    def answer(self, message: StoreOffers | ObjectResponse) -> None:
        """An answer came."""
        with self._lock:
            if isinstance(message, StoreOffers):
                self._offers = message
            else:
                for object_id in message.ids:
                    question = self._questions.get(object_id)
                    if question is not None:
                        question.answer = message
            self._changed.notify_all()

    def repeat(self) -> None:
        """The scheduler and its stores are new ones: all is asked again."""
        with self._lock:
            self._round += 1
            self._changed.notify_all()

    def end(self) -> None:
        """There is no scheduler any more."""
        with self._lock:
            self._changed.notify_all()

    # ---- for those who ask -----------------------------------------------------------------------------------------
    def offers(self, standalone: bool, deadline: float, is_patient: bool = False) -> StoreOffers | None:
        """The stores that there are; `standalone`: no agent's directory can be used from here. None: no answer in time.

        If it `is_patient`, a scheduler that is cut off is waited for as long as it is looked for.
        One thread at a time. Blocks; raises `ForkedClient`, `ConnectionFailed`.
        """
        self._offers = None
        now = time.monotonic()
        if is_patient and deadline <= now:  # what was asked before has waited for a scheduler that was cut off
            deadline = now + AFTERWARDS
        return self._ask(StoreRequest(standalone), lambda: self._offers, deadline, is_patient)

    def place_of(self, object_id: int, deadline: float | None) -> ObjectResponse | None:
        """Where an object can be read, or why it can't; None if no answer comes in time. Blocks like `offers`."""
        with self._lock:
            question = self._questions.setdefault(object_id, _Question())
            question.askers += 1
            question.answer = None
        try:
            return self._ask(ObjectRequest(u32([0]), u64([object_id])), lambda: question.answer, deadline)
        finally:
            with self._lock:
                question.askers -= 1
                if not question.askers:
                    self._questions.pop(object_id, None)

    def _ask(
        self,
        message: StoreRequest | ObjectRequest,
        answer: Callable[[], A | None],
        deadline: float | None,
        is_patient: bool = False,
    ) -> A | None:
        self._liveness.check_process()
        liveness, asked = self._liveness, -1
        while True:
            if asked != self._round:
                asked = self._round
                self._driver.tell(ev.Request(message))
            with self._lock:
                while (found := answer()) is None and liveness.failure is None and asked == self._round:
                    now = time.monotonic()
                    if is_patient and deadline is not None and self._driver.is_cut_off(now):
                        deadline = max(deadline, now + AFTERWARDS)  # whoever looks for the scheduler says when to end
                    left = 1.0 if deadline is None else min(1.0, deadline - now)
                    if left <= 0:
                        return None
                    self._changed.wait(left)
            if found is not None:
                return found
            liveness.check_connection()
