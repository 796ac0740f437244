"""A defect of the scheduler itself: what is done when an illegal move, or an exception, shows that there is one."""

from scaler.common import findings
from scaler.common.effects import Log
from scaler.protocol.failures import given_up
from scaler.scheduler.core import dependencies, finishing, lifetimes, recomputing
from scaler.scheduler.core.moves import Move
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state import transitions
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.transitions import IllegalMove


def end_batch(state: ClusterState, out: Outgoing, error: IllegalMove, story: list[str]) -> list[Move]:
    """Log what was about to happen, and end the batch with an error that says so; the rows that fail with it."""
    batch = error.batch
    out.log(
        "ERROR",
        "\n    ".join([f"a defect of the scheduler: {error}; the batch ends with an error. Its story:", *story]),
    )
    client = state.clients.get(batch.client)
    if client is None or client.batches.get(batch.id) is not batch:
        return []
    record = given_up(batch.function.name, str(error)).encode()
    moves: list[Move] = []
    for lo, hi in transitions.abandon(state, batch):
        for row in range(lo, hi):
            if batch.is_recomputing(row, row + 1):
                moves += recomputing.fail_row(state, batch, row, record)
                continue
            told = out.with_story(batch, row, record)
            finishing.tell(out, batch, finishing.error_span(batch, row, told))
            moves += dependencies.fail_dependents(state, client, batch, row, told)
        lifetimes.release_needs(state, client, batch, range(lo, hi))
    lifetimes.end_batch(state, client, batch)
    return moves


def log_failure(out: Outgoing, number: int, what: str, error: Exception) -> str:
    """Log what was raised while something of a peer was dealt with; why that ends its session."""
    where = findings.told(error, f"{what} of peer {number}")
    out.log("ERROR", f"a defect of the scheduler, met by {what} of peer {number}, whose session ends:\n{where}")
    return f"has {what} that met a defect of the scheduler ({type(error).__name__}: {error}), whose log says more"


def check(state: ClusterState, error: Exception) -> Log:
    """Raise what was raised in this step if it has left the state in disorder: another scheduler is to begin anew."""
    from scaler.scheduler.state.validate import validate  # here, as hardly anybody needs it

    findings.check(validate(state), error)
    return Log("INFO", "Scheduler: after that defect the state has been looked at and is in order: work goes on")
