"""What the scheduler's state says of itself: each kind of disorder is found."""

from collections.abc import Callable

import pytest
from simulator.scripted import FakeScheduler, graph, result, task

from scaler.common.findings import InvalidState
from scaler.common.validating import ValidatingCore
from scaler.protocol.messages import STORED
from scaler.scheduler.core.events import Tick
from scaler.scheduler.state.agent_groups import AgentGroup
from scaler.scheduler.state.batch_records import attempts_of
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.validate import validate


def busy_cluster() -> tuple[FakeScheduler, int]:
    """Rows in all places, objects of all kinds."""
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, graph(10, [[], [0], [1]], [2]), task(20, 4), task(30, 3))
    fake.report(fake.agents[0], client, result(10, 0, 1, STORED))
    assert validate(fake.core.state) == []
    return fake, client


def _count_wrongly(state: ClusterState) -> None:
    next(iter(state.agents.values())).load.outstanding += 1


def _count_wide_rows_wrongly(state: ClusterState) -> None:
    next(iter(state.agents.values())).load.wide[2] = 1


def _lose_a_row(state: ClusterState) -> None:
    (client,) = state.clients.values()
    client.batches[30].left -= 1


def _forget_the_id_of_a_batch(state: ClusterState) -> None:
    (client,) = state.clients.values()
    client.batch_ids.remove(20)


def _forget_a_queued_row(state: ClusterState) -> None:
    (client,) = state.clients.values()
    lo, hi = client.batches[30].spans_in(1)[0]
    state.queues.remove(client.batches[30], lo, hi)


def _wait_for_nothing(state: ClusterState) -> None:
    (client,) = state.clients.values()
    missing = client.batches[10].missing
    assert missing is not None
    missing[2] = 0


def _miscount_what_a_row_waits_for(state: ClusterState) -> None:
    (client,) = state.clients.values()
    missing = client.batches[10].missing
    assert missing is not None
    missing[2] += 1


def _forget_a_reference(state: ClusterState) -> None:
    (client,) = state.clients.values()
    client.values.objects[1].references -= 1


def _forget_a_holder(state: ClusterState) -> None:
    (client,) = state.clients.values()
    client.values.objects[10].holders.clear()


def _remember_for_nothing(state: ClusterState) -> None:
    (client,) = state.clients.values()
    lineage = client.batches[10].lineage
    assert lineage is not None
    lineage.references += 1


def _miscount_workers(state: ClusterState) -> None:
    state.workers += 1


def _miscount_agents_by_slots(state: ClusterState) -> None:
    (group,) = state.groups.values()
    group.widths = {2: 1}


def _find_agents_in_a_group_that_is_gone(state: ClusterState) -> None:
    state.matching[("gpu",), 1] = [AgentGroup(frozenset(["gpu"]))]


def _lose_without_saying(state: ClusterState) -> None:
    (client,) = state.clients.values()
    client.values.objects[10].copies = frozenset()


def _store_nothing(state: ClusterState) -> None:
    (client,) = state.clients.values()
    client.values.objects[10].size = 0


def _begin_nowhere(state: ClusterState) -> None:
    (client,) = state.clients.values()
    attempts_of(client.batches[30]).begun.add(2)


@pytest.mark.parametrize(
    ("disorder", "words"),
    [
        (_count_wrongly, "slots outstanding"),
        (_count_wide_rows_wrongly, "rows that take several slots"),
        (_lose_a_row, "rows left"),
        (_forget_the_id_of_a_batch, "are not all there in order"),
        (_forget_a_queued_row, "queued are"),
        (_wait_for_nothing, "waits for nothing"),
        (_miscount_what_a_row_waits_for, "waits for 2 things, and is in 1 lists"),
        (_forget_a_reference, "references"),
        (_forget_a_holder, "nobody will release"),
        (_remember_for_nothing, "is remembered for"),
        (_miscount_workers, "workers in the cluster"),
        (_miscount_agents_by_slots, "are counted as 1"),
        (_find_agents_in_a_group_that_is_gone, "in a group that is gone"),
        (_lose_without_saying, "is lost, and not among those"),
        (_store_nothing, "is in stores and has no bytes"),
        (_begin_nowhere, "have begun, and are at no agent"),
    ],
)
def test_disorder_is_found(disorder: Callable[[ClusterState], None], words: str) -> None:
    fake, _ = busy_cluster()
    disorder(fake.core.state)
    assert any(words in finding.what for finding in validate(fake.core.state)), validate(fake.core.state)


def test_a_core_that_validates_goes_on_while_all_is_well_and_names_what_is_not() -> None:
    fake, _ = busy_cluster()
    core = ValidatingCore(fake.core, validate)
    core.handle([Tick()], 1.0)
    _count_wrongly(fake.core.state)
    with pytest.raises(InvalidState, match=r"after Tick: agent 1: \d slots outstanding"):
        core.handle([Tick()], 1.1)
