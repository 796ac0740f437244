"""From calls to batches: what the user's threads queued becomes few `Task` messages.

Calls of one function with the same options form a batch. Where all their arguments are scalars they are pickled
together as one arguments object; otherwise each row has its own payload, made when it was submitted, since its
arguments may change afterwards. A call that needs the result of one that is queued is sent after everything queued
before it.

Batches go in the order of their first calls: what was submitted first begins first, but for calls of a function that
was called before in the same round, which go with those.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from scaler.client.core.events import Announce, Submit
from scaler.client.core.task_template import TaskTemplate
from scaler.common.records import record
from scaler.protocol.messages import EACH, TOGETHER, u32, u64

#: rows taken from the outbox for one round of messages
ROUND = 8_192
#: payload bytes in one batch, at most, unless a single row has more
BATCH_BYTES = 4 << 20


@record
class QueuedCall:
    """One row with its own payload."""

    template: TaskTemplate
    payload: bytes
    #: futures, references and stored arguments, in the order of their slots
    needs: list[Any]
    future: Any


#: a row of scalars: (template, args, future)
ScalarCall = tuple[TaskTemplate, tuple[Any, ...], Any]


class Batcher:
    """Turns queued calls into events for the session, whose `take_ids` it uses."""

    def __init__(self, take_ids: Callable[[int], int]) -> None:
        self._take_ids = take_ids
        #: as `BATCH_BYTES`, for a scheduler that takes no messages of that size: less
        self.most_bytes = BATCH_BYTES
        #: calls taken from the outbox that are not all sent, by kind and template; in the order of their first calls:
        #: arguments of scalars, or calls with their own payloads, and futures. The kind is the class of the futures,
        #: or that of a call of scalars: what is told of all rows of a batch is told to tokens of one class
        self._groups: dict[tuple[type, TaskTemplate], tuple[list[Any], list[Any]]] = {}

    @property
    def in_hand(self) -> list[Any]:
        """The futures of calls that were taken from the outbox, and may not have been sent."""
        return [future for _, futures in self._groups.values() for future in futures]

    def take(self, outbox: deque[ScalarCall | QueuedCall]) -> Iterable[Submit | Announce]:
        """Take at most `ROUND` calls from the outbox; their batches, in an order that keeps dependencies first."""
        groups, pop = self._groups, outbox.popleft
        template, last_kind = None, tuple
        rows: list[Any] = []
        futures: list[Any] = []
        for _ in range(min(ROUND, len(outbox))):
            row = pop()
            kind: type = type(row)
            if kind is tuple:
                its_template, row, future = row  # type: ignore[misc]
            else:
                its_template, future = row.template, row.future  # type: ignore[union-attr]
                kind = type(future)
                needs = row.needs  # type: ignore[union-attr]
                if needs and not all(need.id for need in needs):  # without an id: it is in this round
                    yield from self._flush()
                    template = None
            if its_template is not template or kind is not last_kind:
                key = kind, its_template
                template, last_kind = its_template, kind
                rows, futures = groups.get(key) or groups.setdefault(key, ([], []))
            rows.append(row)
            futures.append(future)
        yield from self._flush()

    def _flush(self) -> Iterable[Submit | Announce]:
        groups = self._groups
        yield from self.announced([template for _, template in groups])
        for (kind, template), (rows, futures) in groups.items():
            yield from self._together(template, rows, futures) if kind is tuple else self._own(template, rows)
        groups.clear()

    def announced(self, templates: Iterable[TaskTemplate]) -> Iterable[Announce]:
        """Give the functions of templates that were not sent their ids, and the events that send them."""
        for template in templates:
            if not template.object_id:
                template.object_id = self._take_ids(1)
                yield Announce(template.object_id, template.captured.payload)

    def _together(self, template: TaskTemplate, rows: list[Any], futures: list[Any]) -> Iterable[Submit]:
        if len(rows) == 1:  # an arguments object of its own would cost more than it saves
            payload = b"P" + pickle.dumps((rows[0], {}), 5)
            task = template.task(self._take_ids(1), 1, EACH)
            task.sizes = u32((len(payload),))
            task.bodies = [payload]
            yield Submit(task, futures, template=template)
            return
        payload = pickle.dumps(rows, 5)
        if len(payload) > self.most_bytes:
            step = max(1, len(rows) * self.most_bytes // len(payload))
            for i in range(0, len(rows), step):
                yield from self._together(template, rows[i : i + step], futures[i : i + step])
            return
        arguments = self._take_ids(1)
        task = template.task(self._take_ids(len(rows)), len(rows), TOGETHER)
        task.arguments = arguments
        task.objects = u64([arguments])
        task.bodies = [payload]
        yield Submit(task, futures, template=template)

    def _own(self, template: TaskTemplate, calls: list[QueuedCall]) -> Iterable[Submit]:
        start = size = 0
        for i, call in enumerate(calls):
            if size and size + len(call.payload) > self.most_bytes:
                yield self._batch(template, calls[start:i])
                start, size = i, 0
            size += len(call.payload)
        yield self._batch(template, calls[start:])

    def _batch(self, template: TaskTemplate, calls: list[QueuedCall]) -> Submit:
        task = template.task(self._take_ids(len(calls)), len(calls), EACH)
        payloads = [call.payload for call in calls]
        task.sizes = u32(map(len, payloads))
        task.bodies = [payloads[0] if len(payloads) == 1 else b"".join(payloads)]
        if any(call.needs for call in calls):
            task.dependency_counts = u32(len(call.needs) for call in calls)
            task.dependencies = u64(need.id for call in calls for need in call.needs)
            return Submit(
                task, [call.future for call in calls], needs=[call.needs for call in calls], template=template
            )
        return Submit(task, [call.future for call in calls], template=template)
