"""From a planned graph to what the session is told: batches, and the objects that they share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from scaler.client.core import events as ev
from scaler.client.core.options import Options
from scaler.client.core.task_template import check_size
from scaler.client.values.uploads import Uploads
from scaler.client.values.value_codec import ValueCodec
from scaler.common.utf8 import written_out
from scaler.graph import Plan, RemoteValue, Run
from scaler.protocol.messages import GRAPH, INLINE_LIMIT, KEEP, LONGEST_NAME, Task, u8, u32, u64
from scaler.serialize.call import encode_entries, pack_entries
from scaler.serialize.outofband import joined


class Numbering(Protocol):
    """Who numbers objects and rows; a client's driver, for one."""

    @property
    def limit(self) -> int:
        """Bytes of a message that the scheduler takes."""

    def take_ids(self, count: int) -> int:
        """Reserve ids; the first of them."""

    def flush(self) -> None:
        """What is queued has its ids."""


class GraphBatches:
    """Makes them for one client, or one durable job. Any thread."""

    def __init__(self, numbering: Numbering, uploads: Uploads | None, codec: ValueCodec) -> None:
        """`uploads` stores large constants; without it they travel in messages."""
        self._numbering = numbering
        self._uploads = uploads
        self._pack = codec.pack
        self._pack_entries = partial(pack_entries, serializer=codec.serializer)

    def events_of(self, plan: Plan, by_row: Mapping[int, Any], default: Options) -> list[ev.Event]:
        """The events that send a graph; `by_row` has what stands for the rows that are wanted: futures.

        `default` are the options of runs that have none.

        Blocks while large constants are written to a store; those sent before are recognised. Raises
        `SerializationError`, `StoreFull`, `ObjectTooLarge`, `ConnectionFailed`.
        """
        self._number_unsent(plan.shared)
        rows = sum(len(run.entries) for run in plan.runs)
        first = self._numbering.take_ids(rows)
        group = ev.BatchGroup(len(by_row))
        events: list[ev.Event] = []
        shared = [self._constant(value, group.keep, events) for value in plan.shared]
        uses = u32([0]) * rows
        for run in plan.runs:
            for needs in run.dependencies:
                for need in needs:
                    if need >= 0:
                        uses[need] += 1
        at = 0
        for run in plan.runs:
            n, options = len(run.entries), run.options or default
            names = written_out(run.names)[:LONGEST_NAME]
            function, payload = self._entries(run, names)
            # of rows that need none of the graph's, and none of it needs them, values travel as those of others do
            is_apart = not any(uses[at : at + n]) and all(need < 0 for needs in run.dependencies for need in needs)
            flags = options.flags if is_apart else options.flags | KEEP
            task = Task(
                0, first + at, n, GRAPH, flags, function, 0, names,
                options.priority, options.retries, options.timeout, options.capabilities, u32([0, n]), graph=first,
                threads=options.threads, root=options.root, nesting=options.nesting,
            )  # fmt: skip
            task.dependency_counts = u32(map(len, run.dependencies))
            task.dependencies = u64(
                [first + need if need >= 0 else shared[-1 - need] for needs in run.dependencies for need in needs]
            )
            task.uses = uses[at : at + n]
            tokens = [by_row.get(row) for row in range(at, at + n)]
            task.wanted = u8([token is not None for token in tokens])
            if payload is not None:
                task.objects.append(function)
                task.bodies.append(payload)
            events.append(ev.Submit(task, tokens, group=group))
            if payload is None:
                events.append(ev.Release([function]))
            at += n
        events += [ev.Release([event.id]) for event in events if isinstance(event, ev.Announce)]
        return events

    def _number_unsent(self, shared: list[Any]) -> None:
        """Have those sent that stand for values and were not yet: then they have ids."""
        unsent: list[Any] = [value for value in shared if isinstance(value, RemoteValue) and not value.id]
        if unsent:
            self._numbering.flush()
            for value in unsent:  # that have failed before they were sent
                value.id = value.id or self._numbering.take_ids(1)

    def _constant(self, value: Any, keep: dict[int, Any], events: list[ev.Event]) -> int:
        """The id of a value that rows share: its own if it is in the cluster; stored if it is large, else announced."""
        if isinstance(value, RemoteValue):
            keep[value.id] = value
            return value.id
        packed = self._pack(value)
        if packed.size >= INLINE_LIMIT and self._uploads is not None:
            stored = self._uploads.keep(value, packed, self._pack, "a value in the graph")
            if stored is not None:
                keep[stored.id] = stored
                return stored.id
        payload = joined(packed, value)
        check_size(len(payload), self._numbering.limit, "a value in the graph")
        object_id = self._numbering.take_ids(1)
        events.append(ev.Announce(object_id, payload))
        return object_id

    def _entries(self, run: Run, names: str) -> tuple[int, bytes | None]:
        """The id of what a run's rows do, and its payload unless it is stored."""
        packed = self._pack_entries(run.entries)
        if packed.size >= INLINE_LIMIT and self._uploads is not None:
            what = f"a part of the graph ({names})"
            object_id = self._uploads.store(run.entries, packed, self._pack_entries, what)
            if object_id is not None:
                return object_id, None
        payload = encode_entries(run.entries) if packed.buffers else packed.inband
        check_size(len(payload), self._numbering.limit, f"a part of the graph ({names})")
        return self._numbering.take_ids(1), payload
