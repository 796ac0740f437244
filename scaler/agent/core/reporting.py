"""What the scheduler is told of this host while somebody watches: processors, memory, and what each worker does.

Nobody measures anything until the scheduler says `Watch`. One that does not know this agent begins unwatched.
"""

from scaler.agent.core.events import Measure, Measured, MeasuredWorker, ToWorker
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import BUSY, STARTING, WorkerRecord
from scaler.protocol.codes import MAX_NAME, STDERR, WorkerFlag
from scaler.protocol.messages import HostReport, Query, QueryResult, Watch, WorkerColumns
from scaler.worker_protocol.messages import TailRequest, TailResponse

#: seconds between two reports, at least, whatever the scheduler asks for
SHORTEST = 1.0
#: what a column of u32 takes
MOST = 2**32 - 1
#: lines of output that are told, and characters of each: a worker is not believed to keep to its own limits
LINES, LONGEST = 40, 500

INITIALISED, HAS_TASK, HOLDS_LOCK, SUSPENDED, ENDING, STOPPED = (flag.value for flag in WorkerFlag)


def take_watch(state: HostState, out: Outgoing, watch: Watch) -> None:
    """Somebody watches, or nobody does any more."""
    if not watch.interval:
        end(state, out)
        return
    state.pulse.is_watched = True
    out.add(Measure(max(watch.interval / 1000, SHORTEST)))


def end(state: HostState, out: Outgoing) -> None:
    """Nobody watches."""
    if state.pulse.is_watched:
        state.pulse.is_watched = False
        out.add(Measure(0.0))


def report(state: HostState, out: Outgoing, measured: Measured) -> None:
    """Tell what was measured, and what the workers do."""
    if not state.pulse.is_watched:
        return  # it was on the way when the watch ended
    columns, names = WorkerColumns(), dict[str, int]()
    for slot, worker in state.workers.records.items():
        process = measured.workers.get(slot)
        if process is not None:
            _add(columns, names, worker, process)
    index, pulse = state.objects.index, state.pulse
    out.say(
        HostReport(
            measured.cpu, measured.memory, round(1000 * pulse.cpu), max(0, state.workers.free), state.queued,
            sum(columns.rows) - sum(columns.queued),
            min(MOST, max(0, round(1e6 * pulse.lag))), index.total, index.on_disk, state.fetched_bytes,
            len(columns), tuple(names), [columns.pack()],
        )
    )  # fmt: skip


def _add(columns: WorkerColumns, names: dict[str, int], worker: WorkerRecord, process: MeasuredWorker) -> None:
    number, row = process.begun
    dispatch = worker.dispatches.get(number)
    if dispatch is not None and not dispatch.has(row):
        dispatch = None  # it has told of the end of this row, and has begun no other
    rows, has_begun = worker.rows, dispatch is not None
    columns.pids.append(process.pid)
    columns.slots.append(worker.slot)
    columns.cpus.append(min(MOST, process.cpu))
    columns.memory.append(process.memory)
    columns.flags.append(_flags(worker, process.is_stopped))
    columns.rows.append(rows)
    columns.queued.append(rows - has_begun)
    columns.handed.append(worker.handed)
    if dispatch is None:
        columns.clients.append(0)
        columns.ids.append(0)
        columns.functions.append(0)
        columns.elapsed.append(0)
        return
    task = dispatch.origin.task
    columns.clients.append(dispatch.origin.client)
    columns.ids.append(task.batch + row)
    columns.functions.append(names.setdefault(task.name[:MAX_NAME], len(names) + 1))
    columns.elapsed.append(min(MOST, max(0, process.elapsed)))


def _flags(worker: WorkerRecord, is_stopped: bool) -> int:
    flags = INITIALISED if worker.state is not STARTING else 0
    if worker.dispatches:
        flags |= HAS_TASK
    if worker.blocked:
        flags |= SUSPENDED
    elif worker.state is BUSY and not is_stopped:
        flags |= HOLDS_LOCK
    if is_stopped:
        flags |= STOPPED
    return flags | ENDING if worker.kill_reason is not None else flags


# ---- the last lines of output of one worker, for somebody who looks at its page; nothing is kept here of who asks ----
def take_question(state: HostState, out: Outgoing, query: Query) -> None:
    """The scheduler asks on behalf of a monitor; the worker answers at once, unless native code keeps it from that."""
    worker = state.workers.records.get(query.slot)
    if query.kind != "output" or worker is None or worker.state is STARTING:
        out.say(QueryResult(query.number, error=f"this host has no worker {query.slot} that could say", bodies=[b""]))
        return
    out.add(ToWorker(worker.slot, TailRequest(query.number), control=True))


def take_tail(out: Outgoing, message: TailResponse) -> None:
    """A worker has said its last lines."""
    import json  # here, as a cluster should start without it

    streams = {str(int(STDERR)): "stderr"}
    lines = [
        json.dumps({"stream": streams.get(line[0], "stdout"), "text": line[1:][:LONGEST]})
        for line in message.text[-LINES * (LONGEST + 2) :].split("\n")[-LINES:]
        if line
    ]
    out.say(QueryResult(message.number, bodies=["\n".join(lines).encode()]))
