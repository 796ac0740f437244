"""What the scheduler's core does, case by case; agents and clients are played by the test."""

from collections import Counter, deque
from collections.abc import Iterator

import pytest
from simulator.scripted import FakeScheduler, graph, hello, result, root_of, session_of, spans, task
from support.counting import calls_of

from scaler import defaults
from scaler.common.line_limit import INTERVAL
from scaler.common.sorted_numbers import LONGEST
from scaler.protocol.codes import NO_ROOT
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    LOST,
    STORED,
    STREAM,
    TOGETHER,
    VALUES_EACH,
    VALUES_LIST,
    AgentsInUse,
    BalanceRequest,
    BalanceResponse,
    ClientClear,
    ClientDeparture,
    ClientShutdown,
    DisconnectRequest,
    DisconnectResponse,
    Heartbeat,
    ObjectAnnounce,
    ObjectGone,
    ObjectMissing,
    ObjectRelease,
    ObjectRequest,
    ShutdownResponse,
    Spans,
    Task,
    TaskBegun,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskHold,
    TaskOutput,
    TaskResult,
    TaskRunning,
    u8,
    u32,
    u64,
)
from scaler.scheduler.core import events as ev
from scaler.scheduler.core import placement, roots
from scaler.scheduler.core.events import Stirred
from scaler.scheduler.core.placement import MOST_LEFT
from scaler.scheduler.core.scheduler_core import FEW_CLIENTS
from scaler.scheduler.state import root_records
from scaler.scheduler.state.agent_records import MOST_URGENCIES
from scaler.scheduler.state.batch_records import AGENT, Batch, attempts_of
from scaler.scheduler.state.client_records import UNMET_LINES
from scaler.scheduler.state.function_records import MOST_TALLIES
from scaler.scheduler.state.validate import validate
from scaler.serialize.record import decode_error

KNOWN = 1_000


def learnt(fake: FakeScheduler, agent: int, client: int, us: int = 1_000) -> None:
    """Let the scheduler know what the function takes."""
    fake.say(client, task(KNOWN, 1))
    assert fake.placed(agent) == [(KNOWN, 0, 1)]
    fake.report(agent, client, result(KNOWN, 0, 1, us=us))
    fake.heard(client)


# ---- placement -------------------------------------------------------------------------------------------------------
def test_rows_wait_until_an_agent_comes() -> None:
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, task(10, 3))
    assert fake.core.state.queues.rows == 3
    agent = fake.agent(4)
    assert fake.placed(agent) == [(10, 0, 3)]


def test_it_is_idle_while_nobody_waits_for_a_row() -> None:
    """What its process then may do is to look out for who asks next (`scaler.common.spinning`)."""
    fake = FakeScheduler(1)
    client, other = fake.client(), fake.client()
    assert fake.core.is_idle
    fake.say(client, task(10, 2))
    assert not fake.core.is_idle
    fake.end_all(fake.agents[0], client)
    assert fake.core.is_idle
    fake.say(other, task(10, 2))
    fake.lose(other)
    assert fake.core.is_idle
    for _ in range(FEW_CLIENTS):
        fake.client()
    assert not fake.core.is_idle  # it would take long to say


def test_rows_of_an_unknown_function_are_spread_over_the_workers() -> None:
    fake = FakeScheduler(2, 2)
    client = fake.client()
    fake.say(client, task(10, 4))
    assert [fake.holds(agent) for agent in fake.agents] == [2, 2]


def test_an_agent_gets_no_more_than_a_second_row_a_worker_while_a_function_is_unknown() -> None:
    fake = FakeScheduler(2)
    fake.say(fake.client(), task(10, 100))
    assert fake.holds(fake.agents[0]) == 4


def test_short_rows_are_prefetched_by_a_window_of_work() -> None:
    fake = FakeScheduler(2)
    client = fake.client()
    learnt(fake, fake.agents[0], client, us=100)
    fake.say(client, task(10, 5_000))
    assert 1_000 <= fake.holds(fake.agents[0]) <= 2_000


def test_an_agent_that_has_run_short_rows_is_given_few_long_ones_at_once() -> None:
    fake = FakeScheduler(2)
    (agent,), client = fake.agents, fake.client()
    learnt(fake, agent, client, us=200_000)
    fake.say(client, task(2000, 1, name="short"))
    for batch in range(3000, 3030):
        fake.say(client, task(batch, 1, name="short"))
        fake.report(agent, client, result(batch, 0, 1, us=100))
    assert fake.core.state.agents[agent].load.window > 1_000
    fake.say(client, task(10, 500), task(5000, 500, name="short"))
    assert fake.holds(agent) == 4


def test_long_rows_behind_short_ones_are_not_given_as_many_as_of_those() -> None:
    fake = FakeScheduler(2)
    (agent,), client = fake.agents, fake.client()
    learnt(fake, agent, client, us=200_000)
    for batch in range(3000, 3030):
        fake.say(client, task(batch, 1, name="short"))
        fake.report(agent, client, result(batch, 0, 1, us=100))
    fake.placed(agent)
    fake.say(client, spans(TaskHold, 0, (10, 0, 500)))
    fake.say(client, task(5000, 30, name="short"), task(10, 500))
    assert fake.placed(agent) == []
    fake.say(client, TaskHold())
    assert fake.placed(agent) == [(5000, 0, 30)]


def test_what_agents_have_beyond_their_windows_is_taken_back_when_others_wait() -> None:
    fake = FakeScheduler(2)
    (agent,), client, other = fake.agents, fake.client(), fake.client()
    learnt(fake, agent, client, us=100)
    fake.say(client, task(10, 60))
    assert fake.holds(agent) == 60
    fake.placed(agent)
    fake.report(agent, client, result(10, 0, 2, us=500_000))
    fake.say(client, task(100, 10))
    fake.wait(1.0)
    assert fake.heard(agent, BalanceRequest) == []  # nobody else waits
    fake.say(other, task(10, 10))
    fake.wait(0.1)
    assert fake.holds(agent) == 58 + 4  # it has its turn beside the others
    (request,) = fake.heard(agent, BalanceRequest)
    assert request.rows == 58 - 4
    fake.wait(1.0)
    assert fake.heard(agent, BalanceRequest) == []  # it has not answered
    fake.say(agent, spans(BalanceResponse, client, (10, 6, 60)))
    for row in (2, 3, 4):
        fake.report(agent, client, result(10, row, row + 1, us=500_000))
    assert fake.placed(agent) == [(10, 6, 7), (10, 7, 8), (10, 8, 9)]  # it has as many as the other one
    assert fake.holds(agent) == 4 + 4
    fake.report(agent, other, result(10, 0, 1, us=500_000))
    assert fake.placed(agent) == [(10, 4, 5)]
    fake.wait(1.0)
    assert fake.heard(agent, BalanceRequest) == []


def test_a_root_has_its_turn_at_an_agent_whose_window_another_one_fills() -> None:
    fake = FakeScheduler(1)
    (agent,), client, other = fake.agents, fake.client(), fake.client()
    learnt(fake, agent, client, us=5_000)
    fake.say(client, task(10, 1_000))
    filled = fake.holds(agent)
    fake.placed(agent)
    fake.say(other, task(10, 50))
    assert fake.placed(agent) == [(10, 0, 2)]
    fake.say(client, task(2_000, 10))
    assert fake.holds(agent) == filled + 2
    fake.report(agent, other, result(10, 0, 1, us=2_000))
    assert fake.placed(agent) == [(10, 2, 11)]  # now that they are known to be short


def test_who_had_work_alone_has_turns_beside_a_root_that_comes_later_and_never_lets_a_window_empty() -> None:
    """Each row of that root is followed by another one that it submits as it begins."""
    fake = FakeScheduler(2)
    (agent,), client, other = fake.agents, fake.client(), fake.client()
    learnt(fake, agent, client, us=100_000)
    learnt(fake, agent, other, us=100_000)
    fake.say(client, task(10, 100))
    there: deque[tuple[int, int, int]] = deque()
    ran, begun = Counter[int](), 0
    for _ in range(3):
        fake.say(other, task(2_000 + begun, 1))
        begun += 1
    for _ in range(60):
        for given in fake.heard(agent, Task):
            for lo, hi in zip(given.spans[::2], given.spans[1::2], strict=True):
                there += [(given.client, given.batch, row) for row in range(lo, hi)]
        owner, batch, row = there.popleft()
        ran[owner] += 1
        if owner == other:
            fake.say(other, task(2_000 + begun, 1))
            begun += 1
        fake.report(agent, owner, result(batch, row, row + 1, us=100_000))
        assert validate(fake.core.state) == []
    assert min(ran[client], ran[other]) >= 20, ran


