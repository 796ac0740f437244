"""What monitors ask waits for its turn: one question in a step of the scheduler, others are heard in between.

A page of tasks takes as long as thousands of heartbeats, and is thousands of times as large as the question.

Pure. `scaler.scheduler.composition` puts in what came, and takes out what is to be answered.
"""

from collections import deque
from collections.abc import Callable

from scaler.protocol.acceptor import Received

#: questions of one monitor that may wait; ours ask the next when they have the answer
MOST = 1_000


class Turns:
    """Questions that wait, by the numbers of those who asked."""

    def __init__(self, may_answer: Callable[[int], bool]) -> None:
        """`may_answer` says of a monitor whether it may be sent more: it reads what it was sent."""
        self._may_answer = may_answer
        #: none is empty; whose turn is next comes first
        self._waiting: dict[int, deque[Received]] = {}
        #: somebody has had its turn in this step
        self._is_served = False

    def begin(self, number: int) -> bool:
        """Whether a question that has just come from a monitor is dealt with now; else it is to be added."""
        if self._waiting or self._is_served or not self._may_answer(number):
            return False
        self._is_served = True
        return True

    def add(self, question: Received) -> bool:
        """Have one wait; False if there are too many of this monitor."""
        waiting = self._waiting.setdefault(question.number, deque())
        waiting.append(question)
        return len(waiting) <= MOST

    def end_step(self) -> Received | None:
        """The question whose turn it is, if none was answered in this step."""
        is_served, self._is_served = self._is_served, False
        number = None if is_served else next(filter(self._may_answer, self._waiting), None)
        if number is None:
            return None
        waiting = self._waiting.pop(number)
        question = waiting.popleft()
        if waiting:
            self._waiting[number] = waiting  # behind the others
        return question

    @property
    def has_any(self) -> bool:
        """Some question was asked in this step, or waits."""
        return self._is_served or bool(self._waiting)

    @property
    def has_more(self) -> bool:
        """Some question waits for nothing but the next step."""
        return bool(self._waiting) and any(map(self._may_answer, self._waiting))

    def forget(self, number: int) -> None:
        """A monitor is gone."""
        self._waiting.pop(number, None)
