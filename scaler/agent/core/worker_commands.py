"""What is done to one worker: it is told something, asked for rows, rid of objects, ended."""

from scaler.agent.core.events import KillWorker, ToWorker
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import KillKind, KillReason, WorkerRecord
from scaler.store.layout import Key
from scaler.worker_protocol import messages as worker_messages
from scaler.worker_protocol.messages import Drop, Recall

#: seconds for which a worker's answer to a recall is waited for before its rows are taken without its help
ANSWER_SECONDS = 0.25


def tell(out: Outgoing, worker: WorkerRecord, message: worker_messages.ToWorker, control: bool = False) -> None:
    """Send a message; with `control` it is read while user code runs."""
    out.add(ToWorker(worker.slot, message, control))


def recall(state: HostState, out: Outgoing, worker: WorkerRecord, keep: int = 1) -> None:
    """Ask a worker for its rows that have not begun; `keep` rows stay, the one that runs included.

    One that is still loading what its first row needs is thus left that row: taken back, it would come to run after
    rows that were behind it. A worker that was asked for as many rows and has not answered is not asked again.
    """
    if worker.recalling and worker.may_keep <= keep:
        return
    if not worker.recalling:
        worker.answer_by = state.now + ANSWER_SECONDS
    worker.recalling, worker.may_keep = state.workers.next_token, keep
    state.workers.next_token += 1
    last = next(reversed(worker.dispatches), 0)
    tell(out, worker, Recall(worker.recalling, keep, last), control=True)


def kill(out: Outgoing, worker: WorkerRecord, kind: KillKind, words: str) -> None:
    """End a worker, unless that is under way; the row it runs is told why."""
    if worker.kill_reason is None:
        worker.kill_reason = KillReason(kind, words)
        out.add(KillWorker(worker.slot))


def reject(out: Outgoing, worker: WorkerRecord, what: str) -> None:
    """End a worker that said what can't be: nothing that it says from now on is believed."""
    if worker.kill_reason is None:
        _log_end(out, worker, what)
        kill(out, worker, KillKind.REJECTED, what)


def give_up(out: Outgoing, worker: WorkerRecord, what: str) -> None:
    """End a worker of which nothing more will come, though its process is there; also one that was to end by itself."""
    if worker.kill_reason is not None and worker.kill_reason.kind is KillKind.SURPLUS:
        worker.kill_reason = None
    if worker.kill_reason is None:
        _log_end(out, worker, what)
        kill(out, worker, KillKind.GIVEN_UP, what)


def _log_end(out: Outgoing, worker: WorkerRecord, what: str) -> None:
    name = next((f", which ran {dispatch.origin.task.name}," for dispatch in worker.dispatches.values()), "")
    out.log("ERROR", f"worker {worker.slot}{name} {what}: it is ended, and another one is started")


def drop_objects(state: HostState, out: Outgoing, slot: int, keys: list[Key]) -> None:
    """A worker shall forget objects that it has now at once, also while user code runs."""
    worker = state.workers.records.get(slot)
    if worker is not None and keys:
        worker.objects.difference_update(keys)
        tell(out, worker, Drop(keys, state.workers.next_dispatch - 1), control=True)


def forget_objects(state: HostState, gone: set[Key]) -> None:
    """No worker counts as having these: whoever needs one is sent it again."""
    for worker in state.workers.records.values():
        known = gone & worker.objects
        if known:
            worker.objects -= known
            worker.stale += known