def test_the_more_roots_have_their_turns_at_an_agent_the_less_of_each_is_there() -> None:
    fake = FakeScheduler(1)
    (agent,), clients = fake.agents, [fake.client() for _ in range(30)]
    for client in clients:
        learnt(fake, agent, client, us=100)
    fake.say(clients[0], task(10, 10_000))
    filled = fake.holds(agent)
    assert filled == 1_000
    fake.placed(agent)
    for client in clients[1:6]:
        fake.say(client, task(10, 10_000))
        assert fake.placed(agent) == [(10, 0, 200)]
    for others, client in enumerate(clients[6:], 6):
        fake.say(client, task(10, 10_000))
        assert fake.placed(agent) == [(10, 0, filled // others)]


def test_what_a_root_s_tasks_submit_has_one_share_with_it_and_goes_before_its_other_rows() -> None:
    fake = FakeScheduler()
    root, one, two, other = [fake.client() for _ in range(4)]
    fake.say(root, task(10, 9))
    for worker in one, two:
        fake.say(worker, task(20, 9, root=root_of(root), nesting=1), task(40, 9, root=root_of(root), nesting=2))
    fake.say(other, task(10, 18))
    ((_, queue),) = fake.core.state.queues.items()
    order = [queue.take(1)[0] for _ in range(30)]
    assert [batch.client == other for batch in order] == [False, True] * 15
    assert [batch.nesting for batch in order if batch.client != other] == [2] * 15
    assert {batch.client for batch in order} == {one, two, other}


def test_what_is_nested_is_no_more_urgent_than_what_another_user_calls_urgent() -> None:
    fake = FakeScheduler(1)
    (agent,), root, worker, other = fake.agents, fake.client(), fake.client(), fake.client()
    fake.say(worker, task(20, 50, root=root_of(root), nesting=3))
    assert fake.placed(agent) == [(20, 0, 2)]
    fake.say(other, task(10, 5, priority=1))
    assert fake.placed(agent) == [(10, 0, 2)]


def test_higher_priority_goes_first_and_clients_take_turns() -> None:
    fake = FakeScheduler(0)
    (agent,) = fake.agents
    one, two = fake.client(), fake.client()
    fake.say(one, task(10, 2), task(20, 1, priority=1))
    fake.say(two, task(10, 2))
    order = []
    for _ in range(5):
        fake.say(agent, Heartbeat(0.0, 1))
        for message in fake.heard(agent, Task):
            order += [(message.client, message.batch)] * (message.spans[1] - message.spans[0])
        for c in (one, two):
            fake.end_all(agent, c)
    order += [(message.client, message.batch) for message in fake.heard(agent, Task)]
    assert order[0] == (one, 20)
    assert sorted(order[1:3]) == [(one, 10), (two, 10)]


def test_a_step_looks_at_few_of_many_priorities_and_the_most_urgent_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    looked: list[object] = []
    real = placement._groups_for
    monkeypatch.setattr(placement, "_groups_for", lambda state, demand: looked.append(demand) or real(state, demand))
    for number in range(300):
        looked.clear()
        fake.say(client, task(1_000 + number * 7_919 % 300, 1, priority=number * 7_919 % 300))
        assert len(looked) <= MOST_LEFT + 2
    fake.placed(agent)
    order: list[int] = []
    while fake.core.state.clients[client].outstanding:
        fake.end_all(agent, client)
        order += [batch for batch, _, _ in fake.placed(agent)]
    assert len(order) > 290
    assert order == sorted(order, reverse=True)
    assert {demand for (_, demand, *_), _ in fake.core.state.queues.items()} == {((), 1)}


def test_a_row_that_is_more_urgent_than_all_that_an_agent_has_goes_to_it_at_once() -> None:
    fake = FakeScheduler(2)
    (agent,) = fake.agents
    client = fake.client()
    learnt(fake, agent, client, us=1)
    fake.say(client, task(10, 50_000))
    backlog = fake.holds(agent)
    assert 2 < backlog < 50_000
    fake.heard(agent)
    fake.say(client, task(100_000, 5, priority=1))
    assert fake.placed(agent) == [(100_000, 0, 4)], "two a worker, whatever else it has"
    fake.report(agent, client, result(100_000, 0, 1))
    assert fake.placed(agent) == [(100_000, 4, 5)], "the next one takes the place of the one that ended"
    fake.say(client, task(100_010, 1, priority=2))
    assert fake.placed(agent) == [(100_010, 0, 1)]


def test_who_submits_each_task_with_a_higher_priority_than_the_last_has_a_window_too() -> None:
    fake = FakeScheduler(4)
    (agent,) = fake.agents
    client = fake.client()
    learnt(fake, agent, client, us=1_000_000)
    for i in range(1, 2_000):
        fake.say(client, task(100 + i, 1, priority=i))
    assert fake.holds(agent) <= MOST_URGENCIES + 1 < 100


def test_what_is_as_urgent_as_the_backlog_waits_for_its_turn() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    learnt(fake, agent, client, us=1)
    fake.say(client, task(10, 50_000, priority=1), task(70_000, 2))
    fake.heard(agent)
    fake.say(client, task(100_000, 1, priority=1), task(100_010, 1))
    assert not fake.placed(agent)


def test_an_urgent_row_finds_the_last_agent_with_none() -> None:
    fake = FakeScheduler(*[1] * 20)
    client, agents = fake.client(), fake.core.state.agents
    fake.say(client, task(1_000, 40))
    assert [agent.load.outstanding for agent in agents.values()] == [2] * 20
    for batch in range(2_000, 2_041):
        fake.say(client, task(batch, 1, priority=1))
    for _ in range(3):
        fake.handle()
    assert [agent.load.as_urgent(1) for agent in agents.values()] == [2] * 20
    assert fake.core.state.queues.rows == 1


def test_rows_of_unknown_duration_get_on_beside_known_ones_that_never_end() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client, other = fake.client(), fake.client()
    learnt(fake, agent, client)
    fake.say(client, task(1_000, 5_000))
    fake.say(other, task(10, 2, name="unknown"))
    seen = []
    for _ in range(400):
        ((batch, lo, hi), *_) = [
            (batch, *batch.spans_in(16 + agent)[0])
            for batch in fake.core.state.clients[client].batches.values()
            if batch.at
        ]
        fake.report(agent, client, result(batch.id, lo, min(hi, lo + 10), us=10_000))
        seen += [message for message in fake.heard(agent, Task) if message.client == other]
        if seen:
            return
    raise AssertionError("the other client's rows starve")


def test_only_agents_with_the_capabilities_get_rows_that_need_them() -> None:
    fake = FakeScheduler(4)
    client = fake.client()
    fake.say(client, task(10, 2, capabilities=("gpu",)))
    assert fake.core.state.queues.rows == 2
    gpu = fake.agent(1, ("fast", "gpu"))
    assert fake.holds(gpu) == 2
    assert fake.holds(fake.agents[0]) == 0


def test_rows_are_taken_back_for_an_agent_that_idles() -> None:
    fake = FakeScheduler(1)
    (busy,) = fake.agents
    client = fake.client()
    learnt(fake, busy, client, us=10_000)
    fake.say(client, task(10, 8))
    assert fake.placed(busy) == [(10, 0, 8)]
    idle = fake.agent(1)
    (request,) = fake.heard(busy, BalanceRequest)
    fake.say(busy, spans(BalanceResponse, client, (10, 8 - request.rows, 8)))
    assert fake.holds(idle) >= 1
    assert fake.holds(idle) + fake.holds(busy) == 8


def test_an_agent_that_had_nothing_to_give_back_is_not_asked_again_until_it_gets_rows() -> None:
    fake = FakeScheduler(1)
    (busy,) = fake.agents
    client = fake.client()
    learnt(fake, busy, client, us=10_000)
    fake.say(client, task(10, 8))
    other = fake.agent(1)
    assert len(fake.heard(busy, BalanceRequest)) == 1
    for _ in range(5):
        fake.say(busy, BalanceResponse())
    assert fake.heard(busy, BalanceRequest) == []
    fake.say(client, task(100, 60))
    fake.report(busy, client, result(10, 0, 6, us=10_000))
    while given := fake.placed(other):
        for span in given:
            fake.report(other, client, result(*span))
    assert len(fake.heard(busy, BalanceRequest)) == 1, "it has been given rows since"


def both_learnt(*workers: int, us: int) -> tuple[FakeScheduler, list[int], int]:
    """Agents that have run rows of a client, which took so long."""
    fake = FakeScheduler(*workers)
    client = fake.client()
    for agent in fake.agents:
        learnt(fake, agent, client, us=us)
    return fake, fake.agents, client


def test_an_agent_is_asked_for_rows_when_it_has_been_given_them() -> None:
    """It said that it has none, as the request came first, and was not asked again while the other one idled."""
    fake, (small, large), client = both_learnt(1, 8, us=10_000)
    fake.say(client, task(10, 4))
    assert (fake.holds(small), fake.holds(large)) == (2, 2)
    sent = [type(effect.message) for effect in fake.effects if isinstance(effect, ev.Send) and effect.number == small]
    assert sent == [Task, BalanceRequest]


def test_rows_wait_at_no_agent_while_one_of_other_capabilities_idles() -> None:
    fake = FakeScheduler(2)
    (plain,) = fake.agents
    gpu = fake.agent(2, ("gpu",))
    fake.say(fake.client(), task(10, 4))
    assert (fake.holds(plain), fake.holds(gpu)) == (2, 2)


def test_rows_behind_one_that_takes_long_are_asked_for_whatever_the_last_ones_took() -> None:
    fake, (one, other), client = both_learnt(1, 1, us=1)
    fake.say(client, task(10, 4, name="of which nothing is known"))
    assert (fake.holds(one), fake.holds(other)) == (2, 2)
    fake.now += 0.2
    for _, lo, hi in fake.placed(other):
        fake.report(other, client, result(10, lo, hi, us=100_000))
    assert len(fake.heard(one, BalanceRequest)) == 1


def wanted_of(request: BalanceRequest) -> list[tuple[int, int]]:
    """The batches from which rows are wanted."""
    return list(zip(request.clients, request.batches, strict=True))


def among_groups(*made: tuple[int, Task], capabilities: tuple[str, ...] = ("gpu",)) -> tuple[FakeScheduler, int, int]:
    """A scheduler whose only agent has one worker, these capabilities and these rows of 10 ms; and their client."""
    fake = FakeScheduler()
    busy, client = fake.agent(1, capabilities), fake.client()
    learnt(fake, busy, client, us=10_000)
    for rows, task_of in made:
        fake.say(client, task_of)
        assert sum(hi - lo for _, lo, hi in fake.placed(busy)) == rows
    return fake, busy, client


def test_rows_are_taken_back_for_an_idle_agent_of_other_capabilities() -> None:
    fake, busy, client = among_groups((5, task(10, 5)))
    idle = fake.agent(2)
    (request,) = fake.heard(busy, BalanceRequest)
    assert (request.rows, request.threads, wanted_of(request)) == (2, 0, [(client, 10)])
    fake.say(busy, spans(BalanceResponse, client, (10, 3, 5)))
    assert fake.placed(idle) == [(10, 3, 5)]
    assert fake.holds(busy) == 3
    fake.report(idle, client, result(10, 3, 5, us=10_000))
    (request,) = fake.heard(busy, BalanceRequest)
    assert request.rows == 1
    fake.say(busy, spans(BalanceResponse, client, (10, 2, 3)))
    fake.report(idle, client, result(10, 2, 3, us=10_000))
    assert len(fake.heard(busy, BalanceRequest)) == 1
    fake.say(busy, spans(BalanceResponse, client, (10, 1, 2)))
    fake.report(idle, client, result(10, 1, 2, us=10_000))
    assert fake.heard(busy, BalanceRequest) == [], "it has only the row that runs"


def test_only_batches_that_the_idle_agent_can_run_are_named() -> None:
    fake, busy, client = among_groups(
        (2, task(10, 2)), (2, task(20, 2, capabilities=("gpu",))), (2, task(30, 2)), capabilities=("gpu", "ssd")
    )
    fake.agent(1)
    (request,) = fake.heard(busy, BalanceRequest)
    assert wanted_of(request) == [(client, 30), (client, 10)]
    fake.say(busy, spans(BalanceResponse, client, (30, 0, 2)))
    fake.agent(1, ("fast", "gpu"))
    (request,) = fake.heard(busy, BalanceRequest)
    assert wanted_of(request) == [(client, 20), (client, 10)]


def test_rows_that_an_idle_agent_can_not_run_are_not_taken_back_for_it() -> None:
    fake, busy, client = among_groups((5, task(10, 5, capabilities=("gpu",))))
    idle = fake.agent(2)
    for _ in range(3):
        fake.say(idle, Heartbeat(0.0, 2))
    assert fake.heard(busy, BalanceRequest) == []
    fake.say(client, task(20, 2), task(30, 2))
    assert (fake.placed(idle), fake.placed(busy)) == ([(20, 0, 2)], [(30, 0, 2)])
    fake.report(idle, client, result(20, 0, 2))
    assert [wanted_of(request) for request in fake.heard(busy, BalanceRequest)] == [[(client, 30)]]


def test_agents_of_the_same_capabilities_are_asked_first() -> None:
    fake, plain, client = among_groups((8, task(10, 8)), capabilities=())
    gpu = fake.agent(1, ("gpu",))
    assert [wanted_of(request) for request in fake.heard(plain, BalanceRequest)] == [[(client, 10)]]
    fake.say(plain, BalanceResponse())
    fake.say(client, task(20, 2))
    assert fake.placed(gpu) == [(20, 0, 2)]
    fake.agent(1)
    assert [wanted_of(request) for request in fake.heard(plain, BalanceRequest)] == [[]]
    assert fake.heard(gpu, BalanceRequest) == []


def test_an_agent_of_other_capabilities_that_gave_nothing_back_is_not_asked_again_until_it_gets_rows() -> None:
    fake, busy, client = among_groups((5, task(10, 5)))
    idle = fake.agent(1)
    assert len(fake.heard(busy, BalanceRequest)) == 1
    for _ in range(3):
        fake.say(idle, Heartbeat(0.0, 1))
    assert fake.heard(busy, BalanceRequest) == [], "it has not answered"
    for _ in range(3):
        fake.say(busy, BalanceResponse())
        fake.say(idle, Heartbeat(0.0, 1))
    assert fake.heard(busy, BalanceRequest) == []
    fake.say(client, task(20, 1, capabilities=("gpu",)))
    (request,) = fake.heard(busy, BalanceRequest)
    assert wanted_of(request) == [(client, 10)], "it has been given rows since"


def test_a_row_that_has_run_for_a_while_is_not_asked_for() -> None:
    fake, busy, client = among_groups((1, task(10, 1)), (4, task(20, 4, capabilities=("gpu",))))
    fake.say(busy, spans(TaskBegun, client, (10, 0, 1)))
    fake.agent(1)
    assert fake.heard(busy, BalanceRequest) == []


def test_rows_that_others_could_not_run_stay_at_agents_of_other_capabilities() -> None:
    fake, busy, client = among_groups((5, task(10, 5)))
    attempts_of(fake.core.state.clients[client].batches[10]).refused[4] = {99}
    fake.agent(1)
    assert fake.heard(busy, BalanceRequest) == []


@pytest.mark.parametrize("capabilities", [("gpu",), ()])
def test_rows_for_which_an_idle_agent_has_too_little_time_are_not_taken_back_for_it(capabilities) -> None:
    fake, busy, _ = among_groups((5, task(10, 5)), capabilities=capabilities)
    for number, milliseconds in ((90, 5), (91, 50)):
        going = hello("agent", "going", 1)
        going.walltime = milliseconds
        fake.handle(ev.Joined(number, going))
        assert bool(fake.heard(busy, BalanceRequest)) == (milliseconds > 10)


def test_rows_of_several_slots_are_taken_back_for_idle_agents_of_other_capabilities() -> None:
    fake = FakeScheduler()
    busy, client = fake.agent(4, ("gpu",)), fake.client()
    learnt(fake, busy, client, us=100_000)
    fake.say(client, task(10, 2, threads=4))
    assert fake.holds(busy) == 8
    fake.agent(3)
    assert fake.heard(busy, BalanceRequest) == []
    other = fake.agent(4)
    (request,) = fake.heard(busy, BalanceRequest)
    assert (request.rows, request.threads, wanted_of(request)) == (1, 4, [(client, 10)])
    fake.say(busy, spans(BalanceResponse, client, (10, 1, 2)))
    assert fake.placed(other) == [(10, 1, 2)]


def test_all_of_many_groups_are_asked_in_turn() -> None:
    fake = FakeScheduler()
    client = fake.client()
    busy = [fake.agent(1, (f"host-{i}",)) for i in range(20)]
    learnt(fake, busy[0], client, us=10_000)
    fake.say(client, task(10, 48))
    assert [fake.holds(number) for number in busy] == [10, *[2] * 19]
    fake.agent(1)
    asked: list[int] = []
    for _ in range(40):
        for number in busy:
            if fake.heard(number, BalanceRequest):
                asked.append(number)
                fake.say(number, BalanceResponse())
    assert sorted(asked) == busy


def test_an_agent_is_asked_once_for_each_of_many_idle_groups() -> None:
    fake, busy, _ = among_groups((5, task(10, 5)))
    for i in range(20):
        fake.agent(1, (f"host-{i}",))
    requests = 0
    for _ in range(60):
        new = fake.heard(busy, BalanceRequest)
        assert len(new) <= 1
        requests += len(new)
        fake.say(busy, BalanceResponse())
    assert requests == 20


def test_objects_travel_to_an_agent_once() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    for batch in (10, 20):
        fake.say(client, task(batch, 1, TOGETHER))
        fake.report(agent, client, result(batch, 0, 1))
    first, second = fake.heard(agent, Task)
    assert list(first.objects) == [1, 1_000_010]
    assert list(second.objects) == [1_000_020]


# ---- what ends -------------------------------------------------------------------------------------------------------
def test_results_are_passed_on_as_they_come() -> None:
    fake = FakeScheduler(2)
    client = fake.client()
    fake.say(client, task(10, 2))
    fake.report(fake.agents[0], client, result(10, 0, 1, VALUES_EACH), result(10, 1, 2, ERROR))
    assert fake.ends(client) == [(10, 0, 1, VALUES_EACH), (10, 1, 2, ERROR)]
    assert fake.core.state.clients[client].batches == {}


def test_a_failed_row_is_run_again_as_often_as_asked() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 1, retries=2))
    for _ in range(2):
        assert fake.placed(agent) == [(10, 0, 1)]
        fake.report(agent, client, result(10, 0, 1, ERROR))
        assert fake.ends(client) == []
    fake.report(agent, client, result(10, 0, 1, ERROR))
    assert fake.ends(client) == [(10, 0, 1, ERROR)]
    ended = fake.core.state.ended
    assert (ended.failed, ended.retried, ended.lost) == (0, 2, 0)  # that it failed is its function's to count


