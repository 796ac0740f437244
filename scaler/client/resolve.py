"""Carrying out what the session says of the user's side: bytes become values, futures and maps are fulfilled.

Runs on the client's I/O thread without its lock, so that unpickling does not keep others from submitting.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from scaler.client import session as s
from scaler.client.future import Future, ProfilingInfo, fulfil_all
from scaler.client.outbox import resubmission
from scaler.protocol.messages import CANCELLED, ERROR, PROFILE, VALUES_LIST, Task
from scaler.results import SpanResult, values_of
from scaler.serialize import payload as pickling
from scaler.serialize.call import AnySerializer
from scaler.serialize.record import decode_error, encode_error, exception_record

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
        self.granted: list[s.Granted] = []
        #: a claim is under way
        self.asked = False
        #: the rows run elsewhere: nothing to do but wait
        self.refused = False


class Reactor:
    """See the module's text. `link` is set once it exists."""

    link: Link

    def __init__(self, serializer: AnySerializer | None) -> None:
        self.serializer = serializer
        self._load: Callable[[Any], Any] = (
            pickling.loads if serializer is None else (lambda data: serializer.deserialize(bytes(data)))
        )
        self._withdrawals: list[Withdrawal] = []
        self._tickets: dict[int, Ticket] = {}
        self._answered = threading.Event()
        self.answer: Any = None

    def react(self, effects: list[s.Effect]) -> None:
        """Carry out effects, in order."""
        for effect in effects:
            if type(effect) is s.Resolve:
                self.resolve(effect.tokens, effect.span, effect.task)
            elif type(effect) is s.Unwithdrawable:
                for token in effect.tokens:
                    token.begun()
                self._withdrawn(effect.tokens)
            elif type(effect) is s.Granted:
                self._granted(effect)
            elif type(effect) is s.ClaimRefused:
                self._refused(effect.tokens)
            elif type(effect) is s.Supply:
                self._supply(effect.id)
            elif type(effect) is s.Printed:
                print(effect.text, end="", file=sys.stdout if effect.stream == 1 else sys.stderr, flush=True)
            elif type(effect) is s.Answered:
                self.answer = effect.message
                self._answered.set()

    def resolve(self, tokens: Sequence[Any], span: SpanResult, task: Task) -> None:
        """Rows ended: fulfil their futures, or tell the map they are part of."""
        token = tokens[0]
        if type(token) is not Future and token is not None:
            token.deliver(span, self._load)
        elif span.outcome == VALUES_LIST:
            self._list(tokens, span)
        elif span.outcome == ERROR:
            if token is not None:
                token.fail(decode_error(bytes(span.body), f"task {task.name}"))
        elif span.outcome == CANCELLED:
            for future in tokens:
                if future is not None:
                    future.withdrawn()
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
            values = pickling.loads(span.body)
        except Exception as error:  # a list of scalars always loads; whatever it is, nobody waits for ever
            for future in futures:
                future.fail(error)
        else:
            fulfil_all(futures, values)

    def _one(self, future: Future, body: Any) -> None:
        try:
            value = self._load(body)
        except BaseException as error:  # the user's classes may do anything while they are unpickled
            error.add_note("(raised on the client, while a task's result was unpickled)")
            future.fail(error)
        else:
            future.fulfil(value)

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
        future = self.link.session.needed(value_id)
        if isinstance(future, Future) and future.done():
            error = CancelledError() if future.cancelled() else future.exception()
            try:
                if error is None:
                    value = future.result()
                    data = pickling.dumps(value) if self.serializer is None else self.serializer.serialize(value)
                    self.link.tell(s.Announce(value_id, data))
                    return
            except Exception as problem:
                error = problem
            assert error is not None
            self.link.tell(s.Announce(value_id, exception_record(error, "an argument"), failed=True))
        elif isinstance(future, Future):
            future.add_done_callback(lambda _: self._supply(value_id))
        else:
            record = encode_error("object", message=f"object {value_id} is not known to its client any more")
            self.link.tell(s.Announce(value_id, record, failed=True))

    # ---- waits inside tasks ----------------------------------------------------------------------------------------
    def open_ticket(self, token: Any) -> Ticket:
        """Begin to wait for a token inside a task."""
        ticket = self._tickets[id(token)] = Ticket()
        return ticket

    def close_ticket(self, token: Any) -> list[s.Granted]:
        """Stop waiting; what was granted and not run."""
        ticket = self._tickets.pop(id(token), None)
        return ticket.granted if ticket is not None else []

    def _granted(self, effect: s.Granted) -> None:
        ticket = self._tickets.get(id(effect.token))
        if ticket is None:  # its wait ended meanwhile: send the row again
            self.link.submit(resubmission(effect))
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
    def abandon(self, session: s.SessionCore) -> list[Future]:
        """All futures that are pending, including those not sent; maps end as cancelled."""
        futures: list[Future] = []
        for token in self._tokens(session):
            if type(token) is Future:
                futures.append(token)
            else:
                token.fail(CancelledError())
        return futures

    def _tokens(self, session: s.SessionCore) -> list[Any]:
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

    def cancel_all(self, link: Link) -> None:
        """The client is closed: all that is pending is cancelled."""
        with link.lock:
            futures = self.abandon(link.session)
        for future in futures:
            future.withdrawn()
        self._withdrawn(futures)
        self._notify()
