"""Ending what a client waits for: with results, with errors, or as cancelled; and telling everybody who waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError
from typing import Any

from scaler.client.core import events as ev
from scaler.client.future import Future
from scaler.client.values.delivery import ResultDelivery
from scaler.client.waiting.cancellations import Cancellations
from scaler.client.waiting.claims import Claims
from scaler.protocol.messages import Task
from scaler.protocol.results import SpanResult

#: results that a thread unpickles which waits for one of them
FEW = 16


class Resolver:
    """Any thread, without the session's lock."""

    def __init__(self, delivery: ResultDelivery, cancellations: Cancellations, claims: Claims) -> None:
        self._deliver = delivery.deliver
        self._cancellations = cancellations
        self._claims = claims

    def resolve(self, tokens: Sequence[Any], span: SpanResult, task: Task) -> None:
        """Rows ended."""
        self._deliver(tokens, span, task)
        if self._cancellations.waits:
            self._cancellations.answer(tokens)
        if self._claims.by_token:
            self._claims.notify()

    def is_quick(self, effect: ev.Effect) -> bool:
        """Whether it takes little time, and calls nothing of the user's."""
        if type(effect) is not ev.Resolve or len(effect.tokens) > FEW:
            return False
        return all(type(token) is Future and not token.has_callbacks for token in effect.tokens)

    def carry_out(self, effects: Iterable[ev.Effect]) -> None:
        """Resolve what ended; these are all quick."""
        for effect in effects:
            assert isinstance(effect, ev.Resolve)
            self.resolve(effect.tokens, effect.span, effect.task)

    def note_begun(self, tokens: Sequence[Any]) -> None:
        """Rows have run for a while."""
        for token in tokens:
            if token is not None:
                token.mark_running()

    def begin_here(self, token: Any) -> None:
        """A task begins to run what it waits for in its own stack: that can't be cancelled until `end_here`."""
        self._cancellations.here.add(id(token))
        self.refuse_cancel([token])

    def end_here(self, token: Any) -> None:
        """It has ended."""
        self._cancellations.here.discard(id(token))

    def refuse_cancel(self, tokens: Sequence[Any]) -> None:
        """Rows run, and can't be cancelled."""
        self.note_begun(tokens)
        self._cancellations.answer(tokens)

    def fail(self, tokens: Sequence[Any], error: BaseException) -> None:
        """There is no scheduler any more: what these stand for ends with such an error."""
        for token in tokens:
            token.fail(type(error)(str(error)))
        self._tell_waiting(tokens)

    def cancel(self, tokens: Sequence[Any], why: str) -> None:
        """What these stand for is not wanted any more; `why` is said to who waits for it."""
        for token in tokens:
            if type(token) is Future:
                token.mark_cancelled(why)
            else:
                token.fail(CancelledError(why))
        self._tell_waiting(tokens)

    def _tell_waiting(self, tokens: Iterable[Any]) -> None:
        self._cancellations.answer(tokens)
        self._claims.notify()