def test_rows_that_run_again_as_their_worker_or_host_was_lost_are_counted() -> None:
    fake = FakeScheduler(4, 4)
    (one, other) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 4))
    rows = fake.holds(one)
    assert rows
    (_, lo, _) = fake.placed(one)[0]
    fake.report(one, client, result(10, lo, lo + 1, LOST))
    assert fake.core.state.ended.lost == 1
    held = fake.holds(one)
    fake.lose(one)
    assert fake.core.state.ended.lost == 1 + held
    assert fake.holds(other) == 4


def test_a_row_that_was_lost_with_four_workers_is_given_up_by_name() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 1))
    for _ in range(3):
        fake.report(agent, client, result(10, 0, 1, LOST))
        assert fake.ends(client) == []
    fake.report(agent, client, result(10, 0, 1, LOST))
    (message,) = fake.heard(client)
    error = decode_error(bytes(message.bodies[0]))
    assert type(error).__name__ == "WorkerLost"
    assert "f" in str(error)
    assert "10" in str(error)
    assert "why; attempt 4 of 4" in str(error)


def test_agents_are_told_which_rows_were_lost_before_and_by_nobody_else() -> None:
    fake = FakeScheduler(8)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 6, lost=u32([0, 6])))  # of new rows a client may say so
    (given,) = fake.heard(agent, Task)
    assert given.lost.tolist() == []
    fake.report(agent, client, *(result(10, row, row + 1, LOST) for row in (1, 2, 4)))
    (given,) = fake.heard(agent, Task)
    assert (given.spans.tolist(), given.lost.tolist()) == ([4, 5, 2, 3, 1, 2],) * 2
    other = fake.agent(8)
    fake.lose(agent)
    (given,) = fake.heard(other, Task)
    assert (given.spans.tolist(), given.lost.tolist()) == ([0, 6], [1, 3, 4, 5])


def test_a_lost_agent_returns_its_rows_to_the_queue() -> None:
    fake = FakeScheduler(4, 4)
    client = fake.client()
    fake.say(client, task(10, 8))
    one, other = fake.agents
    fake.placed(other)
    fake.lose(one)
    assert fake.placed(other) == [(10, 0, 4)]


def test_a_result_of_an_agent_that_was_given_up_counts_for_nothing() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 1))
    fake.lose(agent)
    fake.report(agent, client, result(10, 0, 1))
    assert fake.ends(client) == []
    other = fake.agent(1)
    assert fake.placed(other) == [(10, 0, 1)]


def test_a_batch_said_twice_runs_once() -> None:
    fake = FakeScheduler(4)
    client = fake.client()
    fake.say(client, task(10, 2), task(10, 2))
    assert fake.placed(fake.agents[0]) == [(10, 0, 2)]


def test_rows_without_their_function_fail() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 2, function=99))
    assert fake.ends(client) == [(10, 0, 1, ERROR), (10, 1, 2, ERROR)] or fake.ends(client) == []
    assert fake.core.state.clients[client].batches == {}


def test_a_part_of_a_batch_is_not_a_clients_to_send() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 2, spans=u32([0, 1])))
    assert client not in fake.core.state.clients


def test_a_row_that_an_agent_tells_of_twice_in_one_message_is_told_of_once() -> None:
    fake = FakeScheduler(4)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 4))
    fake.report(agent, client, result(10, 0, 2, VALUES_EACH), result(10, 1, 4, VALUES_EACH))
    assert fake.ends(client) == [(10, 0, 2, VALUES_EACH)]
    assert fake.placed(agent) == [(10, 0, 4), (10, 2, 4)]
    fake.report(agent, client, result(10, 3, 4, VALUES_EACH), result(10, 2, 3, VALUES_EACH))
    assert fake.ends(client) == [(10, 3, 4, VALUES_EACH), (10, 2, 3, VALUES_EACH)]
    assert fake.core.state.clients[client].batches == {}


def test_few_batches_are_moved_for_one_that_ends_however_many_there_are() -> None:
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, *(task(batch, 1) for batch in range(10, 10 + 4 * LONGEST)))
    assert fake.core.state.clients[client].batch_ids.longest <= LONGEST


# ---- dependencies ----------------------------------------------------------------------------------------------------
def test_a_graph_runs_in_its_order_and_only_wanted_values_are_said() -> None:
    fake = FakeScheduler(4)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, graph(10, [[], [0], [0, 1]], wanted=[2]))
    for row in range(3):
        (given,) = fake.heard(agent, Task)
        assert list(given.spans) == [row, row + 1]
        fake.report(agent, client, result(10, row, row + 1, VALUES_EACH))
    assert fake.ends(client) == [(10, 2, 3, VALUES_EACH)]
    assert set(fake.core.state.clients[client].values.objects) == {1}


def test_rows_that_depend_on_a_failed_one_fail_with_its_error() -> None:
    fake = FakeScheduler(4)
    client = fake.client()
    fake.say(client, graph(10, [[], [0], [1], []], wanted=[2]))
    fake.report(fake.agents[0], client, result(10, 0, 1, ERROR))
    assert fake.ends(client) == [(10, 2, 3, ERROR)]


def test_a_cancelled_row_takes_those_that_depend_on_it_along() -> None:
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, graph(10, [[], [0], [1]], wanted=[2]))
    fake.cancel(client, (10, 0, 3))
    assert [end[:3] for end in fake.ends(client)] == [(10, 2, 3)]
    assert fake.core.state.clients[client].batches == {}


def dependent(batch: int, *values: int, rows: int = 1) -> Task:
    """Rows with their own payload, each of which needs values."""
    return task(batch, rows, dependency_counts=u32([len(values)]) * rows, dependencies=u64(values) * rows)


def test_the_value_of_a_plain_pending_row_goes_to_the_rows_that_need_it() -> None:
    fake = FakeScheduler(4)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 4), dependent(20, 12))
    fake.heard(agent)
    fake.report(agent, client, result(10, 0, 4, VALUES_LIST))
    (given,) = fake.heard(agent, Task)
    assert list(given.indexes) == [2]
    assert given.dependencies[0] >> 63
    fake.report(agent, client, result(20, 0, 1))
    assert set(fake.core.state.clients[client].values.objects) == {1}


def calls_for_a_link(links: int) -> int:
    """Calls of functions when a row comes that needs the last one of a chain of so many, each a batch of its own."""
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 1), *[dependent(batch + 1, batch) for batch in range(10, 10 + links)])
    said = [ev.Received(client, dependent(11 + links, 10 + links))]
    return calls_of(lambda: fake.core.handle(said, fake.now))


