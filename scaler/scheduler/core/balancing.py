"""Rows that agents are asked to give back, since others have nothing to do.

They are asked for rows that take as many slots as those others have free, since only such are of use there. Agents of
the same capabilities as the idle ones come first: any of their rows will do. Others may have rows that the idle ones
can't run, so batches are named from which rows are wanted: those that ask for no more than what the idle ones have, and
of which no row is bound to where it is. An agent without such is not looked at again for them until it is given rows.

An agent may have rows of clients whose work is not together yet, after another scheduler. Those are not asked for, so
batches are named there, too; and nothing is asked for on its account, though it has no other rows.
"""

import math
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from operator import attrgetter

from scaler.protocol.messages import BalanceRequest, u32, u64
from scaler.scheduler.core import placement
from scaler.scheduler.state.agent_groups import AgentGroup
from scaler.scheduler.state.agent_records import AgentRecord, Load
from scaler.scheduler.state.batch_records import AGENT, Batch
from scaler.scheduler.state.cluster import ClusterState

#: work that is worth taking back, microseconds a worker
WORTH_US = 2_000
#: what a row is taken to last at an agent that has reported none, microseconds
UNREPORTED_US = 1e6
#: agents that are looked at beyond those wanted, for one idle group and step
SPARE_LOOKS = 8
#: idle groups in a step for which agents of others are looked at
MOST_IDLE = 4
#: batches of an agent that are looked at for others than those of its group, the latest, and that are named, at most
MOST_LOOKED, MOST_NAMED = 64, 16

#: work that an agent has beyond its window, microseconds a worker, from which on it is taken back if others wait; and
#: seconds between two looks for that
EXCESS_US, EXCESS_SECONDS = 5 * placement.PREFETCH_US, 0.1

#: agents to ask, and for what
Requests = list[tuple[AgentRecord, BalanceRequest]]


def begin_recalls(state: ClusterState) -> Requests:
    """Agents to ask for rows, and for which: each agent once until it has answered."""
    asks: Requests = []
    idle, rich = state.standing.idle, state.standing.rich
    for group in idle if len(idle) < len(rich) else rich:
        if not (group.idle and group.surplus):
            continue  # nor has any of the wider ones both
        _begin(state, group, asks)
        if group.wider:
            for wider in group.wider.values():
                if wider.idle and wider.surplus:
                    _begin(state, wider, asks)
    if len(state.groups) > 1 and idle and rich:
        _begin_elsewhere(state, asks)
    if state.now >= state.excess_due and state.queues:
        state.excess_due = state.now + EXCESS_SECONDS
        _begin_for_others(state, asks)
    return asks


def _begin(state: ClusterState, group: AgentGroup, asks: Requests) -> None:
    wanted, slots, purpose = _idle_in(state, group), group.slots, group.purpose
    if wanted <= 0:
        return
    for agent in list(islice(group.surplus, wanted + SPARE_LOOKS)):
        load = agent.load
        batches: list[Batch] = []
        may_ask = not load.recalling and purpose not in load.exhausted and _is_worth_it(load, state.now)
        if may_ask:
            helped = _who_stays_longest(group)
            if helped.ends < math.inf or state.returning.may_have_more(agent.number):
                # what nobody has time for, or may have, would be placed where it was
                batches = _in_time_for(state, helped, _batches_for(agent, group))
                may_ask = bool(batches)
        if not may_ask:
            group.surplus[agent] = group.surplus.pop(agent)  # others have their turn next time
            continue
        asks.append((agent, _request(group, agent, _share(load, slots), batches)))
        wanted -= 1
        if wanted <= 0:
            break


def _idle_in(state: ClusterState, group: AgentGroup) -> int:
    """How many agents idle of which all is known; looks at few while that is not so of some."""
    returning = state.returning
    if not returning.holdings:
        return len(group.idle)
    return sum(not returning.may_have_more(agent.number) for agent in islice(group.idle, MOST_LOOKED))


def _who_stays_longest(group: AgentGroup) -> AgentRecord:
    """Of the idle agents of a group that are looked at the one that its batch system ends last."""
    return max(islice(group.idle, SPARE_LOOKS), key=attrgetter("ends"))


def _in_time_for(state: ClusterState, helped: AgentRecord, batches: list[Batch]) -> list[Batch]:
    return [batch for batch in batches if helped.has_time_for(batch.function.duration_us, state.now)]


def _request(group: AgentGroup, agent: AgentRecord, rows: int, batches: list[Batch]) -> BalanceRequest:
    """Ask an agent for so many rows for this group, of these batches; of any if there are none."""
    agent.load.recalling = group.purpose
    if batches:
        rows = min(rows, sum(batch.at[agent.number] for batch in batches))
    named = u32([batch.client for batch in batches]), u64([batch.id for batch in batches])
    return BalanceRequest(rows, group.slots if group.slots > 1 else 0, *named)


def _is_worth_it(load: Load, now: float) -> bool:
    """What none of its workers runs should take them a while: as its last rows did, or those that it has by now."""
    spare = load.outstanding - load.workers
    each = max(load.recent_us or UNREPORTED_US, 1e6 * (now - load.quiet_since))
    return spare * each >= WORTH_US * load.workers


