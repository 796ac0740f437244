"""Rows move by the table: what is legal, what is counted along, what is told, and what becomes of a defect."""

from collections.abc import Sequence

import pytest
from simulator.limits import default_limits
from simulator.scripted import FakeScheduler, graph, result, task

from scaler.protocol.messages import ERROR, STORED, VALUES_EACH, VALUES_LIST, ObjectGone, TaskResult, u8, u32, u64
from scaler.scheduler.core.events import Log
from scaler.scheduler.core.scheduler_core import SchedulerCore
from scaler.scheduler.state import transitions
from scaler.scheduler.state.batch_records import AGENT, QUEUED, Batch, place_name
from scaler.scheduler.state.cluster_facts import Fact, RowsMoved, named
from scaler.scheduler.state.transitions import TRANSITIONS, Cause, IllegalMove
from scaler.scheduler.state.validate import validate


def queued_batch(rows: int = 3) -> tuple[FakeScheduler, Batch]:
    """A batch whose rows are queued, since there is no agent."""
    fake = FakeScheduler()
    client = fake.client()
    fake.say(client, task(10, rows))
    return fake, fake.core.state.clients[client].batches[10]


@pytest.mark.parametrize("before", ["waiting", "queued", "done", "agent"])
@pytest.mark.parametrize("after", ["waiting", "queued", "done", "agent"])
@pytest.mark.parametrize("cause", list(Cause))
def test_exactly_the_moves_in_the_table_are_made(before: str, after: str, cause: Cause) -> None:
    fake, batch = queued_batch(1)
    agent = fake.core.state.agents[fake.agent(1)]
    fake.heard(agent.number)
    state = fake.core.state
    # the row is at the agent now: bring it to where it is to begin
    if before in ("waiting", "done", "queued"):
        if before == "waiting":
            transitions.hold(state, batch, 0, 1, Cause.GIVEN_BACK)
        elif before == "queued":
            transitions.queue(state, batch, 0, 1, Cause.GIVEN_BACK, False)
        else:
            transitions.end(state, batch, 0, 1, Cause.FINISHED)

    def move() -> None:
        if after == "waiting":
            transitions.hold(state, batch, 0, 1, cause)
        elif after == "queued":
            transitions.queue(state, batch, 0, 1, cause, False)
        elif after == "done":
            transitions.end(state, batch, 0, 1, cause)
        else:
            transitions.place(state, batch, 0, 1, agent, cause)

    if cause in TRANSITIONS.get((before, after), ()):
        move()
        assert place_name(batch.place[0]) == after
    else:
        places = batch.place.tolist(), batch.left, dict(batch.at), agent.load.outstanding, state.queues.rows
        with pytest.raises(IllegalMove, match=f"{batch.id}.*from {before} to {after}"):
            move()
        assert places == (batch.place.tolist(), batch.left, dict(batch.at), agent.load.outstanding, state.queues.rows)


def test_rows_of_different_places_do_not_move_together() -> None:
    fake, batch = queued_batch(3)
    transitions.end(fake.core.state, batch, 1, 2, Cause.CANCELLED)
    with pytest.raises(IllegalMove, match="done and queued"):
        transitions.end(fake.core.state, batch, 0, 3, Cause.CANCELLED)


def test_a_row_taken_out_of_the_middle_leaves_the_queue() -> None:
    fake, batch = queued_batch(3)
    transitions.end(fake.core.state, batch, 1, 2, Cause.CANCELLED)
    assert fake.core.state.queues.rows == 2
    assert batch.left == 2
    assert fake.core.state.clients[batch.client].outstanding == 2


# ---- facts -----------------------------------------------------------------------------------------------------------
def moves_of(fake: FakeScheduler) -> list[tuple[str, str, Cause, int, int]]:
    """What is told of rows from now on."""
    seen: list[tuple[str, str, Cause, int, int]] = []

    def note(now: float, facts: Sequence[Fact]) -> None:
        for fact in named(facts):
            if isinstance(fact, RowsMoved):
                words = place_name(fact.before), place_name(fact.after)
                seen.append((*words, Cause(fact.cause), fact.lo, fact.hi))

    fake.core.state.facts.subscribe(note)
    return seen