def test_the_next_link_of_a_long_chain_of_futures_costs_what_that_of_a_short_one_does() -> None:
    assert calls_for_a_link(500) == calls_for_a_link(20)


def calls_for_a_loss(rows: int) -> int:
    """Calls of functions when a value is lost, while so many rows are queued that need none."""
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 1))
    fake.report(agent, client, result(10, 0, 1, STORED))
    fake.say(client, task(20, rows))
    said = [ev.Received(agent, ObjectGone(u32([client]), u64([10])))]
    return calls_of(lambda: fake.core.handle(said, fake.now))


def test_a_loss_costs_nothing_for_rows_that_need_no_values() -> None:
    """A million queued rows of a map took 0.4 s with each value that was lost."""
    assert calls_for_a_loss(9_000) == calls_for_a_loss(3_000)


def calls_for_a_task_among(unmet: int) -> int:
    """Calls of functions when a row comes while others wait for so many different things that no agent has."""
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, *[task(100 + n, 1, capabilities=(f"disk-{n}",)) for n in range(unmet)])
    said = [ev.Received(client, task(10, 1)), ev.Received(client, task(20, 1, capabilities=("tape",)))]
    return calls_of(lambda: fake.core.handle(said, fake.now))


def test_rows_that_wait_for_what_no_agent_has_are_in_nobodys_way() -> None:
    """With 4,000 different wishes each task took 4 ms more, their own ones too."""
    assert calls_for_a_task_among(200) == calls_for_a_task_among(20)


def calls_for_a_task_after(widths: int) -> int:
    """Calls of functions when a row comes and ends after a client has asked for so many numbers of workers."""
    fake = FakeScheduler(4, 4)
    client, other = fake.client(), fake.client()
    fake.say(other, *[task(100 + n, 1, threads=2 + n) for n in range(widths)])
    fake.lose(other)
    said = [ev.Received(client, task(10, 1))]
    return calls_of(lambda: fake.core.handle(said, fake.now))


def test_whoever_asked_for_many_numbers_of_workers_is_in_nobodys_way() -> None:
    """After 2,000 of them each task took 3 ms more, for good."""
    assert calls_for_a_task_after(200) < calls_for_a_task_after(10) + 50


def calls_for_an_agent_that_is_lost_among(clients: int) -> int:
    """Calls of functions when an agent is lost while so many clients are there that had nothing to do with it."""
    fake = FakeScheduler(1, 1)
    agent, client = fake.agents[0], fake.client()
    fake.say(client, task(10, 2))
    others = [fake.client() for _ in range(clients)]
    fake.lose(others.pop())
    assert validate(fake.core.state) == []
    calls = calls_of(lambda: fake.lose(agent))
    assert [message.removed.tolist() for message in fake.heard(client, AgentsInUse)][-1] == [agent]
    assert validate(fake.core.state) == []
    return calls


def test_clients_that_had_nothing_to_do_with_an_agent_are_not_looked_at_when_it_is_lost() -> None:
    """With 2,000 of them the loss of each took 0.8 ms more."""
    calls_for_an_agent_that_is_lost_among(1)  # loads what the first loss in a process needs
    assert calls_for_an_agent_that_is_lost_among(200) < calls_for_an_agent_that_is_lost_among(20) + 100


def test_what_was_found_for_rows_is_let_go_after_they_have_gone() -> None:
    fake = FakeScheduler(8, 8)
    client = fake.client()
    capabilities = [(f"disk-{n}",) for n in range(100)]
    asks = [task(1_000 + n, 1, capabilities=asked) for n, asked in enumerate(capabilities)]
    fake.say(client, *asks, *[task(2_000 + n, 1, threads=2 + n) for n in range(100)])
    (group,) = fake.core.state.groups.values()
    assert list(group.wider) == [2, 3, 4, 5, 6, 7, 8], "none is for more than an agent has"
    for agent in fake.agents:
        fake.end_all(agent, client)
    assert validate(fake.core.state) == []
    fake.cancel(client, *[(batch, 0, 1) for batch in range(1_001, 1_100)])
    fake.cancel(client, *[(batch, 0, 1) for batch in range(2_000, 2_100)])
    fake.say(client, task(10, 1, threads=3))  # an agent has it
    fake.wait(defaults.AGENT_TIMEOUT / 2)
    assert list(group.wider) == [3]
    assert list(fake.core.state.matching) == [(("disk-0",), 1)]
    assert validate(fake.core.state) == []


def test_what_was_found_for_rows_is_bounded_until_it_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MOST_MATCHING", 10)
    fake = FakeScheduler(8)
    client = fake.client()
    for n in range(50):
        fake.say(client, task(1_000 + n, 1, capabilities=(f"disk-{n}",)))
        fake.cancel(client, (1_000 + n, 0, 1))
        assert len(fake.core.state.matching) <= 10
    assert validate(fake.core.state) == []


def test_kinds_of_rows_of_a_function_that_are_gone_are_not_told_apart_for_ever() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 1, capabilities=("gpu",)), graph(12, [[], [0]], [1]))
    for n in range(200):
        fake.say(client, task(100 + n, 1, capabilities=(f"disk-{n}",)))
        fake.cancel(client, (100 + n, 0, 1))
    (function,) = fake.core.state.clients[client].functions.values()
    assert len(function.tallies) <= MOST_TALLIES
    assert {(("gpu",), 1), ((), 1)} <= function.tallies.keys(), "rows of it wait"
    assert function.unmet <= function.tallies.keys()
    assert validate(fake.core.state) == []


def test_of_many_functions_that_need_what_no_agent_has_the_log_names_some_and_counts_the_others() -> None:
    """Each client has lines of its own."""
    fake = FakeScheduler(1)
    clients = fake.client(), fake.client()

    def ask(client: int, first: int, count: int) -> list[str]:
        fake.log.clear()
        batches = range(first, first + count)
        fake.say(client, *[task(10 + n, 1, name=f"f{n}", capabilities=("gpu",)) for n in batches])
        return [line for line in fake.log if "needs gpu, which no agent has yet" in line]

    assert len(ask(clients[0], 0, 5_000)) == UNMET_LINES
    assert len(ask(clients[1], 0, 3)) == 3
    fake.now += INTERVAL
    (line,) = ask(clients[0], 5_000, 1)
    assert line.startswith("f5000 needs gpu")
    assert line.endswith(f"(and {5_000 - UNMET_LINES:,} times since the last such line)")


def test_rows_that_take_more_slots_than_any_agent_has_left_wait_for_one_that_comes() -> None:
    fake = FakeScheduler(2, 4)
    _, large = fake.agents
    client = fake.client()
    fake.say(client, task(10, 1, threads=4))
    fake.lose(large)
    fake.say(client, task(20, 1, threads=3))
    assert {key[1][1] for key in fake.core.state.queues.unmet} == {3, 4}
    (group,) = fake.core.state.groups.values()
    assert group.wider == {}
    third = fake.agent(3)
    assert fake.placed(third) == [(20, 0, 1)]
    assert {key[1][1] for key in fake.core.state.queues.unmet} == {4}
    fourth = fake.agent(4)
    assert fake.placed(fourth) == [(10, 0, 1)]
    assert validate(fake.core.state) == []


def test_rows_that_wait_for_what_no_agent_has_go_when_one_comes_that_has_it_the_most_urgent_first() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 2, capabilities=("gpu",)), task(20, 3, capabilities=("gpu",), priority=1))
    fake.say(client, task(30, 1, capabilities=("disk",)))
    fake.cancel(client, (10, 0, 1))
    fake.cancel(client, (30, 0, 1))
    assert fake.core.state.queues.rows == 4
    first = fake.agent(2, ("gpu", "fast"))
    assert sum(hi - lo for batch, lo, hi in fake.placed(first) if batch == 20) == 3
    fake.lose(first)
    fake.say(client, task(40, 1))
    assert fake.core.state.queues.rows == 4
    second = fake.agent(4, ("gpu",))
    assert sum(hi - lo for _, lo, hi in fake.placed(second)) == 4


def test_a_row_of_a_graph_can_be_an_argument_of_a_plain_row_too() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, graph(10, [[], [0]], wanted=[0, 1]), dependent(20, 10), dependent(30, 10))
    fake.report(agent, client, result(10, 0, 1, VALUES_EACH))
    for batch in (20, 30):
        fake.report(agent, client, result(batch, 0, 1))
    fake.report(agent, client, result(10, 1, 2, VALUES_EACH))
    for batch in (20, 30):
        if batch in fake.core.state.clients[client].batches:
            fake.report(agent, client, result(batch, 0, 1))
    assert fake.core.state.clients[client].batches == {}
    assert set(fake.core.state.clients[client].values.objects) == {1}


@pytest.mark.parametrize("said", [0, 1, 3, 4])
def test_a_value_is_kept_for_rows_that_have_come_whatever_its_graph_says_of_their_number(said: int) -> None:
    """And for as many as are said to come, but have not yet."""
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    made = graph(10, [[], [0], [0], [0]], wanted=[1, 2, 3])
    made.uses[0] = said
    fake.say(client, made)
    fake.report(agent, client, result(10, 0, 1, VALUES_EACH))
    objects = fake.core.state.clients[client].values.objects
    for row in (1, 2, 3):
        assert objects[10].references == 4 - row
        fake.report(agent, client, result(10, row, row + 1, VALUES_EACH))
    assert (10 in objects) == (said == 4)
    assert validate(fake.core.state) == []


def test_a_value_that_the_scheduler_does_not_have_is_asked_of_the_client() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, dependent(20, 15))
    (request,) = fake.heard(client, ObjectRequest)
    assert list(request) == [(client, 15)]
    fake.say(client, ObjectAnnounce(u64([15]), u8([0]), [b"value"]))
    assert fake.placed(fake.agents[0]) == [(20, 0, 1)]
    fake.report(fake.agents[0], client, result(20, 0, 1))
    assert set(fake.core.state.clients[client].values.objects) == {1}


def test_an_object_is_kept_until_its_client_and_all_rows_let_go() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, ObjectAnnounce(u64([5]), u8([0]), [b"value"]), dependent(20, 5))
    fake.say(client, ObjectRelease(u32([0]), u64([5])))
    assert 5 in fake.core.state.clients[client].values.objects
    fake.report(agent, client, result(20, 0, 1))
    assert 5 not in fake.core.state.clients[client].values.objects
    fake.heard(agent)
    fake.wait(3.0)  # an agent is told when it costs nothing, or at the next look at the time
    (release,) = fake.heard(agent, ObjectRelease)
    assert list(release) == [(client, 5)]


def announced(*ids: int) -> ObjectAnnounce:
    """A client sends objects with these ids."""
    return ObjectAnnounce(u64(ids), u8([0] * len(ids)), [b"object"] * len(ids))


