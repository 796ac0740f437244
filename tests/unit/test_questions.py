"""What a monitor asks of the scheduler: rows a page at a time, why one is where it is, what has happened to it."""

import json
from typing import Any

import pytest
from simulator.scripted import FakeScheduler, graph, hello, result, spans, task
from support.counting import calls_of

from scaler.errors import UnknownTask
from scaler.monitor.questions import parse_task
from scaler.protocol.messages import (
    ERROR,
    STORED,
    VALUES_EACH,
    Query,
    QueryResult,
    Spans,
    TaskBegun,
    TaskCancel,
    TaskHold,
    TaskResult,
)
from scaler.protocol.results import ResultBuilder, SpanResult
from scaler.scheduler.core import events as se
from scaler.scheduler.core.explaining import Reason
from scaler.scheduler.views import task_pages

MONITOR = 900


@pytest.fixture
def fake() -> FakeScheduler:
    made = FakeScheduler()
    made.handle(se.Joined(MONITOR, hello("monitor", "top")))
    return made


def ask(fake: FakeScheduler, kind: str, row: int = 0, **more: Any) -> tuple[QueryResult, list[dict[str, Any]]]:
    """The answer to a question, and its lines."""
    fake.say(MONITOR, Query(7, kind, row=row, **more))
    (answer,) = fake.heard(MONITOR, QueryResult)
    assert answer.number == 7
    text = bytes(answer.bodies[0]).decode()
    return answer, [json.loads(line) for line in text.split("\n")] if text else []


def reason(fake: FakeScheduler, row: int) -> tuple[str, str]:
    """Why a row is where it is, and in words."""
    _, (about,) = ask(fake, "explain", row)
    return about["reason"], "\n".join(about["lines"])


# ---- pages -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
def test_each_row_is_seen_once_whatever_the_size_of_pages(fake: FakeScheduler, limit: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(task_pages, "LOOKED_AT", 5)
    fake.agent(2)
    clients = [fake.client(), fake.client()]
    for client in clients:
        fake.say(client, task(10, 7), graph(20, [[], [0], [1]], [2]), task(30, 2))
    seen = []
    where = 0, 0
    while True:
        answer, lines = ask(fake, "tasks", limit=limit, from_client=where[0], from_row=where[1])
        seen += [line["task"] for line in lines]
        where = answer.next_client, answer.next_row
        if where == (0, 0):
            break
    rows = [*range(10, 17), *range(20, 23), *range(30, 32)]
    assert seen == [f"{client}:{row}" for client in clients for row in rows]


def test_rows_are_found_by_state_function_and_client(fake: FakeScheduler) -> None:
    agent, client, other = fake.agent(1), fake.client(), fake.client()
    named = task(30, 1)
    named.name = "g"
    fake.say(client, graph(20, [[], [0]], [1]), named)
    fake.say(other, task(10, 1, capabilities=("gpu",)))
    _, there = ask(fake, "tasks", state="agent")
    assert [(line["task"], line["agent"]) for line in there] == [(f"{client}:20", agent), (f"{client}:30", agent)]
    assert [line["task"] for line in ask(fake, "tasks", state="waiting")[1]] == [f"{client}:21"]
    assert [line["task"] for line in ask(fake, "tasks", state="queued")[1]] == [f"{other}:10"]
    assert [line["task"] for line in ask(fake, "tasks", name="g")[1]] == [f"{client}:30"]
    assert [line["task"] for line in ask(fake, "tasks", client=other)[1]] == [f"{other}:10"]


@pytest.mark.parametrize("asked", [{"name": "nobody"}, {"state": "waiting"}, {"client": 7}], ids=str)
def test_a_page_looks_at_few_batches_though_none_is_what_was_asked_for(asked: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(task_pages, "LOOKED_AT", 20)
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, *[task(100 + n, 1) for n in range(400)])
    question = Query(1, "tasks", limit=10, **asked)
    assert calls_of(lambda: task_pages.page(fake.core.state, question)) < 400
    pages = 1
    while (page := task_pages.page(fake.core.state, question)).next_client:
        assert not page.lines
        question.from_client, question.from_row = page.next_client, page.next_row
        pages += 1
    assert pages == (1 if "client" in asked else 21)


@pytest.mark.parametrize("state", ["queued", "cancelled"])
def test_a_page_of_a_batch_in_many_places_looks_at_few_of_them(state: str) -> None:
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, task(10, 4_000))
    fake.cancel(client, *[(10, row, row + 1) for row in range(0, 4_000, 2)])
    question = Query(1, "tasks", limit=10, state=state)
    assert calls_of(lambda: task_pages.page(fake.core.state, question)) < 400


