"""Facts: what a core tells of each change, to whoever subscribed.

A core changes its state in few places, and each of them can say in one word what changed. It asks `wanted` first, so
that a fact nobody listens to costs one test, and is not made:

    if facts.wanted:
        facts.tell(RowsMoved(...))

Subscribers are observers: they keep counts, stories or journals of their own, and change nothing of the core's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

F = TypeVar("F")


class Facts(Generic[F]):
    """The subscribers of one core, called in the order in which they subscribed, with each fact as it happens."""

    __slots__ = ("_subscribers", "wanted")

    def __init__(self) -> None:
        #: somebody listens: whoever has something to tell looks here before it makes the fact
        self.wanted = False
        self._subscribers: tuple[Callable[[F], None], ...] = ()

    def subscribe(self, subscriber: Callable[[F], None]) -> None:
        """Have this called with each fact from now on. It must not call back into the core."""
        self._subscribers = (*self._subscribers, subscriber)
        self.wanted = True

    def unsubscribe(self, subscriber: Callable[[F], None]) -> None:
        """Tell it nothing more; one that never subscribed is ignored."""
        self._subscribers = tuple(other for other in self._subscribers if other != subscriber)
        self.wanted = bool(self._subscribers)

    def tell(self, fact: F) -> None:
        """Call all subscribers with this fact."""
        for subscriber in self._subscribers:
            subscriber(fact)
