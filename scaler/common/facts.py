"""Facts: what a core tells of each change, to whoever subscribed.

A core changes its state in few places, and each of them can say in one word what changed. It looks at `wanted` first,
so that a fact nobody listens to costs one test, and is not made:

    if facts.wanted:
        facts.tell(RowsMoved(...))

The facts of one step (one `handle`) are handed on together when it is over, so no observer sees a state that is half
changed. Observers keep counts, stories or journals of their own, and change nothing of the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

F = TypeVar("F")


class Facts(Generic[F]):
    """The facts of the step that is under way, and who wants them."""

    __slots__ = ("_observers", "tell", "told", "wanted")

    def __init__(self) -> None:
        #: somebody listens: whoever has something to tell looks here before making the fact
        self.wanted = False
        #: facts of this step, in the order in which they happened
        self.told: list[F] = []
        #: take note of one more fact
        self.tell: Callable[[F], None] = self.told.append
        self._observers: tuple[Callable[[float, Sequence[F]], None], ...] = ()

    def subscribe(self, observer: Callable[[float, Sequence[F]], None]) -> None:
        """Have this called with the time and the facts of each step that had any. It must not call the core."""
        self._observers = (*self._observers, observer)
        self.wanted = True

    def publish(self, now: float) -> None:
        """The step is over: hand its facts to all observers, at this time in seconds."""
        if self.told:
            facts, self.told = self.told, []
            self.tell = self.told.append
            for observer in self._observers:
                observer(now, facts)
