"""Which agent gets which rows. Amortised O(1) a span: nothing here looks at all agents or all rows.

Agents of the same capabilities form a group, and each group keeps its agents in sets: *idle* (fewer rows than
workers), *shallow* (fewer than two rows a worker) and *open* (half of its window is free). Idle agents are always
served. Rows beyond what the workers run now are prefetched by a window of about `PREFETCH_US` of work; while a
function's duration is not known, by one row a worker, or one row a step where others take all of the window.

Rows that are more urgent than what an agent has are placed as if it had nothing else: it runs them next. It has up to
two such rows a worker, so that nothing less urgent begins while the next one is on its way. Likewise two rows a worker,
or about `TURN_US` of work, of each root: though others have filled the agent's window it has its turn there.

A row that takes n slots counts as n. For such rows a group has *wider* ones, of those of its agents that have n slots
at all: there an agent is idle if n are free. One with fewer gets such a row in advance, in its turn, and keeps slots
free for it by itself; if they had to be free before, rows that take one would see to it that they never are.

An agent whose batch system ends it at some time gets no rows that are known to take longer than what is left. An agent
that is about to go gets none at all; but if one of its tasks waits for others, and nobody else has what those ask for,
it gets them, or it could never go.
"""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain, islice
from math import frexp
from typing import NamedTuple

from scaler.common.spans import SpanQueue
from scaler.scheduler.state.agent_groups import LOOKS, AgentGroup
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.batch_records import Batch, Demand
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.ready_queues import QueueKey
from scaler.scheduler.state.transitions import count_by_share

#: work that an agent should have in hand, microseconds a worker
PREFETCH_US = 100_000
#: and of each root that has work, whoever has filled its window: what it needs to have its turns there. Many roots have
#: a part of `PREFETCH_US` each: the more there are, the longer what each has there lasts
TURN_US = 20_000
#: roots of which an agent has rows, and it still gets some of others beyond its window
MOST_SHARES = 64
#: demands of rows for which it is kept which agents meet them
MOST_MATCHING = 1_000
#: rows that an agent may have outstanding, whatever they take
MAX_WINDOW = 40_000
#: what a row is taken to last while nothing is known, microseconds
UNKNOWN_US = 10_000.0
#: rows a worker that a row which takes stored values waits for, at most: it goes before those that don't
MAX_AHEAD = 4
#: agents with too little time that are passed over for a queue in a step, and spans of rows set aside for it, at most
MOST_PASSED, MOST_ASIDE = 64, 256
#: queues for the same demand that are looked at in a step though agents had no room for all rows of them, at most: for
#: those that are less urgent they have none either
MOST_LEFT = 16
#: bytes a second between hosts, at least and at most: an agent that tells of others is not believed
SLOWEST, FASTEST = 1e3, 1e12
#: what moving an object takes besides its bytes, microseconds
MOVING_US = 1_000.0


class Give(NamedTuple):
    """The next rows of a queue, of one batch and at most so many, are for an agent."""

    queue: SpanQueue[Batch]
    rows: int
    agent: AgentRecord
    #: they are the next ones of this one's share, whoever's turn it is
    of: Batch | None = None


#: finds an agent of a group for the next rows of a queue, None if it sees none, and says how many rows it may get; as
#: many agents of groups that come later idle, too
Way = Callable[[SpanQueue[Batch], AgentGroup, int], tuple[AgentRecord | None, int]]


def window(workers: int, each_us: float | None, us: float = PREFETCH_US) -> int:
    """How many rows an agent may have outstanding, for so many microseconds a worker."""
    least = 2 * workers
    if each_us is None:
        return least
    rows = int(workers * us / each_us)
    if rows > MAX_WINDOW:
        rows = MAX_WINDOW
    return rows if rows > least else least  # asked for each result: without calls


