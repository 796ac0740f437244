"""`Work`: what a key of a client stands for. Futures with the same key share it. And waiting for works."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from scaler import ObjectRef
from scaler.client import Future as EngineFuture
from scaler.serialize.entry import itself


class Work:
    """A task that was submitted, or an object that was sent, under a key."""

    __slots__ = ("__weakref__", "_again", "_client", "_needs", "_watched", "_watchers", "inner", "key")

    def __init__(
        self,
        key: Any,
        inner: Any,
        client: Any = None,
        again: Callable[[], Any] | None = None,
        needs: Iterable[Work] = (),
    ) -> None:
        self.key = key
        #: a future, or a reference to an object that was sent
        self.inner = inner
        #: of the engine: reads objects
        self._client = client
        #: submits it anew; kept until it is known to have succeeded
        self._again = again
        #: that of its arguments, for the same time
        self._needs = tuple(needs)
        #: callbacks, taken out by who calls them
        self._watchers: list[Callable[[], None]] = []
        #: the `inner` that has been told to call them
        self._watched: Any = None
        if self._needs and again is not None:  # a chain of works would keep all its values
            known = weakref.ref(self)
            inner.add_done_callback(lambda _: _settle(known()))

    @property
    def argument(self) -> Any:
        """What is given to a task for the value."""
        inner = self.inner
        if isinstance(inner, ObjectRef) or hasattr(inner, "client"):
            return inner
        return inner.result(0)

    @property
    def status(self) -> str:
        """One of pending, finished, error, cancelled."""
        inner = self.inner
        if isinstance(inner, ObjectRef):
            return "finished"
        if not inner.done():
            return "pending"
        if inner.cancelled():
            return "cancelled"
        error = None if getattr(inner, "is_stored", False) else inner.exception(0)
        if error is not None:
            return "cancelled" if isinstance(error, concurrent.futures.CancelledError) else "error"
        self._again, self._needs = None, ()
        return "finished"

    @property
    def done(self) -> bool:
        """It has ended, somehow."""
        return isinstance(self.inner, ObjectRef) or bool(self.inner.done())

    def value(self, timeout: float | None = None) -> Any:
        """The value, a new object each time; blocks and raises like `Future.result` of the engine."""
        inner = self.inner
        if isinstance(inner, ObjectRef):
            return self._client.submit(itself, inner).result(timeout)
        value = inner.fresh_result(timeout) if isinstance(inner, EngineFuture) else inner.result(timeout)
        self._again, self._needs = None, ()
        return value

    def error(self, timeout: float | None = None) -> BaseException | None:
        """What the task raised, or None; blocks."""
        if isinstance(self.inner, ObjectRef):
            return None
        error: BaseException | None = self.inner.exception(timeout)
        return error

    def watch(self, callback: Callable[[], None]) -> None:
        """Call this once, from any thread, when the work has ended; at once if it has."""
        watchers = self._watchers
        watchers.append(callback)
        if self.done:
            _call_all(watchers)
        elif self._watched is not self.inner:
            self._watched = self.inner
            self.inner.add_done_callback(lambda _: _call_all(watchers))

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Do not call this, unless it has been called."""
        with contextlib.suppress(ValueError):
            self._watchers.remove(callback)

    def cancel(self) -> None:
        """Nobody wants the value any more: let go of it. A task that runs goes on to its end."""
        cancelled: Any = concurrent.futures.Future()
        cancelled.cancel()
        self.inner = cancelled
        _call_all(self._watchers)

    def retry(self) -> None:
        """Submit it anew if it has failed, after those of its arguments that have."""
        for work in self._failed_first():
            if work._again is None:
                raise ValueError(f"{work.key!r} can't be run again: its call is not known any more; submit it anew")
            work.inner = work._again()

    def _failed_first(self) -> list[Work]:
        """Those that failed, of this and of what it needs, each after what it needs itself."""
        found: dict[Work, None] = {}
        stack = [self]
        while stack:
            work = stack.pop()
            if work.status == "error":
                found.pop(work, None)
                found[work] = None
                stack += work._needs
        return list(reversed(found))


def _settle(work: Work | None) -> None:
    """Let go of what it takes to run it again, if it has succeeded."""
    if work is not None:
        work.status  # noqa: B018


def ready(key: Any, value: Any) -> Work:
    """Work whose value is there already, as one that was pickled."""
    inner: concurrent.futures.Future[Any] = concurrent.futures.Future()
    inner.set_result(value)
    return Work(key, inner)


def _call_all(watchers: list[Callable[[], None]]) -> None:
    while True:
        try:
            callback = watchers.pop(0)
        except IndexError:  # none is left, or somebody else calls it
            return
        callback()


async def settled(works: list[Work], return_when: str = "ALL_COMPLETED") -> None:
    """Wait, in an event loop, until the works have ended."""
    loop = asyncio.get_running_loop()
    all_done = loop.create_future()

    def announce() -> None:
        try:
            loop.call_soon_threadsafe(wake, all_done)
        except RuntimeError:  # the loop is closed
            pass

    watch = watch_all(works, return_when, announce)
    try:
        await all_done
    finally:
        watch.end()


def wake(waiter: asyncio.Future[None]) -> None:
    """End the wait of a coroutine, unless it has ended."""
    if not waiter.done():
        waiter.set_result(None)


class Watch:
    """Callbacks of works that can be taken back."""

    def __init__(self) -> None:
        self._callbacks: list[tuple[Work, Callable[[], None]]] = []

    def add(self, work: Work, callback: Callable[[], None]) -> None:
        """Call this when the work has ended."""
        self._callbacks.append((work, callback))
        work.watch(callback)

    def end(self) -> None:
        """Call none any more."""
        for work, callback in self._callbacks:
            work.unwatch(callback)


def watch_all(works: list[Work], return_when: str, announce: Callable[[], None]) -> Watch:
    """Call `announce` when enough of the works have ended, unless the watch is ended before."""
    watch = Watch()
    left = len(works)
    lock = threading.Lock()

    def ended(work: Work) -> None:
        nonlocal left
        with lock:
            left -= 1
        is_enough = return_when == "FIRST_COMPLETED" or (return_when == "FIRST_EXCEPTION" and work.status != "finished")
        if is_enough or not left:
            announce()

    if not works:
        announce()
    for work in works:
        watch.add(work, partial(ended, work))
    return watch
