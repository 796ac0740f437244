"""The pages over the table: all that is known of one worker, and what the keys and columns mean. Pure."""

from __future__ import annotations

from scaler.monitor.columns import Table
from scaler.monitor.formats import UNKNOWN, count, duration, ending, inert, moment, share, size
from scaler.monitor.snapshot import Snapshot
from scaler.monitor.top.layout import DIM, HEAD, PLAIN, TITLE, Line
from scaler.protocol.codes import WorkerFlag

_KEYS = (
    ("1 to 6, Tab", "another table"),
    ("arrows, pages", "another row; also Home and End"),
    ("Enter", "a worker's page; the workers of a host, or those that run a function"),
    ("/", "show only rows whose names hold a text"),
    ("Esc", "back, or show all rows"),
    ("Q, Ctrl-C", "quit"),
)
#: of several states of a worker the first one is said
_STATES = (
    (WorkerFlag.ENDING, "is being ended"),
    (WorkerFlag.SUSPENDED, "its row waits for other rows; another worker works in its place"),
    (WorkerFlag.HAS_TASK, "has work"),
    (WorkerFlag.INITIALISED, "free"),
)


def worker_page(snapshot: Snapshot, name: str, row: int | None, columns: int) -> list[Line]:
    """What a worker runs, since when, and what it takes."""
    title: Line = [(f"worker {name}", TITLE), ("  (Esc: back)", DIM)]
    if row is None:
        return [title, [("it is gone: its host left, or it was no longer needed", PLAIN)]]
    workers, agent = snapshot.workers, snapshot.agent_of_worker[row]
    agents, flags = snapshot.agents, workers.flags[row]
    state = next((words for flag, words in _STATES if flags & flag), "is starting")
    facts = [
        ("process", str(workers.pids[row])),
        ("host", f"{inert(agents.names[agent])}, agent {agents.numbers[agent]} (process {agents.pids[agent]})"),
        ("state", f"{state} (ITL {snapshot.itl_of(row)})"),
        *_running(snapshot, row, agent, columns - 12),
        ("cpu", share(workers.cpus[row])),
        ("rss", size(workers.memory[row])),
        ("sent", f"{count(workers.rows[row])} row(s) that have not ended, {count(workers.queued[row])} not begun"),
        ("handed", f"{count(workers.handed[row])} row(s) since it began"),
        (
            "agent",
            f"cpu {share(agents.cpus[agent])}, rss {size(agents.memory[agent])}, lag {duration(agents.lags[agent])}",
        ),
        ("told", f"{duration(1000 * age)} ago" if (age := agents.report_ages[agent]) else "now"),
    ]
    return [title, *[[(f"{name:>10}  ", HEAD), (text, PLAIN)] for name, text in facts]]


def _running(snapshot: Snapshot, row: int, agent: int, columns: int) -> list[tuple[str, str]]:
    if not snapshot.workers.functions[row]:
        return [("runs", "nothing")]
    elapsed = snapshot.workers.elapsed[row] + snapshot.agents.report_ages[agent]
    now = snapshot.scheduler.time
    client = snapshot.workers.clients[row]
    names = dict(zip(snapshot.clients.numbers, snapshot.clients.names, strict=True))
    return [
        ("runs", inert(snapshot.function_of(row))),
        ("task", ending(inert(snapshot.task_of(row)), columns)),
        ("since", f"{moment(now - elapsed / 1000, now)}, for {duration(1000 * elapsed)}"),
        ("client", f"{client}, {inert(names[client])}" if client in names else str(client) if client else UNKNOWN),
    ]


def help_page(table: Table) -> list[Line]:
    """What keys do, and what the columns of a table are."""
    keys: list[Line] = [[(f"{key:>14}  ", HEAD), (text, PLAIN)] for key, text in _KEYS]
    columns: list[Line] = [
        [(f"{' '.join(column.keys):>3} {column.name:>10}  ", HEAD), (column.help, PLAIN)] for column in table.columns
    ]
    title: Line = [(f"{table.name}: keys that sort, columns, what they are; again: the other way round", TITLE)]
    return [*keys, [("", PLAIN)], title, *columns]