# ---- agents come, go and change --------------------------------------------------------------------------------------
def add(state: ClusterState, agent: AgentRecord) -> None:
    """An agent joined."""
    state.workers += agent.load.workers
    agent.load.slots = agent.load.workers
    agent.load.window = window(agent.load.workers, None)
    group = state.groups.get(agent.capabilities)
    if group is None:
        group = state.groups[agent.capabilities] = AgentGroup(agent.capabilities, state.standing)
    brings_more = not group.agents or agent.load.slots > group.widest
    group.add(agent)
    if brings_more:
        state.matching.clear()
        state.queues.bring_back(agent.capabilities, agent.load.slots)


def remove(state: ClusterState, agent: AgentRecord) -> None:
    """An agent is gone."""
    state.workers -= agent.load.workers
    state.unsorted.pop(agent, None)
    group = state.groups[agent.capabilities]
    group.forget(agent)
    if not group.agents:  # there may be one for each host that ever came
        del state.groups[agent.capabilities]
    if agent.load.slots > group.widest or not group.agents:
        state.matching.clear()


def resize(state: ClusterState, agent: AgentRecord, workers: int, is_full: bool) -> None:
    """An agent has so many workers now, and room for objects or not."""
    load = agent.load
    state.workers += workers - load.workers
    load.workers, load.is_full = workers, is_full
    load.window = window(workers, load.recent_us)
    state.unsorted[agent] = None


def learn_duration(agent: AgentRecord, each_us: float, now: float) -> None:
    """Results came from an agent, whose rows took this: its window follows."""
    load = agent.load
    load.quiet_since = now
    load.recent_us = each_us if load.recent_us is None else load.recent_us + 0.3 * (each_us - load.recent_us)
    load.window = window(load.workers, load.recent_us)


def learn_bandwidth(state: ClusterState, agent: AgentRecord, bandwidth: float) -> None:
    """Objects came to an agent from other hosts by so many bytes a second."""
    if bandwidth > 0 and bandwidth != agent.holdings.bandwidth:
        agent.holdings.bandwidth = bandwidth
        state.bandwidth += 0.3 * (min(max(bandwidth, SLOWEST), FASTEST) - state.bandwidth)


def sort_agents(state: ClusterState) -> None:
    """Put the agents whose load has changed where they belong now."""
    for agent in state.unsorted:
        state.groups[agent.capabilities].sort(agent)
    state.unsorted.clear()


def rotate(state: ClusterState, agent: AgentRecord) -> None:
    """An agent was given rows: others of its group have their turn before it."""
    state.groups[agent.capabilities].rotate(agent)
    state.unsorted.pop(agent, None)


# ---- one batch or row ------------------------------------------------------------------------------------------------
def can_ever_run(state: ClusterState, demand: Demand) -> bool:
    """Some agent has what rows ask for."""
    return any(group.agents for group in _groups_for(state, demand))


def may_run(state: ClusterState, batch: Batch, number: int) -> bool:
    """An agent has as many workers as a row of a batch takes slots, and what else the rows ask for."""
    agent = state.agents.get(number)
    return (
        agent is not None
        and agent.load.slots >= batch.slots
        and agent.capabilities.issuperset(batch.task.capabilities)
        and not agent.load.is_leaving
    )


def choose_for_all(state: ClusterState, batch: Batch) -> AgentRecord | None:
    """An agent that has nothing else to do for as many workers as a new batch has rows, if no rows are queued."""
    if state.queues or not state.hands_out:
        return None
    demand, idle = batch.queue_class[1], state.standing.idle
    groups: Iterable[AgentGroup] = _groups_for(state, demand)
    if demand[1] == 1 and len(idle) < len(state.matching[demand]):
        groups = (group for group in idle if group.capabilities.issuperset(demand[0]))
    for group in groups:
        for agent in group.idle:
            if state.limited and not agent.has_time_for(batch.function.duration_us, state.now):
                return None
            return agent if agent.load.workers - agent.load.outstanding >= batch.rows * batch.slots else None
    return None


