"""What a monitor sees of the cluster at one moment; its cost grows with agents, clients and functions, never rows."""

from __future__ import annotations

from scaler.common.records import record
from scaler.scheduler.state.cluster import ClusterState


@record
class AgentSnapshot:
    """One agent."""

    number: int
    name: str
    capabilities: tuple[str, ...]
    is_standalone: bool
    workers: int
    #: rows sent to it that have not come back
    outstanding: int
    #: rows it may have outstanding, where one that takes several slots counts as so many
    window: int
    #: it has no room for more objects
    is_full: bool
    #: objects it has, and bytes in its store as last heard
    objects: int
    stored_bytes: int
    #: seconds since its last message
    silent: float


@record
class ClientSnapshot:
    """One client."""

    number: int
    name: str
    #: batches and rows that have not ended
    batches: int
    outstanding: int
    objects: int
    #: seconds since its last message
    silent: float


@record
class FunctionSnapshot:
    """One function of one client."""

    client: int
    name: str
    #: rows that came, and how those ended that have
    admitted: int
    finished: int
    failed: int
    cancelled: int
    claimed: int
    #: microseconds a row lately; None while unknown
    duration_us: float | None


@record
class Snapshot:
    """The cluster at one moment."""

    #: seconds, by the scheduler's clock
    now: float
    agents: tuple[AgentSnapshot, ...]
    clients: tuple[ClientSnapshot, ...]
    functions: tuple[FunctionSnapshot, ...]
    workers: int
    #: rows that wait for what they need, that are ready and have no agent, and that agents have
    waiting: int
    queued: int
    at_agents: int
    #: rows that ended since the scheduler began
    finished: int
    failed: int
    cancelled: int
    claimed: int
    #: between hosts, bytes a second, as learnt
    bandwidth: float


def snapshot(state: ClusterState) -> Snapshot:
    """The cluster as it is now."""
    now, ended = state.now, state.ended
    agents = tuple(
        AgentSnapshot(
            agent.number, agent.name, tuple(sorted(agent.capabilities)), agent.is_standalone, agent.load.workers,
            agent.load.rows, agent.load.window, agent.load.is_full, len(agent.holdings.keys),
            agent.holdings.stored_bytes, now - agent.seen,
        )
        for agent in state.agents.values()
    )  # fmt: skip
    clients = tuple(
        ClientSnapshot(
            client.number, client.name, len(client.batches), client.outstanding, len(client.values.objects),
            now - client.seen,
        )
        for client in state.clients.values()
    )  # fmt: skip
    functions = tuple(
        FunctionSnapshot(
            client.number, function.name, function.admitted, function.finished, function.failed, function.cancelled,
            function.claimed, function.duration_us,
        )
        for client in state.clients.values()
        for function in client.functions.values()
    )  # fmt: skip
    queued, at_agents = state.queues.rows, sum(agent.outstanding for agent in agents)
    return Snapshot(
        now,
        agents,
        clients,
        functions,
        state.workers,
        sum(client.outstanding for client in clients) - queued - at_agents,
        queued,
        at_agents,
        ended.finished + sum(function.finished for function in functions),
        ended.failed + sum(function.failed for function in functions),
        ended.cancelled + sum(function.cancelled for function in functions),
        ended.claimed + sum(function.claimed for function in functions),
        state.bandwidth,
    )
