"""The pages over the table: all that is known of one worker, and what the keys and columns mean. Pure."""

from __future__ import annotations

from scaler.monitor.columns import Table
from scaler.monitor.formats import UNKNOWN, count, duration, ending, inert, moment, share, size
from scaler.monitor.output import LastOutput
from scaler.monitor.snapshot import Snapshot
from scaler.monitor.top.layout import ALERT, DIM, HEAD, PLAIN, TITLE, Line
from scaler.protocol.codes import WorkerFlag

_KEYS = (
    ("1 to 6, Tab", "another table"),
    ("arrows, pages", "another row; also Home and End"),
    ("Enter", "a worker's page"),
    ("", "of an agent or a function: its workers"),
    ("/", "show only rows whose names hold a text"),
    ("Esc", "back, or show all rows"),
    ("Q, Ctrl-C", "quit; Ctrl-Z: stop, until fg"),
    ("a key below", "sort by it; again: the other way round"),
)
#: what a worker's page has in any terminal, and how many lines of output
_KEPT, _OUTPUT = ("process", "host", "runs", "task", "since"), 2
#: of several states of a worker the first one is said
_STATES = (
    (WorkerFlag.ENDING, "is being ended"),
    (WorkerFlag.STOPPED, "its process is stopped (kill -CONT has it go on)"),
    (WorkerFlag.SUSPENDED, "its row waits for other rows; another worker works in its place"),
    (WorkerFlag.HAS_TASK, "has work"),
    (WorkerFlag.INITIALISED, "free"),
)


def worker_page(
    snapshot: Snapshot, name: str, row: int | None, columns: int, room: int, output: LastOutput | None
) -> list[Line]:
    """What a worker runs, since when, what it takes, and its last lines of output, as many as there is room for."""
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
    most = max(len(_KEPT), room - 2 - _OUTPUT)
    while len(facts) > most:
        facts.pop(next(at for at in reversed(range(len(facts))) if facts[at][0] not in _KEPT))
    page: list[Line] = [title, *[[(f"{name:>10}  ", HEAD), (text, PLAIN)] for name, text in facts]]
    return page + _output(output, max(2, room - len(page)))


def _output(output: LastOutput | None, room: int) -> list[Line]:
    if output is None:
        return [[("    output  ", HEAD), ("asked; while native code runs it cannot answer", DIM)]]
    if output.error or not output.lines:
        said = output.error or "none: its tasks have printed nothing by Python yet"
        return [[("    output  ", HEAD), (said, DIM)]]
    lines = output.lines[-max(1, room - 1) :]
    title: Line = [("    output  ", HEAD), (f"the last {len(lines)} line(s) of its tasks; !: standard error", DIM)]
    marks: dict[str, Line] = {"stdout": [("| ", DIM)], "stderr": [("! ", ALERT)]}
    return [title, *[[*marks[stream], (text, PLAIN)] for stream, text in lines]]


def _running(snapshot: Snapshot, row: int, agent: int, columns: int) -> list[tuple[str, str]]:
    if not snapshot.workers.functions[row]:
        return [("runs", "nothing")]
    elapsed = snapshot.workers.elapsed[row] + snapshot.agents.report_ages[agent]
    now = snapshot.scheduler.time
    client = snapshot.workers.clients[row]
    names = dict(zip(snapshot.clients.numbers, snapshot.clients.names, strict=True))
    return [
        ("runs", ending(inert(snapshot.function_of(row)), columns)),
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
    title: Line = [(f"{table.name}: keys that sort, columns, what they are", TITLE)]
    return [*keys, [("", PLAIN)], title, *columns]
