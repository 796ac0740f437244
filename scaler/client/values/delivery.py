"""Rows that ended: the bytes that came become values, futures are fulfilled, and maps are told.

Runs on the client's I/O thread without its lock, so that unpickling does not keep others from submitting.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from scaler.client.future import Future, fulfil_all
from scaler.client.values.stored_results import StoredResults
from scaler.client.values.value_codec import ValueCodec
from scaler.errors import ProtocolError
from scaler.protocol.messages import CANCELLED, ERROR, PROFILE, STORED, VALUES_LIST, Task
from scaler.protocol.results import SpanResult, rows_of, stored_sizes, values_of
from scaler.serialize import payload as pickling
from scaler.serialize.record import decode_error


class ResultDelivery:
    """One thread at a time for each token."""

    def __init__(self, codec: ValueCodec, stored_results: StoredResults) -> None:
        self._load = codec.load
        self._stored_results = stored_results

    def deliver(self, tokens: Sequence[Any], span: SpanResult, task: Task) -> None:
        """Rows ended: fulfil their futures, or tell the token that stands for all of them, or the one of each."""
        token = tokens[0]
        if type(token) is not Future:
            if len(tokens) == 1:
                token.deliver(span, task)
            else:
                self._deliver_each(tokens, span, task)
        elif span.outcome == VALUES_LIST:
            self._fulfil_from_list(tokens, span)
        elif span.outcome == ERROR:
            if task.flags & PROFILE:
                token.profile(span.duration, span.peak, span.processor_time)
            token.fail(decode_error(bytes(span.body), f"task {task.name}"))
        elif span.outcome == CANCELLED:
            for future in tokens:
                future.mark_cancelled()
        elif span.outcome == STORED:
            for row_id, size, future in zip(count(span.batch + span.lo), stored_sizes(span), tokens, strict=False):
                if task.flags & PROFILE:
                    future.profile(span.duration, span.peak, span.processor_time)
                future.fulfil_stored(self._stored_results.add(row_id, size, task.name))
        else:
            is_profiled, load = task.flags & PROFILE, self._load
            for future, body in zip(tokens, values_of(span), strict=True):
                if is_profiled:
                    future.profile(span.duration, span.peak, span.processor_time)
                future.fulfil_from(body, load, task.name)

    def _deliver_each(self, tokens: Sequence[Any], span: SpanResult, task: Task) -> None:
        try:
            rows = list(rows_of(span))
        except ProtocolError as error:  # whatever a worker sent, nobody waits for ever
            for token in tokens:
                token.fail(error)
        else:
            for token, row in zip(tokens, rows, strict=True):
                token.deliver(row, task)

    def _fulfil_from_list(self, futures: Sequence[Any], span: SpanResult) -> None:
        try:
            values = pickling.loads_list(span.body, len(futures))
        except Exception as error:  # whatever a worker sent, nobody waits for ever
            for future in futures:
                future.fail(error)
        else:
            fulfil_all(futures, values)
