"""How a client's session ends: by leaving, by shutting the cluster down, or with the program; and clearing it."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial

from scaler.client.callbacks import callbacks_collected
from scaler.client.core import events as ev
from scaler.client.io.driver import SessionDriver
from scaler.client.io.io_thread import IOThread
from scaler.client.io.reply import Reply
from scaler.client.liveness import CLOSED, Liveness
from scaler.client.reactor import Reactor
from scaler.client.values.stored_results import StoredResults
from scaler.client.waiting.resolving import Resolver
from scaler.common import at_exit, interrupts
from scaler.errors import ClientClosed, ConnectionFailed, ShutdownRefused
from scaler.protocol.messages import ClientClear, ClientShutdown, DisconnectRequest

#: seconds that `disconnect` waits for an answer, and `shutdown` for one of a scheduler that is there
ANSWER_TIMEOUT = 5.0
#: seconds that leaving waits for one if the program was interrupted
INTERRUPTED_TIMEOUT = 0.5
#: seconds for which leaving waits for results that nobody has looked at
FETCH_TIMEOUT = 30.0

#: seconds that a callback of the user's has before a client leaves without it
CALLBACK_TIMEOUT = 5.0

_log = logging.getLogger("scaler.client")

#: those of this process that may not have left
_lifetimes: weakref.WeakSet[Lifetime] = weakref.WeakSet()


class Lifetime:
    """Of one client and all its views. Any thread."""

    def __init__(
        self,
        driver: SessionDriver,
        liveness: Liveness,
        io_thread: IOThread,
        reactor: Reactor,
        resolver: Resolver,
        reply: Reply,
        stored_results: StoredResults,
    ) -> None:
        self._driver = driver
        self._liveness = liveness
        self._io_thread = io_thread
        self._reactor = reactor
        self._resolver = resolver
        self._reply = reply
        self._stored_results = stored_results
        #: what else of the client ends with it
        self.companions: list[Callable[[], None]] = []
        _lifetimes.add(self)

    def disconnect(self, is_fetching: bool = True) -> None:
        """Leave the cluster; with `is_fetching` results in stores are fetched first. Nothing if that is done already.

        Blocks until the scheduler has answered, for a few seconds at most, and for as long as fetching takes.
        A callback that is being called may end first, if it does so within a few seconds.
        """
        self._disconnect(ANSWER_TIMEOUT, is_fetching)

    def end_with(self, owner: object) -> None:
        """Leave when nobody has this any more: neither the client nor any future or reference of it.

        What is under way has futures, also if the program has let go of them: it goes on, and the client until then.
        """
        weakref.finalize(owner, self._forget).atexit = False

    def _forget(self) -> None:
        """Called by the garbage collector, on any thread at any point: what may wait is for another one to do."""
        if not (self._liveness.is_closed or self._liveness.is_forked):
            self._io_thread.call_soon(self._leave_in_background)

    def _leave_in_background(self) -> None:
        with contextlib.suppress(RuntimeError):  # there can be no more threads, or the interpreter ends
            threading.Thread(target=self._leave_quietly, name="scaler-client-leaves", daemon=True).start()

    def _leave_quietly(self) -> None:
        with contextlib.suppress(Exception):
            self.disconnect(is_fetching=False)

    def leave_at_once(self) -> None:
        """`disconnect` without the results in stores, and without much patience: somebody has pressed Ctrl-C."""
        self._disconnect(INTERRUPTED_TIMEOUT, False)

    def _disconnect(self, patience: float, is_fetching: bool) -> None:
        if self._liveness.is_closed or self._liveness.is_forked:
            return
        self._liveness.is_closed = True
        self._io_thread.step_aside()
        self.pass_callback(min(patience, CALLBACK_TIMEOUT))
        if self._liveness.failure is None:
            if is_fetching:
                self._stored_results.fetch_all(FETCH_TIMEOUT)
            self._reply.expect(is_to_goodbye=True)
            self._driver.tell(ev.Request(DisconnectRequest()))
            self._reply.wait(patience)
        self._leave()

    def pass_callback(self, patience: float | None = None) -> None:
        """If a callback of the user's has not ended so many seconds after it began, go on without it, and say so.

        Blocks until then; by default for `CALLBACK_TIMEOUT`.
        """
        if patience is None:
            patience = CALLBACK_TIMEOUT
        passed = self._io_thread.pass_callback(patience)
        if passed is not None:
            _log.warning(
                "scaler: a callback of a future has not ended within %g s: going on without %s", patience, passed
            )

    def shut_down(self, scheduler: str) -> None:
        """End the whole cluster, and leave. Raises `ShutdownRefused`, `ConnectionFailed` naming the scheduler.

        While there is no scheduler it waits for the next one, which is asked again, as long as one is looked for.
        """
        self._liveness.check()
        self._io_thread.step_aside()
        self._stored_results.fetch_all(FETCH_TIMEOUT)
        self._reply.expect(is_to_goodbye=False)
        self._driver.tell(ev.Request(ClientShutdown()))
        try:
            self._await_shutdown(scheduler)
        except BaseException:
            self._driver.tell(ev.ShutdownWithdrawn())
            raise
        self._liveness.check_connection()
        if self._reply.refusal is not None:
            raise ShutdownRefused(self._reply.refusal)
        self._leave()

    def _await_shutdown(self, scheduler: str) -> None:
        was_there = self._driver.is_connected
        while not self._reply.wait(ANSWER_TIMEOUT):
            is_there = self._driver.is_connected
            if was_there and is_there:
                raise ConnectionFailed(f"the scheduler at {scheduler} did not answer the request to shut down")
            was_there = is_there

    def clear(self, forget_functions: Callable[[], None], forget_values: Callable[[], None]) -> None:
        """Cancel all that is under way, and have the scheduler forget all objects, as these do here."""
        self._liveness.check()
        self._io_thread.step_aside()
        self._stored_results.fetch_all(FETCH_TIMEOUT)
        with self._driver.lock:
            tokens = self._driver.abandon()
            self._driver.tell(ev.Request(ClientClear()))
            forget_functions()
        forget_values()
        with callbacks_collected:
            self._resolver.cancel(tokens, "`clear` has cancelled all that was under way")

    def _leave(self) -> None:
        liveness = self._liveness
        liveness.is_closed = True
        liveness.failure = liveness.failure or ClientClosed(CLOSED)
        self._reactor.close()
        self._stored_results.close()
        self._io_thread.close()
        for close in self.companions:
            close()
        with callbacks_collected:
            self._resolver.cancel(self._driver.abandon(), "its client was closed before it ended")


def _take_leave() -> None:
    """Say goodbye, so that schedulers need not find out by themselves that this process is gone."""
    leave = (
        Lifetime.leave_at_once if interrupts.has_ended_program() else partial(Lifetime.disconnect, is_fetching=False)
    )
    for lifetime in list(_lifetimes):
        with contextlib.suppress(Exception):
            leave(lifetime)


at_exit.register(at_exit.CLIENTS, _take_leave)
