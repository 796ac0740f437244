"""Where rows go that have all they ask for, or that have come back from an agent."""

from scaler.scheduler.core import lineage, placement, reachability
from scaler.scheduler.core.moves import Hold, Move, Place, Queue, Route
from scaler.scheduler.state.batch_records import Batch
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.transitions import Cause


def route(state: ClusterState, move: Route) -> list[Move]:
    """Rows run where their input is, or wait for any agent, or for what is lost of their input.

    The move for those up to the first that does not just wait for any agent, and a `Route` for the rest: where one row
    goes is looked at by the next.
    """
    batch, lo, hi, cause, front = move
    client = state.clients[batch.client]
    for row in range(lo, hi):
        special = _special(state, client, batch, row, cause)
        if special is not None:
            moves: list[Move] = [Queue(batch, lo, row, cause, front)] if lo < row else []
            moves.append(special)
            if row + 1 < hi:
                moves.append(Route(batch, row + 1, hi, cause, front))
            return moves
    return [Queue(batch, lo, hi, cause, front)]


def is_special(state: ClusterState, batch: Batch, cause: int) -> bool:
    """Some of the rows that go for this cause may need another place than the queue."""
    client = state.clients[batch.client]
    if batch.has_come_back and batch.missing is not None:
        return True
    if client.values.lost and lineage.may_lack(client, batch):
        return True
    if batch.attempts is not None and batch.attempts.returns:
        return True
    if batch.lineage is not None and batch.lineage.required_zones:
        return True
    return cause == Cause.READY and not client.is_held and batch.needs is not None and client.values.has_stored


def _special(state: ClusterState, client: ClientRecord, batch: Batch, row: int, cause: int) -> Move | None:
    """The move of a row that does not just wait for any agent; None if it does."""
    if batch.lacks(row):
        return Hold(batch, row, [], cause)
    if client.values.lost:
        lost = lineage.lost_needs(client, batch, row)
        if lost:
            return Hold(batch, row, lost, cause)
    if batch.has_returned(row):
        return reachability.settle(state, client, batch, row, cause, None)
    if batch.lineage is not None and row in batch.lineage.required_zones:  # though an agent gave it back
        agent = reachability.choose_in_zone(state, batch, batch.lineage.required_zones[row])
        if agent is not None:
            return Place(batch, row, row + 1, agent, cause)
    if cause != Cause.READY or client.is_held:  # what came back for other reasons may run anywhere
        return None
    agent = placement.choose_by_input(state, client, batch, row)
    return None if agent is None else Place(batch, row, row + 1, agent, cause)
