"""The event loop under the scheduler's and the agent's shells: readers, one timer, signals.

Shells register what can wake them and a `step`. However many things wake them at once, `step` runs once, and takes
everything there is: that is how batches form by themselves. Since there are no coroutines, a loop around the system's
poll is all that is needed; it is also the fastest. uvloop is there for those who ask for it.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any, TypeAlias

from scaler.common.poller import READABLE, WRITABLE, Poller
from scaler.common.processors import available_cores
from scaler.common.spinning import Spinner

#: seconds between looks at nothing, and for what is later: systems wait for some weeks at most
FOREVER = 3600.0
#: they end a program: a service manager's, Ctrl-C, and the end of its terminal
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def ending_signals() -> tuple[signal.Signals, ...]:
    """Those by which this process ends: not SIGHUP if it was started so as to outlive its terminal (`nohup`)."""
    hears_all = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return SIGNALS if hears_all else tuple(number for number in SIGNALS if number != signal.SIGHUP)


def ignore_ending_signals() -> None:
    """All is done: none of them does anything until the process is gone, not even when Python has no handlers left."""
    for number in ending_signals():
        signal.signal(number, signal.SIG_IGN)


class Ending:
    """From `begin` on, signals that end this program are noted, and interrupt nothing: it ends in order.

    A loop that is given it stops when one comes, or has come.
    """

    def __init__(self) -> None:
        #: one has come
        self.is_told = False

    def begin(self) -> None:
        """Note those that come from now on."""
        for number in ending_signals():
            signal.signal(number, self.note)

    def note(self, number: int, frame: FrameType | None) -> None:
        """One has come."""
        self.is_told = True


def _ignore() -> None:
    """A signal that is somebody else's."""


def _handler(number: int, ending: Ending | None) -> Callable[[int, FrameType | None], None]:
    """What Python calls at a signal while a loop runs, which hears of it by a descriptor."""
    return ending.note if ending is not None and number in SIGNALS else lambda *_: None


