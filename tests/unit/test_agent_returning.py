"""An agent outlives its scheduler: the next one is told what is here, and again how rows ended."""

from typing import Any

import pytest
from simulator.scripted import FakeAgent, result, task

from scaler.agent.core import events as ae
from scaler.agent.state import unsettled as module
from scaler.agent.state.unsettled import UnsettledResults
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    KEEP,
    LOST,
    STORED,
    VALUES_EACH,
    BalanceRequest,
    ClientDeparture,
    ClientIntroduction,
    Heartbeat,
    Inventory,
    Message,
    Settled,
    TaskResult,
    u32,
    u64,
)
from scaler.protocol.results import ResultBuilder, SpanResult

CLIENT, SESSION = FakeAgent.CLIENT, 77


def message(*spans: SpanResult) -> TaskResult:
    """What is said of rows."""
    builder = ResultBuilder(CLIENT)
    for span in spans:
        builder.add(span)
    return builder.build()


def rows_of(messages: list[TaskResult]) -> list[tuple[int, int, int]]:
    """The spans of these messages."""
    found = []
    for each in messages:
        found += list(zip(each.batches, each.spans[::2], each.spans[1::2], strict=True))
    return found


def said(*spans: SpanResult, keeps: int | None = None, retries: int | None = None) -> UnsettledResults:
    """What was said of rows, a message each; one batch keeps its values, one may run rows again."""
    made = UnsettledResults()
    if keeps is not None:
        made.expect(task(keeps, 9, client=CLIENT, flags=KEEP))
    if retries is not None:
        made.expect(task(retries, 9, client=CLIENT, retries=2))
    for span in spans:
        made.add(message(span))
    return made


# ---- what is kept ----------------------------------------------------------------------------------------------------
def test_what_is_not_settled_is_said_again_in_order() -> None:
    made = said(result(10, 0, 1), result(10, 1, 2), result(20, 0, 3))
    made.settle(CLIENT, 1)
    assert rows_of(made.say_again({}, ())) == [(10, 1, 2), (20, 0, 3)]


def test_messages_are_counted_anew_for_each_scheduler() -> None:
    made = said(result(10, 0, 1), result(10, 1, 2))
    made.settle(CLIENT, 1)
    assert len(made.say_again({}, ())) == 1
    made.add(message(result(10, 2, 3)))
    made.settle(CLIENT, 1)
    assert rows_of(made.say_again({}, ())) == [(10, 2, 3)]


def test_results_that_other_rows_need_are_kept_until_their_batch_is_over() -> None:
    made = said(result(10, 0, 2, VALUES_EACH), result(20, 0, 1), keeps=10)
    made.settle(CLIENT, 2)
    assert rows_of(made.say_again({}, ())) == [(10, 0, 2)]
    made.settle(CLIENT, 1)
    assert not made.is_empty
    made.end_batch(CLIENT, 10)
    assert made.is_empty
    assert made.kept_bytes == 0


def test_of_the_oldest_batch_nothing_is_kept_when_there_is_too_much(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 600)
    made = said(result(10, 0, 1, VALUES_EACH), keeps=10)
    made.expect(task(20, 9, client=CLIENT, flags=KEEP))
    made.add(message(result(20, 0, 1, VALUES_EACH), result(20, 1, 2, VALUES_EACH)))
    made.settle(CLIENT, 2)
    assert rows_of(made.say_again({}, ())) == [(20, 0, 1), (20, 1, 2)]


def test_rows_that_may_run_again_are_not_said_to_have_ended_though_of_their_batch_nothing_is_kept(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 600)
    made = said(*(result(30, row, row + 1, VALUES_EACH) for row in range(3)), keeps=30, retries=30)
    made.settle(CLIENT, 3)
    made.add(message(result(30, 3, 4, ERROR)))
    assert made.say_again({}, ()) == []


def test_rows_that_came_again_or_may_run_again_are_not_said_to_have_ended() -> None:
    made = said(result(10, 0, 4, VALUES_EACH), result(20, 0, 1, LOST), result(30, 0, 1, ERROR), retries=30)
    assert rows_of(made.say_again({(CLIENT, 10): {1, 2}}, ())) == [(10, 0, 1), (10, 3, 4)]


def test_a_row_that_was_cancelled_is_not_said_to_have_ended_as_only_its_client_knows_who_wanted_that() -> None:
    """The last scheduler may have, as the row was at two agents: the next one ended it for its client with that."""
    assert said(result(10, 0, 1, CANCELLED)).say_again({}, ()) == []


