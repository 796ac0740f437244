"""What one client has submitted of those that share a session: leaving ends that, and nothing of the others."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from scaler.client.future import Future
from scaler.client.liveness import CLOSED
from scaler.client.waiting.owner import ClientOwner
from scaler.errors import ClientClosed, ScalerError


class Scope:
    """Of one client and its views. Any thread."""

    __slots__ = ("_futures", "_owner", "is_closed")

    def __init__(self, owner: ClientOwner) -> None:
        self._owner = owner
        #: by their `id()`; those that are under way are held by the session
        self._futures: weakref.WeakValueDictionary[int, Future] = weakref.WeakValueDictionary()
        #: it has left
        self.is_closed = False

    def check(self) -> None:
        """Raise `ClientClosed` if it has left."""
        if self.is_closed:
            raise ClientClosed(CLOSED)

    def noting(self, submit: Callable[..., Future]) -> Callable[..., Future]:
        """A function that submits a call, with what it makes noted here."""
        futures = self._futures

        def noted(*call: Any) -> Future:
            self.check()
            future = submit(*call)
            futures[id(future)] = future
            return future

        return noted

    def note(self, futures: Iterable[Future]) -> None:
        """These were made by it."""
        self._futures.update({id(future): future for future in futures})

    def leave(self) -> None:
        """Take back what is under way; blocks until the scheduler has answered, for seconds."""
        self.is_closed = True
        self.cancel_all()

    def leave_at_once(self) -> None:
        """`leave` for somebody who was interrupted: blocks for a moment."""
        self.is_closed = True
        self._owner.abandon(self._under_way())

    def cancel_all(self) -> None:
        """Cancel all that is under way, what runs, too. Blocks like `leave`."""
        futures = self._under_way()
        if futures:
            with contextlib.suppress(ScalerError):  # the session is over, and they are with it
                self._owner.cancel(futures, force=True)

    def _under_way(self) -> list[Future]:
        found = [known() for known in self._futures.valuerefs()]  # which other threads may add to meanwhile
        return [future for future in found if future is not None and not future.done()]
