"""Carrying out what the session says of the user's side: bytes become values, futures and maps are fulfilled.

Runs on the client's I/O thread without its lock, so that unpickling does not keep others from submitting. What may
block goes to other threads: values that the scheduler asks for are packed and stored by one of their own, and callbacks
of futures whose values are in a store are called by another, since they are going to load them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from scaler.client import events as ev
from scaler.client.calls import Calls
from scaler.client.future import Future, ProfilingInfo, fulfil_all
from scaler.client.hold import Holds
from scaler.client.outbox import Call as QueuedCall
from scaler.client.outbox import Relay
from scaler.client.sent import SentValues
from scaler.client.session import SessionCore
from scaler.client.stores import Stores
from scaler.client.warned import Warned
from scaler.common.callback_thread import CallbackThread
from scaler.errors import ObjectLost
from scaler.protocol import failures
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    INLINE_LIMIT,
    PROFILE,
    SPREAD,
    STDOUT,
    STORED,
    TOGETHER,
    VALUES_LIST,
    WARNINGS,
    Task,
)
from scaler.protocol.results import SpanResult, stored_sizes, values_of
from scaler.serialize import payload as pickling
from scaler.serialize.call import AnySerializer
from scaler.serialize.outofband import Packed, joined
from scaler.serialize.payload import SCALARS
from scaler.serialize.record import decode_error, exception_record
from scaler.transport import Security

if TYPE_CHECKING:
    from scaler.client.link import Link


class Withdrawal:
    """Waits until every one of some futures has ended or is known to run."""

    def __init__(self, futures: Iterable[Future]) -> None:
        self._left = {id(future): future for future in futures}
        self._all = threading.Event()

    def answered(self, futures: Iterable[Any]) -> None:
        """These futures need no answer any more."""
        for future in futures:
            self._left.pop(id(future), None)
        if not self._left:
            self._all.set()

    def wait(self, timeout: float) -> bool:
        """Block until all are answered."""
        return self._all.wait(timeout)


class Ticket:
    """A task's wait for one of its own rows: what it was granted to run meanwhile."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.granted: list[ev.Granted] = []
        #: a claim is under way
        self.asked = False
        #: the rows run elsewhere: nothing to do but wait
        self.refused = False


