"""What a client makes many of, each in a small message, costs others nothing: as many queues, lines, roots as rows."""

from collections.abc import Callable
from typing import Any

import pytest
from simulator.scripted import FakeAgent, FakeScheduler, result, spans, task
from support.counting import steps_of

from scaler.agent.core import events as ae
from scaler.agent.state import ready_rows
from scaler.agent.state.rows import RowRange
from scaler.protocol.codes import MOST_SPANS, WithdrawalKind
from scaler.protocol.messages import (
    ERROR,
    BalanceResponse,
    DisconnectRequest,
    Message,
    Spans,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskHold,
    TaskResult,
    TaskRunning,
    u32,
    u64,
)
from scaler.scheduler.core.events import Received
from scaler.scheduler.state.asked_rows import AskedRows, Withdrawal
from scaler.scheduler.state.function_records import MOST_TALLIES
from scaler.scheduler.state.ready_queues import KEPT, QueueKey
from scaler.worker_protocol import messages as wm

#: batch `i` of a client's, by what there are many of
MANY: dict[str, Callable[[int], dict[str, Any]]] = {
    "priorities": lambda i: {"priority": i},
    "priorities below": lambda i: {"priority": -i},
    "nestings": lambda i: {"nesting": i},
    "roots": lambda i: {"root": 1_000 + i},
    "demands": lambda i: {"capabilities": (f"c{i}",)},
}


def scheduler_with(count: int, options: Callable[[int], dict[str, Any]]) -> tuple[FakeScheduler, int]:
    """A busy agent, another whose rows are least urgent, and a client in a worker with so many batches of a row."""
    fake = FakeScheduler(1)
    fake.agent(1, ("other",))
    fake.say(fake.client(), task(1_000, 10), task(2_000, 10, capabilities=("other",), priority=-1_000_000))
    client = fake.client("/store")
    fake.say(client, *[task(1_000 + i, 1, **options(i)) for i in range(count)])
    return fake, client


def steps_for(count: int, options: Callable[[int], dict[str, Any]]) -> int:
    """Steps for the next batch, its end, and a word of somebody else's."""
    fake, client = scheduler_with(count, options)
    said = task(1_000 + count, 1, **options(count)), TaskCancel(spans(Spans, 0, (1_000 + count, 0, 1)))
    return steps_of(lambda: [fake.core.handle([Received(client, message)], 0.0) for message in said])


@pytest.mark.parametrize("kind", MANY)
def test_one_more_costs_as_much_behind_many_as_behind_few(kind: str) -> None:
    few, many = (steps_for(count, MANY[kind]) for count in (40, 400))
    assert many < 1.2 * few


def steps_to_hold(batches: int) -> int:
    """Steps for a client's rows that are held and let go."""
    fake, client = scheduler_with(batches, lambda i: {})
    said = spans(TaskHold, 0, (1_000, 0, 1)), TaskHold()
    return steps_of(lambda: [fake.core.handle([Received(client, message)], 0.0) for message in said])


def test_rows_are_held_and_let_go_at_the_price_of_their_queues() -> None:
    assert steps_to_hold(400) < 1.2 * steps_to_hold(40)


def steps_of_another(count: int, *said: Message) -> int:
    """Steps for what a client without rows says, beside another one's rows of so many priorities."""
    fake, _ = scheduler_with(count, MANY["priorities"])
    client = fake.client()
    return steps_of(lambda: [fake.core.handle([Received(client, message)], 0.0) for message in said])


@pytest.mark.parametrize(
    "said", [(spans(TaskHold, 0, (1_000, 0, 1)), TaskHold()), (DisconnectRequest(),)], ids=["holds", "leaves"]
)
def test_who_holds_its_rows_or_leaves_looks_at_no_queues_of_others(said: tuple[Message, ...]) -> None:
    assert steps_of_another(400, *said) < 1.2 * steps_of_another(40, *said)


def test_queues_are_known_to_have_rows_of_a_client_as_long_as_they_are_there() -> None:
    fake, client = scheduler_with(100, lambda i: {"priority": i, "capabilities": ("c",) * (i % 2)})
    queues = fake.core.state.queues
    fake.say(client, spans(TaskHold, 0, (1_000, 0, 1)))
    assert client not in queues._keys
    fake.say(client, TaskHold())
    assert len(queues._keys[client]) > 90, "some rows are at the agents"
    fake.say(client, *[TaskCancel(spans(Spans, 0, (1_000 + i, 0, 1))) for i in range(100)])
    assert len(queues._keys[client]) <= KEPT + 1
    fake.say(client, DisconnectRequest())
    assert client not in queues._keys
    assert not any(client in clients for clients in queues._clients.values())