def with_objects(made: Task, *ids: int) -> Task:
    """A batch with further objects."""
    made.objects.extend(ids)
    made.bodies += [b"object"] * len(ids)
    return made


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (graph(11, [[]], [0]), "ids that rows have"),
        (graph(9, [[], []], [1]), "ids that rows have"),
        (task(15, 1), "ids that rows have"),
        (task(8, 40), "ids that rows have"),
        (task(13, 2), "ids that rows have"),
        (graph(1, [[], []], [1]), "rows that have the ids of objects"),
        (task(2_000_005, 20), "rows that have the ids of objects"),
        (with_objects(task(20, 1), 11), "a row that has not ended"),
        (with_objects(task(20, 1), 15), "a row that has not ended"),
        (announced(15), "a row that has not ended"),
        (with_objects(task(20, 2), 21), "an object that has the id of a row"),
        (with_objects(task(20, 1), 1 << 63), "ids that are none"),
        (task((1 << 63) - 1, 2), "ids that are none"),
        (announced(11), "a row that has not ended"),
        (announced(1 << 63), "an id that is none"),
    ],
)
def test_a_client_that_gives_an_id_twice_or_one_that_is_none_loses_its_session(
    message: Task | ObjectAnnounce, words: str
) -> None:
    fake = FakeScheduler(1)
    client, other = fake.client(), fake.client()
    for number in (client, other):
        fake.say(number, graph(10, [[], [0], [1]], [2]), task(14, 2))
    fake.say(client, message)
    (gone,) = [effect for effect in fake.effects if isinstance(effect, ev.Forget)]
    assert gone.number == client
    assert words in gone.reason
    assert list(fake.core.state.clients) == [other]
    assert validate(fake.core.state) == []


def test_the_last_ids_are_ids() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task((1 << 63) - 2, 2), announced((1 << 63) - 3))
    assert list(fake.core.state.clients[client].batches) == [(1 << 63) - 2]


def test_an_object_that_comes_with_a_batch_may_not_have_the_id_of_a_stored_value() -> None:
    """Agents would have two by one name."""
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 1))
    fake.report(fake.agents[0], client, result(10, 0, 1, STORED))
    fake.say(client, with_objects(task(20, 1), 10))
    (gone,) = [effect for effect in fake.effects if isinstance(effect, ev.Forget)]
    assert "the id of a stored one" in gone.reason


def test_a_value_that_is_computed_again_may_come_from_the_client() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, graph(10, [[], [0], []], [1]))
    fake.report(fake.agents[0], client, result(10, 0, 1, STORED))
    fake.lose(fake.agents[0])
    assert fake.core.state.clients[client].batches[10].is_recomputing(0, 1)
    fake.say(client, announced(10))
    assert list(fake.core.state.clients) == [client]


def test_an_object_that_its_batch_does_not_need_is_not_kept() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, with_objects(task(10, 2, TOGETHER), 30), with_objects(task(20, 1, function=99), 31))
    assert list(fake.core.state.clients[client].values.objects) == [1, 1_000_010]
    assert fake.ends(client) == [(20, 0, 1, ERROR)]
    assert validate(fake.core.state) == []


def test_an_object_that_rows_wait_for_may_come_with_a_batch() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, dependent(10, 30))
    assert fake.core.state.clients[client].values.awaited.keys() == {30}
    fake.say(client, with_objects(task(20, 1, function=30), 30))
    assert validate(fake.core.state) == []
    fake.end_all(fake.agents[0], client)
    assert sorted(batch for batch, *_ in fake.ends(client)) == [10, 20]
    assert validate(fake.core.state) == []


# ---- roots -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("says_goodbye", [True, False])
def test_what_others_have_submitted_for_a_client_ends_with_it(says_goodbye: bool) -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    root, another, nested = fake.client(), fake.client(), fake.client()
    fake.say(nested, task(10, 2, root=root_of(root)), task(20, 2, root=root_of(another)), task(30, 1))
    ((batch, lo, hi), *_) = fake.placed(agent)
    assert batch == 10
    if says_goodbye:
        fake.say(root, DisconnectRequest())
    else:
        fake.lose(root)
    (asked,) = fake.heard(agent, TaskCancel)
    assert (list(asked.spans), asked.force) == ([(nested, 10, lo, hi)], True)
    assert validate(fake.core.state) == []
    fake.report(agent, nested, result(10, lo, hi, CANCELLED))
    assert {(each[0], each[3]) for each in fake.ends(nested)} == {(10, CANCELLED)}
    assert list(fake.core.state.clients[nested].batches) == [20, 30]
    for number in (nested, another):
        fake.lose(number)
    assert not fake.core.state.roots.batches


def test_a_root_travels_to_agents_and_is_the_client_itself_by_default() -> None:
    fake = FakeScheduler(2)
    client = fake.client()
    fake.say(client, task(10, 1), task(20, 1, root=77))
    sent = {message.batch: message for message in fake.heard(fake.agents[0], Task)}
    assert [sent[batch].root for batch in (10, 20)] == [root_of(client), 77]


def test_what_is_submitted_for_a_client_that_has_left_is_cancelled() -> None:
    """A task has submitted it just before its own result reached its client, which left then."""
    fake = FakeScheduler(2)
    (agent,) = fake.agents
    root, nested = fake.client(), fake.client()
    fake.lose(root)
    late = graph(10, [[], [0], [0, 1]], [2])
    late.root = root_of(root)
    fake.say(nested, late, task(20, 3, root=root_of(root)), task(30, 1))
    fake.end_all(agent, nested, CANCELLED)
    assert {batch for batch, *_, outcome in fake.ends(nested) if outcome == CANCELLED} >= {10, 20}
    assert not fake.core.state.clients[nested].batches.keys() & {10, 20}
    assert validate(fake.core.state) == []


def test_a_client_that_was_given_up_and_comes_again_is_a_root_again() -> None:
    fake = FakeScheduler(1)
    root, nested = fake.client(), fake.client()
    fake.lose(root)
    fake.come_back("client", root, session_of(root))
    fake.say(nested, task(10, 1, root=root_of(root)))
    assert fake.placed(fake.agents[0]) == [(10, 0, 1)]
    assert fake.ends(nested) == []


@pytest.mark.parametrize("root", [root_of(1), 12345, NO_ROOT], ids=["an agent's", "nobody's", "none"])
def test_a_root_that_is_no_clients_means_nothing(root: int) -> None:
    fake = FakeScheduler(1)
    other, nested = fake.client(), fake.client()
    fake.say(nested, task(10, 3, root=root))
    fake.lose(other)
    assert fake.core.state.clients[nested].outstanding == 3
    assert not fake.heard(fake.agents[0], TaskCancel)


def test_a_client_in_a_worker_of_another_cluster_is_a_root_itself() -> None:
    """Its own root is never here; what its rows submit here in turn ends with it, and nothing before it."""
    fake = FakeScheduler(2)
    (agent,) = fake.agents
    guest, nested = fake.client("/elsewhere"), fake.client("/store")
    fake.wait(fake.core._limits.agent_timeout)  # until then it could be one of a scheduler that was here before
    for peer in (guest, nested, agent):
        fake.say(peer, Heartbeat(1, workers=2 * (peer == agent)))
    fake.say(guest, task(10, 1, root=12345))
    (placed,) = fake.heard(agent, Task)
    assert placed.root == root_of(guest)
    fake.say(nested, task(20, 1, root=placed.root))
    for _ in range(8):
        fake.wait(fake.core._limits.client_timeout / 4)
        for peer in (guest, nested, agent):
            fake.say(peer, Heartbeat(1, workers=2 * (peer == agent)))
    assert not fake.heard(agent, TaskCancel)
    fake.say(guest, DisconnectRequest())
    assert [list(asked.spans) for asked in fake.heard(agent, TaskCancel)] == [[(nested, 20, 0, 1)]]
    assert validate(fake.core.state) == []


def test_whoever_names_a_root_ends_nobody_elses_rows() -> None:
    fake = FakeScheduler(1)
    victim, hostile = fake.client(), fake.client()
    fake.say(victim, task(10, 3))
    fake.say(hostile, task(10, 3, root=root_of(victim)))
    fake.lose(hostile)
    fake.handle(ev.Joined(99, hello("client", "of no root")))  # whose session may be any
    fake.lose(99)
    assert fake.core.state.clients[victim].outstanding == 3
    assert fake.ends(victim) == []


def test_whoever_names_many_roots_that_are_not_here_has_few_of_them_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_records, "MOST_AWAITED", 10)
    fake = FakeScheduler(1)
    hostile, nested = fake.client("/store"), fake.client("/store")
    fake.say(nested, task(10, 20, root=777))
    for i in range(1, 50):
        fake.say(hostile, task(10 * i, 1, root=1000 + i, capabilities=("none",)))
        fake.cancel(hostile, (10 * i, 0, 1))
    assert len(fake.core.state.roots.awaited) == 10
    fake.say(hostile, *(task(10_000 + 10 * i, 1, root=2000 + i) for i in range(20)))
    assert len(fake.core.state.roots.batches) == 21
    for number in (hostile, nested):
        fake.lose(number)
    assert len(fake.core.state.roots.awaited) == 10
    assert not fake.core.state.roots.batches
    fake.wait(fake.core._limits.client_timeout + 0.1)
    assert not fake.core.state.roots.awaited
    assert validate(fake.core.state) == []


