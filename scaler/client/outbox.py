"""From calls to batches: what the user's threads queued becomes few `Task` messages.

Calls of one function with the same options form a batch. Where all their arguments are scalars they are pickled
together as one arguments object; otherwise each row has its own payload, made when it was submitted, since its
arguments may change afterwards. A call that needs the result of one that is queued is sent after everything queued
before it.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from scaler.client.events import Announce, Submit
from scaler.client.sent import Stored
from scaler.errors import ObjectTooLarge
from scaler.protocol.messages import EACH, TOGETHER, Task, u32, u64
from scaler.protocol.results import SpanResult
from scaler.serialize.function import Captured

#: rows taken from the outbox for one round of messages
ROUND = 8_192
#: payload bytes in one batch of rows with own payloads, after which another one is begun
BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Options:
    """What `Client.with_options` sets."""

    priority: int = 0
    retries: int = 0
    #: seconds a row may run; 0 for no limit
    timeout: float = 0.0
    capabilities: tuple[str, ...] = ()
    flags: int = 0


class Recipe:
    """A captured function with options: what all rows of a batch share."""

    __slots__ = ("__weakref__", "captured", "function", "object_id", "options", "stored")

    def __init__(
        self, captured: Captured, function: Callable[..., Any], options: Options, stored: Stored | None = None
    ) -> None:
        self.captured = captured
        #: the function itself, for running it here when a waiting task claims a row
        self.function = function
        self.options = options
        #: of a function that is stored
        self.stored = stored
        #: of the function; 0 until it was sent
        self.object_id = stored.id if stored is not None else 0

    def task(self, batch: int, rows: int, form: int) -> Task:
        """A message for rows of this recipe, without their payloads."""
        options = self.options
        return Task(
            0, batch, rows, form, options.flags, self.object_id, 0, self.captured.name,
            options.priority, options.retries, options.timeout, options.capabilities, u32([0, rows]),
        )  # fmt: skip


@dataclass(slots=True)
class Call:
    """One row with its own payload."""

    recipe: Recipe
    payload: bytes
    #: futures, references and stored arguments, in the order of their slots
    needs: list[Any]
    future: Any


#: a row of scalars: (recipe, args, future)
Plain = tuple[Recipe, tuple[Any, ...], Any]


class Packer:
    """Turns queued calls into events for the session, whose `take_ids` it uses."""

    def __init__(self, take_ids: Callable[[int], int]) -> None:
        self._take_ids = take_ids

    def pack(self, outbox: deque[Plain | Call]) -> Iterable[Submit | Announce]:
        """Take at most `ROUND` calls from the outbox; their batches, in an order that keeps dependencies first."""
        plain: dict[Recipe, tuple[list[Any], list[Any]]] = {}
        own: dict[Recipe, list[Call]] = {}
        pop = outbox.popleft
        recipe = rows = futures = None
        for _ in range(min(ROUND, len(outbox))):
            item = pop()
            if type(item) is tuple:
                if item[0] is not recipe:
                    recipe = item[0]
                    rows, futures = plain.get(recipe) or plain.setdefault(recipe, ([], []))
                rows.append(item[1])  # type: ignore[union-attr]
                futures.append(item[2])  # type: ignore[union-attr]
            else:
                needs = item.needs  # type: ignore[union-attr]
                if needs and not all(need.id for need in needs):  # without an id: it is in this round
                    yield from self._flush(plain, own)
                    recipe = None
                own.setdefault(item.recipe, []).append(item)  # type: ignore[union-attr, arg-type]
        yield from self._flush(plain, own)

    def _flush(
        self, plain: dict[Recipe, tuple[list[Any], list[Any]]], own: dict[Recipe, list[Call]]
    ) -> Iterable[Submit | Announce]:
        for recipe in (*plain, *own):
            if not recipe.object_id:
                yield self.announce(recipe)
        for recipe, (rows, futures) in plain.items():
            if len(rows) == 1:  # an arguments object of its own would cost more than it saves
                payload = b"P" + pickle.dumps((rows[0], {}), 5)
                task = recipe.task(self._take_ids(1), 1, EACH)
                task.sizes = u32((len(payload),))
                task.bodies = [payload]
                yield Submit(task, futures, recipe=recipe)
                continue
            arguments = self._take_ids(1)
            task = recipe.task(self._take_ids(len(rows)), len(rows), TOGETHER)
            task.arguments = arguments
            task.objects = u64([arguments])
            task.bodies = [pickle.dumps(rows, 5)]
            yield Submit(task, futures, recipe=recipe)
        for recipe, calls in own.items():
            yield from self._own(recipe, calls)
        plain.clear()
        own.clear()

    def announce(self, recipe: Recipe) -> Announce:
        """Give a recipe's function its id, and the event that sends it."""
        recipe.object_id = self._take_ids(1)
        return Announce(recipe.object_id, recipe.captured.payload)

    def _own(self, recipe: Recipe, calls: list[Call]) -> Iterable[Submit]:
        start = size = 0
        for i, call in enumerate(calls):
            if size and size + len(call.payload) > BATCH_BYTES:
                yield self._batch(recipe, calls[start:i])
                start, size = i, 0
            size += len(call.payload)
        yield self._batch(recipe, calls[start:])

    def _batch(self, recipe: Recipe, calls: list[Call]) -> Submit:
        task = recipe.task(self._take_ids(len(calls)), len(calls), EACH)
        payloads = [call.payload for call in calls]
        task.sizes = u32(map(len, payloads))
        task.bodies = [payloads[0] if len(payloads) == 1 else b"".join(payloads)]
        if any(call.needs for call in calls):
            for call in calls:
                task.dependency_counts.append(len(call.needs))
                task.dependencies.extend([need.id for need in call.needs])
            return Submit(task, [call.future for call in calls], needs=[call.needs for call in calls], recipe=recipe)
        return Submit(task, [call.future for call in calls], recipe=recipe)


class Relay:
    """A token for a row that was taken out of a larger batch: passes on what it hears as if it were still there."""

    __slots__ = ("_block", "_row", "id")

    def __init__(self, block: Any, row: int) -> None:
        self._block = block
        self._row = row
        #: set by the session
        self.id = 0

    def deliver(self, span: SpanResult, task: Task) -> None:
        """The row ended."""
        # its id stays what it is: batch + lo
        span = span._replace(batch=span.batch + span.lo - self._row, lo=self._row, hi=self._row + 1)
        self._block.deliver(span, task)

    def begun(self) -> None:
        """The row runs."""

    def fail(self, error: BaseException) -> None:
        """The row never will end."""
        self._block.fail(error)


def check_size(size: int, limit: int, what: str) -> None:
    """Raise ObjectTooLarge for something that no message can carry."""
    if size > limit:
        raise ObjectTooLarge(
            f"{what} takes {size:,} bytes, more than the scheduler's limit of {limit:,} (max_message_bytes)"
        )
