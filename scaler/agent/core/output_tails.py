"""The last lines of output of one worker, for somebody who looks at its page. Nothing is kept here of who asks."""

from __future__ import annotations

import json

from scaler.agent.core.events import ToWorker
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import STARTING, WorkerRecord
from scaler.protocol.codes import STDERR
from scaler.protocol.messages import Query, QueryResult
from scaler.worker_protocol.messages import TailRequest, TailResponse

#: lines of an answer, and characters of each: a worker is not believed to keep to its own limits
LINES, LONGEST = 40, 500


def take_question(state: HostState, out: Outgoing, query: Query) -> None:
    """The scheduler asks on behalf of a monitor; the worker answers at once, unless native code keeps it from that."""
    worker = state.workers.records.get(query.slot)
    if query.kind != "output" or worker is None or worker.state is STARTING:
        out.say(QueryResult(query.number, error=f"this host has no worker {query.slot} that could say", bodies=[b""]))
        return
    out.add(ToWorker(worker.slot, TailRequest(query.number), control=True))


def take_answer(out: Outgoing, _worker: WorkerRecord, message: TailResponse) -> None:
    """A worker has said its last lines."""
    streams = {str(int(STDERR)): "stderr"}
    lines = [
        json.dumps({"stream": streams.get(line[0], "stdout"), "text": line[1:][:LONGEST]})
        for line in message.text[-LINES * (LONGEST + 2) :].split("\n")[-LINES:]
        if line
    ]
    out.say(QueryResult(message.number, bodies=["\n".join(lines).encode()]))