# ---- why -------------------------------------------------------------------------------------------------------------
def test_a_row_at_an_agent(fake: FakeScheduler) -> None:
    agent, client = fake.agent(1), fake.client()
    fake.say(client, task(10, 1))
    assert reason(fake, 10)[0] == Reason.AT_AGENT
    begun = TaskBegun()
    begun.add(client, 10, 0, 1)
    fake.say(agent, begun)
    assert f"has run for a while at agent {agent}" in reason(fake, 10)[1]


def test_a_row_that_needs_what_no_agent_has(fake: FakeScheduler) -> None:
    client = fake.client()
    fake.say(client, task(10, 1, capabilities=("gpu",)))
    assert reason(fake, 10) == (Reason.NO_SUCH_AGENT, "no agent has joined")
    fake.agent(1)
    assert reason(fake, 10) == (Reason.NO_SUCH_AGENT, "it needs gpu, which no agent has")


def test_a_row_behind_others(fake: FakeScheduler) -> None:
    fake.agent(1)
    client = fake.client()
    fake.say(client, task(10, 9), task(30, 1, priority=-3))
    why, words = reason(fake, 30)
    assert why == Reason.AGENTS_ARE_BUSY
    assert "rows of higher priority go before" in words
    assert "queued rows of its priority" in words


def test_a_row_that_waits_for_values(fake: FakeScheduler) -> None:
    agent, client = fake.agent(1), fake.client()
    fake.say(client, graph(20, [[], [], [0, 1]], [2]))
    why, words = reason(fake, 22)
    assert why == Reason.WAITS_FOR_VALUES
    assert words.startswith("it waits for 2 of 2 values that it needs\n")
    assert f"{client}:20 (f) is at agent {agent}" in words
    fake.report(agent, client, result(20, 0, 1, VALUES_EACH))
    assert reason(fake, 22)[1].startswith("it waits for 1 of 2 values")


def test_a_row_that_is_computed_again(fake: FakeScheduler) -> None:
    agent, client = fake.agent(1), fake.client()
    fake.say(client, graph(20, [[], [0]], [1]))
    fake.report(agent, client, result(20, 0, 1, STORED))
    fake.lose(agent)
    why, words = reason(fake, 20)
    assert why == Reason.NO_SUCH_AGENT
    assert words.startswith("it had ended, and is computed again because its stored value is lost")
    assert "was lost with its host and is made again" in reason(fake, 21)[1]


def test_a_row_that_has_ended(fake: FakeScheduler) -> None:
    agent, client = fake.agent(1), fake.client()
    fake.say(client, task(10, 2))
    fake.report(agent, client, result(10, 0, 1))
    assert reason(fake, 10)[0] == Reason.ENDED


def test_rows_that_failed_or_were_cancelled_are_not_called_done(fake: FakeScheduler) -> None:
    agent, client = fake.agent(1), fake.client()
    fake.say(client, task(10, 9), TaskCancel(spans(Spans, 0, (10, 3, 5), (10, 8, 9))))
    fake.report(agent, client, result(10, 0, 1), result(10, 1, 2, outcome=ERROR))
    _, lines = ask(fake, "tasks")
    states = ["done", "failed", None, "cancelled", "cancelled", None, None, None, "cancelled"]
    assert [line["state"] if line["state"] not in ("agent", "queued") else None for line in lines] == states
    for word in ("done", "failed", "cancelled"):
        found = [line["task"] for line in ask(fake, "tasks", state=word)[1]]
        assert found == [f"{client}:{10 + row}" for row, state in enumerate(states) if state == word]
    _, beyond = ask(fake, "tasks", state="cancelled", from_client=client, from_row=14)
    assert [line["task"] for line in beyond] == [f"{client}:14", f"{client}:18"]
    told = [ask(fake, kind, row)[1][0]["state"] for kind in ("explain", "story") for row in (10, 11, 13)]
    assert told == ["done", "failed", "cancelled"] * 2
    assert reason(fake, 13) == (Reason.ENDED, "it was cancelled")
    assert reason(fake, 11) == (Reason.ENDED, "it has failed")


def test_how_a_row_ended_is_known_when_its_batch_is_over(fake: FakeScheduler) -> None:
    agent, client, other = fake.agent(1), fake.client(), fake.client()
    fake.say(client, task(10, 1), task(20, 1), task(30, 1), TaskCancel(spans(Spans, 0, (30, 0, 1))))
    fake.report(agent, client, result(10, 0, 1), result(20, 0, 1, outcome=ERROR))
    fake.say(other, task(40, 1))
    fake.lose(other)
    assert ask(fake, "tasks")[1] == []
    told = [ask(fake, "story", row)[1][0]["state"] for row in (10, 20, 30, 40)]
    assert told == ["done", "failed", "cancelled", "cancelled"]