def test_of_clients_that_have_left_the_last_ones_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others have submitted for the one that is forgotten may not have ended yet."""
    monkeypatch.setattr(roots, "MOST_PAST", 2)
    fake = FakeScheduler(1)
    nested, late = fake.client(), fake.client()
    left = [fake.client() for _ in range(3)]
    fake.say(nested, task(10, 1, root=root_of(left[0])))
    fake.lose(left[0])
    fake.say(late, task(10, 1, root=root_of(left[0])))
    for number in left[1:]:
        fake.lose(number)
    assert list(fake.core.state.roots.past) == [root_of(number) for number in left[1:]]
    assert validate(fake.core.state) == []
    assert [list(asked.spans) for asked in fake.heard(fake.agents[0], TaskCancel)] == [[(nested, 10, 0, 1)]]
    fake.end_all(fake.agents[0], nested, CANCELLED)
    for number in (nested, late):
        assert not fake.core.state.clients[number].batches


def test_nobody_remembers_who_has_submitted_something_once_that_has_ended() -> None:
    fake = FakeScheduler(1)
    root, nested = fake.client(), fake.client()
    fake.say(nested, task(10, 1, root=root_of(root)), task(20, 1, root=root_of(root)))
    fake.end_all(fake.agents[0], nested)
    assert not fake.core.state.roots.batches
    fake.say(nested, task(30, 1, root=root_of(root)))
    fake.say(nested, ClientClear())
    assert not fake.core.state.roots.batches
    fake.lose(root)
    fake.say(nested, task(40, 1, root=root_of(root)))
    assert not fake.core.state.roots.batches
    assert validate(fake.core.state) == []


@pytest.mark.parametrize("submits", ["before", "after"])
def test_no_stranger_keeps_what_was_submitted_for_a_root_that_is_lost_while_nothing_may_be_handed_out(
    submits: str,
) -> None:
    """Whoever names it from elsewhere keeps his own rows at most: it was here, so it is of this cluster."""
    fake = FakeScheduler(1)
    root, nested, stranger = fake.client(), fake.client("/store"), fake.client("/elsewhere")
    if submits == "before":
        fake.say(nested, task(10, 1, root=root_of(root)))
    fake.handle(ev.HandOut(False, "it stands by"), ev.Lost(root, "its connection closed"))
    if submits == "after":
        fake.say(nested, task(10, 1, root=root_of(root)))
    fake.say(stranger, task(20, 1, root=root_of(root)))
    fake.handle(ev.HandOut(True))
    for _ in range(5):
        fake.wait(fake.core._limits.client_timeout / 4)
        for peer in (fake.agents[0], nested, stranger):
            fake.say(peer, Heartbeat(1, workers=1))
    asked = [span for each in fake.heard(fake.agents[0], TaskCancel) for span in each.spans]
    assert asked == [(nested, 10, 0, 1), (stranger, 20, 0, 1)]
    assert validate(fake.core.state) == []


@pytest.mark.parametrize("leaves", ["before", "during"])
def test_what_is_computed_again_for_others_does_not_end_with_its_root(leaves: str) -> None:
    fake = FakeScheduler(1)
    (first,) = fake.agents
    root, nested = fake.client(), fake.client("/store")
    made = graph(10, [[]], [0])
    made.root = root_of(root)
    fake.say(nested, made)
    fake.report(first, nested, result(10, 0, 1, STORED))
    if leaves == "before":
        fake.lose(root)
    second = fake.agent(1)
    fake.lose(first)
    fake.say(nested, ObjectRequest(u32([0]), u64([10])))
    assert fake.placed(second) == [(10, 0, 1)]
    if leaves == "during":
        fake.lose(root)
    assert not fake.heard(second, TaskCancel)
    assert validate(fake.core.state) == []


# ---- taking rows back ------------------------------------------------------------------------------------------------
def test_a_queued_row_is_cancelled_at_once() -> None:
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, task(10, 5))
    fake.cancel(client, (10, 1, 3))
    assert fake.ends(client) == [(10, 1, 3, CANCELLED)]
    assert fake.core.state.queues.rows == 3


def test_rows_that_a_message_names_again_and_again_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeScheduler(2)
    client, (agent,) = fake.client(), fake.agents
    fake.say(client, task(1000, 1))
    fake.report(agent, client, result(1000, 0, 1, us=1))
    fake.say(client, task(10, 4000, TOGETHER))
    mine = fake.holds(agent)
    fake.report(agent, client, *[result(10, row, row + 1) for row in range(0, mine, 2)])
    looks = []
    runs, spans_in = Batch.runs, Batch.spans_in

    def look(batch: Batch, lo: int = 0, hi: int | None = None) -> Iterator[tuple[int, int, int]]:
        looks.append((lo, hi))
        return runs(batch, lo, hi)

    def look_for(batch: Batch, place: int, lo: int = 0, hi: int | None = None) -> list[tuple[int, int]]:
        looks.append((lo, hi))
        return spans_in(batch, place, lo, hi)

    monkeypatch.setattr(Batch, "runs", look)
    monkeypatch.setattr(Batch, "spans_in", look_for)
    often = [(10, 0, 4000), (10, 0, 2000)] * 50
    for kind in (TaskHold, TaskClaim):
        fake.say(client, spans(kind, client, *often))
        assert looks == [(0, 4000)], kind
        looks.clear()
    asked = [row for message in fake.heard(agent, TaskClaim) for _, _, lo, hi in message for row in range(lo, hi)]
    assert asked == list(range(1, mine, 2))
    for kind in (TaskBegun, TaskRunning, BalanceResponse):
        fake.say(agent, spans(kind, client, *often))
        assert looks == [(0, 4000)], kind
        looks.clear()


def test_a_claim_is_refused_what_has_ended_and_no_more() -> None:
    fake = FakeScheduler(1)
    client, (agent,) = fake.client(), fake.agents
    fake.say(client, task(10, 4))
    assert fake.placed(agent) == [(10, 0, 2)]
    fake.report(agent, client, result(10, 0, 1))
    fake.heard(client)
    fake.claim(client, (10, 0, 2), (10, 2, 3), (10, 2, 4), (77, 0, 1))
    (answer,) = fake.heard(client, TaskClaimResponse)
    assert list(answer.granted) == []
    assert list(answer.refused) == [(client, 77, 0, 1), (client, 10, 0, 1)]
    assert [list(asked) for asked in fake.heard(agent, TaskClaim)] == [[(client, 10, 1, 4)]]


def test_rows_that_are_held_back_go_to_no_agent_until_they_are_let_go() -> None:
    fake = FakeScheduler()
    client, other = fake.client(), fake.client()
    fake.say(client, task(10, 50))
    fake.say(client, spans(TaskHold, 0, (10, 5, 20)))
    assert [list(held) for held in fake.heard(client, TaskHold)] == [[(0, 10, 5, 20)]]
    agent = fake.agent(2)
    assert fake.placed(agent) == []
    fake.say(client, task(100, 1))  # nor does what it submits meanwhile
    fake.say(other, task(10, 1))
    assert len(fake.placed(agent)) == 1
    fake.cancel(client, (10, 5, 10))
    assert fake.ends(client) == [(10, 5, 10, CANCELLED)]
    fake.say(client, TaskHold())
    assert fake.heard(client, TaskHold) == []
    assert fake.placed(agent) != []


def test_only_rows_that_no_agent_has_are_held_back() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 50))
    there = [span[1:] for span in fake.placed(agent)]
    (lo, hi) = there[0]
    fake.say(client, spans(TaskHold, 0, (10, 0, 50), (999, 0, 1), (10, 40, 60)))
    assert [list(held) for held in fake.heard(client, TaskHold)] == [[(0, 10, hi, 50)]]
    fake.report(agent, client, result(10, lo, hi))
    assert fake.placed(agent) == []


@pytest.mark.parametrize("first", ["read", "let go"])
def test_rows_are_held_back_for_as_long_as_there_is_a_reason(first: str) -> None:
    """Its client cancels rows one by one, and does not read what it is sent."""
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, task(10, 50))
    fake.say(client, spans(TaskHold, 0, (10, 0, 50)))
    fake.handle(ev.Unread(client, 70_000_000, 1_000))
    agent = fake.agent(2)
    ends = [lambda: fake.handle(ev.Unread(client, 0, 0)), lambda: fake.say(client, TaskHold())]
    for end in ends if first == "read" else reversed(ends):
        assert fake.placed(agent) == []
        end()
    assert fake.placed(agent) != []


def test_a_client_that_clears_or_leaves_while_rows_are_held_back_leaves_nothing() -> None:
    fake = FakeScheduler()
    client = fake.client()
    for farewell in (ClientClear(), DisconnectRequest()):
        fake.say(client, task(10, 50))
        fake.say(client, spans(TaskHold, 0, (10, 0, 50)))
        fake.say(client, farewell)
        assert fake.core.state.queues.rows == 0
        validate(fake.core.state)
    assert fake.core.state.queues.items() == []


def test_rows_at_an_agent_are_asked_of_it() -> None:
    fake = FakeScheduler(2)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 2))
    fake.cancel(client, (10, 0, 2), force=True)
    (asked,) = fake.heard(agent, TaskCancel)
    assert (list(asked.spans), asked.force) == ([(client, 10, 0, 2)], True)
    fake.say(agent, spans(TaskRunning, client, (10, 0, 1)))
    fake.report(agent, client, result(10, 1, 2, CANCELLED))
    assert len(fake.heard(client, TaskRunning)) == 1
    fake.report(agent, client, result(10, 0, 1))
    assert not fake.core.state.agents[agent].withdrawals


def test_what_a_client_asks_for_again_and_again_is_noted_once_and_no_matter_of_the_others():
    """Each result looked at all that its agent had been asked for: a client had a say in how long that took."""
    fake = FakeScheduler(2)
    (agent,) = fake.agents
    asking, other = fake.client(), fake.client()
    fake.say(asking, task(10, 1))
    fake.say(other, task(10, 1))
    for _ in range(50):
        fake.say(asking, spans(TaskClaim, 0, (10, 0, 1)))
        fake.cancel(asking, (10, 0, 1))
    withdrawals = fake.core.state.agents[agent].withdrawals
    assert [len([*withdrawals[asking]]), len(withdrawals)] == [2, 1]

    asked, withdrawals[asking] = withdrawals[asking], None  # what it has asked for is no matter of the other one
    fake.report(agent, other, result(10, 0, 1))
    assert fake.heard(other, TaskResult)
    withdrawals[asking] = asked
    fake.report(agent, asking, result(10, 0, 1))
    assert not fake.core.state.agents[agent].withdrawals


def test_an_agent_that_was_given_nothing_after_all_is_asked_for_nothing():
    """Found by seed 17000431 of the simulator's mix `everything`: a client that was stopped says all of it at once."""
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 1), TaskCancel(Spans(u32([0]), u64([10]), u32([0, 1]))), DisconnectRequest())
    assert not fake.core.state.agents[agent].withdrawals
    assert not [message for message in fake.heard(agent) if isinstance(message, Task | TaskCancel)]


def test_a_row_given_back_while_its_cancellation_was_on_the_way_is_cancelled() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    learnt(fake, agent, client, us=10_000)
    fake.say(client, task(10, 8))
    fake.agent(1)
    fake.cancel(client, (10, 7, 8))
    fake.say(agent, spans(BalanceResponse, client, (10, 7, 8)))
    assert fake.ends(client) == [(10, 7, 8, CANCELLED)]


@pytest.mark.parametrize("comes", ["back", "lost"])
@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_one_of_the_rows_that_an_agent_was_to_cancel_comes_back_and_is_cancelled(
    row: int, force: bool, comes: str
) -> None:
    """It was handed out again, and ran, as the others were still there."""
    fake = FakeScheduler(4)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 3))
    fake.cancel(client, (10, 0, 3), force=force)
    fake.heard(agent)
    if comes == "back":
        fake.say(agent, spans(BalanceResponse, client, (10, row, row + 1)))
    else:
        fake.report(agent, client, result(10, row, row + 1, LOST))
    assert fake.ends(client) == [(10, row, row + 1, CANCELLED)]
    assert fake.placed(agent) == []
    left = [each for each in range(3) if each != row]
    for each in left:
        fake.report(agent, client, result(10, each, each + 1))
    assert [lo for _, lo, _, _ in fake.ends(client)] == left
    assert not fake.core.state.agents[agent].withdrawals
    assert validate(fake.core.state) == []


def test_that_a_row_runs_answers_nothing_but_what_would_have_let_it_run() -> None:
    """It was cancelled, and again, with force: the first answer is no answer to the second question."""
    fake = FakeScheduler(1, retries_on_loss=2)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 1))
    fake.cancel(client, (10, 0, 1))
    fake.cancel(client, (10, 0, 1), force=True)
    fake.say(agent, spans(TaskRunning, client, (10, 0, 1)))
    fake.lose(agent)
    assert fake.ends(client) == [(10, 0, 1, CANCELLED)]


def test_a_row_that_was_to_be_cancelled_and_comes_to_its_agent_once_more_is_to_be_cancelled_there() -> None:
    """Its worker has died; what it needs is there alone."""
    fake = FakeScheduler(1, 1, retries_on_loss=3)
    client = fake.client()
    fake.say(client, graph(10, [[]], [0]))
    (home,) = [agent for agent in fake.agents if fake.holds(agent)]
    fake.report(home, client, result(10, 0, 1, STORED))
    fake.ends(client)
    fake.say(client, dependent(20, 10))
    (at,) = [agent for agent in fake.agents if fake.holds(agent)]
    fake.say(at, ObjectMissing(rows=spans(Spans, client, (20, 0, 1))))
    assert fake.holds(home) == 1
    fake.heard(home)
    fake.cancel(client, (20, 0, 1), force=True)
    assert [list(asked.spans) for asked in fake.heard(home, TaskCancel)] == [[(client, 20, 0, 1)]]
    fake.report(home, client, result(20, 0, 1, LOST))
    kinds = [type(message) for message in fake.heard(home) if isinstance(message, Task | TaskCancel)]
    assert kinds == [Task, TaskCancel]
    fake.report(home, client, result(20, 0, 1, CANCELLED))
    assert fake.ends(client) == [(20, 0, 1, CANCELLED)]
    assert not fake.core.state.agents[home].withdrawals


