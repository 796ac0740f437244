"""What must hold of the scheduler's state between two steps: every row in one place, every count the sum of its rows.

`quick` costs a look at each batch, agent and queue; `thorough` one at each row and object. Both only look.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from scaler.common.findings import Finding
from scaler.common.span_lists import joined
from scaler.protocol.codes import NO_ROOT, WithdrawalKind
from scaler.scheduler.state.accounts import OVER, price_of_failure, price_of_object
from scaler.scheduler.state.agent_groups import LOOKS
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import AGENT, DONE, QUEUED, WAITING, Batch, demand_words, is_apart
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState


def validate(state: ClusterState) -> list[Finding]:
    """All that does not hold; nothing if all is well."""
    return [*quick(state), *thorough(state)]


def quick(state: ClusterState) -> Iterator[Finding]:
    """What does not hold of counters, and of queued rows while agents idle."""
    at: Counter[int] = Counter()
    wide, by_urgency, by_share = (defaultdict[int, Counter[int]](Counter) for _ in range(3))
    for client in state.clients.values():
        left = at_agents = 0
        if list(client.batch_ids) != sorted(client.batches):
            yield Finding(f"the ids of the batches of client {client.number} are not all there in order")
        for batch in client.batches.values():
            if batch.left <= 0:
                yield Finding(f"batch {batch.id} has ended and is still there", batch.id)
            left += batch.left
            for number, rows in batch.at.items():
                at[number] += rows * batch.slots
                at_agents += rows
                if batch.slots > 1:
                    wide[number][batch.slots] += rows
                if batch.urgency:
                    by_urgency[number][batch.urgency] += rows * batch.slots
                if batch.is_shared:
                    by_share[number][batch.share] += rows * batch.slots
                agent = state.agents.get(number)
                if rows <= 0 or agent is None or batch not in agent.batches:
                    yield Finding(f"batch {batch.id} at agent {number}: {rows}", batch.id)
        if client.outstanding != left:
            yield Finding(f"client {client.number}: {client.outstanding} rows outstanding, {left} left")
        of_functions = sum(function.outstanding for function in client.functions.values())
        if of_functions != left:
            yield Finding(f"client {client.number}: {left} rows left, {of_functions} of its functions outstanding")
        yield from _tallies(client)
        of_functions = sum(function.at_agents for function in client.functions.values())
        if of_functions != at_agents:
            yield Finding(f"client {client.number}: {at_agents} rows at agents, {of_functions} of its functions")
    for number, agent in state.agents.items():
        load = agent.load
        if load.outstanding != at.get(number, 0):
            yield Finding(f"agent {number}: {load.outstanding} slots outstanding, {at[number]} are there")
        for what, counted, there in (
            ("rows that take several slots", load.wide, wide),
            ("slots by urgency", load.by_urgency, by_urgency),
            ("slots by share", load.by_share, by_share),
        ):
            if counted != dict(there[number]):
                yield Finding(f"agent {number}: {what} are {dict(there[number])}, counted {counted}")
        if agent.unsent:
            yield Finding(f"agent {number}: rows were not sent")
        if agent in state.touched or agent in state.unsorted:
            yield Finding(f"agent {number}: something was left for after the step")
    yield from _idle(state)
    yield from _wider(state)
    if any(state.agents.get(agent.number) is not agent for agent in state.takers.agents):
        yield Finding("an agent that is gone is to take over what others have")
    for group in state.groups.values():
        for what, those, are in (
            ("idle", state.standing.idle, group.idle),
            ("have room", state.standing.roomy, group.shallow or group.open),
            ("have rows to give back", state.standing.rich, group.surplus),
        ):
            if (group in those) != bool(are):
                yield Finding(f"agents with {set(group.capabilities)} {what}, and don't count as such, or the reverse")
    if len(state.standing.roomy.keys() | state.standing.rich.keys()) > len(state.groups):
        yield Finding("agents that are gone count as having room, or rows to give back")
    if state.workers != sum(agent.load.workers for agent in state.agents.values()):
        yield Finding(f"{state.workers} workers in the cluster, and another number at its agents")
    kept = sum(client.kept for client in state.clients.values() if not client.is_resident)
    if state.kept != kept:
        yield Finding(f"{state.kept} bytes are kept for all clients, and {kept} are on their accounts")


def _tallies(client: ClientRecord) -> Iterator[Finding]:
    known = Counter(id(batch.tally) for batch in (*client.batches.values(), *client.remembered.values()))
    for function in client.functions.values():
        for demand, tally in function.tallies.items():
            if tally.batches != known[id(tally)]:
                yield Finding(f"{function.name} counts {tally.batches} batches, there are {known[id(tally)]}: {demand}")
            if tally.queued < 0 or tally.at_agents < 0:
                yield Finding(f"{function.name} counts {tally.queued} queued and {tally.at_agents} at agents: {demand}")


def _wider(state: ClusterState) -> Iterator[Finding]:
    by_capabilities: dict[frozenset[str], list[AgentRecord]] = defaultdict(list)
    for agent in state.agents.values():
        by_capabilities[agent.capabilities].append(agent)
    for capabilities, group in state.groups.items():
        members = by_capabilities[capabilities]
        if group.agents != len(members) or group.widths != Counter(agent.load.slots for agent in members):
            yield Finding(f"agents with {set(capabilities)} are counted as {group.agents}, {group.widths}")
        if list(group.wider) != sorted(group.wider):
            yield Finding(f"wider groups of agents with {set(capabilities)} are not in order")
        for width, wider in group.wider.items():
            able = [agent for agent in members if agent.load.slots >= width]
            if not able or wider.agents != len(able):
                yield Finding(f"{len(able)} agents have {width} slots, {wider.agents} are counted")
            sorted_in = {agent for agent in able if agent in group.idle or agent in group.busy}
            if wider.idle.keys() | wider.busy.keys() != sorted_in:
                yield Finding(f"agents with {width} slots are in no set of rows that take as many, or the reverse")
    there = {*state.groups.values(), *(wider for group in state.groups.values() for wider in group.wider.values())}
    for demand, groups in state.matching.items():
        if not there.issuperset(groups):
            yield Finding(f"agents are found for {demand_words(demand)} in a group that is gone")


def _idle(state: ClusterState) -> Iterator[Finding]:
    for key in state.queues.unmet:
        capabilities, slots = key[1]
        able = [agent for agent in state.agents.values() if agent.capabilities.issuperset(capabilities)]
        if any(slots <= max(1, agent.load.slots) for agent in able):
            yield Finding(f"rows that ask for {demand_words(key[1])} have no turn, and an agent has that")
    if not state.hands_out:
        return
    for key, queue in state.queues.in_order():
        urgency, (capabilities, slots) = queue.head.urgency, key[1]
        for agent in state.agents.values():
            load = agent.load
            if load.is_leaving or not agent.has_time_for(queue.head.function.duration_us, state.now):
                continue
            has_room = load.outstanding + slots <= load.workers and slots <= load.slots and not load.is_full
            if has_room and agent.capabilities.issuperset(capabilities):
                yield Finding(
                    f"{queue.rows} rows are queued while agent {agent.number} has {load.outstanding} for "
                    f"{load.workers} workers"
                )
            as_urgent = load.as_urgent(urgency)
            has_less_urgent = as_urgent + slots <= load.workers and slots <= load.slots and not load.is_full
            if has_less_urgent and len(state.agents) <= LOOKS and agent.capabilities.issuperset(capabilities):
                yield Finding(
                    f"{queue.rows} rows of urgency {urgency} are queued while agent {agent.number} has {as_urgent} "
                    f"as urgent ones for {load.workers} workers"
                )


def thorough(state: ClusterState) -> Iterator[Finding]:
    """What does not hold of places, references, holders, and what agents were asked for."""
    yield from _places(state)
    yield from _withdrawals(state)
    for client in state.clients.values():
        yield from _account(state, client)
        yield from _references(client)
        yield from _waiting(client)
        yield from _holders(state, client)
        yield from _roots(state, client)
    yield from _known_roots(state)


def _places(state: ClusterState) -> Iterator[Finding]:
    queued: dict[Batch, list[tuple[int, int]]] = {}
    for key, queue in state.queues.items():
        total = 0
        for batch, lo, hi in queue:
            queued.setdefault(batch, []).append((lo, hi))
            total += hi - lo
            if batch.queue_class != key[:2]:
                yield Finding(f"a span of batch {batch.id} is in a queue that is not its own", batch.id)
        if total != queue.rows:
            yield Finding(f"a queue counts {queue.rows} rows and has {total}")
    for client in state.clients.values():
        for batch in client.batches.values():
            yield from _places_of(batch, queued.pop(batch, []))
        known = (*client.batches.values(), *client.remembered.values())
        rows = sum(batch.rows for batch in known if is_apart(batch.task))
        if client.values.rows_apart != rows:
            yield Finding(f"{client.values.rows_apart} rows count as without their arguments, and {rows} are")
        for batch in client.remembered.values():
            if batch.left or any(place != DONE for place in batch.place):
                yield Finding(f"batch {batch.id} is remembered, and not all of its rows have ended", batch.id)
    for batch, spans in queued.items():
        yield Finding(f"rows {spans} of batch {batch.id} are queued, and it has ended", batch.id)


def _account(state: ClusterState, client: ClientRecord) -> Iterator[Finding]:
    known = (*client.batches.values(), *client.remembered.values())
    aside = state.returning.clients.get(client.number)
    kept = sum(batch.price for batch in known) + sum(map(price_of_object, client.values.objects.values()))
    kept += sum(price_of_failure(record) for record, _ in client.values.failed.values())
    kept += OVER * sum(len(graph.over) for graph in client.graphs.values())
    kept += 0 if aside is None else aside.kept
    if client.kept != kept:
        yield Finding(f"client {client.number}: {client.kept} bytes are on its account, {kept} are kept")


def _withdrawals(state: ClusterState) -> Iterator[Finding]:
    for agent in state.agents.values():
        place = AGENT + agent.number
        for number, withdrawals in agent.withdrawals.items():
            if number not in state.clients:
                yield Finding(f"agent {agent.number} was asked for rows of client {number}, which is gone")
            for kind, batch, lo, hi in withdrawals:
                if kind != WithdrawalKind.CLAIM and batch.left and place not in batch.place[lo:hi]:
                    what = f"agent {agent.number} was asked for rows {lo} to {hi} of batch {batch.id} and has none"
                    yield Finding(what, batch.id)


def _places_of(batch: Batch, queued: list[tuple[int, int]]) -> Iterator[Finding]:
    count = Counter(batch.place)
    if count[QUEUED] > batch.tally.queued:
        yield Finding(
            f"batch {batch.id}: {count[QUEUED]} rows queued, its function counts {batch.tally.queued}", batch.id
        )
    if batch.left != batch.rows - count[DONE]:
        yield Finding(f"batch {batch.id}: {batch.left} rows left, places are {dict(count)}", batch.id)
    if batch.endings is not None and any(batch.place[row] != DONE for row, end in enumerate(batch.endings) if end):
        yield Finding(f"batch {batch.id}: rows have failed or were cancelled, and have not ended", batch.id)
    at = {place - AGENT: rows for place, rows in count.items() if place >= AGENT}
    if at != batch.at:
        yield Finding(f"batch {batch.id}: rows at agents are {at}, counted {batch.at}", batch.id)
    rows = [row for lo, hi in sorted(queued) for row in range(lo, hi)]
    if rows != [row for lo, hi in batch.spans_in(QUEUED) for row in range(lo, hi)]:
        yield Finding(f"batch {batch.id}: queued are {sorted(queued)}, not {batch.spans_in(QUEUED)}", batch.id)
    if batch.attempts is not None and any(batch.place[row] < AGENT for row in batch.attempts.begun):
        yield Finding(f"batch {batch.id}: rows have begun, and are at no agent", batch.id)
    for row in range(batch.rows) if count[WAITING] else ():
        if batch.place[row] == WAITING and (batch.missing is None or not batch.missing[row]):
            yield Finding(f"row {row} of batch {batch.id} waits for nothing", batch.id)


def _references(client: ClientRecord) -> Iterator[Finding]:
    needed: Counter[int] = Counter()
    kept: set[int] = set()
    sources: Counter[Batch] = Counter()
    values = client.values
    for batch in (*client.batches.values(), *client.remembered.values()):
        needed[batch.task.function] += 1
        if batch.task.arguments:
            needed[batch.task.arguments] += 1
        if batch.keeps:
            kept.update(range(batch.id, batch.id + batch.rows))
        if batch.lineage is not None:
            sources.update(list(batch.lineage.parents))
            for small in batch.lineage.retained.values():
                needed.update(small)
        for row, wanted in enumerate(batch.needs or ()):
            if batch.place[row] != DONE:
                needed.update(values.object_id_of(value) for value in wanted)
    if values.batch_of_row.keys() != kept:
        yield Finding(f"client {client.number} keeps rows that are of no batch, or lacks some")
    for object_id, item in values.objects.items():
        wanted_by = needed[object_id] + item.held_by_client
        if item.references != wanted_by:
            yield Finding(f"object {object_id}: {item.references} references, {wanted_by} reasons", object_id)
        if not item.is_needed:
            yield Finding(f"object {object_id} is there for nobody", object_id)
        if item.source is not None:
            sources[item.source[0]] += 1
        if item.copies and not item.is_stored:
            yield Finding(f"object {object_id} is in stores and has no bytes", object_id)
        if item.is_lost != (object_id in values.lost):
            yield Finding(f"object {object_id} is lost, and not among those that are, or the reverse", object_id)
    for batch in (*client.batches.values(), *client.remembered.values()):
        references = batch.lineage.references if batch.lineage is not None else 0
        if references != sources[batch]:
            yield Finding(f"batch {batch.id} is remembered for {references} reasons, has {sources[batch]}", batch.id)
    for value in values.required_zones.keys() - values.remaking.keys():
        yield Finding(f"value {value} is to be within reach of a host, and is not made again", value)
    for value, waiting in values.awaited.items():
        if not waiting:
            yield Finding(f"value {value} was asked for by nobody", value)


def _waiting(client: ClientRecord) -> Iterator[Finding]:
    batches = [*client.batches.values(), *client.remembered.values()]
    lists = [*client.values.awaited.values(), *client.values.remaking.values()]
    for batch in batches:
        lists += batch.waiters.values()
    there = Counter(row for waiting in lists for row in waiting)
    for batch in batches:
        for row, missing in enumerate(batch.missing or ()):
            if missing != there[batch, row]:
                what = f"row {row} of batch {batch.id} waits for {missing} things, and is in {there[batch, row]} lists"
                yield Finding(what, batch.id)


def _roots(state: ClusterState, client: ClientRecord) -> Iterator[Finding]:
    for batch in client.batches.values():
        root = batch.task.root
        is_indexed = batch in state.roots.batches.get(root, {}).get(client.number, ())
        if is_indexed is (root in (client.root, NO_ROOT)):
            yield Finding(f"batch {batch.id} is not known to be for its root, or the reverse", batch.id)
        if root in (client.root, NO_ROOT) or root in state.roots.here or root in state.roots.awaited:
            continue
        for place, lo, hi in batch.runs():
            agent = state.agents.get(place - AGENT)
            asked = () if agent is None else agent.withdrawals.get(client.number, ())
            forced = joined((each.lo, each.hi) for each in asked if each.kind == "force" and each.batch is batch)
            is_asked = any(a <= lo and hi <= b for a, b in forced)
            if place != DONE and not is_asked and not batch.is_recomputing(lo, hi):
                yield Finding(f"rows {lo} to {hi} of batch {batch.id} go on without their root", batch.id)


def _known_roots(state: ClusterState) -> Iterator[Finding]:
    roots = state.roots
    here = [(root, number) for root, numbers in roots.here.items() for number in numbers]
    if sorted(here) != sorted((client.root, number) for number, client in state.clients.items()):
        yield Finding("the clients that are here are others than those that are roots")
    stores: dict[str, dict[str, dict[AgentRecord, None]]] = {}
    for agent in state.agents.values():
        if agent.host.store:
            stores.setdefault(agent.host.boot_id, {}).setdefault(agent.host.store, {})[agent] = None
    if roots.stores != stores:
        yield Finding("the stores of agents are not those of the agents that are here")
    for root, by_client in roots.batches.items():
        for number, batches in by_client.items():
            client = state.clients.get(number)
            if client is None or not batches or any(client.batches.get(batch.id) is not batch for batch in batches):
                yield Finding(f"client {number} submits for root {root} what is not there")
    for root in roots.awaited:
        if root in roots.here or root in roots.past:
            yield Finding(f"root {root} is waited for in vain")
    deadlines = [awaited.deadline for awaited in roots.awaited.values()]
    if deadlines != sorted(deadlines):
        yield Finding("roots that are waited for are not in order")


def _holders(state: ClusterState, client: ClientRecord) -> Iterator[Finding]:
    number = client.number
    for object_id, item in client.values.objects.items():
        for holder in item.holders:
            if holder not in state.agents or (number, object_id) not in state.agents[holder].holdings.keys:
                yield Finding(f"agent {holder} doesn't hold {object_id} of client {number}", object_id)
        for copy in item.copies:
            if copy not in item.holders:
                yield Finding(f"agent {copy} has {object_id} and is not among its holders", object_id)
    told = client.agents | client.settling.results.keys() | {*client.reads.under_way.values()}
    for agent_number in told & state.agents.keys():
        if number not in state.agents[agent_number].clients:
            yield Finding(f"agent {agent_number} does not count as having something of client {number}")
    for agent in state.agents.values():
        for owner, object_id in agent.holdings.keys:
            item_held = client.values.objects.get(object_id) if owner == number else None
            if owner == number and (item_held is None or agent.number not in item_held.holders):
                yield Finding(f"agent {agent.number} holds {object_id}, which nobody will release", object_id)
