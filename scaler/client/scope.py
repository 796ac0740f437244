"""What leaving a client ends: all of its session, or what it has submitted itself where others share the session."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from scaler.client.future import Future
from scaler.client.liveness import CLOSED
from scaler.client.parts import ClientParts
from scaler.errors import ClientClosed, ScalerError


class WholeSession:
    """All of a session, of one client and its views: leaving it ends the session. Any thread."""

    __slots__ = ("_parts",)

    def __init__(self, parts: ClientParts) -> None:
        self._parts = parts

    @property
    def submit(self) -> Callable[..., Future]:
        """What submits a call, as of the `Submission`."""
        return self._parts.submission.submit

    @property
    def is_closed(self) -> bool:
        """It has left, or the session is over."""
        return self._parts.liveness.is_closed

    def check(self) -> None:
        """Raise `ClientClosed` if it has left; where the session is over its own parts say so."""

    def note(self, futures: Iterable[Future]) -> None:
        """These were made by it, and not by `submit`."""

    def clear(self) -> None:
        """Cancel all that is under way, what runs, too. Blocks until the scheduler has answered, for seconds.

        All objects and functions at the cluster are forgotten as well.
        """
        self._parts.lifetime.clear(self._parts.templates.forget, self._parts.uploads.clear)

    def leave(self, is_fetching: bool) -> None:
        """Take back what is under way, and be closed; blocks like `clear`. Fetch what would be lost by that first."""
        self._parts.lifetime.disconnect(is_fetching)

    def leave_at_once(self) -> None:
        """`leave` for somebody who was interrupted: blocks for a moment."""
        self._parts.lifetime.leave_at_once()


class PartOfSession:
    """What was submitted through one of the clients that share a session; has what `WholeSession` has, and ends nothing
    of the others.
    """

    __slots__ = ("_futures", "_has_left", "_parts")

    def __init__(self, parts: ClientParts) -> None:
        self._parts = parts
        #: by their `id()`; those that are under way are held by the session
        self._futures: weakref.WeakValueDictionary[int, Future] = weakref.WeakValueDictionary()
        self._has_left = False

    @property
    def is_closed(self) -> bool:
        return self._has_left or self._parts.liveness.is_closed

    def check(self) -> None:
        if self._has_left:
            raise ClientClosed(CLOSED)

    def submit(self, *call: Any) -> Future:
        self.check()
        future = self._parts.submission.submit(*call)
        self._futures[id(future)] = future
        return future

    def note(self, futures: Iterable[Future]) -> None:
        self._futures.update({id(future): future for future in futures})

    def clear(self) -> None:
        futures = self._under_way()
        if futures:
            with contextlib.suppress(ScalerError):  # the session is over, and they are with it
                self._parts.owner.cancel(futures, force=True)

    def leave(self, is_fetching: bool) -> None:
        """As the session goes on nothing would be lost."""
        self._has_left = True
        self.clear()

    def leave_at_once(self) -> None:
        self._has_left = True
        self._parts.owner.abandon(self._under_way())

    def _under_way(self) -> list[Future]:
        found = [known() for known in self._futures.valuerefs()]  # which other threads may add to meanwhile
        return [future for future in found if future is not None and not future.done()]


Scope = WholeSession | PartOfSession
