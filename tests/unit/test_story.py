"""What the scheduler tells of one row, and of all at once."""

from simulator.scripted import FakeScheduler, graph, result, spans, task

from scaler.protocol.messages import LOST, STORED, VALUES_EACH, BalanceRequest, BalanceResponse
from scaler.scheduler.core.scheduler_core import SchedulerCore
from scaler.scheduler.views.cluster_view import cluster_view
from scaler.scheduler.views.story import LINES, Stories


def story(core: SchedulerCore, client: int, batch: int, row: int, lines: int = LINES) -> list[str]:
    """A story without its times."""
    return [line.split(" s  ", 1)[-1] for line in core.stories.of(client, batch, row, lines)]


def test_a_story_names_each_step_of_a_row_that_was_lost_recalled_and_computed_again() -> None:
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, graph(10, [[], [0]], [1]))  # row 0 is queued, row 1 waits for it
    first = fake.agent(1)
    fake.wait(0.5)
    fake.lose(first)
    second = fake.agent(1)
    fake.say(second, spans(BalanceResponse, client, (10, 0, 1)))
    fake.report(second, client, result(10, 0, 1, STORED))
    third = fake.agent(1)
    fake.lose(second)
    fake.report(third, client, result(10, 0, 1, VALUES_EACH))
    told = story(fake.core, client, 10, 0, lines=100)
    assert told == [
        f"came from client {client}: row 0 of 2 of f",
        "waiting → queued: all that it needs is there",
        f"queued → agent {first} (agent-{first}): placed by how busy agents are",
        f"agent {first} (agent-{first}) → queued: its agent was lost",
        f"queued → agent {second} (agent-{second}): placed by how busy agents are",
        f"agent {second} (agent-{second}) → queued: given back before it began",
        f"queued → agent {second} (agent-{second}): placed by how busy agents are",
        f"agent {second} (agent-{second}) → done: its value came",
        f"its value, 1,048,576 bytes, is in the store of agent {second} (agent-{second})",
        f"its value is no more in the store of agent {second} (agent-{second}), and nowhere else",
        "done → waiting: its stored value is lost and needed: it is computed again",
        "waiting → queued: all that it needs is there",
        f"queued → agent {third} (agent-{third}): placed by how busy agents are",
        f"agent {third} (agent-{third}) → done: its value came",
    ]


def test_a_story_keeps_the_beginning_and_the_end_when_it_is_long() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 1, retries=20))
    for _ in range(20):
        fake.report(fake.agents[0], client, result(10, 0, 1, 2))
    told = fake.core.stories.of(client, 10, 0)
    assert len(told) == LINES
    assert "came from client" in told[0]
    assert "more steps" in told[3]
    assert "placed" in told[-1]


def test_the_story_of_a_worker_that_died_says_how() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 1))
    fake.report(fake.agents[0], client, result(10, 0, 1, LOST))
    where = f"agent {fake.agents[0]} (agent-{fake.agents[0]})"
    assert f"{where} → queued: why" in story(fake.core, client, 10, 0)


def test_a_row_that_nobody_knows_has_a_story_that_says_so() -> None:
    fake = FakeScheduler(1)
    assert fake.core.stories.of(99, 10, 0) == ["nothing is known of it any more"]


def test_only_the_latest_facts_are_kept() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    stories = Stories(fake.core.state, kept=4)
    fake.say(client, task(10, 1))
    for batch in range(20, 60, 10):
        fake.report(fake.agents[0], client, result(batch - 10, 0, 1))
        fake.say(client, task(batch, 1))
    assert stories.of(client, 10, 0) == ["nothing is known of it any more"]
    assert "came from" in stories.of(client, 50, 0)[0]


# ---- all at once -----------------------------------------------------------------------------------------------------
def test_a_snapshot_counts_rows_by_where_they_are_and_how_they_ended() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 6), graph(100, [[], [0]], [1]))
    fake.report(fake.agents[0], client, result(10, 0, 1, us=1_000_000))
    fake.cancel(client, (10, 5, 6))
    seen, _ = cluster_view(fake.core.state)
    assert (seen.rows.finished, seen.rows.cancelled, seen.rows.failed) == (1, 1, 0)
    assert seen.rows.waiting == 1
    assert seen.rows.queued + seen.rows.at_agents == 5  # of the map four, and the graph's first
    assert seen.rows.at_agents == fake.holds(fake.agents[0])
    assert (list(seen.agents.workers), list(seen.agents.rows)) == ([1], [seen.rows.at_agents])
    assert list(seen.clients.queued) == [6 - seen.rows.at_agents]
    assert list(seen.clients.running) == [seen.rows.at_agents]
    assert seen.functions.total_us[seen.functions.names.index("f")] == 1_000_000


def test_a_snapshot_still_counts_what_clients_did_that_are_gone() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 2))
    fake.report(fake.agents[0], client, result(10, 0, 1))
    fake.lose(client)
    seen, _ = cluster_view(fake.core.state)
    assert (len(seen.clients), seen.rows.finished, seen.rows.cancelled, seen.rows.at_agents) == (0, 1, 1, 0)


def test_rows_are_recalled_for_an_idle_agent_and_the_story_says_so() -> None:
    fake = FakeScheduler(1)
    (busy,) = fake.agents
    client = fake.client()
    fake.say(client, task(1_000, 1))
    fake.report(busy, client, result(1_000, 0, 1, us=10_000))
    fake.say(client, task(10, 8))
    fake.agent(1)
    (request,) = fake.heard(busy, BalanceRequest)
    fake.say(busy, spans(BalanceResponse, client, (10, 8 - request.rows, 8)))
    told = story(fake.core, client, 10, 7)
    assert any("given back before it began" in line for line in told)
