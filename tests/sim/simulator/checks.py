"""What must hold after each step, and when all is over."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from scaler.agent.core.core import AgentCore
from scaler.scheduler.core.core import SchedulerCore
from scaler.scheduler.core.queues import class_of
from scaler.scheduler.core.state import AGENT, DONE, QUEUED, TRANSITIONS, WAITING, Batch, Client, place_name
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


@contextmanager
def checked_moves() -> Iterator[None]:
    """Every change of a row's place is one of `TRANSITIONS`."""
    plain = Batch.move

    def move(batch: Batch, lo: int, hi: int, place: int) -> None:
        for was in set(batch.place[lo:hi]):
            step = place_name(was), place_name(place)
            if step not in TRANSITIONS and step != ("waiting", "waiting"):
                raise Wrong(
                    f"rows [{lo}, {hi}) of batch {batch.id} of client {batch.client} moved {step}",
                    f"batch={batch.id}",
                    str(batch.id),
                )
        plain(batch, lo, hi, place)

    Batch.move = move  # type: ignore[method-assign]
    try:
        yield
    finally:
        Batch.move = plain  # type: ignore[method-assign]


def check_scheduler(world: World, core: SchedulerCore) -> None:
    """Counters add up, every row is in one place, nothing waits while somebody idles."""
    at: Counter[int] = Counter()
    queued = 0
    for client in core.clients.values():
        left = 0
        for batch in client.batches.values():
            where = f"batch={batch.id}"
            require(batch.left > 0, f"batch {batch.id} has ended and is still there", where)
            left += batch.left
            for number, rows in batch.at.items():
                at[number] += rows
                require(
                    rows > 0 and batch in core.agents[number].batches,
                    f"batch {batch.id} at agent {number}: {rows}",
                    where,
                )
        require(
            client.outstanding == left, f"client {client.number}: {client.outstanding} rows outstanding, {left} left"
        )
    for number, agent in core.agents.items():
        require(
            agent.outstanding == at[number],
            f"agent {number}: {agent.outstanding} rows outstanding, {at[number]} are there",
        )
        require(not agent.outbox, f"agent {number}: rows were not sent")
    for key, queue in core._queues._queues.items():
        queued += queue.rows
        if queue.rows:
            for agent in core.agents.values():
                idle = agent.outstanding < agent.workers and set(key[1]) <= agent.capabilities and not agent.full
                has = f"agent {agent.number} has {agent.outstanding} for {agent.workers} workers"
                require(not idle, f"{queue.rows} rows are queued while {has}")
    require(queued == core.queued, "rows queued")
    require(core.workers == sum(agent.workers for agent in core.agents.values()), "workers in the cluster")
    if THOROUGH or world.look.random() < 0.03:
        _check_places(core)
        for client in core.clients.values():
            _check_objects(core, client)


def _check_places(core: SchedulerCore) -> None:
    spans: dict[Batch, list[tuple[int, int]]] = {}
    for key, queue in core._queues._queues.items():
        total = 0
        for batch, lo, hi in queue:
            spans.setdefault(batch, []).append((lo, hi))
            total += hi - lo
            require(class_of(batch) == key, "a span is in a queue that is not its own")
        require(total == queue.rows, f"a queue counts {queue.rows} rows and has {total}")
    for client in core.clients.values():
        for batch in client.batches.values():
            where = (f"batch={batch.id}",)
            count = Counter(batch.place)
            require(
                batch.left == batch.rows - count[DONE], f"batch {batch.id}: {batch.left} rows left, {count}", *where
            )
            for place, rows in count.items():
                if place >= AGENT:
                    require(
                        batch.at.get(place - AGENT) == rows,
                        f"batch {batch.id}: {rows} rows at agent {place - AGENT}, counted {batch.at}",
                        *where,
                    )
            require(
                sum(batch.at.values()) == sum(n for p, n in count.items() if p >= AGENT),
                f"batch {batch.id}: at {batch.at}, {count}",
                *where,
            )
            queued = sorted(spans.pop(batch, []))
            rows = [row for lo, hi in queued for row in range(lo, hi)]
            here = [row for lo, hi in batch.spans_in(QUEUED) for row in range(lo, hi)]
            require(rows == here, f"batch {batch.id}: queued are {queued}, not {batch.spans_in(QUEUED)}", *where)
            for row in range(batch.rows) if count[WAITING] else ():
                if batch.place[row] == WAITING:
                    require(
                        batch.missing is not None and batch.missing[row] > 0,
                        f"row {row} of batch {batch.id} waits for nothing",
                        *where,
                    )
    require(not spans, f"rows of batches that have ended are queued: {[(b.id, s) for b, s in spans.items()]}")


def _check_objects(core: SchedulerCore, client: Client) -> None:
    needed: Counter[int] = Counter()
    kept = set()
    for batch in (*client.batches.values(), *client.lineage.values()):
        needed[batch.task.function] += 1
        if batch.task.arguments:
            needed[batch.task.arguments] += 1
        if batch.keeps:
            kept.update(range(batch.id, batch.id + batch.rows))
        for small in batch.retained.values():
            needed.update(small)
        if batch.needs is None:
            continue
        for row, values in enumerate(batch.needs):
            if batch.place[row] != DONE:
                for value in values:
                    place = client.located.get(value)
                    needed[place[0] if place else value] += 1
    require(set(client.kept) == kept, f"client {client.number} keeps {set(client.kept) ^ kept}, which are of no batch")
    for object_id, item in client.objects.items():
        wanted = needed[object_id] + item.held
        right = item.references >= wanted if item.counted else item.references == wanted
        require(
            right,
            f"object {object_id} of client {client.number}: {item.references} references, {wanted} reasons",
            str(object_id),
        )
        require(
            item.references > 0, f"object {object_id} of client {client.number} is there for nobody", str(object_id)
        )
        for number in item.holders:
            require(
                (client.number, object_id) in core.agents[number].holds,
                f"agent {number} doesn't hold {object_id}",
                str(object_id),
            )
    for agent in core.agents.values():
        for number, object_id in agent.holds:
            if number == client.number:
                holders = client.objects[object_id].holders if object_id in client.objects else ()
                require(
                    agent.number in holders,
                    f"agent {agent.number} holds {object_id}, which nobody will release",
                    str(object_id),
                )
    for value, waiting in client.requested.items():
        require(bool(waiting), f"value {value} was asked for by nobody")


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
        groups = {pending.group for pending in session.pending.values()}
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
    require(not core.clients, f"the scheduler has clients {list(core.clients)}")
    require(not core.queued and len(core._queues._queues) <= 16, f"the scheduler has {core.queued} rows queued")
    require(not core._estimates._of, "the scheduler remembers durations of clients that are gone")
    require(
        not core._outbox._results and not core._outbox.agents and not core._outbox.effects,
        "the scheduler's outbox has something",
    )
    for agent in core.agents.values():
        require(
            not agent.holds and not agent.batches and not agent.outstanding,
            f"the scheduler thinks that {agent.name} has something",
        )
        require(not agent.asked, f"the scheduler waits for an answer of {agent.name}: {agent.asked}")
        require(not agent.recalling, f"the scheduler waits for {agent.name} to give back rows")
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
