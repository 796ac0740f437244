"""From a planned graph to what the session is told: batches, and the objects that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler.client import events as ev
from scaler.client.calls import Calls
from scaler.client.outbox import Options, check_size
from scaler.graph import Plan, RemoteValue, Run
from scaler.protocol.messages import GRAPH, INLINE_LIMIT, KEEP, Task, u8, u32
from scaler.serialize.call import pack_entries
from scaler.serialize.outofband import joined, pack

if TYPE_CHECKING:
    from scaler.client.future import Future
    from scaler.client.link import Link


def batches_of(made: Plan, by_row: dict[int, Future], link: Link, calls: Calls, default: Options) -> list[ev.Event]:
    """The events that send a graph; `by_row` has the futures of the rows that are wanted.

    `default` are the options of runs that have none.

    Blocks while large constants are written to a store; those sent before are recognised. Raises `SerializationError`,
    `StoreFull`, `ObjectTooLarge`, `ConnectionFailed`.
    """
    unsent: list[Any] = [value for value in made.shared if isinstance(value, RemoteValue) and not value.id]
    if unsent:
        link.flush()
        for value in unsent:  # that have failed before they were sent
            value.id = value.id or link.take_id()
    rows = sum(len(run.entries) for run in made.runs)
    with link.lock:
        first = link.session.take_ids(rows)
    group = ev.Group(len(by_row))
    events: list[ev.Event] = []
    shared = [_constant(value, link, calls, group.keep, events) for value in made.shared]
    uses = u32([0]) * rows
    for run in made.runs:
        for needs in run.dependencies:
            for need in needs:
                if need >= 0:
                    uses[need] += 1
    at = 0
    for run in made.runs:
        n, options = len(run.entries), run.options or default
        function, payload = _entries(run, link, calls)
        task = Task(
            0, first + at, n, GRAPH, options.flags | KEEP, function, 0, run.names,
            options.priority, options.retries, options.timeout, options.capabilities, u32([0, n]), graph=first,
        )  # fmt: skip
        task.dependency_counts = u32(map(len, run.dependencies))
        task.dependencies.extend(
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


def _constant(value: Any, link: Link, calls: Calls, keep: dict[int, Any], events: list[ev.Event]) -> int:
    """The id of a value that rows share: its own if it is in the cluster; stored if it is large, else announced."""
    if isinstance(value, RemoteValue):
        keep[value.id] = value
        return value.id
    packed = pack(value)
    if packed.size >= INLINE_LIMIT:
        stored = calls.keep(value, packed, pack, "a value in the graph")
        if stored is not None:
            keep[stored.id] = stored
            return stored.id
    payload = joined(packed, value)
    check_size(len(payload), link.welcome.limit, "a value in the graph")
    object_id = link.take_id()
    events.append(ev.Announce(object_id, payload))
    return object_id


def _entries(run: Run, link: Link, calls: Calls) -> tuple[int, bytes | None]:
    """The id of what a run's rows do, and its payload unless it is stored."""
    packed = pack_entries(run.entries)
    if packed.size >= INLINE_LIMIT:
        object_id = calls.store(run.entries, packed, pack_entries, f"a part of the graph ({run.names})")
        if object_id is not None:
            return object_id, None
    payload = joined(packed, run.entries, b"G")
    check_size(len(payload), link.welcome.limit, f"a part of the graph ({run.names})")
    return link.take_id(), payload