def steps_for_demands(batches: int) -> int:
    """Steps for functions that each ask for one thing more than is told apart, beside so many batches."""
    fake, client = scheduler_with(batches, lambda i: {"name": "other"})
    said = [
        task(9_000 + i, 1, name=f"f{i // (MOST_TALLIES + 1)}", capabilities=(f"c{i % (MOST_TALLIES + 1)}",))
        for i in range(4 * (MOST_TALLIES + 1))
    ]
    return steps_of(lambda: [fake.core.handle([Received(client, message)], 0.0) for message in said])


def test_one_demand_more_of_a_function_costs_the_same_beside_many_batches() -> None:
    assert steps_for_demands(2_000) < 1.05 * steps_for_demands(40)


def steps_for_an_agent(count: int, options: Callable[[int], dict[str, Any]]) -> int:
    """Steps for one row that is cancelled at an agent, of so many."""
    fake = FakeAgent(1)
    for i in range(count):
        brings = {"objects": u64([1]), "bodies": [b"x", b"function"]} if i == 0 else {}
        fake.handle(ae.FromScheduler(task(1_000 + i, 1, client=fake.CLIENT, **options(i), **brings)))
    said = TaskCancel(spans(Spans, fake.CLIENT, (1_000 + count // 2, 0, 1)))
    steps = steps_of(lambda: fake.handle(ae.FromScheduler(said)))
    assert isinstance(fake.said[-1], TaskResult)
    return steps


@pytest.mark.parametrize("kind", ["priorities", "nestings", "roots"])
def test_an_agent_takes_out_one_of_many_at_the_price_of_one_of_few(kind: str) -> None:
    assert steps_for_an_agent(400, MANY[kind]) < 1.2 * steps_for_an_agent(40, MANY[kind])


def test_an_agent_forgets_where_rows_were_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_rows, "FEW_BATCHES", 4)
    queue = ready_rows.RowQueue()
    parts = [RowRange(1, task(10 * i, 2, priority=i % 3, nesting=i % 2), 0, 2) for i in range(100)]
    for i, part in enumerate(parts):
        queue.put(part, 0, 2)
        if i >= 2:
            old = parts[i - 2]
            assert queue.remove_rows(1, old.id, 0, 2) == [(0, 2)]
        assert len(queue._places) <= 4 + 2 * queue.rows + 1
    assert queue.rows == 4


def queued(fake: FakeScheduler) -> dict[QueueKey, list[tuple[int, int, int]]]:
    """What is in each queue that has rows."""
    return {
        key: [(batch.id, lo, hi) for batch, lo, hi in queue]
        for key, queue in fake.core.state.queues.items()
        if queue.rows
    }


def test_rows_that_are_held_and_let_go_are_all_there_in_their_order() -> None:
    fake, client = scheduler_with(9, lambda i: {"priority": i % 2, "nesting": i % 3, "capabilities": ("c",) * (i % 2)})
    before = queued(fake)
    fake.say(client, spans(TaskHold, 0, (1_000, 0, 1)))
    have_turns = [batch.client for _, queue in fake.core.state.queues.in_order() for batch, _, _ in queue]
    assert client not in have_turns
    fake.say(client, TaskHold())
    assert queued(fake) == before


def test_of_rows_in_many_places_that_are_held_some_are_named() -> None:
    fake, client = scheduler_with(0, lambda i: {})
    fake.say(client, task(5_000, 8 * MOST_SPANS))
    for first in range(0, 8 * MOST_SPANS, 2 * MOST_SPANS):
        others = [(5_000, row, row + 1) for row in range(first, first + 2 * MOST_SPANS, 2)]
        fake.say(client, TaskCancel(spans(Spans, 0, *others)))
    fake.heard(client)
    steps = steps_of(lambda: fake.say(client, spans(TaskHold, 0, (5_000, 0, 8 * MOST_SPANS))))
    (held,) = fake.heard(client, TaskHold)
    assert MOST_SPANS // 2 < len(held.batches) <= MOST_SPANS
    assert steps < 200 * 2 * MOST_SPANS


def test_queues_that_a_client_has_left_empty_are_gone() -> None:
    fake, _ = scheduler_with(400, MANY["priorities"])
    for number in [*fake.core.state.clients]:
        fake.say(number, *[TaskCancel(spans(Spans, 0, (1_000 + i, 0, 1))) for i in range(200)], DisconnectRequest())
    assert len(fake.core.state.queues.items()) <= KEPT + 1


#: what an agent says of a row that its client has cancelled, or cancelled and claimed
ANSWERS: dict[str, Callable[[int, int], Any]] = {
    "it runs": lambda client, row: spans(TaskRunning, client, (1_000 + row, 0, 1)),
    "it comes back": lambda client, row: spans(BalanceResponse, client, (1_000 + row, 0, 1)),
    "a claim is granted": lambda client, row: TaskClaimResponse(spans(Spans, client, (1_000 + row, 0, 1)), Spans()),
    "a claim is refused": lambda client, row: TaskClaimResponse(Spans(), spans(Spans, client, (1_000 + row, 0, 1))),
}


def steps_for_an_answer(answer: Callable[[int, int], Any], rows: int, *, together: bool) -> int:
    """Steps for what an agent answers about one of so many rows that it was asked for, of a batch or of one each."""
    fake = FakeScheduler(rows)
    (agent,) = fake.agents
    client, row = fake.client(), rows // 2
    batches = [task(1_000, rows)] if together else [task(1_000 + row, 1) for row in range(rows)]
    fake.say(client, *batches)
    names = [(1_000, each, each + 1) if together else (1_000 + each, 0, 1) for each in range(0, rows, 2)]
    fake.say(client, spans(TaskClaim, 0, *names), TaskCancel(spans(Spans, 0, *names)))
    said = answer(client, row)
    if together:
        said = answer(client, 0)
        for part in (said.granted, said.refused) if isinstance(said, TaskClaimResponse) else (said,):
            if part:
                part.spans = u32([row, row + 1])
    before = len([*fake.core.state.agents[agent].withdrawals[client]])
    steps = steps_of(lambda: fake.core.handle([Received(agent, said)], 0.0))
    assert before - 2 <= len([*fake.core.state.agents[agent].withdrawals[client]]) < before
    return steps


@pytest.mark.parametrize("together", [True, False], ids=["of a batch", "of batches"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_what_an_agent_answers_about_one_row_is_no_matter_of_others_that_it_was_asked_for(
    answer: str, together: bool
) -> None:
    few, many = (steps_for_an_answer(ANSWERS[answer], rows, together=together) for rows in (40, 400))
    assert many < 1.2 * few


def test_what_an_agent_was_asked_for_is_forgotten_with_its_batch() -> None:
    fake = FakeScheduler(4)
    (agent,) = fake.agents
    client = fake.client()
    fake.say(client, task(1_000, 2), task(2_000, 1))
    fake.say(client, TaskCancel(spans(Spans, 0, (1_000, 0, 2), (2_000, 0, 1))))
    fake.report(agent, client, result(1_000, 0, 2))
    assert [each.batch.id for each in fake.core.state.agents[agent].withdrawals[client]] == [2_000]
    fake.report(agent, client, result(2_000, 0, 1))
    assert not fake.core.state.agents[agent].withdrawals


def test_rows_that_an_agent_was_asked_for_are_asked_for_once_each() -> None:
    asked = AskedRows()
    made = scheduler_with(1, MANY["priorities"])[0].core.state
    batch = next(iter(next(reversed(made.clients.values())).batches.values()))
    for lo, hi in ((4, 6), (0, 1), (0, 5), (9, 12), (3, 10), (20, 21)):
        asked.add(Withdrawal(WithdrawalKind.CANCEL, batch, lo, hi))
    asked.add(Withdrawal(WithdrawalKind.CLAIM, batch, 0, 30))
    cancels = [(lo, hi) for kind, _, lo, hi in asked if kind is WithdrawalKind.CANCEL]
    assert sorted(cancels) == [(0, 1), (1, 4), (4, 6), (6, 9), (9, 12), (20, 21)]
    taken = asked.take(batch.id, [(3, 5)], WithdrawalKind.CANCEL)
    assert [(lo, hi) for _, _, lo, hi in taken] == [(1, 4), (4, 6)]
    assert len(asked.take(batch.id, [(0, 40)])) == 5
    assert not asked


def steps_of_a_report(rows: int) -> int:
    """Steps for a row, and for a value, that a worker tells of which has told of every other one of so many."""
    fake = FakeAgent(1)
    for batch in (1_000, 1_010, 1_020):  # so that rows are known to be short
        fake.give(batch, 0, 1)
        fake.finish(0, us=0)
    fake.give(10_000, 0, 2_000)
    run = fake.runs[0][0]
    assert run.hi - run.lo > 1_000
    value = wm.Published([wm.PublishedValue((fake.CLIENT, 99), 100, None)])
    ended = [
        wm.EndedSpan(run.dispatch, run.client, 10_000, i, i + 1, ERROR, 0, 0, u32([1]), b"x") for i in range(1_000)
    ]
    fake.worker(0, wm.Results(ended[1 : 2 * rows : 2], []))
    messages = wm.Results([ended[2 * rows + 1]], []), value
    return steps_of(lambda: [fake.core.handle([ae.FromWorker(0, message)], 0.0) for message in messages])


def test_what_a_worker_tells_in_any_order_costs_as_much_behind_many_rows_as_behind_few() -> None:
    assert steps_of_a_report(400) < 1.2 * steps_of_a_report(40)
