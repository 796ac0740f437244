"""The blocks of figures over and beside the documents' table of workers, as pure functions of a `Snapshot`."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest

from scaler.monitor.formats import count, duration, inert, share, size
from scaler.monitor.snapshot import Snapshot

#: messages that are named in the documents come in their order, others behind them in the protocol's
_SENT = (
    "HeartbeatEcho", "ObjectResponse", "TaskEcho", "Task", "TaskResult", "ObjectRequest", "DisconnectResponse",
    "TaskCancel", "BalanceRequest", "GraphTaskResult",
)  # fmt: skip
_RECEIVED = (
    "Heartbeat", "ObjectRequest", "Task", "TaskResult", "DisconnectRequest", "TaskCancel", "BalanceResponse",
    "GraphTask",
)  # fmt: skip


@dataclass(frozen=True)
class Block:
    """Names, each with what is said of it."""

    title: str
    lines: tuple[tuple[str, str], ...]


def blocks(snapshot: Snapshot) -> tuple[Block, ...]:
    """The four side by side: the scheduler, its tasks, and the messages that it has sent and received."""
    scheduler = (("cpu", share(snapshot.scheduler.cpu)), ("rss", size(snapshot.scheduler.memory)))
    return (
        Block("scheduler", scheduler),
        Block("task_manager", tuple((name, count(number)) for name, number in tasks(snapshot).items())),
        Block("scheduler_sent", _messages(snapshot.sent, _SENT)),
        Block("scheduler_received", _messages(snapshot.received, _RECEIVED)),
    )


def tasks(snapshot: Snapshot) -> dict[str, int]:
    """Rows by where they are and how they ended, by the documents' names; each is counted once.

    Unassigned are those that no worker has, wherever they wait; not_found is no row: it is a cancellation of none.
    """
    rows = snapshot.rows
    counts = {
        "unassigned": rows.waiting + rows.queued + rows.at_agents - min(rows.running, rows.at_agents),
        "running": rows.running,
        "success": rows.finished,
        "failed": rows.failed,
        "canceled": rows.cancelled,
        "not_found": rows.not_found,
    }
    return counts | ({"claimed": rows.claimed} if rows.claimed else {})


def panel(snapshot: Snapshot, longest: int = 20) -> tuple[Block, ...]:
    """Those beside the table: clients, functions and objects that are most at work; and hosts that are asked for."""
    clients, functions, objects = snapshot.clients, snapshot.functions, snapshot.objects
    of_clients = [(q + r, row) for row, (q, r) in enumerate(zip(clients.queued, clients.running, strict=True))]
    of_functions = [(w + r, row) for row, (w, r) in enumerate(zip(functions.waiting, functions.running, strict=True))]
    of_objects = [(references, row) for row, references in enumerate(objects.references)]
    names = [f"{client}.{number}" for client, number in zip(objects.clients, objects.ids, strict=True)]
    return (
        Block("client_manager", _largest(of_clients, clients.names, longest)),
        Block("func_to_num_tasks", _largest(of_functions, functions.names, longest)),
        Block("object_id_to_tasks", _largest(of_objects, names, longest)),
        *([hosts(snapshot)] if snapshot.view.fleets.providers else ()),
    )


def hosts(snapshot: Snapshot) -> Block:
    """Hosts that somebody asks a batch system for, a line for each provider, and then the system's own words."""
    fleets, at = snapshot.view.fleets, 0
    lines: list[tuple[str, str]] = []
    for row, provider in enumerate(fleets.providers):
        parts = [f"{count(fleets.running[row])} of {count(fleets.desired[row])}"]
        if fleets.pending[row]:
            since = f" since {duration(1000 * fleets.waited[row])}" if fleets.waited[row] else ""
            parts.append(f"{count(fleets.pending[row])} pending{since}")
        if fleets.draining[row]:
            parts.append(f"{count(fleets.draining[row])} draining")
        lines.append((inert(provider), ", ".join(parts)))
        lines += [("", inert(words)) for words in fleets.lines[at : at + fleets.line_counts[row]]]
        at += fleets.line_counts[row]
    return Block("hosts", tuple(lines))


def _largest(
    numbers: list[tuple[int, int]], names: tuple[str, ...] | list[str], longest: int
) -> tuple[tuple[str, str], ...]:
    chosen = nlargest(longest, numbers, key=lambda each: (each[0], -each[1]))
    return tuple([(inert(names[row]), count(number)) for number, row in chosen])


def _messages(counts: dict[str, int], order: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    names = [name for name in order if name in counts] + [name for name in counts if name not in order]
    return tuple([(inert(name), count(counts[name])) for name in names])
