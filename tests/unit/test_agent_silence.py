"""Workers that do not react: rows behind the one that runs are taken back without their help, or they are ended."""

import math

import pytest
from simulator.scripted import FakeAgent, spans

from scaler.agent.core import events as ev
from scaler.agent.core.silence import ENDING_SECONDS, LOOK_SECONDS, MUTE_SECONDS
from scaler.agent.core.worker_commands import ANSWER_SECONDS
from scaler.protocol.messages import (
    CANCELLED,
    BalanceRequest,
    BalanceResponse,
    ClientDeparture,
    Spans,
    TaskCancel,
    TaskResult,
)
from scaler.worker_protocol import messages as wm
from scaler.worker_protocol.messages import ReturnedSpan

A, B = FakeAgent.CLIENT, 8
#: seconds between two samples
SAMPLED = 0.1


def later(fake: FakeAgent, seconds: float) -> None:
    """Time goes by, and nothing else happens."""
    fake.now += seconds + 1e-6
    fake.handle(ev.Tick())


def revoked(fake: FakeAgent) -> list[tuple[int, int]]:
    """(slot, dispatch) that the progress page was told of since the last time."""
    found = [(effect.slot, effect.dispatch) for effect in fake.store if isinstance(effect, ev.Revoke)]
    fake.store = [effect for effect in fake.store if not isinstance(effect, ev.Revoke)]
    return found


def behind(workers: int = 1) -> FakeAgent:
    """The first worker runs a row of A, and has one of B behind it, which it was asked for; so do the others."""
    fake = FakeAgent(workers)
    fake.give(10, 0, workers)
    fake.give(20, 0, workers, client=B)
    assert fake.running(0) == [(10, 0, 1), (20, 0, 1)]
    later(fake, 0.01)
    assert [type(message) for _, message in fake.control] == [wm.Recall] * workers
    return fake


def take_without_help(fake: FakeAgent, at: int = 0) -> None:
    """The first worker does not answer until its rows are taken; it is seen at this one of its dispatches."""
    numbers = [run.dispatch for run in fake.runs[0]]
    later(fake, ANSWER_SECONDS)
    assert revoked(fake)[0] == (0, numbers[-1])
    later(fake, LOOK_SECONDS)
    assert fake.looks[0] == 0
    fake.handle(ev.Looked(0, (numbers[at], 0)))


def batches(fake: FakeAgent) -> list[tuple[int, int, int, int]]:
    """(batch, lo, hi, outcome) of what was reported since the last time."""
    found = []
    for message in fake.heard(TaskResult):
        found += list(zip(message.batches, message.spans[::2], message.spans[1::2], message.outcomes, strict=True))
    return found


def sample(fake: FakeAgent, seconds: float, **reached: int) -> None:
    """Workers are sampled for so long, and are seen at these dispatches: `slot_0=3`."""
    end = fake.now + seconds
    while fake.now < end:
        fake.now += SAMPLED
        fake.handle(ev.Sampled({}, reached={int(slot[5:]): number for slot, number in reached.items()}))


# ---- recalls without an answer ---------------------------------------------------------------------------------------
def test_a_row_behind_one_whose_worker_does_not_answer_goes_to_another_worker() -> None:
    fake = behind(2)
    fake.give_back(1, fake.control[1][1].token)  # type: ignore[union-attr]
    fake.finish(1)
    assert fake.running(1) == [(20, 1, 2)]
    fake.finish(1)
    take_without_help(fake)
    assert fake.running(1) == [(20, 0, 1)]
    fake.finish(1)
    assert fake.killed == []
    assert len(batches(fake)) == 4 - 1


def test_it_is_not_looked_at_the_worker_before_it_can_know_what_was_revoked() -> None:
    fake = behind()
    first, second = fake.runs[0]
    later(fake, ANSWER_SECONDS)
    assert revoked(fake) == [(0, second.dispatch)]
    fake.handle(ev.Looked(0, (first.dispatch, 0)))  # for another reason, and perhaps from before
    assert (fake.looks, fake.core.state.queued) == ([], 0)
    assert fake.wake <= fake.now + LOOK_SECONDS
    later(fake, LOOK_SECONDS)
    assert (fake.looks, fake.core.state.queued) == ([0], 0)
    fake.handle(ev.Looked(0, (first.dispatch, 0)))
    assert fake.core.state.queued == 1


def test_what_the_worker_has_begun_meanwhile_stays_there() -> None:
    fake = behind()
    take_without_help(fake, at=1)
    assert fake.core.state.queued == 0
    fake.finish(0)
    fake.finish(0)
    assert len(batches(fake)) == 2
    assert fake.killed == []


def test_a_worker_that_answers_in_time_is_not_bothered() -> None:
    fake = behind()
    fake.give_back(0, fake.control[0][1].token)  # type: ignore[union-attr]
    later(fake, ANSWER_SECONDS)
    later(fake, LOOK_SECONDS)
    assert (revoked(fake), fake.looks) == ([], [])


def test_a_worker_that_answers_once_it_was_revoked_is_not_looked_at() -> None:
    fake = behind()
    first = fake.runs[0][0]
    later(fake, ANSWER_SECONDS)
    assert revoked(fake)
    fake.give_back(0, fake.control[0][1].token)  # type: ignore[union-attr]
    fake.handle(ev.Looked(0, (first.dispatch, 0)))
    later(fake, LOOK_SECONDS)
    assert fake.looks == []