@pytest.mark.parametrize("how", ["force", "cancel", "root"])
def test_a_row_that_ended_among_those_to_be_cancelled_may_be_computed_again_for_others(how: str) -> None:
    """The question is still open, for its other row."""
    fake = FakeScheduler(2, retries_on_loss=3)
    (first,) = fake.agents
    root, client = fake.client(), fake.client("/store")
    made = graph(10, [[], []], [0, 1])
    made.root = root_of(root) if how == "root" else 0
    fake.say(client, made)
    if how == "root":
        fake.lose(root)
    else:
        fake.cancel(client, (10, 0, 2), force=how == "force")
    fake.report(first, client, result(10, 0, 1, STORED))
    fake.say(first, Heartbeat(1, workers=1))
    second = fake.agent(9)
    fake.say(first, ObjectGone(u32([client]), u64([10]), True))
    fake.say(client, dependent(20, 10))
    fake.ends(client)
    for agent in (first, second):
        fake.heard(agent)
    fake.report(first, client, result(10, 1, 2, CANCELLED))
    assert fake.ends(client) == [(10, 1, 2, CANCELLED)]
    assert not [message for agent in (first, second) for message in fake.heard(agent, TaskCancel)]
    assert fake.core.state.clients[client].batches[10].is_recomputing(0, 1)
    assert fake.core.state.clients[client].batches[20].left == 1
    assert validate(fake.core.state) == []


def test_a_row_whose_input_comes_with_the_word_that_it_is_lost_is_to_be_cancelled_where_it_goes() -> None:
    """It is ready at once, at the agent that was to cancel it."""
    fake = FakeScheduler(4, retries_on_loss=3)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, graph(10, [[]], [0]))
    fake.report(agent, client, result(10, 0, 1, STORED))
    fake.say(client, dependent(20, 10))
    fake.say(agent, ObjectGone(u32([client]), u64([10]), True))
    fake.say(client, ObjectRequest(u32([client]), u64([10])))
    fake.cancel(client, (20, 0, 1), force=True)
    fake.heard(agent)
    fake.report(agent, client, result(20, 0, 1, LOST), result(10, 0, 1, STORED))
    kinds = [type(message) for message in fake.heard(agent) if isinstance(message, Task | TaskCancel)]
    assert kinds == [Task, TaskCancel]


def test_one_of_the_rows_that_end_with_their_root_comes_to_its_agent_once_more() -> None:
    fake = FakeScheduler(1, 1, retries_on_loss=3)
    root, client = fake.client(), fake.client("/store")
    fake.say(client, graph(10, [[]], [0]))
    (home,) = [agent for agent in fake.agents if fake.holds(agent)]
    fake.report(home, client, result(10, 0, 1, STORED))
    more = dependent(20, 10, rows=3)
    more.root = root_of(root)
    fake.say(client, more)
    for agent in fake.agents:
        there = fake.core.state.clients[client].batches[20].spans_in(AGENT + agent)
        if there:
            fake.say(agent, ObjectMissing(rows=spans(Spans, client, *((20, lo, hi) for lo, hi in there))))
    assert fake.holds(home) == 3
    fake.lose(root)
    fake.heard(home)
    fake.report(home, client, result(20, 1, 2, LOST))
    assert [list(asked.spans) for asked in fake.heard(home, TaskCancel)] == [[(client, 20, 1, 2)]]
    assert validate(fake.core.state) == []


def test_what_is_left_of_a_question_is_looked_at_only_if_rows_came_back() -> None:
    """What an agent was asked for stays one question, however its rows end: each result is looked at with all."""
    fake = FakeScheduler(100)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 100))
    fake.cancel(client, (10, 0, 100), force=True)
    for row in range(1, 99, 2):
        fake.report(agent, client, result(10, row, row + 1, CANCELLED))
    (asked,) = fake.core.state.agents[agent].withdrawals[client]
    assert (asked.lo, asked.hi) == (0, 100)


def test_a_claim_gets_queued_rows_at_once_and_others_by_their_agent() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 4))
    fake.claim(client, (10, 1, 4))
    (answer,) = fake.heard(client, TaskClaimResponse)
    assert list(answer.granted) == [(client, 10, 2, 4)]
    assert list(fake.heard(agent, TaskClaim)[0]) == [(client, 10, 1, 2)]
    fake.say(agent, TaskClaimResponse(spans(Spans, client, (10, 1, 2)), Spans()))
    (answer,) = fake.heard(client, TaskClaimResponse)
    assert list(answer.granted) == [(client, 10, 1, 2)]
    assert fake.core.state.clients[client].outstanding == 1


def test_an_agent_is_not_asked_any_more_for_what_it_gives_to_its_claimer() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 2))
    fake.claim(client, (10, 0, 1))
    fake.cancel(client, (10, 0, 1))
    fake.say(agent, TaskClaimResponse(spans(Spans, client, (10, 0, 1)), Spans()))
    assert fake.core.state.agents[agent].withdrawals == {}


def test_a_claim_asked_of_an_agent_that_is_lost_is_granted_here() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 1))
    fake.claim(client, (10, 0, 1))
    fake.lose(agent)
    (answer,) = fake.heard(client, TaskClaimResponse)
    assert list(answer.granted) == [(client, 10, 0, 1)]


def test_a_claim_is_granted_here_though_an_agent_had_answered_another_one_of_its_batch_before_it_was_lost() -> None:
    """The task would wait for the answer for ever, and keep the only worker that is left."""
    fake = FakeScheduler(2)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 2))
    for row in (0, 1):
        fake.claim(client, (10, row, row + 1))
    fake.say(agent, TaskClaimResponse(spans(Spans, client, (10, 0, 1)), Spans()))
    fake.heard(client)
    fake.lose(agent)
    (answer,) = fake.heard(client, TaskClaimResponse)
    assert list(answer.granted) == [(client, 10, 1, 2)]


def test_rows_are_cancelled_here_though_an_agent_had_said_of_others_that_they_run_before_it_was_lost() -> None:
    fake = FakeScheduler(5)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 5))
    fake.cancel(client, (10, 0, 5))
    fake.say(agent, spans(TaskRunning, client, (10, 1, 2), (10, 3, 4)))
    fake.lose(agent)
    assert sorted(fake.ends(client)) == [(10, row, row + 1, CANCELLED) for row in (0, 2, 4)]
    assert fake.core.state.queues.rows == 2


def test_a_row_that_comes_back_for_want_of_objects_while_its_cancellation_was_on_the_way_is_cancelled() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 1))
    fake.cancel(client, (10, 0, 1))
    fake.say(agent, ObjectMissing(rows=spans(Spans, client, (10, 0, 1))))
    assert fake.ends(client) == [(10, 0, 1, CANCELLED)]


def test_rows_that_wait_for_a_claimed_one_get_its_value_from_the_client() -> None:
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, task(10, 1), dependent(20, 10))
    fake.claim(client, (10, 0, 1))
    assert [list(m) for m in fake.heard(client, ObjectRequest)] == [[(client, 10)]]
    fake.say(client, ObjectAnnounce(u64([10]), u8([0]), [b"value"]))
    assert fake.core.state.queues.rows == 1


def test_a_claim_of_a_row_that_has_ended_is_refused() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.claim(client, (10, 0, 1))
    (answer,) = fake.heard(client, TaskClaimResponse)
    assert list(answer.refused) == [(client, 10, 0, 1)]


@pytest.mark.parametrize("question", ["cancel", "claim"])
def test_rows_that_are_wanted_back_at_once_are_given_out_before_they_are_asked_for(question: str) -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    asked = TaskCancel(spans(Spans, 0, (10, 0, 1)), True) if question == "cancel" else spans(TaskClaim, 0, (10, 0, 1))
    fake.say(client, task(10, 1), asked)
    kinds = [type(message) for message in fake.heard(agent)]
    assert kinds.index(Task) < kinds.index(type(asked))


# ---- coming and going ------------------------------------------------------------------------------------------------
def test_a_client_that_leaves_takes_everything_along() -> None:
    fake = FakeScheduler(2)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 50), graph(100, [[], [0]], [1]), dependent(200, 150))
    fake.say(client, DisconnectRequest())
    assert [type(m) for m in fake.heard(client)][-1] is DisconnectResponse
    assert [m.client for m in fake.heard(agent, ClientDeparture)] == [client]
    assert fake.core.state.queues.rows == fake.holds(agent) == 0
    assert fake.core.state.clients == {}
    assert fake.core.state.agents[agent].holdings.keys == set()
    assert any(isinstance(effect, ev.Forget) for effect in fake.effects)


def test_a_client_that_leaves_costs_nothing_for_what_others_have() -> None:
    """Of 8,000 clients with a function at each of 50 agents each took 65 ms to leave."""

    class Unlisted(set[tuple[int, int]]):
        def __iter__(self) -> Iterator[tuple[int, int]]:
            raise AssertionError("all that the agent has is looked through")

    fake = FakeScheduler(2)
    (agent,) = fake.agents
    clients = [fake.client(), fake.client()]
    for client in clients:
        fake.say(client, task(10, 1))
    holdings = fake.core.state.agents[agent].holdings
    holdings.keys = Unlisted(holdings.keys)
    fake.say(clients[0], DisconnectRequest())
    assert (len(holdings.keys), (clients[1], 1) in holdings.keys) == (1, True)


def test_an_agent_that_has_only_durations_of_a_client_is_told_of_its_departure() -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client = fake.client()
    learnt(fake, agent, client)
    fake.say(client, ObjectRelease(u32([0]), u64([1])))
    fake.lose(client)
    assert len(fake.heard(agent, ClientDeparture)) == 1


def test_a_silent_peer_is_given_up_after_its_timeout() -> None:
    fake = FakeScheduler(1, agent_timeout=10.0)
    (agent,) = fake.agents
    for _ in range(4):
        fake.wait(2.6)
    assert agent not in fake.core.state.agents


def test_a_silent_peer_is_given_up_however_often_somebody_joins() -> None:
    """Each question of a client is a session of its own."""
    fake = FakeScheduler(1, agent_timeout=10.0)
    (agent,) = fake.agents
    for _ in range(13):
        fake.wait(1.0)
        fake.lose(fake.client())
    assert agent not in fake.core.state.agents


def test_a_peer_of_whom_a_message_is_still_coming_is_not_given_up() -> None:
    fake = FakeScheduler(1, agent_timeout=10.0)
    (agent,) = fake.agents
    for _ in range(40):
        fake.handle(Stirred(agent), Stirred(999))
        fake.wait(2.6)
    assert agent in fake.core.state.agents
    for _ in range(4):
        fake.wait(2.6)
    assert agent not in fake.core.state.agents


def test_after_the_scheduler_itself_was_stopped_nobody_is_given_up_at_once() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.wait(600.0)
    assert list(fake.core.state.agents) == fake.agents
    assert list(fake.core.state.clients) == [client]


def test_a_message_that_is_not_its_senders_ends_the_session() -> None:
    fake = FakeScheduler(1)
    fake.say(fake.agents[0], task(10, 1))
    assert fake.core.state.agents == {}


def test_output_goes_to_the_client_whose_row_printed_it() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 1, flags=STREAM))
    said = TaskOutput(client, 10, "f", 1, "hello\n")
    fake.say(fake.agents[0], said)
    assert fake.heard(client, TaskOutput) == [said]
    fake.report(fake.agents[0], client, result(10, 0, 1))
    fake.say(fake.agents[0], said)  # it may come late
    assert fake.heard(client, TaskOutput) == [said]