def choose(
    state: ClusterState, batch: Batch, numbers: Iterable[int], moved: int = 0, even_if_full: bool = False
) -> AgentRecord | None:
    """The first of these agents that may run a row, however busy it is; None if none may.

    With `moved` only if waiting there costs less than moving so many bytes elsewhere.
    """
    for number in numbers:
        agent = state.agents.get(number)
        if agent is None or (agent.load.is_full and not even_if_full) or not may_run(state, batch, number):
            continue
        if state.limited and not agent.has_time_for(batch.function.duration_us, state.now):
            continue
        if moved:
            load = agent.load
            each = load.recent_us or batch.function.duration_us or UNKNOWN_US
            ahead = min(load.outstanding - load.workers + batch.slots, MAX_AHEAD * load.workers)
            if ahead > 0 and ahead * each / load.workers > MOVING_US + moved / state.bandwidth * 1e6:
                continue
        return agent
    return None


def choose_by_input(state: ClusterState, client: ClientRecord, batch: Batch, row: int) -> AgentRecord | None:
    """The agent that has most of a row's stored input, unless waiting there costs more than moving it.

    However many rows that agent has: it runs this one before those that make new values, so that few are there.
    """
    if batch.needs is None or not client.values.has_stored:
        return None
    have: dict[int, int] = {}
    objects = client.values.objects
    for value in batch.needs[row]:
        item = objects.get(value)
        if item is not None and item.is_stored:
            for number in item.copies:
                have[number] = have.get(number, 0) + item.size
    if not have:
        return None
    number = max(have, key=have.__getitem__)
    return choose(state, batch, [number], have[number] if len(state.agents) > 1 else 0)


# ---- queued rows -----------------------------------------------------------------------------------------------------
def _groups_for(state: ClusterState, demand: Demand) -> list[AgentGroup]:
    groups = state.matching.get(demand)
    if groups is None:
        capabilities, slots = demand
        needed = frozenset(capabilities)
        groups = [group for group in state.groups.values() if needed <= group.capabilities]
        if slots > 1:
            groups = [wider for group in groups if (wider := group.wider_for(slots)) is not None]
        if len(state.matching) >= MOST_MATCHING:  # a client may ask for something else each time
            state.matching.clear()
        state.matching[demand] = groups
    return groups


def able(state: ClusterState, batch: Batch) -> Iterator[AgentRecord]:
    """The agents that may run rows of a batch and have room for objects; of each group those that idle come first."""
    groups = _groups_for(state, batch.queue_class[1])
    those = chain.from_iterable(chain(group.idle, group.busy) for group in groups)
    return (agent for agent in those if agent.load.slots >= batch.slots)  # a store beside the scheduler has none


def forget_unasked(state: ClusterState) -> None:
    """Let go of what was found for rows that are gone."""
    asked = {key[1] for key, queue in state.queues.items() if queue.rows}
    state.matching = {demand: groups for demand, groups in state.matching.items() if demand in asked}
    slots = {demand[1] for demand in asked}.union(*[agent.load.wide for agent in state.agents.values()])
    for group in state.groups.values():
        group.forget_wider(slots)


def _those_in(some: Mapping[AgentGroup, None], demand: Demand, groups: list[AgentGroup]) -> list[AgentGroup]:
    """The groups for a demand, or of them those that are among `some`, if that takes fewer looks."""
    capabilities, slots = demand
    if slots > 1 or len(groups) <= len(some):
        return groups
    return [group for group in some if group.capabilities.issuperset(capabilities)]


