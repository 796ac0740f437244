"""What tasks submit ends with the client at whose bidding they run, the *root*, though another client has submitted it.

A root is known by a digest of its session's number: workers are told it, and whoever knows the number itself may take
the session over.

A client inside a worker says with each batch for which root it is, as its worker was told with the row that runs there.
When a root leaves, the batches of others that name it are cancelled; what is submitted for it afterwards is, too. To
name a root can end nothing but the sender's own rows, so it need not be proved.

Tasks of another cluster may be clients of this one, and name roots that are never here: such a client is a root
itself. It is known by the store of its agent, which is not here. After a restart of the scheduler that can't be told at
once, as agents may come later: a root that is not here is waited for. If it does not come, it was one of another
cluster if anybody has named it whose agent has not come either: all who have are roots themselves then. Otherwise it
has ended with the last scheduler, and what is submitted for it is cancelled.

One of a pair of schedulers that may not hand out rows can't tell a root that has left from one that is at the other
one, which leads.
"""

from collections.abc import Iterable

from scaler.common.digest import blake2b
from scaler.protocol.codes import NO_ROOT
from scaler.protocol.messages import Spans, TaskCancel
from scaler.scheduler.core import returning, withdrawing
from scaler.scheduler.core.moves import Move
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.batch_records import Batch
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.root_records import MOST_AWAITED, AwaitedRoot, Fate

#: roots that don't come any more and are remembered
MOST_PAST = 10_000
#: roots that are given up in one step; the others in the next ones
MOST_AT_ONCE = 1_000
#: times that one is given more time, as agents may come yet: who comes may say so again and again
MOST_TIMES = 5


def root_of(session: int) -> int:
    """What the client with this session is known by as a root, at each scheduler."""
    return int.from_bytes(blake2b(session.to_bytes(8, "little"), digest_size=8).digest(), "little") or 1


# ---- what is submitted for them --------------------------------------------------------------------------------------
def note(state: ClusterState, client: ClientRecord, root: int, patience: float) -> int:
    """A client submits something for this root, 0 for none; the root that it has. One that is not here may come yet."""
    roots = state.roots
    if root in (0, client.root):
        return client.root
    if root == NO_ROOT or root in roots.here:
        return root
    fate = roots.past.get(root)
    if fate == Fate.LEFT:
        return root
    is_ours = roots.has_agent_of(client)
    if fate == Fate.GIVEN_UP and is_ours:
        return root
    if fate is not None or not (is_ours or _may_agents_come(state)):
        return client.root
    awaited = roots.awaited.get(root)
    if awaited is None:
        awaited = roots.awaited[root] = AwaitedRoot(_deadline(state, patience))
    if client.store and not is_ours:
        awaited.strangers[client.number] = None
    return root


def _deadline(state: ClusterState, patience: float) -> float:
    """When a root is given up that is waited for from now on: never sooner than one from before."""
    return max(state.now + patience, state.returning.settled)


def _may_agents_come(state: ClusterState) -> bool:
    """Agents of this cluster may be on their way, from another scheduler."""
    return state.now < state.returning.settled or returning.may_be_elsewhere(state)


def is_over(state: ClusterState, root: int) -> bool:
    """What is submitted for a root is to be cancelled."""
    return root in state.roots.past  # for one of another cluster nothing is submitted


def cancel(state: ClusterState, out: Outgoing, client: ClientRecord, batches: Iterable[Batch]) -> list[Move]:
    """Cancel batches of a client whose root has left; rows of others may need what is computed again."""
    spans = Spans()
    for batch in batches:
        for lo, hi in withdrawing.first_runs(batch, 0, batch.rows):
            spans.add(client.number, batch.id, lo, hi)
    return withdrawing.cancel(state, out, client, TaskCancel(spans, force=True)) if spans else []


# ---- who comes and goes ----------------------------------------------------------------------------------------------
def join(state: ClusterState, client: ClientRecord) -> None:
    """A client is here, perhaps one that was given up, or was missed."""
    roots = state.roots
    roots.here.setdefault(client.root, {})[client.number] = None
    roots.past.pop(client.root, None)
    roots.awaited.pop(client.root, None)


