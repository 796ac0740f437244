"""Between the user's threads and the scheduler: queues of calls and events, the session core, the line.

    user's threads ──outbox──► session core ──► line               other effects ──► who carries them out

A thread that submits while nothing is under way sends by itself, which saves waking the I/O thread; in a burst the I/O
thread takes everything queued at once.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from scaler.client.core import events as ev
from scaler.client.core.batching import BATCH_BYTES, ROUND, Batcher, QueuedCall, ScalarCall
from scaler.client.core.object_table import merged_releases
from scaler.client.core.session import SessionCore
from scaler.client.core.task_template import TaskTemplate
from scaler.client.io.line import Line
from scaler.client.io.wakeup import Wakeup
from scaler.client.liveness import Liveness
from scaler.common.interrupts import Uninterrupted
from scaler.errors import ConnectionFailed
from scaler.protocol.initiator import Established
from scaler.protocol.messages import Frame, Message, Welcome
from scaler.transport import Connection

#: heartbeats without an answer after which the scheduler may be cut off; of a second, if they come more often
QUIET_HEARTBEATS = 2.5


class SessionDriver:
    """Feeds the session core. All methods may be called from any thread; core and line are touched under `lock`."""

    def __init__(self, line: Line, wakeup: Wakeup, liveness: Liveness) -> None:
        self._line = line
        #: makes the I/O thread look
        self._wakeup = wakeup
        self._liveness = liveness
        self.lock = threading.RLock()
        self.session = SessionCore()
        #: the batches under way, by id: those of the session
        self._under_way = self.session.pending.by_id
        self._batcher = Batcher(self.session.take_ids)
        #: calls queued
        self.outbox: deque[ScalarCall | QueuedCall] = deque()
        #: events queued for the session, in order behind the outbox
        self._events: deque[ev.Event] = deque()
        #: those of them that are being handled
        self._in_hand: list[ev.Event] = []
        #: effects to be carried out
        self._effects: list[ev.Effect] = []
        #: the I/O thread was woken and has not looked yet
        self.is_awake = False

    @property
    def welcome(self) -> Welcome:
        """What the scheduler last said of itself."""
        return self._line.welcome

    @property
    def limit(self) -> int:
        """Bytes of a message that the scheduler takes."""
        return self.welcome.limit

    # ---- for the user's threads ------------------------------------------------------------------------------------
    def submit(self, call: ScalarCall | QueuedCall) -> None:
        """Queue a call; it is on its way when this returns or shortly after."""
        self.outbox.append(call)
        if not self.is_awake:
            self.send_queued()

    def send_queued(self) -> None:
        """What was put into the `outbox` while nobody was awake to look there is on its way as after `submit`."""
        if self._under_way or not self._flush_here():
            self.wake()

    def tell(self, *events: ev.Event) -> None:
        """Queue events for the session; they are on their way when this returns or shortly after."""
        self._events.extend(events)
        if not self._flush_here():
            self.wake()

    def tell_here(self, event: ev.Event, is_quick: Callable[[ev.Effect], bool]) -> list[ev.Effect]:
        """`tell`, and what the caller is to carry out, rather than the I/O thread: all of it, if that is quick.

        To be called, and done, in an `Uninterrupted` block.
        """
        self._events.append(event)
        if self.lock.acquire(False):
            try:
                self._send()
                if all(map(is_quick, self._effects)):
                    return self.take_effects()
            finally:
                self.lock.release()
        self.wake()
        return []

    def release(self, object_id: int) -> None:
        """An object is not needed. Called by the garbage collector, on any thread at any point: takes no lock."""
        if self._liveness.failure is None:
            self._events.append(ev.Release([object_id]))

    def flush(self, *events: ev.Event) -> None:
        """Send what is queued, also calls, which then have their ids, and after it these events; waits for the lock."""
        with Uninterrupted(), self.lock:  # no handler is called while others wait for it
            self._send(events)
            if self._effects:
                self.wake()

    def take_ids(self, count: int) -> int:
        """The first of so many ids; waits for the lock."""
        with self.lock:
            return self.session.take_ids(count)

    def announce(self, template: TaskTemplate) -> None:
        """Send a template's function, if it was not sent; to be called with the lock, in an `Uninterrupted` block.

        It is sent at once: calls that are queued may be of this template, and go before events that are.
        """
        if not template.object_id:
            self._send(self._batcher.announced((template,)))

    def wake(self) -> None:
        """Make the I/O thread look. It does so in a while also if this is interrupted."""
        self.is_awake = True
        try:
            self._wakeup.wake()
        except BaseException:
            self.is_awake = False
            raise

    def abandon(self) -> list[Any]:
        """Wait for nothing any more; all tokens that have been waited for, also of what was not sent."""
        with self.lock:
            tokens = self.session.pending.tokens() + self._batcher.in_hand
            self.session.pending.clear()
            self._events.extendleft(reversed(self._in_hand))  # none, unless that was left in the middle
            while self.outbox:
                call = self.outbox.popleft()
                tokens.append(call.future if isinstance(call, QueuedCall) else call[2])
            for _ in range(len(self._events)):
                event = self._events.popleft()
                if type(event) is ev.Submit:
                    tokens += [token for token in event.tokens if token is not None]
                else:
                    self._events.append(event)
        return tokens

    def check_sent(self) -> None:
        """What was queued before this is sent, or given up by `abandon`; raises like `Liveness.check` if it may have
        come too late for both.
        """
        if self._liveness.failure is not None:
            self._liveness.check()

    def _flush_here(self) -> bool:
        """Send what is queued in the calling thread, if the lock is free; False if the I/O thread has to look."""
        with Uninterrupted():
            if not self.lock.acquire(False):
                return False
            try:
                self._send()
            finally:
                self.lock.release()
            return not self._effects

    def _send(self, events: Iterable[ev.Event] | None = None) -> None:
        """Send what is queued, and after it these events. What is raised in the midst of that ends the session."""
        try:
            self._flush()
            if events is not None:  # they are made when all before them is sent
                self._handle(events)
        except BaseException as error:
            self._give_up(error)
            raise

    def _give_up(self, error: BaseException) -> None:
        """Nobody knows what of it is done: the I/O thread says so to all who wait."""
        said = f"{error!r} was raised in the midst of what this client sent or received: make a new Client"
        self._line.give_up(ConnectionFailed(said))
        self.wake()

    def is_cut_off(self, now: float) -> bool:
        """Nothing comes of the scheduler at present; so it says nothing that it does not answer. Takes no lock."""
        return self._line.initiator.quiet(now) > QUIET_HEARTBEATS * max(1.0, self.welcome.heartbeat)

    @property
    def is_connected(self) -> bool:
        """What is said now is sent now. A guess: takes no lock."""
        return not self._line.is_lost

    @property
    def is_lone(self) -> bool:
        """Exactly one row is under way, and nothing is queued. A guess: takes no lock."""
        return not self.is_awake and self.session.pending.is_lone_row and not self.session.holding.is_on

    def patience(self, most: float) -> float:
        """Seconds until the session has something to do by itself, at most so many. Takes no lock."""
        due = self.session.holding.due
        return most if due == math.inf else min(most, max(0.0, due - time.monotonic()))

    # ---- for whoever watches the connection: all of this under the lock --------------------------------------------
    @property
    def is_queued(self) -> bool:
        """Something is to be sent."""
        return bool(self.outbox or self._events)

    def look(self, is_due: bool) -> None:
        """Send what is queued; heartbeats also if it `is_due` to look at the time."""
        self.is_awake = False
        if self._line.error is not None:
            return
        if is_due or self.outbox or self._events:
            self._flush()
            self._handle(())

    def receive(self) -> None:
        """Take in what has come; what no scheduler says ends the session: the I/O thread sees to that."""
        if self._line.error is not None:
            return
        try:
            self._take(self._line.receive())
        except Exception as error:
            self._line.give_up(error)
        except BaseException as error:
            self._give_up(error)
            raise

    def establish(self, connection: Connection, established: Established, arrived: list[list[Frame]]) -> None:
        """The session goes on over this connection, or begins; `arrived` came behind the scheduler's welcome."""
        self._line.establish(connection, established)
        welcome = established.welcome
        self._batcher.most_bytes = min(BATCH_BYTES, welcome.limit // 2)  # columns take something, too
        self._handle(
            (ev.Welcomed(established.resumed, self._line.initiator.heartbeat, welcome.workers, established.returned),)
        )
        self._take(self._line.accept(arrived))

    def take_effects(self) -> list[ev.Effect]:
        """What is to be carried out, in order; the caller does it, without the lock."""
        effects, self._effects = self._effects, []
        return effects

    def put_back(self, effects: list[ev.Effect]) -> None:
        """Leave these to the I/O thread's next turn, before others."""
        self._effects[:0] = effects

    def _take(self, messages: list[Message]) -> None:
        for message in messages:  # one by one: if one is refused, what those before it have ended has ended
            self._handle((ev.Arrived(message),))
        if messages:
            self._line.acknowledge()

    def _flush(self) -> None:
        while self.outbox or self._events:
            if self._liveness.failure is not None or self._line.error is not None:
                return
            # Events first, calls next: a call that was queued before an event is then packed before it is handled.
            events = self._in_hand = [self._events.popleft() for _ in range(len(self._events))]
            for _ in range(-(-len(self.outbox) // ROUND)):
                self._handle(self._batcher.take(self.outbox))
            if events:
                self._handle(merged_releases(events) if len(events) > 1 else events)
                self._in_hand = []

    def _handle(self, events: Iterable[ev.Event]) -> None:
        for effect in self.session.handle(events, time.monotonic()):
            if type(effect) is ev.Transmit:
                self._line.send(effect.message)
            else:
                self._effects.append(effect)