def test_a_span_that_moves_is_one_fact() -> None:
    fake = FakeScheduler(4)
    client, seen = fake.client(), moves_of(fake)
    fake.say(client, task(10, 4))
    fake.report(fake.agents[0], client, result(10, 0, 4))
    assert seen == [("waiting", "agent", Cause.READY, 0, 4), ("agent", "done", Cause.FINISHED, 0, 4)]


def test_a_retried_row_tells_why_it_is_queued_again() -> None:
    fake = FakeScheduler(1)
    client, seen = fake.client(), moves_of(fake)
    fake.say(client, task(10, 1, retries=1))
    fake.report(fake.agents[0], client, result(10, 0, 1, ERROR))
    assert [cause for _, _, cause, _, _ in seen] == [Cause.READY, Cause.RETRIED, Cause.PLACED]


def test_nobody_listens_and_no_fact_is_made() -> None:
    core = SchedulerCore(default_limits(), strict=True)
    core.state.facts._observers, core.state.facts.wanted = (), False
    fake = FakeScheduler()
    fake.core = core
    agent = fake.agent(2)
    client = fake.client()
    fake.say(client, task(10, 2))
    assert core.state.facts.told == []
    assert fake.placed(agent) == [(10, 0, 2)]


# ---- defects ---------------------------------------------------------------------------------------------------------
def test_an_illegal_move_is_logged_with_the_story_and_the_scheduler_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.core._strict = False
    fake.say(client, task(10, 3))
    batch = fake.core.state.clients[client].batches[10]
    assert batch.place.tolist() == [AGENT + fake.agents[0]] * 2 + [QUEUED]
    monkeypatch.setattr(transitions, "_LEGAL", transitions._LEGAL - {transitions._move_key(3, 2, Cause.FINISHED)})
    fake.heard(client)
    fake.report(fake.agents[0], client, result(10, 0, 1))
    (log,) = [effect for effect in fake.effects if isinstance(effect, Log)]
    assert log.level == "ERROR"
    assert "can't move from agent to done" in log.text
    assert "came from client" in log.text
    monkeypatch.undo()
    ends = fake.ends(client)
    assert {(batch_id, row) for batch_id, lo, hi, outcome in ends for row in range(lo, hi) if outcome == ERROR} == {
        (10, 0), (10, 1), (10, 2),
    }  # fmt: skip
    assert fake.core.state.clients[client].batches == {}
    assert validate(fake.core.state) == []
    fake.say(client, task(30, 1))
    fake.report(fake.agents[0], client, result(30, 0, 1))
    assert fake.ends(client) == [(30, 0, 1, 0)]


def test_rows_that_need_a_batch_in_disorder_fail_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.core._strict = False
    fake.say(client, graph(10, [[], []], [0, 1]))
    fake.say(client, task(30, 1, dependency_counts=u32([1]), dependencies=u64([11])))
    monkeypatch.setattr(transitions, "_LEGAL", transitions._LEGAL - {transitions._move_key(3, 2, Cause.FINISHED)})
    fake.report(fake.agents[0], client, result(10, 0, 1, VALUES_EACH))
    assert sorted((batch, lo, outcome) for batch, lo, _, outcome in fake.ends(client)) == [
        (10, 0, ERROR), (10, 1, ERROR), (30, 0, ERROR),
    ]  # fmt: skip
    assert validate(fake.core.state) == []


# ---- what agents say twice -------------------------------------------------------------------------------------------
def test_overlapping_spans_in_one_message_end_each_row_once() -> None:
    fake = FakeScheduler(8)
    client = fake.client()
    fake.say(client, task(10, 8))
    (agent,) = fake.agents
    twice = TaskResult(
        client, u64([10, 10]), u32([0, 5, 3, 8]), bodies=[b"l1l2"], sizes=u32([2, 2]), durations=u32([5, 5]),
        outcomes=u8([VALUES_LIST] * 2),
    )  # fmt: skip
    fake.say(agent, twice)
    assert fake.holds(agent) == 3  # the second one is not believed, and what it alone told of runs again
    fake.report(agent, client, result(10, 5, 8, VALUES_EACH))
    assert fake.holds(agent) == 0
    assert fake.core.state.clients[client].outstanding == 0
    assert validate(fake.core.state) == []


def test_a_lost_copy_that_nobody_knows_changes_nothing() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.say(client, task(10, 1))
    (agent,) = fake.agents
    fake.report(agent, client, result(10, 0, 1, STORED))
    fake.say(agent, ObjectGone(u32([client]), u64([99])))
    assert validate(fake.core.state) == []
