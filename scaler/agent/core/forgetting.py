"""A client is gone, or the scheduler has lost sight of this agent: what was theirs is forgotten."""

from scaler.agent.core import releasing, staging, worker_commands
from scaler.agent.core.events import LookAt
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state import dispatch_moves
from scaler.agent.state.doubts import Doubts
from scaler.agent.state.estimates import Estimates
from scaler.agent.state.host import HostState
from scaler.agent.state.suspects import Suspects
from scaler.agent.state.withdrawals import WithdrawalTable
from scaler.agent.state.worker_records import KillKind
from scaler.protocol.messages import ClientDeparture
from scaler.worker_protocol.messages import Drop


def forget_client(state: HostState, out: Outgoing, message: ClientDeparture) -> None:
    """Nobody wants what comes of a client's rows, or has come of them."""
    client = message.client
    staging.drop_client(state, client)
    out.drop_results(client)
    state.unsettled.drop_client(client, message.stays)
    state.withdrawals.drop_client(client)
    for worker in state.workers.records.values():
        for i, dispatch in enumerate(worker.dispatches.values()):
            if dispatch.origin.client == client:
                dispatch.unwanted = True
                if not dispatch.left:
                    continue  # all its rows have ended, and another one's may run
                worker_commands.recall(state, out, worker, keep=int(i > 0))
                if i == 0:
                    out.add(LookAt(worker.slot))  # it may have begun another one's rows since it told of any
    state.estimates.drop_client(client)
    state.doubts.drop_client(client)
    state.suspects.drop_client(client)
    releasing.release_client(state, out, client, message.stays)


def forget_everything(state: HostState, out: Outgoing) -> None:
    """The scheduler doesn't know what this agent holds: begin anew."""
    staging.drop_everything(state)
    releasing.release_everything(state, out)
    state.estimates, state.doubts, state.suspects = Estimates(), Doubts(), Suspects()
    out.drop_results()
    state.unsettled.clear()
    state.withdrawals = WithdrawalTable()
    for worker in state.workers.records.values():
        if worker.dispatches:
            for number in list(worker.dispatches):
                dispatch_moves.close_dispatch(state, worker, number)
            worker_commands.kill(out, worker, KillKind.DROPPED, "the scheduler lost sight of this agent")
            state.workers.ending.add(worker.slot)
        elif worker.objects:
            worker_commands.tell(out, worker, Drop(list(worker.objects)))
            worker.objects.clear()
