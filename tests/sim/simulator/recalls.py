"""Rows that agents are asked for since others idle, of other capabilities or about to end: only what those can run."""

from collections.abc import Sequence
from typing import Any

from scaler.protocol.messages import BalanceRequest, BalanceResponse
from scaler.scheduler.core import events as ev
from scaler.scheduler.state.cluster import ClusterState
from simulator.checks import require
from simulator.world import World


def note_answers(world: World, state: ClusterState, events: Sequence[Any]) -> None:
    """Before a step: count the agents that give back rows for others than those of their own capabilities."""
    for event in events:
        if type(event) is ev.Received and type(event.message) is BalanceResponse and event.message:
            agent = state.agents.get(event.number)
            purpose = agent.load.recalling if agent is not None else None
            if agent is not None and purpose is not None and purpose[1] != agent.capabilities:
                world.recalls["given back"] += 1


def check_request(world: World, state: ClusterState, number: int, request: BalanceRequest) -> None:
    """After a step in which an agent was asked for rows: others that idle can run those that are named."""
    slots = request.threads or 1
    if not request.batches:
        world.recalls["asked for any"] += 1
        return
    world.recalls["asked for some"] += 1
    asked = state.agents[number].load.recalling
    require(asked is not None and request.rows > 0, f"agent {number} was asked for {request.rows} rows: {asked}")
    assert asked is not None
    group = state.groups[asked[1]]
    idle = (group if slots == 1 else group.wider[slots]).idle
    is_among_others = asked[1] != state.agents[number].capabilities
    require(
        asked[0] == slots
        and bool(idle)
        and (is_among_others or bool(state.limited) or state.returning.may_have_more(number)),
        f"agent {number} was asked for rows for {asked}, and nobody needs them",
    )
    for client, batch_id in zip(request.clients, request.batches, strict=True):
        batch = state.clients[client].batches[batch_id]
        require(
            batch.slots == slots and asked[1].issuperset(batch.task.capabilities) and number in batch.at,
            f"agent {number} was asked for rows of batch {batch_id} for {asked}: {batch.queue_class}",
            f"batch={batch_id}",
        )
        require(
            any(agent.has_time_for(batch.function.duration_us, state.now) for agent in idle),
            f"agent {number} was asked for rows of batch {batch_id}, and nobody who idles has time for them",
            f"batch={batch_id}",
        )