def _share(load: Load, slots: int) -> int:
    """Rows that an agent is asked for: it keeps half of what none of its workers runs."""
    return -(-(load.outstanding - load.workers) // (2 * slots))


def end_recall(agent: AgentRecord, gave_back: bool) -> None:
    """An agent has answered, and given back some rows or none."""
    load = agent.load
    if load.recalling and not gave_back:
        load.exhausted.add(load.recalling)
    load.recalling = None


# ---- rows that take longer than was thought --------------------------------------------------------------------------
def _begin_for_others(state: ClusterState, asks: Requests) -> None:
    """Ask agents for what they have beyond their windows, if rows of others than whose it is wait.

    They were given it when it seemed to take little time; whoever waits would wait for all of it.
    """
    waiting = [queue for _, queue in islice(state.queues.in_order(), MOST_IDLE)]
    for group in list(islice(state.standing.rich, SPARE_LOOKS)):
        for agent in list(islice(group.surplus, MOST_LOOKED)):
            group.surplus[agent] = group.surplus.pop(agent)
            rows = _excess(agent.load)
            if rows and group.purpose not in agent.load.exhausted and not state.returning.may_have_more(agent.number):
                latest = next(reversed(agent.batches)).share
                if any(queue.has_others(latest) for queue in waiting):
                    asks.append((agent, _request(group, agent, rows, [])))


def _excess(load: Load) -> int:
    """Rows that an agent has beyond its window; 0 if they are not worth taking back.

    Those of roots that have their turn beside others' are in nobody's way.
    By what its last rows took: if that were too little for those that it has, it would be given them again.
    """
    rows = load.outstanding - load.window - sum(load.by_share.values())
    return rows if rows * (load.recent_us or 0.0) >= EXCESS_US * load.workers and load.recalling is None else 0


# ---- agents of other capabilities ------------------------------------------------------------------------------------
def _begin_elsewhere(state: ClusterState, asks: Requests) -> None:
    """Ask agents of other groups for those that idle, and for which none of their own was just asked.

    All have their turn: where there are many groups, each step begins with others.
    """
    busy = list(state.standing.rich)
    wide = [group for group in busy if group.wider]
    widths = sorted({slots for group in wide for slots, wider in group.wider.items() if wider.surplus})
    idle = list(state.standing.idle)
    for slots in widths:
        wider = [group.wider_for(slots) for group in state.standing.idle]
        idle += [group for group in wider if group is not None and group.idle]
    asked = Counter(agent.load.recalling for agent, _ in asks)
    turn = state.recall_turn = state.recall_turn + 1
    for group in _some_from(turn, idle, MOST_IDLE):
        wanted = _idle_in(state, group) - asked[group.purpose]
        if wanted > 0:
            _ask_others(state, group, wanted, _some_from(turn // len(idle), busy, SPARE_LOOKS), asks)


def _some_from(turn: int, groups: list[AgentGroup], most: int) -> Iterable[AgentGroup]:
    count = len(groups)
    return (groups[(turn + i) % count] for i in range(min(count, most)))


def _ask_others(
    state: ClusterState, group: AgentGroup, wanted: int, others: Iterable[AgentGroup], asks: Requests
) -> None:
    """Ask at most so many agents of these groups for rows that the idle agents of another one can run."""
    slots, purpose, looks = group.slots, group.purpose, SPARE_LOOKS
    helped = _who_stays_longest(group)
    room = max(1, (helped.load.window - helped.load.outstanding) // slots)
    for other in others:
        members = other if slots == 1 else other.wider.get(slots)
        if members is None or other.capabilities == group.capabilities:
            continue
        for agent in list(islice(members.surplus, looks)):
            looks -= 1
            load = agent.load
            members.surplus[agent] = members.surplus.pop(agent)
            if load.recalling or purpose in load.exhausted or not _is_worth_it(load, state.now):
                continue
            batches = _batches_for(agent, group)
            if not batches:
                load.exhausted.add(purpose)
                continue
            batches = _in_time_for(state, helped, batches)
            if not batches:
                continue
            asks.append((agent, _request(group, agent, min(_share(load, slots), room), batches)))
            wanted -= 1
            if wanted <= 0:
                return


def _batches_for(agent: AgentRecord, group: AgentGroup) -> list[Batch]:
    """The latest of an agent's batches with rows that agents of another group can run, and that may come back."""
    slots, capabilities, number = group.slots, group.capabilities, agent.number
    able = (
        batch
        for batch in islice(reversed(agent.batches), MOST_LOOKED)
        if batch.slots == slots and capabilities.issuperset(batch.task.capabilities) and _may_come_back(batch, number)
    )
    return list(islice(able, MOST_NAMED))


def _may_come_back(batch: Batch, number: int) -> bool:
    """Not if all of the rows that this agent has are known to have begun.

    Nor if one was refused by others, or has to be within reach of something: it would be placed here again.
    """
    attempts, lineage = batch.attempts, batch.lineage
    if lineage is not None and lineage.required_zones:
        return False
    if attempts is None:
        return True
    if attempts.returns or attempts.refused:
        return False
    begun, rows = attempts.begun, batch.at[number]
    if not rows <= len(begun) <= MOST_LOOKED:
        return True
    return rows > sum(batch.place[row] == AGENT + number for row in begun)
