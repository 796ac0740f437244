"""What an agent does about moves that no table has, which are its own defects: who was about to make one is let go.

The log says what was about to happen. Rows and objects are then lost or made again as if a worker had died.
"""

from scaler.agent.core import bringing, worker_commands
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.object_records import ObjectState
from scaler.store.layout import Key


def repair(state: HostState, out: Outgoing) -> None:
    """Replace workers that made such moves, and let go of objects that would have made one."""
    disorder, state.follow_ups.disorder = state.follow_ups.disorder, {}
    for who, what in disorder.items():
        if isinstance(who, int):
            _replace(state, out, who, what)
        else:
            _let_go(state, out, who, what)


def _replace(state: HostState, out: Outgoing, slot: int, what: str) -> None:
    worker = state.workers.records.get(slot)
    if worker is None:
        return
    moves = [f"{at:.3f} {before} -> {after}: {cause}" for at, before, after, cause in worker.history]
    out.log("ERROR", "\n    ".join([f"a defect of the agent: {what}. Its last moves:", *moves]))
    worker_commands.reject(out, worker, "is in disorder")


def _let_go(state: HostState, out: Outgoing, key: Key, what: str) -> None:
    out.log("ERROR", f"a defect of the agent: {what}; the object is let go")
    record = state.objects.record(key)
    if record.state is not ObjectState.ABSENT:
        bringing.remove(state, out, key, record)
    out.gone(key)
    bringing.lose(state, out, key, record, "it was in disorder")
