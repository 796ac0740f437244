"""What a program submits as a durable job, as messages whose ids are the job's own; nothing in them is in a store.

Parts are independent of each other: each brings the functions that its rows call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from scaler.client.core import events as ev
from scaler.client.core.options import Options
from scaler.client.core.task_template import TaskTemplate, check_size
from scaler.client.submitting.graph_batches import GraphBatches
from scaler.client.submitting.map_sending import argument_rows
from scaler.client.values.value_codec import ValueCodec
from scaler.common.records import record
from scaler.errors import SerializationError
from scaler.graph import Call, Constant, Node, RemoteValue, plan
from scaler.protocol.messages import (
    EACH,
    INLINE,
    INLINE_VALUES,
    SPREAD,
    TOGETHER,
    Message,
    ObjectAnnounce,
    u8,
    u32,
    u64,
)
from scaler.serialize import payload as pickling
from scaler.serialize.call import AnySerializer, encode_call
from scaler.serialize.function import Captured, FunctionCache

#: rows in a part, at most
PART_ROWS = 16_384
#: bytes of arguments in a part, unless a single row has more
PART_BYTES = 4 << 20


@record
class Part:
    """Messages that are submitted together."""

    messages: list[Message]
    rows: int


class JobIds:
    """Numbers the objects and rows of a job, as a session numbers those of a client."""

    def __init__(self, limit: int, first: int = 1) -> None:
        """`limit`: bytes of a message that the scheduler takes."""
        self.limit = limit
        self._next = first

    def take_ids(self, count: int) -> int:
        """Reserve ids; the first of them."""
        first, self._next = self._next, self._next + count
        return first

    def flush(self) -> None:
        """Nothing is ever queued."""


class JobPacker:
    """Makes the parts of one job."""

    def __init__(self, ids: JobIds, options: Options, serializer: AnySerializer | None) -> None:
        self._ids = ids
        self._options = options.replace(flags=options.flags | INLINE_VALUES)
        self._serializer = serializer
        self._functions = FunctionCache(serializer)

    def calls(self, function: Callable[..., Any], rows: Sequence[Any]) -> Iterator[Part]:
        """The parts of a job that calls a function with each of these: tuples are argument tuples, as in `Client.map`.

        Raises `SerializationError` naming function or argument, `ObjectTooLarge`, and TypeError.
        """
        items, spread = argument_rows(rows)
        captured = self._captured(function)
        step = PART_ROWS
        at = 0
        while at < len(items):
            block = items[at : at + step]
            part = self._together(captured, function, block, spread) if self._serializer is None else None
            if part is None and len(block) > 1 and self._serializer is None and step > 64:
                step = max(64, step // 8)  # too many bytes, or something that can't be pickled: nearer to it
                continue
            if part is not None:
                yield part
            else:
                yield from self._each(captured, function, block, spread, at)
            at += len(block)

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Part:
        """A part of a single call."""
        captured = self._captured(function)
        payload = self._encoded(captured, args, dict(kwargs))
        return self._part(captured, function, [payload])

    def graph(self, nodes: Mapping[Any, Node], keys: Sequence[Any]) -> tuple[Part, dict[Any, int], dict[Any, Any]]:
        """The part of a job that is a graph; the number of the row of each key, and the values that need none."""
        for node in nodes.values():  # before values that have come here already take the place of their futures
            _refuse_remote(_arguments_of(node))
        made = plan(nodes, keys, workers=None, lone=nodes if self._options.timeout or self._options.retries else ())
        _refuse_remote(made.shared)
        rows = sorted(set(made.rows_of_keys.values()))
        batches = GraphBatches(self._ids, None, ValueCodec(self._serializer))
        events = batches.events_of(made, dict.fromkeys(rows, True), self._options)
        messages: list[Message] = []
        for event in events:
            if isinstance(event, ev.Announce):
                messages.append(ObjectAnnounce(u64([event.id]), u8([INLINE]), [event.payload]))
            elif isinstance(event, ev.Submit):
                messages.append(event.task)
        number = {row: i for i, row in enumerate(rows)}
        return (
            Part(messages, len(rows)),
            {key: number[row] for key, row in made.rows_of_keys.items()},
            dict(made.constants),
        )

    def _captured(self, function: Callable[..., Any]) -> Captured:
        captured = self._functions.capture(function)
        check_size(len(captured.payload), self._ids.limit, f"the function {captured.name}")
        return captured

    def _template(self, captured: Captured, function: Callable[..., Any]) -> tuple[TaskTemplate, ObjectAnnounce]:
        """The template of a part's rows, and what sends its function."""
        template = TaskTemplate(captured, function, self._options, self._ids.take_ids(1))
        return template, ObjectAnnounce(u64([template.object_id]), u8([INLINE]), [captured.payload])

    def _together(
        self, captured: Captured, function: Callable[..., Any], items: list[Any], spread: bool
    ) -> Part | None:
        """A part whose arguments are one pickled list; None if that can't be, or is too large."""
        try:
            payload = pickling.dumps(items)
        except SerializationError:
            return None
        if len(payload) > PART_BYTES:
            return None
        template, announce = self._template(captured, function)
        task = template.task(self._ids.take_ids(len(items)), len(items), TOGETHER)
        task.flags |= SPREAD if spread else 0
        task.arguments = self._ids.take_ids(1)
        task.objects = u64([task.arguments])
        task.bodies = [payload]
        return Part([announce, task], len(items))

    def _each(
        self, captured: Captured, function: Callable[..., Any], items: list[Any], spread: bool, first: int
    ) -> Iterator[Part]:
        """Parts whose rows have arguments of their own."""
        payloads: list[bytes] = []
        size = 0
        for number, item in enumerate(items, first):
            try:
                payload = self._encoded(captured, (item,) if spread else item, {})
            except SerializationError as error:
                error.add_note(f"in row {number:,} of the job")
                raise
            if payloads and size + len(payload) > PART_BYTES:
                yield self._part(captured, function, payloads)
                payloads, size = [], 0
            payloads.append(payload)
            size += len(payload)
        yield self._part(captured, function, payloads)

    def _part(self, captured: Captured, function: Callable[..., Any], payloads: list[bytes]) -> Part:
        template, announce = self._template(captured, function)
        task = template.task(self._ids.take_ids(len(payloads)), len(payloads), EACH)
        task.sizes = u32(map(len, payloads))
        task.bodies = [b"".join(payloads)]
        return Part([announce, task], len(payloads))

    def _encoded(self, captured: Captured, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        _refuse_remote((*args, *kwargs.values()))
        payload = encode_call(args, kwargs, self._serializer, captured.name)
        check_size(len(payload), self._ids.limit, f"the arguments of {captured.name}")
        return payload


def _arguments_of(node: Node) -> Iterator[Any]:
    """The values that a node has been given, however deep in calls."""
    if isinstance(node, Constant):
        yield node.value
    elif isinstance(node, Call):
        calls = [(node.args, node.inner)]
        while calls:
            args, inner = calls.pop()
            yield from args or ()
            calls += [(deeper_args, deeper) for _, (_, deeper_args, _, deeper) in inner]


def _refuse_remote(values: Iterable[Any]) -> None:
    """Raise TypeError for what stands for a value in the cluster."""
    for value in values:
        if isinstance(value, RemoteValue):
            raise TypeError(f"a durable job outlives its client, and {value!r} does not: give the value itself")
