"""What must hold after each step, and when all is over."""

import os
from collections.abc import Iterable
from typing import Any

from scaler.agent.core.agent_core import AgentCore
from scaler.agent.state import validate as agent_validate
from scaler.scheduler.core.scheduler_core import SchedulerCore
from scaler.scheduler.state import validate
from simulator.mirror import Mirror
from simulator.returns import Returns
from simulator.world import World

#: look at everything after each step, and not only now and then
THOROUGH = bool(os.environ.get("SCALER_SIM_THOROUGH"))


class Wrong(AssertionError):
    """An invariant does not hold; `words` find the part of the story that matters."""

    def __init__(self, what: str, *words: str) -> None:
        super().__init__(what)
        self.words = words


def require(condition: bool, what: str, *words: str) -> None:
    """Raise Wrong unless the condition holds."""
    if not condition:
        raise Wrong(what, *words)


def check_scheduler(world: World, core: SchedulerCore, mirror: Mirror | None = None) -> None:
    """What the product itself says must hold of its state, and that its facts tell all; the slow part now and then."""
    state = core.state
    findings: list[tuple[str, int]] = [*validate.quick(state)]
    if THOROUGH or world.look.random() < 0.03:
        findings += validate.thorough(state)
        findings += mirror.differences() if mirror is not None else ()
    for what, id_ in findings:
        raise Wrong(what, *((f"batch={id_}", str(id_)) if id_ else ()))


def check_agent(world: World, name: str, core: AgentCore, returns: Returns) -> None:
    """The product's own invariants; nothing is left to be said; no worker lies; and no row goes to and fro."""
    for finding in agent_validate.quick(core.state):
        require(False, f"{name}: {finding.what}", f"batch={finding.id}", str(finding.id))
    require(core.out.is_empty, f"{name} has something to say")
    for worker in core.state.workers.records.values():
        require(not worker.is_rejected, f"{name}: worker {worker.slot} lies: {worker.kill_reason}")
    require(not returns.wrong, f"{name}: {returns.wrong}")
    if THOROUGH or world.look.random() < 0.03:
        for finding in agent_validate.thorough(core.state):
            require(False, f"{name}: {finding.what}", f"batch={finding.id}", str(finding.id))


def check_session(world: World, client: Any) -> None:
    """What the session waits for is what its user waits for."""
    if world.look.random() < 0.05 or THOROUGH:
        session = client.session
        groups = {pending.group for pending in session.pending.by_id.values()}
        for group in groups:
            require(group.left > 0, f"{client.name}: a group without rows left is pending: {group}")
        left = sum(group.left for group in groups)
        # rows that were granted are the user's alone
        waiting = len(client.waiting) - client.claimed
        require(left == waiting, f"{client.name}: the session waits for {left} rows, its user for {waiting}")


def check_stores(hosts: Iterable[Any]) -> None:
    """All clients are gone: no store has a file."""
    for host in hosts:
        left = [*host.store.files, *host.store.disk]
        require(not left, f"{host.name} has files of {left}", *(str(key[1]) for key in left[:1]))
        for worker in host.workers.values():
            require(not worker._live, f"{host.name}: worker {worker.slot} has values {list(worker._live)}")


def check_empty(core: SchedulerCore, agents: dict[str, AgentCore]) -> None:
    """All clients are gone: so is everything of theirs."""
    state = core.state
    require(not state.clients, f"the scheduler has clients {list(state.clients)}")
    require(not state.queues.rows and len(state.queues.items()) <= 16, f"the scheduler has {state.queues.rows} queued")
    require(core._out.is_empty and not state.touched, "the scheduler has something to send")
    require(not state.returning and not state.returning.holdings, "the scheduler waits for somebody to come back")
    require(not state.roots.batches, "the scheduler knows of tasks of roots")
    for agent in state.agents.values():
        require(
            not agent.holdings.keys and not agent.batches and not agent.load.outstanding,
            f"the scheduler thinks that {agent.name} has something",
        )
        require(not agent.withdrawals, f"the scheduler waits for an answer of {agent.name}: {agent.withdrawals}")
        require(not agent.load.recalling, f"the scheduler waits for {agent.name} to give back rows")
    for name, agent in agents.items():
        state, pool = agent.state, agent.state.workers
        require(not state.queued and not state.ready.local, f"{name} has {state.queued} rows queued")
        objects, withdrawals = state.objects, state.withdrawals
        require(not objects.count, f"{name} has objects {list(objects.inline)}, {list(objects.index.keys())}")
        require(not objects.records and not objects.leaving, f"{name} still brings objects, or knows where some were")
        estimates = state.estimates
        require(not estimates.durations and not estimates.sizes, f"{name} remembers functions of clients that are gone")
        require(
            not withdrawals.withdrawing and not withdrawals.rows_to_return and agent.out.is_empty,
            f"{name} waits for {withdrawals.withdrawing}, for {withdrawals.rows_to_return} rows to return, "
            "or has something to say",
        )
        unsettled = state.unsettled
        require(unsettled.is_empty and not unsettled.sessions, f"{name} keeps what it said of clients that are gone")
        for worker in pool.records.values():
            require(
                not worker.dispatches and not worker.objects,
                f"{name}: worker {worker.slot} has {worker.dispatches}, {worker.objects}",
            )
            require(not worker.recalling and not worker.blocked, f"{name}: worker {worker.slot}: {worker}")
            require(worker.is_without_task, f"{name}: worker {worker.slot} is {worker.state}")
        active = [worker for worker in pool.records.values() if worker.state == "idle"]
        require(len(active) == pool.target, f"{name} has {len(active)} workers, not {pool.target}")
