"""What screens show of a snapshot as tables: from a `Snapshot` to rows of text, and to numbers to sort by.

    WORKERS.rows(snapshot)                                  # as the documents show them, all of them
    order = WORKERS.sorted(snapshot, "cpu")                 # indices of workers, busiest first
    WORKERS.rows(snapshot, order[:30])                      # what fits

Texts are `inert`; whoever writes HTML escapes them as well.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from scaler.monitor.columns import Column, Table, made, plain, told
from scaler.monitor.formats import UNKNOWN, count, duration, ending, inert, share, size
from scaler.monitor.snapshot import Snapshot
from scaler.monitor.worker_table import WORKERS, worker_at
from scaler.protocol.codes import AgentFlag

__all__ = ["AGENTS", "CLIENTS", "FUNCTIONS", "MESSAGES", "OBJECTS", "TABLES", "WORKERS", "Column", "Table", "worker_at"]


#: milliseconds of walltime that stand for no end
ENDLESS = 2**32 - 1


def _matching(*paths: str) -> Callable[[Snapshot, str], list[int]]:
    """By texts of these columns; a name that is there as it stands means that alone."""
    columns = [attrgetter(path) for path in paths]

    def rows(snapshot: Snapshot, text: str) -> list[int]:
        texts = list(zip(*[map(str.casefold, map(str, column(snapshot))) for column in columns], strict=True))
        exact = [row for row, names in enumerate(texts) if text in names]
        return exact or [row for row, names in enumerate(texts) if any(text in name for name in names)]

    return rows


def _state(snapshot: Snapshot, row: int) -> str:
    flags = snapshot.agents.flags[row]
    words = {AgentFlag.FULL: "full", AgentFlag.STORE_ONLY: "store only", AgentFlag.DRAINING: "draining"}
    return ", ".join(word for flag, word in words.items() if flags & flag)


def _milliseconds(value: int) -> str:
    return duration(1000 * value)


def _left(value: int) -> str:
    return _milliseconds(value) if value < ENDLESS else UNKNOWN


def _known_duration(value: int) -> str:
    return duration(value) if value else UNKNOWN


AGENTS = Table(
    "agents",
    (
        plain("agent", "n", "agents.names", inert, "what the host is called", room=16),
        plain("pid", "i", "agents.pids", str, "its process", room=7, rank=8),
        told("agt_cpu", "C", "agents.cpus", share, "use of processors by the agent", room=7, rank=5),
        told("agt_rss", "M", "agents.memory", size, "memory of the agent", room=7, rank=6),
        told("host_cpu", "c", "agents.host_cpus", share, "what is used of all the host's processors", room=8),
        plain("workers", "w", "agents.workers", count, "workers at work", room=7),
        told("free", "f", "agents.free", count, "workers that could begin a row at once"),
        plain("rows", "r", "agents.rows", count, "rows sent to it that have not come back", room=6),
        told("queued", "dq", "agents.queued", count, "rows there that no worker has", room=6),
        told("stored", "s", "agents.stored", size, "objects in its store", room=7, rank=1),
        told("spilled", "p", "agents.spilled", size, "those of them on disk", room=7, rank=3),
        told("fetched", "t", "agents.fetched", size, "what ever came from other hosts", room=7, rank=4),
        told("lag", "l", "agents.lags", duration, "between scheduler and agent, there and back", room=5, rank=2),
        plain("silent", "a", "agents.silent", _milliseconds, "since its last message", room=6, rank=7),
        plain("can", "k", "agents.capabilities", inert, "what tasks may ask for that it has", room=6, rank=9),
        made("state", "x", _state, lambda snapshot: len(snapshot.agents), inert, "what is unusual", room=6, rank=10),
        plain("left", "e", "agents.walltimes", _left, "until its batch system ends it", room=6, rank=11),
        plain("job", "j", "agents.jobs", inert, "what its batch system calls it", room=6, rank=12),
    ),
    "host_cpu", lambda snapshot: len(snapshot.agents),
    lambda snapshot, row: str(snapshot.agents.numbers[row]),
    _matching("agents.names", "agents.numbers", "agents.capabilities", "agents.jobs"),
)  # fmt: skip

FUNCTIONS = Table(
    "functions",
    (
        plain("function", "n", "functions.names", inert, "what it is called", room=24, shorten=ending),
        plain("client", "i", "functions.clients", str, "whose it is", room=6, rank=5),
        made("count", "t", lambda snapshot, row: sum(_counts(snapshot, row)), lambda snapshot: len(snapshot.functions),
              count, "all its rows", room=9, rank=4),
        plain("waiting", "w", "functions.waiting", count, "rows that no agent has", room=8, rank=1),
        plain("placed", "r", "functions.running", count, "rows that agents have, running or not", room=8),
        plain("done", "d", "functions.done", count, "rows that ended with a value", room=8),
        plain("failed", "f", "functions.failed", count, "rows that ended with an error", room=6),
        plain("canceled", "k", "functions.cancelled", count, "rows that ended without being run", room=8, rank=6),
        plain("p50", "p", "functions.p50_us", _known_duration, "half of its rows took at most, to an eighth",
              room=6, rank=2),
        plain("p95", "P", "functions.p95_us", _known_duration, "95 of 100 took at most, to an eighth", room=6, rank=2),
        plain("total", "c", "functions.total_us", _known_duration, "all its rows took together", room=6, rank=3),
    ),
    "placed", lambda snapshot: len(snapshot.functions),
    lambda snapshot, row: f"{snapshot.functions.clients[row]}.{snapshot.functions.names[row]}",
    _matching("functions.names"),
)  # fmt: skip


def _counts(snapshot: Snapshot, row: int) -> tuple[int, ...]:
    each = snapshot.functions
    return each.waiting[row], each.running[row], each.done[row], each.failed[row], each.cancelled[row]


CLIENTS = Table(
    "clients",
    (
        plain("client", "n", "clients.names", inert, "what it calls itself", room=24),
        plain("number", "i", "clients.numbers", str, "at this scheduler", room=6),
        plain("queued", "dq", "clients.queued", count, "rows that no agent has", room=9),
        plain("placed", "r", "clients.running", count, "rows that agents have, running or not", room=9),
        plain("ended", "e", "clients.done", count, "rows that ended since it came, in any way", room=9),
        plain("batches", "b", "clients.batches", count, "batches with rows that have not ended", room=7, rank=2),
        plain("objects", "o", "clients.objects", count, "values that it has at the cluster", room=7, rank=1),
        plain("silent", "a", "clients.silent", _milliseconds, "since its last message", room=6, rank=3),
    ),
    "placed", lambda snapshot: len(snapshot.clients),
    lambda snapshot, row: str(snapshot.clients.numbers[row]), _matching("clients.names", "clients.numbers"),
)  # fmt: skip

OBJECTS = Table(
    "objects",
    (
        plain("object", "n", "objects.ids", str, "its number, at its client", room=10),
        plain("client", "i", "objects.clients", str, "whose it is", room=6),
        plain("size", "s", "objects.sizes", size, "bytes", room=8),
        plain("references", "r", "objects.references", count, "who needs it: batches, rows, its client", room=10),
        plain("copies", "c", "objects.copies", count, "stores that have it", room=6),
    ),
    "size", lambda snapshot: len(snapshot.objects),
    lambda snapshot, row: f"{snapshot.objects.clients[row]}.{snapshot.objects.ids[row]}",
    _matching("objects.ids", "objects.clients"),
)  # fmt: skip


def _types(snapshot: Snapshot) -> list[str]:
    return list(dict.fromkeys([*snapshot.sent, *snapshot.received]))


def _sent(snapshot: Snapshot, row: int) -> int:
    return snapshot.sent.get(_types(snapshot)[row], 0)


def _received(snapshot: Snapshot, row: int) -> int:
    return snapshot.received.get(_types(snapshot)[row], 0)


def _number_of_types(snapshot: Snapshot) -> int:
    return len(_types(snapshot))


MESSAGES = Table(
    "messages",
    (
        made("message", "n", lambda snapshot, row: _types(snapshot)[row], _number_of_types, inert,
             "the type of a message", room=20),
        made("sent", "w", _sent, _number_of_types, count, "how many the scheduler has sent", room=11),
        made("received", "r", _received, _number_of_types, count, "how many the scheduler has received", room=11),
    ),
    "sent", _number_of_types, lambda snapshot, row: _types(snapshot)[row],
    lambda snapshot, text: [row for row, name in enumerate(_types(snapshot)) if text in name.casefold()],
)  # fmt: skip

#: in the order of their keys, 1 to 6
TABLES = (WORKERS, AGENTS, FUNCTIONS, CLIENTS, OBJECTS, MESSAGES)
