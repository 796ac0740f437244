"""What tasks submit ends with the client at whose bidding they run, the *root*, though another client has submitted it.

A root is known by a digest of its session's number: workers are told it, and whoever knows the number itself may take
the session over.

A client inside a worker says with each batch for which root it is, as its worker was told with the row that runs there.
When a root leaves, the batches of others that name it are cancelled; what is submitted for it afterwards is, too. To
name a root can end nothing but the sender's own rows, so it need not be proved.

Tasks of another cluster may be clients of this one, and name roots that are never here: such a client is a root
itself. It is known by the store of its agent, which is not here. After a restart of the scheduler that can't be told at
once, as agents may come later: a root that is not here has time to come, and is given up if those who name it are in
workers of agents that are here.

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

#: clients that have left and are remembered
MOST_GONE = 10_000
#: roots that a client has named, that are not here and are waited for; naming another one, it is the root itself
MOST_AWAITED = 1_000


def root_of(session: int) -> int:
    """What the client with this session is known by as a root, at each scheduler."""
    return int.from_bytes(blake2b(session.to_bytes(8, "little"), digest_size=8).digest(), "little") or 1


def note(state: ClusterState, client: ClientRecord, root: int, patience: float) -> int:
    """A client submits something for this root, 0 for none; the root that it has. One that is not here may come yet."""
    if root == NO_ROOT:
        return root
    if root in (0, client.root) or client.is_of_another_cluster:
        return client.root
    members = state.roots.members.get(root)
    if members is None:
        if all(other.root != root for other in state.clients.values()) and not _may_come(state, client, root, patience):
            return client.root
        members = state.roots.gone.get(root)
        if members is None:
            members = state.roots.members[root] = {}
    members[client.number] = None
    return root


def _may_come(state: ClusterState, client: ClientRecord, root: int, patience: float) -> bool:
    """A root that is not here has left, or may come yet; False if it is one of another cluster, or one too many."""
    awaited, members = state.returning.roots, state.roots.members
    is_settled = state.now >= state.returning.settled
    if is_settled and client.store and (client.boot_id, client.store) not in _stores(state):
        client.is_of_another_cluster = True  # before `gone`: others may have named its root, which was given up then
        return False
    if root in state.roots.gone or root in awaited:
        return True
    if len(awaited) >= MOST_AWAITED <= sum(client.number in members[each] for each in awaited):
        return False
    awaited[root] = state.now + patience
    return True


def join(state: ClusterState, root: int) -> None:
    """A client is here, perhaps one that was given up, or was missed."""
    still = [number for number in state.roots.gone.pop(root, ()) if number in state.clients]
    if still:  # what they have submitted for it is being cancelled
        state.roots.members.setdefault(root, {}).update(dict.fromkeys(still))
    state.returning.roots.pop(root, None)


def miss(state: ClusterState, out: Outgoing, root: int, patience: float) -> list[Move]:
    """A client is lost. While rows may not be handed out it may be at the scheduler that leads, and is waited for."""
    if state.hands_out:
        return leave(state, out, root)
    if root in state.roots.members:  # else it is waited for from when somebody names it
        state.returning.roots.pop(root, None)
        state.returning.roots[root] = state.now + patience
    return []


def leave(state: ClusterState, out: Outgoing, root: int) -> list[Move]:
    """A client has left, or does not come back: what others have submitted for it is cancelled, also what runs."""
    roots = state.roots
    state.returning.roots.pop(root, None)
    if root == NO_ROOT:
        return []
    members = roots.members.pop(root, {})
    roots.gone[root] = {**roots.gone.pop(root, {}), **members}
    if len(roots.gone) > MOST_GONE:
        _forget(state, next(iter(roots.gone)))
    moves: list[Move] = []
    for number in members:
        client = state.clients.get(number)
        if client is not None:
            moves += cancel(state, out, client, (each for each in client.batches.values() if each.task.root == root))
    return moves


def _forget(state: ClusterState, root: int) -> None:
    """Of a root that has left long ago nothing is known any more: what has still not ended is its submitter's own."""
    for number in state.roots.gone.pop(root):
        client = state.clients.get(number)
        if client is not None:
            for batch in (*client.batches.values(), *client.remembered.values()):
                if batch.task.root == root:
                    batch.task.root = client.root


def forget_member(state: ClusterState, number: int) -> None:
    """A client that may have submitted something for others has left, and all that it has submitted with it."""
    members = state.roots.members
    for root in [root for root, numbers in members.items() if number in numbers]:
        del members[root][number]
        if not members[root]:
            del members[root]
            state.returning.roots.pop(root, None)


def cancel(state: ClusterState, out: Outgoing, client: ClientRecord, batches: Iterable[Batch]) -> list[Move]:
    """Cancel batches of a client whose root has left."""
    spans = Spans()
    for batch in batches:
        spans.add(client.number, batch.id, 0, batch.rows)
    return withdrawing.cancel(state, out, client, TaskCancel(spans, force=True)) if spans else []


# ---- after another scheduler -----------------------------------------------------------------------------------------
def come_back(state: ClusterState, out: Outgoing, client: ClientRecord) -> list[Move]:
    """The work of a client is together again: some of its roots may have left already."""
    gone = state.roots.gone
    return cancel(state, out, client, (each for each in client.batches.values() if each.task.root in gone))


def may_need_attention(state: ClusterState) -> bool:
    """A root did not come in time, or may come to another scheduler meanwhile. Those of another cluster never come."""
    return returning.may_be_elsewhere(state) or state.now >= next(iter(state.returning.roots.values()))


def give_up_absent(state: ClusterState, out: Outgoing, sessions: list[int], patience: float) -> list[Move]:
    """Roots that did not come back in time will not, nor clients that agents have told of, by these `sessions`."""
    awaited = state.returning.roots
    overdue = [root for root, deadline in awaited.items() if state.now >= deadline]
    stores = _stores(state) if overdue else set()
    absent: list[int] = []
    for root in overdue:
        del awaited[root]
        if _stores_of_members(state, root) <= stores:
            absent.append(root)
        else:
            awaited[root] = state.now + patience
    if sessions:
        here = {client.root for client in state.clients.values()}  # an agent may say anything
        absent += [root for root in map(root_of, sessions) if root not in here]
    return [move for root in absent for move in leave(state, out, root)]


def _stores_of_members(state: ClusterState, root: int) -> set[tuple[str, str]]:
    """Where the agents have their stores in whose workers the clients are that have submitted for this root."""
    members = [state.clients[number] for number in state.roots.members.get(root, ()) if number in state.clients]
    return {(client.boot_id, client.store) for client in members}


def _stores(state: ClusterState) -> set[tuple[str, str]]:
    """Where the agents that are here have their stores: boot ids and directories."""
    return {(agent.host.boot_id, agent.host.store) for agent in state.agents.values() if agent.host.store}