class Reactor:
    """See the module's text. `attach` makes it complete, once the link exists."""

    link: Link
    #: where large values are
    stores: Stores
    sent: SentValues
    calls: Calls
    holds: Holds

    def __init__(self, serializer: AnySerializer | None) -> None:
        self.serializer = serializer
        #: packs and stores what the scheduler asks for
        self._supplier = CallbackThread("scaler-client-supplies")
        #: calls callbacks of futures whose values are in a store
        self.caller = CallbackThread("scaler-client-calls")
        self.load: Callable[[Any], Any] = (
            pickling.loads if serializer is None else (lambda data: serializer.deserialize(bytes(data)))
        )
        self._withdrawals: list[Withdrawal] = []
        self._tickets: dict[int, Ticket] = {}
        self._answered = threading.Event()
        self.warned = Warned()
        self.answer: Any = None

    def attach(self, link: Link, security: Security) -> None:
        """Set what stands on the link."""
        self.link = link
        self.stores = Stores(link, security)
        self.sent = SentValues(link, self.stores)
        self.calls = Calls(self.sent, self.serializer, link.apart)
        self.holds = Holds(link, self.stores, self.serializer)
        link.look = self.stores.make_room = self.sent.look

    def react(self, effects: list[ev.Effect]) -> None:
        """Carry out effects, in order."""
        for effect in effects:
            if type(effect) is ev.Resolve:
                self.resolve(effect.tokens, effect.span, effect.task)
            elif type(effect) is ev.Unwithdrawable:
                for token in effect.tokens:
                    token.begun()
                self._withdrawn(effect.tokens)
            elif type(effect) is ev.Granted:
                self._granted(effect)
            elif type(effect) is ev.ClaimRefused:
                self._refused(effect.tokens)
            elif type(effect) is ev.Supply:
                self._supplier.run(partial(self._supply, effect.id))
            elif type(effect) is ev.Told:
                self.stores.told(effect.message)
            elif type(effect) is ev.Renewed:
                self.stores.renewed()
            elif type(effect) is ev.Restore:
                self._supplier.run(partial(self.sent.restore, effect.objects))
            elif type(effect) is ev.Printed and effect.stream == WARNINGS:
                self.warned.heard(effect.text)
            elif type(effect) is ev.Printed:
                print(effect.text, end="", file=sys.stdout if effect.stream == STDOUT else sys.stderr, flush=True)
            elif type(effect) is ev.Answered:
                self.answer = effect.message
                self._answered.set()

    def resolve(self, tokens: Sequence[Any], span: SpanResult, task: Task) -> None:
        """Rows ended: fulfil their futures, or tell the map they are part of."""
        token = tokens[0]
        if type(token) is not Future and token is not None:
            token.deliver(span, task)
        elif span.outcome == VALUES_LIST:
            self._list(tokens, span)
        elif span.outcome == ERROR:
            if token is not None:
                token.fail(decode_error(bytes(span.body), f"task {task.name}"))
        elif span.outcome == CANCELLED:
            for future in tokens:
                if future is not None:
                    future.withdrawn()
        elif span.outcome == STORED:
            for row_id, size, future in zip(count(span.batch + span.lo), stored_sizes(span), tokens, strict=False):
                if future is not None:
                    if task.flags & PROFILE:
                        future._profiling = ProfilingInfo(span.duration, span.peak)
                    future.hold(self.holds.add(row_id, size, task.name))
        else:
            profiled = task.flags & PROFILE
            for future, body in zip(tokens, values_of(span), strict=True):
                if future is not None:
                    if profiled:
                        future._profiling = ProfilingInfo(span.duration, span.peak)
                    self._one(future, body)
        if self._withdrawals:
            self._withdrawn(tokens)
        if self._tickets:
            self._notify()

    def _list(self, futures: Sequence[Any], span: SpanResult) -> None:
        try:
            values = pickling.loads_list(span.body, len(futures))
        except Exception as error:  # whatever a worker sent, nobody waits for ever
            for future in futures:
                future.fail(error)
        else:
            fulfil_all(futures, values)

    def _one(self, future: Future, body: Any) -> None:
        try:
            future._result = self.load(body)  # by no name here, which would keep it
            if type(future._result) not in SCALARS:
                future._body = bytes(body)
        except BaseException as error:  # the user's classes may do anything while they are unpickled
            error.add_note("(raised on the client, while a task's result was unpickled)")
            future.fail(error)
        else:
            future.fulfilled()

    # ---- answers ---------------------------------------------------------------------------------------------------
    def expect_withdrawal(self, futures: Iterable[Future]) -> Withdrawal:
        """What to wait for after a cancellation was sent."""
        self._withdrawals = [w for w in self._withdrawals if w._left]
        withdrawal = Withdrawal(futures)
        self._withdrawals.append(withdrawal)
        withdrawal.answered([future for future in withdrawal._left.copy().values() if future.done()])
        return withdrawal

    def _withdrawn(self, tokens: Sequence[Any]) -> None:
        for withdrawal in self._withdrawals:
            withdrawal.answered(tokens)

    def expect_answer(self) -> threading.Event:
        """What to wait for after a goodbye or a request to shut down was sent."""
        self.answer = None
        self._answered.clear()
        return self._answered

    def _supply(self, value_id: int) -> None:
        """Send an object, or the value of a row, that the scheduler asked for. Not on the I/O thread."""
        session = self.link.session
        with self.link.lock:
            source, payload = session.source_of(value_id), session.payload_of(value_id)
            need = session.needed(value_id)
        if source is None and isinstance(need, Future) and not need.done():
            need.add_done_callback(lambda _: self._supplier.run(partial(self._supply, value_id)))
            return
        try:
            if source is not None:
                announce = self._store(value_id, source)
            elif payload is not None:
                announce = ev.Announce(value_id, payload)
            elif isinstance(need, Future):
                announce = self._value_of_future(value_id, need)
            else:
                raise ObjectLost(f"object {value_id} is not known to its client any more")
        except ObjectLost as error:
            announce = ev.Announce(value_id, failures.object_lost(str(error)).encode(), failed=True)
        except BaseException as error:
            announce = ev.Announce(value_id, exception_record(error, "an argument"), failed=True)
        self.link.tell(announce)

    def _store(self, value_id: int, source: Callable[[], Packed]) -> ev.Announce:
        written = self.stores.write(value_id, source(), f"object {value_id}", again=True)
        if written is None:
            raise ObjectLost(f"object {value_id} is lost with its host, and there is no other store")
        return written.announce(source)

    def _value_of_future(self, value_id: int, future: Future) -> ev.Announce:
        error = CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            raise error
        value = future.fresh_result()
        packed = self.calls.pack(value)
        if packed.size >= INLINE_LIMIT:
            written = self.stores.write(value_id, packed, f"the result of row {value_id}", again=True)
            if written is not None:
                return written.announce(None)
        return ev.Announce(value_id, joined(packed, value))

    def value_of(self, need: Any) -> Any:
        """The value of what a row needs, for a task that runs the row itself; blocks. Raises what kept it from it."""
        if isinstance(need, Future):
            return need.fresh_result()
        payload = self.link.session.payload_of(need.id)
        if payload is not None:
            return self.load(payload)
        return self.holds.value_of(need.id, "an argument")

    def call_of(self, granted: ev.Granted) -> tuple[tuple[Any, ...], bytes]:
        """The argument tuple (form TOGETHER) or payload (form EACH) of a row that was granted; may block."""
        task, row = granted.task, granted.row
        if task.form == TOGETHER:
            items = (
                pickling.loads(task.bodies[-1])
                if task.objects
                else self.holds.value_of(task.arguments, f"the arguments of {task.name}")
            )
            return ((items[row],) if task.flags & SPREAD else items[row]), b""
        start = sum(task.sizes[:row])
        return (), bytes(memoryview(task.bodies[0])[start : start + task.sizes[row]])

    def resubmit(self, granted: ev.Granted) -> None:
        """Have a granted row run by the cluster after all; may block."""
        token = granted.token if hasattr(granted.token, "fulfil") else Relay(granted.token, granted.row)
        needs = list(granted.needs)
        try:
            args, payload = self.call_of(granted)
            if not payload:
                payload = self.calls.encode(args, {}, granted.task.name, needs, self.link.welcome.limit)
        except BaseException as error:
            token.fail(error)
            return
        self.link.submit(QueuedCall(granted.recipe, payload, needs, token))

    # ---- waits inside tasks ----------------------------------------------------------------------------------------
    def open_ticket(self, token: Any) -> Ticket:
        """Begin to wait for a token inside a task."""
        ticket = self._tickets[id(token)] = Ticket()
        return ticket

    def close_ticket(self, token: Any) -> list[ev.Granted]:
        """Stop waiting; what was granted and not run."""
        ticket = self._tickets.pop(id(token), None)
        return ticket.granted if ticket is not None else []

    def _granted(self, effect: ev.Granted) -> None:
        ticket = self._tickets.get(id(effect.token))
        if ticket is None:  # its wait ended meanwhile: send the row again
            self._supplier.run(partial(self.resubmit, effect))
            return
        with ticket.changed:
            ticket.granted.append(effect)
            ticket.asked = False
            ticket.changed.notify_all()

    def _refused(self, tokens: Sequence[Any]) -> None:
        for token in tokens:
            ticket = self._tickets.get(id(token))
            if ticket is not None:
                with ticket.changed:
                    ticket.asked = False
                    ticket.refused = True
                    ticket.changed.notify_all()

    def _notify(self) -> None:
        for ticket in list(self._tickets.values()):
            with ticket.changed:
                ticket.changed.notify_all()

    # ---- the end ---------------------------------------------------------------------------------------------------
    def abandon(self, session: SessionCore) -> list[Future]:
        """All futures that are pending, including those not sent; maps end as cancelled."""
        futures: list[Future] = []
        for token in self._tokens(session):
            if type(token) is Future:
                futures.append(token)
            else:
                token.fail(CancelledError())
        return futures

    def _tokens(self, session: SessionCore) -> list[Any]:
        tokens = [t for p in list(session.pending.values()) for t in p.tokens if t is not None]
        session.pending.clear()
        outbox = self.link.outbox
        while outbox:
            item = outbox.popleft()
            tokens.append(item[2] if type(item) is tuple else item.future)  # type: ignore[union-attr]
        return tokens

    def fail(self, error: BaseException) -> None:
        """There is no scheduler any more: all that is pending ends with this."""
        with self.link.lock:
            tokens = self._tokens(self.link.session)
        for token in tokens:
            token.fail(type(error)(str(error)))
        self._withdrawn(tokens)
        self._answered.set()
        self._notify()
        self.stores.ended()

    def close(self) -> None:
        """The client is closed: nothing will be asked for any more."""
        self.stores.ended()
        self._supplier.close()
        self.caller.close()

    def cancel_all(self, link: Link) -> None:
        """The client is closed: all that is pending is cancelled."""
        with link.lock:
            futures = self.abandon(link.session)
        for future in futures:
            future.withdrawn()
        self._withdrawn(futures)
        self._notify()