def forget(state: ClusterState, client: ClientRecord) -> None:
    """A client is not here any more."""
    numbers = state.roots.here[client.root]
    del numbers[client.number]
    if not numbers:
        del state.roots.here[client.root]
    if client.store:
        for awaited in state.roots.awaited.values():
            awaited.strangers.pop(client.number, None)


def miss(state: ClusterState, out: Outgoing, root: int, patience: float) -> list[Move]:
    """A client is lost. While rows may not be handed out it may be at the scheduler that leads, and is waited for."""
    if state.hands_out:
        return leave(state, out, root)
    roots = state.roots
    if root not in roots.here and (root in roots.batches or len(roots.awaited) < MOST_AWAITED):
        roots.awaited[root] = AwaitedRoot(_deadline(state, patience), is_ours=True)
    return []


def leave(state: ClusterState, out: Outgoing, root: int) -> list[Move]:
    """A client has left: what others have submitted for it is cancelled, also what runs."""
    if root in state.roots.here:
        return []
    _settle(state, root, Fate.LEFT)
    moves: list[Move] = []
    for number, batches in [*state.roots.batches.get(root, {}).items()]:
        moves += cancel(state, out, state.clients[number], batches)
    return moves


def _settle(state: ClusterState, root: int, fate: Fate) -> None:
    """A root does not come any more. Of the one that is forgotten for it, all that is left has been cancelled."""
    past = state.roots.past
    state.roots.awaited.pop(root, None)
    past.pop(root, None)
    past[root] = fate
    if len(past) > MOST_PAST:
        del past[next(iter(past))]


# ---- after another scheduler -----------------------------------------------------------------------------------------
def come_back(state: ClusterState, out: Outgoing, client: ClientRecord) -> list[Move]:
    """The work of a client is together again: some of its roots may have left already."""
    return cancel(state, out, client, [batch for batch in client.batches.values() if is_over(state, batch.task.root)])


def are_due(state: ClusterState) -> bool:
    """A root did not come in time."""
    return state.now >= state.roots.first_deadline and not returning.may_be_elsewhere(state)


def give_up_absent(state: ClusterState, out: Outgoing, sessions: list[int], patience: float) -> list[Move]:
    """Roots that did not come back in time will not, nor clients that agents have told of, by these `sessions`."""
    roots = state.roots
    moves: list[Move] = []
    for root in map(root_of, sessions):
        moves += leave(state, out, root)  # unless it is here: an agent may say anything
    due: list[int] = []
    for root, awaited in roots.awaited.items():
        if state.now < awaited.deadline or len(due) == MOST_AT_ONCE:
            break
        due.append(root)
    told = set(map(root_of, returning.sessions_of_absent(state))) if due else set()
    for root in due:
        awaited = roots.awaited.pop(root)
        awaited.is_ours = awaited.is_ours or root in told
        may_come = awaited.strangers and _may_agents_come(state) and awaited.times < MOST_TIMES
        if root in told or may_come:
            awaited.deadline, awaited.times = _deadline(state, patience), awaited.times + 1
            roots.awaited[root] = awaited
        else:
            moves += _give_up(state, out, root, awaited)
    return moves


def _give_up(state: ClusterState, out: Outgoing, root: int, awaited: AwaitedRoot) -> list[Move]:
    """A root did not come. Who is in no worker here may be of another cluster: nothing of his is cancelled."""
    roots = state.roots
    submitters = [state.clients[number] for number in roots.batches.get(root, ())]
    strangers = [state.clients[number] for number in awaited.strangers]
    is_foreign = not awaited.is_ours and not all(map(roots.has_agent_of, strangers))
    _settle(state, root, Fate.FOREIGN if is_foreign else Fate.GIVEN_UP)
    moves: list[Move] = []
    for client in submitters:
        batches = [*roots.batches[root][client.number]]
        if awaited.is_ours or (roots.has_agent_of(client) and not is_foreign):
            moves += cancel(state, out, client, batches)
        else:
            for batch in batches:
                roots.disown(client, batch)
                batch.task.root = client.root
    return moves