class BuiltinLoop:
    """What a shell needs of an event loop, on the system's poll. One thread."""

    name = "builtin"

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._poller = Poller()
        #: what each descriptor stands for: a source, or a callback
        self._readers: dict[int, tuple[object, Callable[[], None] | None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._wake: float | None = None
        self._signals: dict[int, Callable[[], None]] = dict.fromkeys(ending_signals(), self.stop)
        self._running = False
        self._due = False
        #: sources that were readable since `step` last ran, in order; `step` takes them out
        self.ready: dict[object, None] = {}
        #: set by `step`: hardly anything is under way that takes a processor: it may look for a moment (`spinning`)
        self.is_idle = False

    def watch(self, fd: int, source: object) -> None:
        """When this descriptor is readable, put `source` into `ready` and run `step`."""
        self._readers[fd] = source, None
        self._poller.add(fd)

    def watch_with(self, fd: int, callback: Callable[[], None]) -> None:
        """Call this when the descriptor is readable."""
        self._readers[fd] = None, callback
        self._poller.add(fd)

    def watch_writable(self, fd: int, callback: Callable[[], None]) -> None:
        """Call this once when the descriptor is writable."""
        if fd not in self._readers:
            self._readers[fd] = None, None
            self._poller.add(fd)
        self._writers[fd] = callback
        self._poller.want_write(fd, True)

    def forget(self, fd: int) -> None:
        """Stop watching."""
        self._writers.pop(fd, None)
        if self._readers.pop(fd, None) is not None:
            self._poller.remove(fd)

    def wake_at(self, when: float) -> None:
        """Run `step` at this time (of `time.monotonic`); replaces an earlier wish."""
        self._wake = when

    def soon(self) -> None:
        """Run `step` as soon as everything that is ready has been noticed."""
        self._due = True

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """While it runs, call this when the process gets the signal."""
        self._signals[number] = callback

    def run(self, closing: Callable[[], None] = lambda: None, ending: Ending | None = None) -> None:
        """Run until `stop`; raises what `step` raised. `ending_signals` stop it too, and so do those of `ending`.

        `closing` is called when it has stopped, for whatever reason. Signals that come meanwhile do nothing.
        """
        receiver, sender = socket.socketpair()
        sender.setblocking(False)

        def take_signals() -> None:
            for number in receiver.recv(64):
                self._signals.get(number, _ignore)()

        self.watch_with(receiver.fileno(), take_signals)
        previous = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)  # first, as none shall be lost
        before = {number: signal.signal(number, _handler(number, ending)) for number in self._signals}
        try:
            self._running = ending is None or not ending.is_told
            self._turn()
        finally:
            try:
                closing()
            finally:
                signal.set_wakeup_fd(previous)
                for number, handler in before.items():
                    signal.signal(number, handler)
                self._poller.close()
                receiver.close()
                sender.close()

    def _turn(self) -> None:
        poll, readers, ready, monotonic = self._poller.poll, self._readers, self.ready, time.monotonic
        may_spin = available_cores() > 1  # others can go on while this process looks
        look = partial(Spinner().poll, poll) if may_spin else poll
        while self._running:
            if self._due:
                timeout = 0.0
            else:
                timeout = FOREVER if self._wake is None else min(FOREVER, max(0.0, self._wake - monotonic()))
            for fd, mask in look(timeout) if self.is_idle and timeout else poll(timeout):
                if mask & WRITABLE and fd in self._writers:
                    self._poller.want_write(fd, False)
                    self._writers.pop(fd)()
                if mask & READABLE and fd in readers:
                    source, callback = readers[fd]
                    if source is not None:
                        ready[source] = None
                    elif callback is not None:
                        callback()
            if self._wake is not None and monotonic() >= self._wake:
                self._wake = None
                self._due = True
            if (ready or self._due) and self._running:
                self._due = False
                self._step()

    def stop(self) -> None:
        """End `run`."""
        self._running = False


class UvLoop:
    """The same on uvloop."""

    name = "uvloop"

    def __init__(self, step: Callable[[], None]) -> None:
        import uvloop

        self._loop = uvloop.new_event_loop()
        self._step = step
        self._due = False
        self._timer: Any = None
        self._failure: BaseException | None = None
        self._signals: dict[int, Callable[[], None]] = dict.fromkeys(ending_signals(), self.stop)
        self.ready: dict[object, None] = {}
        self.is_idle = False  # libuv sleeps

    def watch(self, fd: int, source: object) -> None:
        """See `BuiltinLoop`."""

        def readable() -> None:
            self.ready[source] = None
            self.soon()

        self._loop.add_reader(fd, readable)

    def watch_with(self, fd: int, callback: Callable[[], None]) -> None:
        """See `BuiltinLoop`."""
        self._loop.add_reader(fd, callback)

    def watch_writable(self, fd: int, callback: Callable[[], None]) -> None:
        """See `BuiltinLoop`."""

        def writable() -> None:
            self._loop.remove_writer(fd)
            callback()

        self._loop.add_writer(fd, writable)

    def forget(self, fd: int) -> None:
        """See `BuiltinLoop`."""
        self._loop.remove_reader(fd)
        self._loop.remove_writer(fd)

    def wake_at(self, when: float) -> None:
        """See `BuiltinLoop`."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(min(FOREVER, max(0.0, when - time.monotonic())), self._ring, when)

    def _ring(self, when: float) -> None:
        """The time has come, or will in a moment, as timers have whole milliseconds; or it is far away."""
        if time.monotonic() < when:
            self.wake_at(when)
        else:
            self.soon()

    def soon(self) -> None:
        """See `BuiltinLoop`."""
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

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """See `BuiltinLoop`."""
        self._signals[number] = callback

    def run(self, closing: Callable[[], None] = lambda: None, ending: Ending | None = None) -> None:
        """See `BuiltinLoop`."""
        before = {number: signal.getsignal(number) for number in self._signals}
        for number, callback in self._signals.items():
            self._loop.add_signal_handler(number, callback)
            signal.signal(number, _handler(number, ending))  # uvloop hears of signals by its descriptor
            signal.siginterrupt(number, False)
        if ending is not None and ending.is_told:
            self._loop.call_soon(self._loop.stop)
        try:
            self._loop.run_forever()
        finally:
            try:
                closing()
            finally:
                self._close(before)
        if self._failure is not None:
            raise self._failure

    def _close(self, before: Mapping[int, Any]) -> None:
        """Close it, and bring these handlers back. uvloop makes them the default ones: none comes meanwhile."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, before)
        try:
            with contextlib.suppress(Exception):
                self._loop.close()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def stop(self) -> None:
        """See `BuiltinLoop`."""
        self._loop.stop()


Loop: TypeAlias = BuiltinLoop | UvLoop


def make_loop(choice: str, step: Callable[[], None]) -> Loop:
    """The loop that was asked for; "auto" is the builtin one. Raises ImportError if uvloop isn't installed."""
    return UvLoop(step) if choice == "uvloop" else BuiltinLoop(step)