def share_out(state: ClusterState) -> Iterator[Give]:
    """Who gets what of the queued rows, until either runs out. Each is to be given before the next is asked for."""
    if not state.hands_out:
        return
    queues = state.queues
    #: demand -> queues for it with rows that no agent has room for; and the demands for which there are `MOST_LEFT`
    left: dict[Demand, int] = {}
    full: set[Demand] = set()
    for key, queue in queues.in_order(full):
        demand = key[1]
        others = left.get(demand, 0)
        groups = _groups_for(state, demand)
        if not groups and len(key) == 2:
            queues.leave_out(key)
            continue
        # else a more urgent queue has found all agents that it looked at to have enough that is as urgent
        if (yield from _serve(state, key, queue, groups, may_go_beyond=not others)):
            left[demand] = others + 1
            if others + 1 >= MOST_LEFT:
                full.add(demand)
    if state.leaving:
        yield from _where_tasks_wait(state, list(queues.in_order()))


def _serve(
    state: ClusterState, key: QueueKey, queue: SpanQueue[Batch], groups: list[AgentGroup], may_go_beyond: bool
) -> Generator[Give, None, bool]:
    """Give rows of a queue to agents of these groups; True if some are left that no agent has room for.

    Those that the agents with room have no time for are set aside, as the next ones may take less.
    """
    #: rows that it had, without those that were set aside; and how often some were
    queued, aside = queue.rows, 0
    while True:
        before, roomy = queue.rows, _those_in(state.standing.roomy, key[1], groups)
        passed = yield from _offer(state, queue, roomy, groups if may_go_beyond else [])
        if not queue.rows:
            break
        may_set_aside = passed and len(key) == 2 and aside < MOST_ASIDE
        if not may_set_aside and queue.rows == queued and queue.head.function.duration_us is None:
            yield from _one_of_unknown_duration(state, queue, roomy)
        if passed and 0 < queue.rows < before and _some_have_time(state, passed, queue):
            continue
        if not may_set_aside:
            break
        aside += 1
        queued -= _set_aside(state, key, queue)
    if queue.rows < queued and state.queues.are_several:
        state.queues.rotate(key)
    return queue.rows > 0 and not passed


def _offer(
    state: ClusterState, queue: SpanQueue[Batch], roomy: list[AgentGroup], beyond: list[AgentGroup]
) -> Generator[Give, None, list[AgentRecord]]:
    """Give rows of a queue to agents that idle, then some in advance, then beyond windows what has a right to that.

    The agents that had their turn and have no time for the next rows: they are passed over.
    """
    passed: list[AgentRecord] = []
    later = sum(len(group.idle) for group in roomy) if len(roomy) > 1 else 0
    for group in roomy:
        if group.idle and queue.rows:
            later = max(0, later - len(group.idle))
            yield from _fill(state, queue, group, later, _next_idle, passed)
    for group in roomy:
        if queue.rows:
            yield from _fill(state, queue, group, 0, _next_open, passed)
    if beyond and queue.rows and (queue.are_several or _may_go_beyond(state, queue.head)):
        yield from _beyond_windows(state, queue, beyond, passed)
    for agent in passed:
        state.groups[agent.capabilities].sort(agent)
    return passed


def _some_have_time(state: ClusterState, agents: list[AgentRecord], queue: SpanQueue[Batch]) -> bool:
    each = queue.head.function.duration_us
    return any(agent.has_time_for(each, state.now) for agent in agents)


def _fill(
    state: ClusterState,
    queue: SpanQueue[Batch],
    group: AgentGroup,
    later: int,
    choose_next: Way,
    passed: list[AgentRecord],
) -> Iterator[Give]:
    """Rows of a queue for agents of a group, as long as a way to choose one finds any.

    Those that have no time for its next rows are taken out of the group's sets and noted as `passed`.
    """
    while queue.rows:
        agent, rows = choose_next(queue, group, later)
        if agent is None:
            return
        if state.limited and not agent.has_time_for(queue.head.function.duration_us, state.now):
            if not _pass_over(state, agent, passed):
                return
            continue
        yield from _give_some(state, queue, rows, agent, group.slots)
        rotate(state, agent)


