"""The event loop under the scheduler's and the agent's shells: readers, one timer, signals; on asyncio or uvloop.

Shells register what can wake them and a `step`. However many things wake them at once, `step` runs once, and takes
everything there is: that is how batches form by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from typing import Literal

Choice = Literal["auto", "builtin", "uvloop"]


def make_event_loop(choice: str) -> tuple[asyncio.AbstractEventLoop, str]:
    """An event loop and its name; "auto" takes uvloop where it is installed. Raises ImportError if it was asked for and isn't."""
    if choice != "builtin":
        try:
            import uvloop

            return uvloop.new_event_loop(), "uvloop"
        except ImportError:
            if choice == "uvloop":
                raise
    return asyncio.new_event_loop(), "builtin"


class Loop:
    """See the module's text. One thread."""

    def __init__(self, choice: str, step: Callable[[], None]) -> None:
        self._loop, self.name = make_event_loop(choice)
        self._step = step
        #: sources that were readable since `step` last ran, in order; `step` takes them out
        self.ready: dict[object, None] = {}
        self._due = False
        self._timer: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None

    def watch(self, fd: int, source: object) -> None:
        """When this descriptor is readable, put `source` into `ready` and run `step`."""
        ready, soon = self.ready, self.soon

        def readable() -> None:
            ready[source] = None
            soon()

        self._loop.add_reader(fd, readable)

    def watch_with(self, fd: int, callback: Callable[[], None]) -> None:
        """Call this when the descriptor is readable."""
        self._loop.add_reader(fd, callback)

    def forget(self, fd: int) -> None:
        """Stop watching."""
        self._loop.remove_reader(fd)
        self._loop.remove_writer(fd)

    def watch_writable(self, fd: int, callback: Callable[[], None]) -> None:
        """Call this once when the descriptor is writable."""

        def writable() -> None:
            self._loop.remove_writer(fd)
            callback()

        self._loop.add_writer(fd, writable)

    def wake_at(self, when: float) -> None:
        """Run `step` at this time (of `time.monotonic`); replaces an earlier wish."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, when - time.monotonic()), self.soon)

    def soon(self) -> None:
        """Run `step` as soon as everything that is ready has been noticed."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._run_step)

    def _run_step(self) -> None:
        self._due = False
        try:
            self._step()
        except BaseException as error:
            self._failure = error
            self._loop.stop()

    def run(self) -> None:
        """Run until `stop`; raises what `step` raised. SIGTERM and SIGINT stop it too."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stop)
        try:
            self._loop.run_forever()
        finally:
            with contextlib.suppress(Exception):
                self._loop.close()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End `run`."""
        self._loop.stop()
