"""The documents' table of workers, which has a row for each of up to 64,000 and more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress

from scaler.monitor.columns import Column, Table, of_agent, plain
from scaler.monitor.formats import clipped, count, duration, ending, inert, share, size
from scaler.monitor.snapshot import Snapshot
from scaler.protocol.codes import WorkerFlag


def _worker(snapshot: Snapshot, row: int) -> str:
    return f"{snapshot.workers.pids[row]}|{snapshot.host_of(row)}|{snapshot.worker_id(row)}"


def _shortened(text: str, columns: int) -> str:
    """Of process, host and id the host loses what there is no room for."""
    pid, host, worker = text.split("|", 1)[0], text.partition("|")[2].rpartition("|")[0], text.rpartition("|")[2]
    room = columns - len(pid) - len(worker) - 2
    return f"{pid}|{clipped(host, room)}|{worker}" if room > 1 else clipped(text, columns)


def _places(snapshot: Snapshot) -> list[int]:
    """What workers are sorted by: host, agent, slot, in one number each."""
    agents = snapshot.agents
    ranks = [0] * len(agents)
    for rank, agent in enumerate(
        sorted(range(len(agents)), key=lambda each: (agents.names[each], agents.numbers[each]))
    ):
        ranks[agent] = rank << 32
    return [ranks[agent] + slot for agent, slot in zip(snapshot.agent_of_worker, snapshot.workers.slots, strict=True)]


def _functions(snapshot: Snapshot) -> list[str]:
    """What each worker runs."""
    names, out, at, named = snapshot.view.worker_names, [], 0, 0
    agents = snapshot.agents
    for workers, known in zip(agents.worker_counts, agents.name_counts, strict=True):
        mine = ("", *names[named : named + known])
        out += [mine[function] for function in snapshot.workers.functions[at : at + workers]]
        at += workers
        named += known
    return out


_BLOCKED = WorkerFlag.HAS_TASK | WorkerFlag.SUSPENDED | WorkerFlag.ENDING | WorkerFlag.STOPPED
#: for each value of a worker's flags: how many rows could begin there at once, and the three of `ITL`
_FREE = bytes([1 if each & WorkerFlag.INITIALISED and not each & _BLOCKED else 0 for each in range(256)])
_ITL = bytes([100 * (each & 1) + 10 * (each >> 1 & 1) + (each >> 2 & 1) for each in range(256)])


def _through(table: bytes) -> Callable[[Snapshot], bytes]:
    return lambda snapshot: snapshot.workers.flags.tobytes().translate(table)


def _workers_matching(snapshot: Snapshot, text: str) -> list[int]:
    """By host, function, process and id, or all that the first column shows, with a bar between.

    A host, a function, an agent ("3.") or an id that is there as it stands means that alone. Names of hosts and
    functions are looked at once each, not once a worker.
    """
    agents, functions = snapshot.agents, snapshot.workers.functions
    names_there = [name.casefold() for name in snapshot.view.worker_names]
    hosts = [name.casefold() for name in agents.names]
    is_exact = text in names_there or text in hosts
    if "|" in text and not is_exact:
        return [row for row in range(len(snapshot.workers)) if text in inert(_worker(snapshot, row)).casefold()]
    known = [text == name if is_exact else text in name for name in names_there]
    #: for each worker 1 if it is meant
    meant = bytearray(len(snapshot.workers))
    if text.replace(".", "", 1).isdigit() and not is_exact and _mark_numbers(snapshot, text, meant):
        return list(compress(range(len(meant)), meant))
    at = named = 0
    for name, workers, names in zip(hosts, agents.worker_counts, agents.name_counts, strict=True):
        if text == name if is_exact else text in name:
            meant[at : at + workers] = b"\1" * workers
        elif any(mine := [False, *known[named : named + names]]):
            for row in range(at, at + workers):
                meant[row] |= mine[functions[row]]
        at += workers
        named += names
    return list(compress(range(len(meant)), meant))


def _mark_numbers(snapshot: Snapshot, text: str, meant: bytearray) -> bool:
    """Those whose process has these digits, and those whose id begins with them; whether an agent is named ("3.")."""
    meant[:] = bytes([text in pid for pid in map(str, snapshot.workers.pids)])
    number, dot, slot = text.partition(".")
    at = 0
    for agent, workers in zip(map(str, snapshot.agents.numbers), snapshot.agents.worker_counts, strict=True):
        if agent == number if dot else agent.startswith(number):
            slots = list(map(str, snapshot.workers.slots[at : at + workers]))
            is_exact = bool(dot) and slot in slots
            for row, each in enumerate(slots, at):
                meant[row] |= each == slot if is_exact else each.startswith(slot)
        at += workers
    return bool(dot) and any(meant)


WORKERS = Table(
    "workers",
    (
        Column("worker", "n", _worker, _places, inert, "process, host, and agent with slot",
               room=22, shorten=_shortened),
        of_agent("agt_cpu", "C", "agents.cpus", share, "use of processors by its agent", room=7, rank=4),
        of_agent("agt_rss", "M", "agents.memory", size, "memory of its agent", room=7, rank=5),
        plain("cpu", "c", "workers.cpus", share, "use of processors", room=6),
        plain("rss", "m", "workers.memory", size, "memory", room=6),
        Column("free", "f", lambda snapshot, row: _FREE[snapshot.workers.flags[row]], _through(_FREE), count,
               "rows that could begin there at once", rank=2),
        plain("sent", "w", "workers.rows", count, "rows it was handed that have not ended"),
        plain("queued", "dq", "workers.queued", count, "those of them that have not begun", room=6, rank=1),
        of_agent("lag", "l", "agents.lags", duration, "between scheduler and agent, there and back", room=5, rank=3),
        Column("ITL", "i", lambda snapshot, row: _ITL[snapshot.workers.flags[row]], _through(_ITL),
               lambda value: f"{value:03}", "initialised, has a task, holds the task lock", room=3, rank=6),
        Column("function", "F", Snapshot.function_of, _functions, inert,
              "the function that it runs", room=12, rank=7, shorten=ending),
    ),
    "cpu", lambda snapshot: len(snapshot.workers), Snapshot.worker_id, _workers_matching,
)  # fmt: skip


def worker_at(snapshot: Snapshot, worker: str) -> int | None:
    """The index of a worker by what it is called ("3.12"); None if it is not there."""
    agent, _, slot = worker.partition(".")
    at = 0
    for number, workers in zip(snapshot.agents.numbers, snapshot.agents.worker_counts, strict=True):
        if str(number) == agent:
            mine = snapshot.workers.slots[at : at + workers]
            return at + mine.index(int(slot)) if int(slot) in mine else None
        at += workers
    return None
