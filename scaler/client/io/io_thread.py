"""The client's I/O thread: it waits, sends and receives what there is, and has carried out what that brings.

Results are unpickled and futures fulfilled outside the session's lock, so that this does not keep others from
submitting. Callbacks of futures are called when all that came together is dealt with. One that is going to wait makes
the thread *step aside*: another thread is the I/O thread from then on, so whatever is waited for can come. One that
takes long is *passed by* in the same way. When the connection is lost for good all that is pending fails.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from scaler.client.callbacks import callback_in, callbacks_collected
from scaler.client.core import events as ev
from scaler.client.io.callback_watch import CallbackWatch
from scaler.client.io.connector import Connector
from scaler.client.io.driver import SessionDriver
from scaler.client.io.line import Line
from scaler.client.io.polling import ConnectionPoller
from scaler.client.io.reply import Reply
from scaler.client.liveness import Liveness
from scaler.common.process_limits import words_of
from scaler.errors import ConnectionFailed, ScalerError

#: seconds between looks at the time while nothing happens
IDLE = 0.5
#: seconds between looks whether a callback has ended
LOOK = 0.01


class Reactor(Protocol):
    """The user's side, called by the I/O thread without the lock. Must not block, but in callbacks of the user's."""

    def carry_out(self, effects: list[ev.Effect]) -> None:
        """Do what these say, in order."""

    def fail(self, tokens: list[Any], error: BaseException) -> None:
        """There is no scheduler any more: what these tokens stand for ends with this, and so do all questions."""

    def tidy(self) -> None:
        """Let go of what is not needed; about twice a second."""


class IOThread:
    """Runs from `start` until `close`, or until there is no scheduler any more. Any thread may call the methods."""

    def __init__(
        self,
        driver: SessionDriver,
        line: Line,
        poller: ConnectionPoller,
        connector: Connector,
        reply: Reply,
        liveness: Liveness,
    ) -> None:
        self._driver = driver
        self._line = line
        self._poller = poller
        self._connector = connector
        self._reply = reply
        self._liveness = liveness
        #: the thread that is the I/O thread at present; None before the first
        self._thread: threading.Thread | None = None
        #: its identity; 0 while there is none
        self._ident = 0
        #: whom it tells; None before it starts
        self._reactor: Reactor | None = None
        self._next_tidying = 0.0
        #: to be called by it
        self._soon: Callable[[], None] | None = None
        #: it is to end, or has ended: no other thread goes on
        self._is_closing = False
        #: threads that call callbacks of the user's, by identity, and since when, seconds: the I/O thread, and those
        #: that were it and were passed by; not those that have stepped aside
        self._calling: dict[int, float] = {}
        self._callback_watch = CallbackWatch(self._pass_by)
        #: held while it is decided whether the thread goes on after them, or another one
        self._handing_over = threading.RLock()

    def start(self, reactor: Reactor) -> None:
        """Begin; to be called once. Raises `ConnectionFailed`, and has hung up, if there is no thread for it."""
        self._reactor = reactor
        try:
            self._start_thread(reactor)
        except ConnectionFailed:
            self._end(None)
            raise

    def call_soon(self, function: Callable[[], None]) -> None:
        """Have the I/O thread call this, which must not block. For the garbage collector: any thread, at any point."""
        self._soon = function
        self._driver.wake()

    def step_aside(self) -> None:
        """The calling thread may be going to block: if it is the I/O thread, another one is from now on.

        Raises `ConnectionFailed` if there is none, unless the interpreter ends: nothing would come any more.
        """
        if threading.get_ident() == self._ident and self._reactor is not None and not self._is_closing:
            try:
                self._start_thread(self._reactor)
            except ConnectionFailed:
                if not _interpreter_ends():
                    raise
            self._calling.pop(threading.get_ident(), None)

    def pass_callback(self, patience: float) -> str | None:
        """The calling thread is going to leave: if a callback of the user's does not end within `patience` seconds of
        its beginning, another thread goes on, if none does yet.

        Blocks until one of both; returns what is passed by, None for nothing.
        """
        if self._reactor is None:
            return None
        calling = {ident: since for ident, since in self._calling.copy().items() if ident != threading.get_ident()}
        for ident, since in calling.items():
            while self._calling.get(ident) == since and time.monotonic() < since + patience:
                time.sleep(LOOK)
        with self._handing_over:
            passed = [ident for ident, since in calling.items() if self._calling.get(ident) == since]
            if not passed or self._is_closing:
                return None
            words = callback_in(passed[0])
            if self._ident in passed:
                try:
                    self._start_thread(self._reactor)
                except ConnectionFailed:
                    return None
            for ident in passed:
                del self._calling[ident]
            return words

    def _pass_by(self, patience: float) -> bool:
        """Have another thread go on if the I/O thread has called callbacks for so long; False if it calls none."""
        with self._handing_over:
            since = self._calling.get(self._ident)
            if since is None or self._is_closing or self._reactor is None:
                return False
            if time.monotonic() >= since + patience:
                with contextlib.suppress(ConnectionFailed):  # there can be no more threads, or the interpreter ends
                    self._start_thread(self._reactor)
            return True

    def close(self, linger: float = 1.0) -> None:
        """End the thread, and the connection; blocks for at most about `linger` seconds."""
        self._is_closing = True
        self._callback_watch.end()
        self._driver.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(linger + 1.0)

    def _start_thread(self, reactor: Reactor) -> None:
        name = f"scaler-client-{self._connector.address}"
        before = self._thread, self._ident
        self._ident = 0
        self._thread = threading.Thread(target=self._run, args=(reactor,), name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread, self._ident = before
            raise ConnectionFailed(f"there is no thread for a client's connection: {words_of(error)}") from error

    def _run(self, reactor: Reactor) -> None:
        thread = threading.current_thread()
        self._ident = threading.get_ident()
        try:
            while self._turn(reactor) and self._thread is thread:
                pass
        except BaseException as error:
            if self._thread is thread and not self._is_closing:
                known = isinstance(error, ScalerError)
                self._fail(reactor, error if known else ConnectionFailed(f"the client's I/O failed: {error!r}"))
        finally:
            self._end(thread)

    def _end(self, thread: threading.Thread | None) -> None:
        """A thread ends: unless another one has gone on, the connection is closed, and none will go on."""
        with self._handing_over:
            if self._thread is not thread:
                return
            self._is_closing, self._ident = True, 0
            self._callback_watch.end()
        with self._driver.lock:
            self._line.close(0.2)
            self._poller.close()

    def _turn(self, reactor: Reactor) -> bool:
        """One turn; False when there is nothing to do any more, or another thread goes on."""
        effects = self._exchange()
        if effects and not self._carry_out(reactor, effects):
            return False
        soon = self._soon
        if soon is not None:
            self._soon = None
            soon()
        now = time.monotonic()
        if now >= self._next_tidying:
            self._next_tidying = now + IDLE
            reactor.tidy()
        return self._mend()

    def _carry_out(self, reactor: Reactor, effects: list[ev.Effect]) -> bool:
        """Do what these say, and call callbacks; False if another thread has gone on since, and this one ends."""
        ident = threading.get_ident()
        try:
            with callbacks_collected:
                reactor.carry_out(effects)
                if self._poller.is_borrowed:
                    self._poller.nudge.wake()
                if callbacks_collected.are_due and ident == self._ident:
                    self._calling[ident] = time.monotonic()
                    self._callback_watch.begin()
        finally:
            with self._handing_over:
                self._calling.pop(ident, None)
                goes_on = ident == self._ident
        return goes_on

    def _exchange(self) -> list[ev.Effect]:
        """Wait for something to do, then send and receive what there is; what is to be carried out."""
        is_woken, is_readable = self._poller.poll(self._driver.patience(IDLE))
        if self._is_closing:
            return []
        is_idle = not (is_woken or is_readable)
        driver = self._driver
        with driver.lock:
            if is_readable:
                driver.receive()
            driver.look(is_woken or is_idle)
            if not is_readable:  # whoever goes on submitting is never idle
                self._line.check_silence()
            return driver.take_effects()

    def _mend(self) -> bool:
        """Make a lost connection anew; False when nothing is wanted any more. Blocks.

        Raises like `Connector.reconnect`, and what came that no scheduler says.
        """
        if self._is_closing:
            return False
        if self._line.error is not None:
            raise self._line.error
        if self._line.is_lost and not self._reply.is_to_goodbye:
            self._connector.reconnect(lambda: not (self._is_closing or self._reply.is_to_goodbye))
        if self._line.is_lost and self._reply.is_to_goodbye:  # or is by now
            self._reply.arrive(None)
            return False
        return True

    def _fail(self, reactor: Reactor, error: BaseException) -> None:
        with self._driver.lock:
            self._liveness.failure = error
            effects = self._driver.take_effects()
        with callbacks_collected:
            if effects:
                reactor.carry_out(effects)
            reactor.fail(self._driver.abandon(), error)


def _interpreter_ends() -> bool:
    """It starts no threads any more, since Python 3.12 a moment before it says so itself."""
    return sys.is_finalizing() or getattr(threading, "_SHUTTING_DOWN", False)