def _pass_over(state: ClusterState, agent: AgentRecord, passed: list[AgentRecord]) -> bool:
    """An agent has its turn and no time for the next rows: others are looked at; False if enough were passed over."""
    if len(passed) >= MOST_PASSED:
        return False
    passed.append(agent)
    state.groups[agent.capabilities].remove(agent)
    return True


def _give_some(
    state: ClusterState, queue: SpanQueue[Batch], rows: int, agent: AgentRecord, slots: int
) -> Iterator[Give]:
    """So many of the next rows of a queue for an agent; fewer of unknown duration, and none that it has no time for.

    Nor any that take longer than the first of them, for which so many are right: of those fewer may be.
    """
    load, limited = agent.load, state.limited
    longest = queue.head.function.duration_us or math.inf
    while rows > 0 and queue.rows:
        head = queue.head.function
        is_known = head.duration_us is not None
        if head.duration_us is not None and head.duration_us > longest:
            return
        if limited and not agent.has_time_for(head.duration_us, state.now):
            return
        limit = rows if is_known else min(rows, max(1, (2 * load.workers - load.outstanding) // slots))
        before = queue.rows
        yield Give(queue, limit, agent)
        rows -= before - queue.rows
        if not is_known and load.outstanding + slots > load.workers:
            return


def _set_aside(state: ClusterState, key: QueueKey, queue: SpanQueue[Batch]) -> int:
    """Agents that have room have too little time for the next rows of a queue: others have their turn. How many."""
    before, each = queue.rows, queue.head.function.duration_us
    state.queues.set_aside(key, 0 if each is None else frexp(each / 1e6)[1])
    return before - queue.rows


def _where_tasks_wait(state: ClusterState, queues: list[tuple[QueueKey, SpanQueue[Batch]]]) -> Iterator[Give]:
    """Rows that only agents can run that are about to go, for such a one as has a task that waits for others."""
    for number, departure in state.leaving.items():
        agent = state.agents[number]
        load = agent.load
        if departure.is_over or load.is_full or load.workers <= load.slots:
            continue
        for key, queue in queues:
            capabilities, slots = key[1]
            if slots > load.slots or not agent.capabilities.issuperset(capabilities) or _somebody_stays(state, key[1]):
                continue
            while queue.rows and load.workers - load.outstanding >= slots:
                yield Give(queue, (load.workers - load.outstanding) // slots, agent)


def _somebody_stays(state: ClusterState, demand: Demand) -> bool:
    """An agent that is not about to go has what rows ask for."""
    for group in _groups_for(state, demand):
        going = [state.agents[number] for number in state.leaving]
        those = [a for a in going if a.capabilities == group.capabilities and a.load.slots >= group.slots]
        if group.agents > len(those):
            return True
    return False


def _next_idle(queue: SpanQueue[Batch], group: AgentGroup, later: int) -> tuple[AgentRecord | None, int]:
    """The next agent that has workers without a row, and how many rows it gets; None if there is none.

    Those that idle share the rows, whatever their capabilities.
    """
    idle = group.idle
    if not idle:
        return None, 0
    agent = next(iter(idle))
    load, slots = agent.load, group.slots
    share = -(-queue.rows // (len(idle) + later))
    need = (load.workers - load.outstanding) // slots
    if share <= need:
        return agent, share
    most = min(load.window, window(load.workers, queue.head.function.duration_us))
    return agent, max(need, min(share, (most - load.outstanding) // slots))


def _next_open(queue: SpanQueue[Batch], group: AgentGroup, later: int) -> tuple[AgentRecord | None, int]:
    """The next agent that gets rows in advance, and how many; None if none has room in its window."""
    each = queue.head.function.duration_us
    members = group.shallow if each is None else group.open
    if not members:
        return None, 0
    agent = next(iter(members))
    load = agent.load
    credit = min(load.window, window(load.workers, each)) - load.outstanding
    if credit <= 0:
        return None, 0
    share, workers = -(-queue.rows // len(members)), load.workers
    if group.slots > 1:
        credit, workers = credit // group.slots or 1, workers // group.slots or 1
    return agent, min(credit, max(workers, share))


def _beyond_windows(
    state: ClusterState, queue: SpanQueue[Batch], groups: list[AgentGroup], passed: list[AgentRecord]
) -> Iterator[Give]:
    """Rows for agents that have none to spare as urgent as they are, or less of their share than workers.

    Of the shares whose turn is next: what others have in advance is in nobody's way. As in `_fill`, agents that have no
    time for the rows are `passed`.
    """
    for share in queue.shares(LOOKS):
        first = queue.head_of(share)
        if first is None or not _may_go_beyond(state, first):
            continue
        for group in groups if first.urgency > state.lowest_urgency else _some(state, groups):
            while (head := queue.head_of(share)) is not None:
                if not head.is_shared and _is_kept_waiting(state, head):
                    count_by_share(state, head)
                agent, rows = _next_lacking(state, head, group)
                if agent is None:
                    break
                if state.limited and not agent.has_time_for(head.function.duration_us, state.now):
                    if not _pass_over(state, agent, passed):
                        return
                    continue
                yield Give(queue, rows, agent, head)
                rotate(state, agent)


def _may_go_beyond(state: ClusterState, batch: Batch) -> bool:
    """Agents may be given rows of a batch beyond their windows."""
    return batch.is_shared or batch.urgency > state.lowest_urgency or _is_kept_waiting(state, batch)


def _is_kept_waiting(state: ClusterState, batch: Batch) -> bool:
    """Others have work, who had none when a batch came, and few rows of its function are at agents.

    Without a right to places beyond windows it would wait for ever, if those others never let a window become empty.
    """
    roots, function = state.roots, batch.function
    if not roots.have_others(batch.share):
        return False
    turn = min(TURN_US, PREFETCH_US / len(roots.at_work))
    return function.at_agents * batch.slots < window(state.workers, function.duration_us, turn)


def _some(state: ClusterState, groups: list[AgentGroup]) -> list[AgentGroup]:
    """A few of these groups: all have their turn."""
    if len(groups) <= LOOKS:
        return groups
    at = state.group_turn = (state.group_turn + LOOKS) % len(groups)
    return [*groups[at : at + LOOKS], *groups[: max(0, at + LOOKS - len(groups))]]


def _next_lacking(state: ClusterState, head: Batch, group: AgentGroup) -> tuple[AgentRecord | None, int]:
    """The next agent that has fewer rows than it should that are as urgent, or of this share, and how many it gets.

    None if unseen. The others that were looked at have their turn last in the next step.
    """
    urgency, share, slots, busy = head.urgency, head.share, group.slots, group.busy
    each = head.function.duration_us
    is_urgent, is_shared = urgency > state.lowest_urgency, head.is_shared
    if is_urgent or is_shared:
        for agent in list(islice(busy, LOOKS)):
            load = agent.load
            room = 2 * load.workers - load.as_urgent(urgency) if is_urgent else 0
            shares = len(load.by_share)
            if is_shared and shares < MOST_SHARES:
                turn = min(TURN_US, PREFETCH_US / (1 + shares))
                room = max(room, window(load.workers, each, turn) - load.by_share.get(share, 0))
            if room > 0:  # not only for all of its slots: those who take one would see to it that there never is
                return agent, room // slots or 1
            busy.move_to_end(agent)
    return None, 0


def _one_of_unknown_duration(state: ClusterState, queue: SpanQueue[Batch], groups: list[AgentGroup]) -> Iterator[Give]:
    """One row for an agent that has room for rows whose duration is known, lest those take all that there ever is."""
    for group in groups:
        for agent in islice(group.open, LOOKS):
            if agent.load.workers >= group.slots and agent.has_time_for(None, state.now):
                yield Give(queue, 1, agent)
                return