def test_batches_of_which_another_scheduler_is_told_nothing_are_forgotten() -> None:
    made = said(result(10, 0, 1, LOST), result(30, 0, 1, ERROR), keeps=10, retries=30)
    assert made.say_again({}, ()) == []
    assert made.is_empty
    made = said(result(20, 0, 1), keeps=20, retries=10)
    assert rows_of(made.say_again({(CLIENT, 10): {0}}, ())) == [(20, 0, 1)]
    made.settle(CLIENT, 1)
    for batch in (10, 20):
        assert not made.is_empty
        made.end_batch(CLIENT, batch)
    assert made.is_empty


def test_rows_whose_stored_values_are_lost_are_not_said_to_have_ended() -> None:
    made = said(result(10, 0, 3, STORED), keeps=10)
    made.lose((CLIENT, 10))
    made.lose((CLIENT, 11))
    assert rows_of(made.say_again({}, {(CLIENT, 11)})) == [(10, 1, 3)]  # the second one was made again


def test_nothing_is_kept_of_a_client_that_has_gone() -> None:
    made = said(result(10, 0, 1), keeps=20, retries=30)
    made.drop_client(CLIENT, stays=False)
    assert made.is_empty
    assert made.say_again({}, ()) == []


# ---- what is told ----------------------------------------------------------------------------------------------------
@pytest.fixture
def fake() -> FakeAgent:
    made = FakeAgent(2)
    made.tell(ClientIntroduction(CLIENT, SESSION))
    return made


def anew(fake: FakeAgent) -> tuple[Inventory, list[Message]]:
    """Another scheduler is there; what it is told."""
    fake.said.clear()
    fake.handle(ae.Welcomed(False, 1.0, fake.NUMBER, returned=True))
    first, *rest = fake.said
    assert isinstance(first, Inventory)
    return first, [each for each in rest if not isinstance(each, Heartbeat)]


def test_rows_go_on_and_are_told_of(fake: FakeAgent) -> None:
    fake.give(10, 0, 6)
    running = [span for slot in fake.runs for span in fake.running(slot)]
    assert running
    inventory, rest = anew(fake)
    assert (inventory.clients.tolist(), inventory.sessions.tolist()) == ([CLIENT], [SESSION])
    rows = [row for _, _, lo, hi in inventory.rows for row in range(lo, hi)]
    assert sorted(rows) == list(range(6))
    assert rest == []
    assert [span for slot in fake.runs for span in fake.running(slot)] == running
    assert fake.killed == []


def test_how_rows_ended_is_said_again_until_that_is_settled(fake: FakeAgent) -> None:
    fake.give(10, 0, 1)
    (slot,) = fake.runs
    fake.finish(slot)
    inventory, (again,) = anew(fake)
    assert list(inventory.rows) == [(CLIENT, 10, 0, 1)]
    assert isinstance(again, TaskResult)
    fake.tell(Settled(u32([CLIENT]), u64([1])))
    inventory, rest = anew(fake)
    assert (list(inventory.rows), rest) == ([], [])


def test_objects_are_told_of_with_their_sizes(fake: FakeAgent) -> None:
    fake.give(10, 0, 1)
    (slot,) = fake.runs
    fake.makes(slot, size=1_000_000)
    inventory, _ = anew(fake)
    sizes = dict(zip(inventory.objects, inventory.sizes, strict=True))
    assert sizes == {(CLIENT, 1): 0, (CLIENT, 10): 1_000_000}  # the function travels inside messages


def test_what_the_last_scheduler_wanted_is_forgotten(fake: FakeAgent) -> None:
    fake.give(10, 0, 8)
    fake.tell(BalanceRequest(4))
    anew(fake)
    assert fake.core.state.withdrawals.rows_to_return == 0


def test_an_agent_that_got_another_number_forgets_everything(fake: FakeAgent) -> None:
    fake.give(10, 0, 4)
    fake.handle(ae.Welcomed(False, 1.0, 99))
    assert fake.core.state.unsettled.is_empty
    assert fake.core.state.queued == 0


def test_a_client_that_leaves_takes_along_what_was_kept_of_it(fake: FakeAgent) -> None:
    fake.give(10, 0, 1)
    (slot,) = fake.runs
    fake.finish(slot)
    fake.tell(ClientDeparture(CLIENT))
    inventory, rest = anew(fake)
    assert (inventory.clients.tolist(), rest) == ([], [])