def test_what_a_worker_says_of_rows_that_were_taken_does_not_count() -> None:
    fake = behind(2)
    fake.give_back(1, fake.control[1][1].token)  # type: ignore[union-attr]
    fake.finish(1)
    fake.finish(1)
    token, (_, second) = fake.control[0][1].token, fake.runs[0]  # type: ignore[union-attr]
    take_without_help(fake)
    taken = ReturnedSpan(second.dispatch, B, 20, 0, 1)
    fake.runs[0].pop()
    fake.finish(0)
    fake.worker(0, wm.Returned(0, [taken], None))  # it comes to it, and sees that it is revoked
    fake.worker(0, wm.Returned(token, [taken], None))
    fake.worker(0, wm.Results([], [second.dispatch]))
    assert fake.running(1) == [(20, 0, 1)]
    fake.give(30, 0, 1)
    assert fake.running(0) == [(30, 0, 1)], "it is given rows again"
    fake.finish(0)
    fake.finish(1)
    assert len(batches(fake)) == 5
    assert fake.killed == []
    assert not fake.core.state.workers.records[0].gives_back


def test_a_worker_that_does_not_answer_is_given_nothing() -> None:
    fake = behind()
    take_without_help(fake)
    fake.runs[0].pop()
    fake.give(30, 0, 3)
    fake.finish(0)
    later(fake, 1.0)
    assert fake.running(0) == []


def test_rows_that_were_to_be_cancelled_are_when_they_are_taken() -> None:
    fake = behind()
    fake.tell(TaskCancel(spans(Spans, B, (20, 0, 1)), False))
    take_without_help(fake)
    assert batches(fake) == [(20, 0, 1, CANCELLED)]


def test_the_scheduler_gets_rows_though_one_worker_does_not_answer() -> None:
    fake = behind()
    fake.tell(BalanceRequest(2))
    assert fake.heard(BalanceResponse) == []
    take_without_help(fake)
    (answer,) = fake.heard(BalanceResponse)
    assert list(answer) == [(B, 20, 0, 1)]
    fake.tell(BalanceRequest(2))
    assert len(fake.heard(BalanceResponse)) == 1, "nobody waits for it a second time"


def test_a_row_behind_one_that_does_not_answer_ends_with_its_client() -> None:
    fake = behind()
    fake.tell(ClientDeparture(B))
    take_without_help(fake)
    assert (fake.core.state.queued, fake.killed) == (0, [])
    fake.tell(ClientDeparture(A))
    fake.handle(ev.Looked(fake.looks[-1], (fake.runs[0][0].dispatch, 0)))
    assert fake.killed == [0]


def test_a_worker_that_has_come_to_rows_that_nobody_wants_is_ended() -> None:
    fake = behind()
    fake.tell(ClientDeparture(B))
    take_without_help(fake, at=1)
    assert fake.killed == [0]


# ---- workers that owe a sign -----------------------------------------------------------------------------------------
def test_a_worker_that_does_not_take_up_what_it_was_given_is_ended_and_its_rows_go_elsewhere() -> None:
    fake = FakeAgent(2)
    fake.give(1, 0, 2)
    before = max(fake.runs[0][0].dispatch, fake.runs[1][0].dispatch)
    fake.finish(0)
    fake.finish(1)
    fake.said.clear()
    fake.give(10, 0, 1)
    (run,) = fake.runs[0]
    sample(fake, MUTE_SECONDS - 0.5, slot_0=before)
    assert fake.killed == []
    sample(fake, 1.0, slot_0=before)
    assert fake.killed == [0]
    assert "has not reacted" in fake.logged[-1]
    fake.runs[0].clear()
    fake.handle(ev.WorkerExited(0, 100, 9, (before, -1)))
    assert fake.running(1) == [(10, 0, 1)], "as if it had never been there"
    assert batches(fake) == []
    assert run.dispatch > before


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_worker_that_loads_what_a_row_needs_or_runs_it_may_take_as_long_as_it_likes(is_begun: bool) -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    number = fake.runs[0][0].dispatch
    for _ in range(100):
        fake.now += 1.0
        fake.handle(ev.Sampled({}, begun={0: (number, 0)} if is_begun else {}, reached={0: number}))
    assert fake.killed == []


def test_a_worker_that_is_always_given_more_before_it_is_sampled_is_not_mute() -> None:
    fake = FakeAgent(1)
    for batch in range(10, 110):
        fake.give(batch, 0, 1)
        sample(fake, SAMPLED / 2, slot_0=fake.runs[0][0].dispatch - 1)
        fake.finish(0)
    assert fake.killed == []


def test_the_time_for_which_the_agent_itself_was_stopped_does_not_count() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    for _ in range(3):
        fake.now += 60.0
        fake.handle(ev.Sampled({}, reached={0: 0}))
    assert fake.killed == []


def test_a_worker_without_rows_that_does_not_answer_a_recall_is_ended() -> None:
    fake = behind()
    numbers = [run.dispatch for run in fake.runs[0]]
    fake.finish(0)
    fake.finish(0)
    assert fake.core.state.workers.records[0].is_without_task
    sample(fake, MUTE_SECONDS + 0.5, slot_0=numbers[-1])
    assert fake.killed == [0]


def test_a_worker_that_was_told_to_end_and_does_not_is_killed() -> None:
    fake = FakeAgent(1, tasks=1)
    fake.give(10, 0, 1)
    fake.finish(0)
    sample(fake, ENDING_SECONDS - 1.0, slot_0=1)
    assert fake.killed == []
    sample(fake, 2.0, slot_0=1)
    assert fake.killed == [0]


def test_nothing_is_left_to_be_done_for_a_worker_that_keeps_silent() -> None:
    fake = behind()
    take_without_help(fake)
    fake.tell(TaskCancel(spans(Spans, B, (20, 0, 1)), False))
    later(fake, 10.0)
    assert (fake.core.state.attend_at, revoked(fake), fake.looks) == (math.inf, [], [0])