def test_what_an_agent_says_that_a_client_printed_of_which_it_has_nothing_reaches_nobody() -> None:
    """Not even if it claims to have run something of it, or has run rows of others."""
    fake = FakeScheduler(1)
    client, other = fake.client(), fake.client()
    fake.say(client, task(10, 1, flags=STREAM))
    stranger = fake.agent()
    fake.say(other, task(10, 1, flags=STREAM))
    assert fake.holds(stranger) == 1
    fake.report(stranger, client, result(10, 0, 1))
    fake.say(stranger, TaskOutput(client, 10, "f", 1, "\x1b[2J"), TaskOutput(other, 10, "f", 1, "hello\n"))
    assert fake.heard(client, TaskOutput) == []
    assert [said.text for said in fake.heard(other, TaskOutput)] == ["hello\n"]


def test_a_protected_scheduler_refuses_to_end_and_says_how() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, ClientShutdown())
    (answer,) = fake.heard(client, ShutdownResponse)
    assert not answer.accepted
    assert "--no-protected" in answer.reason


def test_an_unprotected_one_ends_with_its_agents() -> None:
    fake = FakeScheduler(1, protected=False)
    fake.say(fake.client(), ClientShutdown())
    assert len(fake.heard(fake.agents[0], ClientShutdown)) == 1
    assert any(isinstance(effect, ev.Stop) for effect in fake.effects)


def test_rows_that_may_not_run_twice_fail_with_their_host() -> None:
    fake = FakeScheduler(2, 2, retries_on_loss=0)
    client = fake.client()
    fake.say(client, task(10, 4))
    lost, other = fake.agents
    mine = fake.holds(lost)
    fake.lose(lost)
    assert mine > 0
    assert fake.holds(other) == fake.core.state.clients[client].outstanding == 4 - mine
    said = fake.heard(client, TaskResult)
    assert sum(list(message.outcomes).count(ERROR) for message in said) == mine
    assert b"its host agent-1 was lost" in b"".join(bytes(message.bodies[0]) for message in said)


def test_hosts_that_die_with_a_row_that_had_begun_count() -> None:
    fake = FakeScheduler(1, retries_on_loss=1)
    client = fake.client()
    fake.say(client, task(10, 1))
    for left in (1, 0):
        fake.say(fake.agents[-1], spans(TaskBegun, client, (10, 0, 1)))
        fake.agents.append(fake.agent())
        fake.lose(fake.agents[-2])
        assert fake.core.state.clients[client].outstanding == left


def test_hosts_that_die_before_a_row_has_begun_do_not_count() -> None:
    fake = FakeScheduler(1, retries_on_loss=1)
    client = fake.client()
    fake.say(client, task(10, 1))
    for _ in range(5):
        fake.agents.append(fake.agent())
        fake.lose(fake.agents[-2])
    assert fake.core.state.clients[client].outstanding == 1


def test_hosts_that_die_before_a_row_has_begun_again_do_not_count() -> None:
    fake = FakeScheduler(1, retries_on_loss=1)
    client = fake.client()
    fake.say(client, task(10, 1, retries=1))
    fake.say(fake.agents[-1], spans(TaskBegun, client, (10, 0, 1)))
    fake.report(fake.agents[-1], client, result(10, 0, 1, ERROR))
    for _ in range(5):
        fake.agents.append(fake.agent())
        fake.lose(fake.agents[-2])
    assert fake.core.state.clients[client].outstanding == 1


def test_nothing_is_remembered_of_rows_that_had_begun_and_have_ended() -> None:
    fake = FakeScheduler(2)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 4))
    fake.say(agent, spans(TaskBegun, client, (10, 0, 2)))
    fake.report(agent, client, result(10, 0, 2))
    assert attempts_of(fake.core.state.clients[client].batches[10]).begun == set()


def test_nothing_is_kept_of_capabilities_that_no_agent_has_any_more_but_rows_that_wait_for_them() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    for number in range(4):
        name = f"host-{number}"
        lost = fake.agent(2, (name,))
        fake.say(client, task(100 * number + 10, 3, capabilities=(name,)))
        fake.say(client, task(100 * number + 20, 1, capabilities=(name,), threads=2))
        fake.lose(lost)
    assert len(fake.core.state.groups) == 1
    again = fake.agent(2, ("host-2", "more"))
    fake.end_all(again, client)
    fake.end_all(again, client)
    assert {batch for batch, _, _ in fake.placed(again)} | {batch for batch, *_ in fake.ends(client)} == {210, 220}


def test_rows_that_wait_for_what_no_agent_has_any_more_are_named_in_the_log() -> None:
    fake = FakeScheduler(1)
    gpu = fake.agent(1, ("gpu",))
    client = fake.client()
    fake.say(client, task(10, 3, capabilities=("gpu",), name="train"))
    fake.lose(gpu)
    said = [effect.text for effect in fake.effects if isinstance(effect, ev.Log)]
    assert any(line.endswith("rows go back to the queue") for line in said)
    assert any("3 rows of train need gpu, which no agent has any more" in line for line in said)


# ---- rows that take several slots ------------------------------------------------------------------------------------
def logged(fake: FakeScheduler) -> list[str]:
    """What was logged in the last step."""
    return [effect.text for effect in fake.effects if isinstance(effect, ev.Log)]


def test_a_row_counts_as_so_many_as_it_takes_slots() -> None:
    fake = FakeScheduler(4)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(10, 1, threads=3), task(20, 1, threads=2))
    assert fake.holds(agent) == 5
    fake.say(client, task(30, 10))
    assert fake.holds(agent) == 8, "two rows a worker while the function is unknown"
    fake.report(agent, client, result(10, 0, 1))
    assert fake.core.state.agents[agent].load.rows == fake.holds(agent) - 1
    fake.lose(client)
    assert fake.holds(agent) == 0
    assert not fake.core.state.agents[agent].load.wide


def test_rows_go_where_so_many_workers_are_and_rather_where_they_are_free() -> None:
    fake = FakeScheduler(2, 4, 8)
    small, middle, large = fake.agents
    client = fake.client()
    fake.say(client, task(10, 1, threads=5))
    assert fake.placed(large) == [(10, 0, 1)]
    fake.say(client, task(20, 1, threads=4))
    assert fake.placed(middle) == [(20, 0, 1)]
    fake.say(client, task(30, 1, threads=3))
    assert fake.placed(large) == [(30, 0, 1)]
    fake.say(client, task(40, 1, threads=3))
    assert fake.holds(small) == 0


def test_rows_that_take_more_slots_than_any_agent_has_are_named_and_wait_for_one_that_has() -> None:
    fake = FakeScheduler(4, 4)
    client = fake.client()
    fake.say(client, task(10, 3, threads=8, name="train"))
    assert logged(fake) == ["train needs 8 workers of one host (threads=8), which no agent has yet: its rows wait"]
    fake.say(client, task(20, 2))
    assert sum(map(fake.holds, fake.agents)) == 2, "others don't wait behind them"
    small, large = fake.agent(7), fake.agent(8)
    assert fake.holds(small) == 0
    assert fake.placed(large) == [(10, 0, 2)]
    fake.lose(large)
    assert any("need 8 workers of one host (threads=8), which no agent has any more" in line for line in logged(fake))
    fake.say(client, task(30, 1, threads=8))
    assert logged(fake)
    fake.agent(9)
    fake.say(client, task(40, 1, threads=8))
    assert not logged(fake)


def test_calls_that_come_one_by_one_are_named_once_while_no_agent_has_what_they_need() -> None:
    fake = FakeScheduler(4)
    client = fake.client()
    for batch in range(10, 60, 10):
        fake.say(client, task(batch, 1, threads=8, name="train"))
    fake.say(client, task(60, 1, threads=6, name="train"), task(70, 1, threads=8, name="test"))
    assert [line.partition(",")[0] for line in fake.log if " need" in line] == [
        "train needs 8 workers of one host (threads=8)", "train needs 6 workers of one host (threads=6)",
        "test needs 8 workers of one host (threads=8)",
    ]  # fmt: skip
    fake.lose(fake.agent(8))
    assert "any more" in fake.log[-1]
    fake.log.clear()
    for batch in (80, 90):
        fake.say(client, task(batch, 1, threads=8, name="train"))
    assert len(fake.log) == 1


def test_a_worker_whose_task_waits_makes_no_agent_larger() -> None:
    fake = FakeScheduler(4)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(agent, Heartbeat(0.0, 5))
    fake.say(client, task(10, 1, threads=5))
    assert fake.placed(agent) == []
    assert logged(fake)


def test_rows_of_one_slot_and_of_several_take_turns() -> None:
    fake = FakeScheduler(4)
    (agent,) = fake.agents
    client = fake.client()
    learnt(fake, agent, client, us=1_000_000)
    fake.say(client, task(1_000, 400), task(2_000, 40, threads=4))
    given: list[tuple[int, int, int]] = []
    for _ in range(40):
        given += (new := fake.placed(agent))
        for batch, lo, hi in new:
            fake.report(agent, client, *[result(batch, row, row + 1, us=1_000_000) for row in range(lo, hi)])
    batches = [batch for batch, _, _ in given]
    assert 10 <= batches.count(2_000) <= 30
    assert all({1_000, 2_000} <= set(batches[at : at + 6]) for at in range(0, 30, 6))


def test_rows_of_several_slots_have_their_turn_beside_two_roots_whose_short_ones_never_end() -> None:
    """Beyond its window an agent has what each root lacks there: one row each time, if they end one by one."""
    fake = FakeScheduler(4)
    (agent,), client, other = fake.agents, fake.client(), fake.client()
    learnt(fake, agent, client, us=1_000_000)
    fake.say(other, task(10, 400))
    fake.say(client, task(10, 400))
    fake.say(client, task(2_000, 4, threads=3))
    there: deque[tuple[int, int, int]] = deque()
    wide = 0
    for _ in range(60):
        for given in fake.heard(agent, Task):
            for lo, hi in zip(given.spans[::2], given.spans[1::2], strict=True):
                there += [(given.client, given.batch, row) for row in range(lo, hi)]
        owner, batch, row = there.popleft()
        wide += batch == 2_000
        fake.report(agent, owner, result(batch, row, row + 1, us=1_000_000))
    assert wide == 4


def test_only_rows_that_fit_are_taken_back_for_an_agent_that_idles() -> None:
    fake = FakeScheduler(4)
    (busy,) = fake.agents
    client = fake.client()
    learnt(fake, busy, client, us=100_000)
    fake.say(client, task(10, 2, threads=4))
    assert fake.holds(busy) == 8
    fake.agent(3)
    requests = fake.heard(busy, BalanceRequest)
    assert [(request.rows > 0, request.threads) for request in requests] == [(True, 0)]
    fake.say(busy, BalanceResponse())
    other = fake.agent(4)
    assert [(request.rows, request.threads) for request in fake.heard(busy, BalanceRequest)] == [(1, 4)]
    fake.say(busy, spans(BalanceResponse, client, (10, 1, 2)))
    assert fake.placed(other) == [(10, 1, 2)]


def test_rows_of_several_slots_are_not_claimed() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 1, threads=2))
    fake.claim(client, (10, 0, 1))
    (answer,) = fake.heard(client, TaskClaimResponse)
    assert list(answer.refused) == [(client, 10, 0, 1)]
    assert fake.core.state.queues.rows == 1
