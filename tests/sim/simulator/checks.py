"""What must hold after each step, and when all is over."""

import os
from collections.abc import Iterable
from typing import Any

from scaler.agent.core.core import AgentCore
from scaler.scheduler.core.scheduler_core import SchedulerCore
from scaler.scheduler.state import validate
from simulator.mirror import Mirror
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


def check_agent(world: World, name: str, core: AgentCore) -> None:
    """Nothing waits while somebody idles; no row is in two places."""
    rows = core.placement.queues.general.rows
    if rows and not core.slots.ending and not core.memory.full and core.memory.room() > 1 << 30:
        for worker in core.workers.values():
            idle = worker.state == "idle" and not worker.blocked and not worker.recalling and worker.sentence is None
            require(not idle, f"{name}: {rows} rows wait while worker {worker.slot} idles")
    for worker in core.workers.values():
        require(
            (worker.state == "busy") == bool(worker.handouts) or worker.sentence is not None,
            f"{name}: worker {worker.slot} is {worker.state}",
        )
    if THOROUGH or world.look.random() < 0.03:
        seen: set[tuple[int, int, int]] = set()
        places = [(part.key, lo, hi) for part, lo, hi in core.placement.queues]
        places += [(wait.part.key, wait.lo, wait.hi) for wait in core.placement.waiting]
        require(sum(hi - lo for _, lo, hi in places) == core.queued, f"{name}: counts {core.queued} rows queued")
        places += [
            (h.part.key, lo, hi) for w in core.workers.values() for h in w.handouts.values() for lo, hi in h.left
        ]
        for key, lo, hi in places:
            for row in range(lo, hi):
                require((*key, row) not in seen, f"{name}: row {row} of {key} is in two places", f"batch={key[1]}")
                seen.add((*key, row))


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
    for agent in state.agents.values():
        require(
            not agent.holdings.keys and not agent.batches and not agent.load.outstanding,
            f"the scheduler thinks that {agent.name} has something",
        )
        require(not agent.withdrawals, f"the scheduler waits for an answer of {agent.name}: {agent.withdrawals}")
        require(not agent.load.is_recalling, f"the scheduler waits for {agent.name} to give back rows")
    for name, agent in agents.items():
        require(not agent.queued and not agent.placement.queues.local, f"{name} has {agent.queued} rows queued")
        data, withdrawals = agent.data, agent.withdrawals
        require(not agent.objects, f"{name} has objects {list(data.inline)}, {list(data.index.keys())}")
        require(data.is_idle and not data.leaving, f"{name} still brings objects, or moves them to disk")
        require(not data._sources, f"{name} remembers where objects of clients are that are gone")
        require(not agent.handouts.durations, f"{name} remembers durations of clients that are gone")
        require(
            not withdrawals.doomed and not withdrawals.owed and agent._out.is_empty,
            f"{name} has {withdrawals.doomed}, owes {withdrawals.owed}, or has something to say",
        )
        for worker in agent.workers.values():
            require(
                not worker.handouts and not worker.objects,
                f"{name}: worker {worker.slot} has {worker.handouts}, {worker.objects}",
            )
            require(not worker.recalling and not worker.blocked, f"{name}: worker {worker.slot}: {worker}")
            require(worker.state in ("idle", "parked"), f"{name}: worker {worker.slot} is {worker.state}")
        active = [worker for worker in agent.workers.values() if worker.state == "idle"]
        require(len(active) == agent.target, f"{name} has {len(active)} workers, not {agent.target}")