def test_rows_of_a_client_that_does_not_read(fake: FakeScheduler) -> None:
    fake.agent(1)
    client = fake.client()
    fake.say(client, task(10, 9))
    fake.handle(se.Unread(client, 70_000_000, 1_000))
    assert reason(fake, 18) == (
        Reason.CLIENT_DOES_NOT_READ,
        "its client has not read 70 MB of results: its rows wait until it does",
    )


def test_rows_of_a_client_that_cancels_others(fake: FakeScheduler) -> None:
    fake.agent(1)
    client = fake.client()
    fake.say(client, task(10, 9), spans(TaskHold, 0, (10, 0, 9)))
    assert reason(fake, 18) == (
        Reason.CLIENT_CANCELS,
        "its client cancels rows one by one: others wait meanwhile",
    )


def reasons_within(fake: FakeScheduler, rows: list[int], *before: se.Event) -> list[str]:
    """Why rows are where they are after a step in which something else has happened."""
    asked = [se.Received(MONITOR, Query(row, "explain", row=row)) for row in rows]
    fake.handle(*before, *asked)
    return [json.loads(bytes(each.bodies[0]))["reason"] for each in fake.heard(MONITOR, QueryResult)]


def reported(client: int, *ended: SpanResult) -> TaskResult:
    builder = ResultBuilder(client)
    for span in ended:
        builder.add(span)
    return builder.build()


def test_a_row_that_its_step_places_and_one_behind_it(fake: FakeScheduler) -> None:
    agent, client = fake.agent(1), fake.client()
    fake.say(client, task(10, 6))
    first = fake.placed(agent)
    assert first == [(10, 0, 2)]  # while nothing is known of its function it gets two rows
    ended = se.Received(agent, reported(client, result(10, 0, 1, us=10_000_000)))
    why = reasons_within(fake, [11, 12, 13, 15], ended)
    assert why == [Reason.AT_AGENT, Reason.AT_AGENT, Reason.AGENTS_ARE_BUSY, Reason.AGENTS_ARE_BUSY]
    assert fake.placed(agent) == [(10, 2, 3)]  # as was said


def test_a_row_before_which_more_urgent_ones_take_the_room_waits(fake: FakeScheduler) -> None:
    agent, client = fake.agent(1), fake.client()
    fake.say(client, task(10, 4))
    fake.placed(agent)
    more = se.Received(client, task(30, 5, priority=5))
    assert reasons_within(fake, [12, 30, 34], more) == [
        Reason.AGENTS_ARE_BUSY, Reason.AT_AGENT, Reason.AGENTS_ARE_BUSY,
    ]  # fmt: skip
    assert fake.placed(agent) == [(30, 0, 2)]


def test_to_explain_a_row_changes_nothing(fake: FakeScheduler) -> None:
    fakes = [fake, FakeScheduler()]
    fakes[1].handle(se.Joined(MONITOR, hello("monitor", "top")))
    said = []
    for each in fakes:
        agents, client = [each.agent(2), each.agent(2, ("gpu",))], each.client()
        each.say(client, task(10, 30), task(50, 9, priority=2), task(70, 9, capabilities=("gpu",)))
        if each is fake:
            for row in (*range(10, 40), *range(50, 59), *range(70, 79)):
                reason(each, row)
        placed = [each.placed(agent) for agent in agents]
        for agent in agents:
            each.end_all(agent, client)
            placed.append(each.placed(agent))
        said.append(placed)
    assert said[0] == said[1]


# ---- names and stories -----------------------------------------------------------------------------------------------
def test_a_name_that_several_clients_have_is_answered_for_each(fake: FakeScheduler) -> None:
    clients = [fake.client(), fake.client()]
    for client in clients:
        fake.say(client, task(10, 1))
    _, lines = ask(fake, "explain", 10)
    assert [line["task"] for line in lines] == [f"{client}:10" for client in clients]
    _, lines = ask(fake, "explain", 10, client=clients[1])
    assert [line["task"] for line in lines] == [f"{clients[1]}:10"]


def test_a_story_has_all_steps(fake: FakeScheduler) -> None:
    fake.agent(1)
    client = fake.client()
    fake.say(client, task(10, 1))
    _, (story,) = ask(fake, "story", 10)
    assert "came from client" in story["lines"][0]


def test_a_task_that_is_not_there_is_said_so(fake: FakeScheduler) -> None:
    answer, lines = ask(fake, "explain", 10)
    assert (lines, answer.error) == (
        [],
        "task 10 is not known: it has ended, or there never was one ('scaler tasks' lists those that are there)",
    )
    answer, _ = ask(fake, "story", 10, client=5)
    assert answer.error == "task 5:10 is not known: client 5 is not there"


@pytest.mark.parametrize("name", ["", "work", "1:2:x", "-1", "<script>", "1:-2", "9" * 30, "f(x)", "()"])
def test_what_names_no_task_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(UnknownTask, match="names no task: write CLIENT:TASK"):
        parse_task(name)
