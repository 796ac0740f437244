"""What an agent's core does, case by case; the scheduler and the workers are played by the test."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from simulator.scripted import FakeAgent, as_heard, spans
from support.counting import calls_of

from scaler.agent.core import events as ev
from scaler.agent.core.in_hand import DISPATCH_US, SHORT_DISPATCHES, SHORT_US
from scaler.agent.core.withdrawing import FORCE_PATIENCE
from scaler.agent.core.worker_lifecycle import SPARE
from scaler.agent.state.worker_records import QUIET_SECONDS, KillKind, KillReason
from scaler.errors import ProtocolError
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    FRESH,
    LONGEST_NAME,
    LOST,
    STREAM,
    VALUES_LIST,
    BalanceRequest,
    BalanceResponse,
    ClientDeparture,
    Heartbeat,
    Message,
    Spans,
    TaskBegun,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskOutput,
    TaskResult,
    TaskRunning,
    u32,
    u64,
)
from scaler.serialize.record import decode_error
from scaler.worker_protocol import messages as wm

C = FakeAgent.CLIENT


def learnt(fake: FakeAgent, us: int = 100) -> None:
    """Let the agent know what the function takes."""
    fake.give(1, 0, 1)
    fake.finish(0, us=us)
    fake.said.clear()


def cancel(fake: FakeAgent, batch: int, lo: int, hi: int, force: bool = False) -> None:
    """The scheduler wants rows cancelled."""
    fake.tell(TaskCancel(spans(Spans, C, (batch, lo, hi)), force))


def recall(fake: FakeAgent) -> int:
    """The token of the first thing that a worker was told on its control socket, which is to give rows back."""
    message = fake.control[0][1]
    assert isinstance(message, wm.Recall)
    return message.token


def look(fake: FakeAgent, at: int = 0, row: int = 0) -> None:
    """The first worker is looked at, and is at this row of this one of its dispatches."""
    assert fake.looks == [0]
    fake.handle(ev.Looked(fake.looks.pop(), (fake.runs[0][at].dispatch, row)))


def goes_on_with_the_second(fake: FakeAgent) -> None:
    """The first worker has ended its first dispatch, is looked at before it has told of that, and is not ended."""
    look(fake, 1)
    token = recall(fake)
    fake.finish(0)
    fake.give_back(0, token)
    fake.finish(0)
    assert fake.killed == []


def ends(fake: FakeAgent) -> list[tuple[int, int, int, int]]:
    """(batch, lo, hi, outcome) of what was reported since the last time."""
    found = []
    for message in fake.heard(TaskResult):
        found += list(zip(message.batches, message.spans[::2], message.spans[1::2], message.outcomes, strict=True))
    return found


# ---- handing out -----------------------------------------------------------------------------------------------------
def test_one_row_a_worker_while_a_function_is_unknown() -> None:
    fake = FakeAgent(2)
    fake.give(10, 0, 2)
    assert fake.running(0) == [(10, 0, 1)]
    assert fake.running(1) == [(10, 1, 2)]


def test_a_little_work_once_it_is_known_and_the_next_ones_before_the_last_are_done() -> None:
    fake = FakeAgent(1)
    learnt(fake, us=100)
    n = int(DISPATCH_US / 100)
    fake.give(10, 0, 10 * n)
    assert fake.running(0) == [(10, 0, n), (10, n, 2 * n)]


def test_short_spans_are_handed_out_together_as_far_as_they_take_little_time() -> None:
    fake = FakeAgent(1)
    learnt(fake, us=100)
    together = int(SHORT_US / 500)
    for batch in range(10, 30):
        fake.give(batch, 0, 5)
    assert fake.running(0) == [(batch, 0, 5) for batch in range(10, 10 + together)]
    for _ in range(together):
        fake.finish(0)
    assert fake.running(0) == [(batch, 0, 5) for batch in range(10 + together, 10 + 2 * together)]


def test_short_spans_that_come_together_are_shared_by_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeAgent(2)
    learnt(fake, us=100)
    together: list[Message] = []
    with monkeypatch.context() as patch:
        patch.setattr(fake, "tell", together.append)
        for batch in (10, 11, 12, 13):
            fake.give(batch, 0, 5)
    fake.tell(*together)
    first, second = [sum(hi - lo for _, lo, hi in fake.running(slot)) for slot in (0, 1)]
    assert first >= 10 > first - second
    assert second >= 5


@pytest.mark.parametrize("more", [{"timeout": 5.0}, {"name": "other"}, {"flags": FRESH}])
def test_rows_that_are_to_be_handed_out_alone_do_not_follow_in_a_second_short_span(more: dict[str, Any]) -> None:
    fake = FakeAgent(1)
    learnt(fake, us=100)
    fake.give(10, 0, 1)
    fake.give(11, 0, 1)
    fake.give(12, 0, 1, **more)
    assert fake.running(0) == [(10, 0, 1), (11, 0, 1)]


def test_less_urgent_rows_are_not_handed_out_with_others_as_more_urgent_ones_may_come() -> None:
    fake = FakeAgent(1)
    learnt(fake, us=100)
    fake.give(10, 0, 5, priority=2)
    fake.give(11, 0, 5, priority=2)
    fake.give(12, 0, 5, priority=1)
    assert fake.running(0) == [(10, 0, 5), (11, 0, 5)]
    fake.give(13, 0, 5, priority=2)
    assert fake.running(0) == [(10, 0, 5), (11, 0, 5), (13, 0, 5)]


def test_no_more_dispatches_than_a_few_are_handed_out_however_short_they_are() -> None:
    fake = FakeAgent(1)
    learnt(fake, us=1)
    for batch in range(10, 60):
        fake.give(batch, 0, 1)
    assert len(fake.running(0)) == SHORT_DISPATCHES


def test_the_higher_priority_goes_first() -> None:
    fake = FakeAgent(1, ready=False)
    fake.give(10, 0, 1)
    fake.give(20, 0, 1, priority=1)
    fake.worker(0, wm.Ready(100))
    assert fake.running(0)[0] == (20, 0, 1)


def test_objects_go_to_a_worker_once() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    assert fake.runs[0][0].objects == [((C, 1), b"function")]
    fake.finish(0)
    fake.give(20, 0, 1)
    assert fake.runs[0][0].objects == []


def test_results_are_reported_as_they_come() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.finish(0)
    assert ends(fake) == [(10, 0, 1, VALUES_LIST)]
    assert fake.core.state.running == fake.core.state.queued == 0


def test_rows_behind_one_that_takes_longer_than_expected_are_taken_back() -> None:
    fake = FakeAgent(2)
    learnt(fake, us=100)
    fake.give(10, 0, 40)
    for _ in range(2):
        fake.finish(1)
    fake.now += 1.0
    fake.handle(ev.Tick())
    token = recall(fake)
    assert fake.control[0] == (0, wm.Recall(token, 1, last=fake.runs[0][-1].dispatch))
    fake.give_back(0, token)
    assert fake.running(0) == [(10, 0, 1)]
    assert fake.running(1)


def test_a_row_that_nothing_is_known_of_stays_behind_one_that_takes_as_long_as_expected() -> None:
    fake = FakeAgent(1)
    learnt(fake, us=20_000)
    fake.give(10, 0, 1)
    fake.now += 0.010
    fake.give(20, 0, 1, name="other")
    fake.handle(ev.Tick())
    assert fake.running(0) == [(10, 0, 1), (20, 0, 1)]
    assert fake.control == []
    fake.now += 0.040
    fake.handle(ev.Tick())
    fake.give_back(0, recall(fake))
    for _ in range(3):
        fake.handle(ev.Tick())
    assert len(fake.control) == 1
    assert fake.running(0) == [(10, 0, 1)]


def test_a_long_row_behind_another_does_not_put_off_when_that_is_overdue() -> None:
    fake = FakeAgent(1)
    learnt(fake, us=20_000)
    fake.give(1, 1, 2, name="other")
    fake.finish(0, us=9_000_000)
    fake.give(10, 0, 1)
    fake.give(20, 0, 1, name="other")
    assert fake.running(0) == [(10, 0, 1), (20, 0, 1)]
    fake.now += 0.044
    fake.handle(ev.Tick())
    assert fake.control == []
    fake.now += 0.002
    fake.handle(ev.Tick())
    fake.give_back(0, recall(fake))
    assert fake.running(0) == [(10, 0, 1)]


def test_a_root_with_nothing_in_hand_has_its_turn_at_whoever_is_free_first() -> None:
    fake = FakeAgent(2)
    learnt(fake, us=20_000)
    fake.give(10, 0, 6)
    fake.give(10, 0, 3, client=C + 1)
    for slot, (of, message) in enumerate(list(fake.control)):
        assert (of, type(message)) == (slot, wm.Recall)
        fake.give_back(slot, message.token)
    assert (fake.running(0), fake.running(1)) == ([(10, 0, 1)], [(10, 1, 2)])
    fake.finish(1)
    assert [run.client for run in fake.runs[1][-2:]] == [C + 1, C]
    assert fake.running(0) == [(10, 0, 1)], "or it would be taken back again"
    assert len(fake.control) == 2


def test_deeper_rows_go_first_within_their_root_and_not_before_those_of_others() -> None:
    fake = FakeAgent(1, ready=False)
    fake.give(10, 0, 2, root=7)
    fake.give(20, 0, 2, client=C + 1, root=8)
    fake.give(30, 0, 2, client=C + 2, root=7, nesting=1)
    fake.give(40, 0, 2, client=C + 3, root=7, nesting=2)
    fake.worker(0, wm.Ready(100))
    order = []
    for _ in range(8):
        order.append(fake.running(0)[0][0])
        fake.finish(0, us=1_000_000)
    assert order == [40, 20, 40, 20, 30, 30, 10, 10]


def test_what_is_more_urgent_begins_next_at_whoever_is_free_first() -> None:
    fake = FakeAgent(2)
    learnt(fake, us=20_000)
    fake.give(10, 0, 6)
    assert (fake.running(0), fake.running(1)) == ([(10, 0, 1), (10, 2, 3)], [(10, 1, 2), (10, 3, 4)])
    fake.give(20, 0, 1, priority=1)
    for slot, (of, message) in enumerate(list(fake.control)):
        assert (of, type(message)) == (slot, wm.Recall)
        fake.give_back(slot, message.token)
    assert (fake.running(0), fake.running(1)) == ([(10, 0, 1)], [(10, 1, 2)])
    fake.finish(1)
    assert fake.running(1) == [(20, 0, 1), (10, 2, 3)]
    assert fake.running(0) == [(10, 0, 1), (10, 3, 4)], "all is as usual"
    fake.finish(1)
    fake.finish(1)
    assert len(fake.control) == 2
    assert fake.running(1) == [(10, 4, 5), (10, 5, 6)]


def test_a_row_does_not_go_to_and_fro_behind_a_long_one_for_each_that_is_more_urgent() -> None:
    """Each time those that came had all been handed out, it was, too, until the next ones came (seed 78000134)."""
    fake = FakeAgent(2)
    learnt(fake, us=20_000)
    fake.give(10, 0, 4)
    fake.finish(1)
    recalled = 0
    for number in range(20):
        fake.give(20 + number, 0, 2, priority=1)
        for slot, message in fake.control:
            recalled += 1
            fake.give_back(slot, message.token)
        fake.control.clear()
        fake.finish(1)
        fake.finish(1)
        if fake.running(1)[:1] == [(10, 3, 4)]:
            fake.finish(1)
    assert fake.running(0)[:1] == [(10, 0, 1)], "it runs all the time"
    assert recalled < 5


def test_a_row_that_takes_several_slots_and_is_more_urgent_begins_next_too() -> None:
    fake = FakeAgent(2)
    learnt(fake, us=20_000)
    fake.give(10, 0, 6)
    fake.give(20, 0, 1, priority=1, threads=2)
    assert [(slot, type(message)) for slot, message in fake.control] == [(0, wm.Recall), (1, wm.Recall)]
    for slot, message in list(fake.control):
        fake.give_back(slot, message.token)
    fake.finish(0)
    fake.finish(1)
    assert (fake.running(0), fake.running(1)) == ([(20, 0, 1)], [])


def recalls_of_one_row(fake: FakeAgent, seconds: float) -> int:
    """How often rows are taken back while the rows that run go on for so long."""
    end, recalls = fake.now + seconds, 0
    while fake.now < end:
        if fake.control:
            slot, message = fake.control.pop(0)
            if isinstance(message, wm.Recall):
                recalls += 1
                assert recalls < 10, "the same rows go to and fro"
                fake.now += 0.0002
                fake.give_back(slot, message.token)
        else:
            fake.now = min(max(fake.wake, fake.now + 1e-6), end)
            fake.handle(ev.Tick())
    return recalls


def beside_one_that_is_about_to_end() -> FakeAgent:
    """Two workers of two rows each: the first has run its last one, the second has one in hand behind a long one."""
    fake = FakeAgent(2, tasks=2)
    fake.core.state.workers.records[1].blocked = True
    learnt(fake, us=50_000)
    fake.core.state.workers.records[1].blocked = False
    fake.give(10, 0, 3)
    assert (fake.running(0), fake.running(1)) == ([(10, 0, 1)], [(10, 1, 2), (10, 2, 3)])
    fake.finish(0)
    return fake


def test_a_worker_that_is_about_to_end_is_none_for_which_rows_are_taken_back() -> None:
    fake = beside_one_that_is_about_to_end()
    assert fake.core.state.workers.records[0].kill_reason is not None
    assert recalls_of_one_row(fake, 0.045) == 0
    assert fake.running(1) == [(10, 1, 2), (10, 2, 3)]


def test_the_scheduler_is_given_what_a_worker_that_is_about_to_end_would_have_run() -> None:
    fake = beside_one_that_is_about_to_end()
    fake.tell(BalanceRequest(1))
    fake.give_back(1, recall(fake))
    assert list(fake.heard(BalanceResponse)[0]) == [(C, 10, 2, 3)]


def test_what_is_more_urgent_waits_for_a_few_milliseconds_that_are_in_hand() -> None:
    fake = FakeAgent(1)
    learnt(fake, us=100)
    fake.give(10, 0, 40)
    fake.give(20, 0, 1, priority=1)
    assert fake.control == []
    assert fake.running(0) == [(10, 0, 40)]
    fake.finish(0)
    assert fake.running(0) == [(20, 0, 1)]


def test_nothing_is_handed_out_behind_a_long_row_so_that_it_goes_to_whoever_is_free_first() -> None:
    fake = FakeAgent(2)
    learnt(fake, us=1_000_000)
    fake.give(10, 0, 2)
    fake.give(20, 0, 2)
    assert (fake.running(0), fake.running(1)) == ([(10, 0, 1)], [(10, 1, 2)])
    fake.finish(1)
    fake.finish(1)
    assert (fake.running(0), fake.running(1)) == ([(10, 0, 1)], [(20, 1, 2)])


def test_nothing_is_handed_out_behind_a_row_that_gives_it_back_each_time_it_waits() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 200)
    fake.give_back(0, 0)
    assert fake.running(0) == [(10, 0, 1)]
    fake.give(20, 0, 200)
    assert fake.running(0) == [(10, 0, 1)]
    fake.finish(0)
    assert len(fake.runs[0]) == 2, "with the next row all is as usual"


def test_a_row_that_a_worker_may_keep_for_others_is_not_taken_for_one_that_runs() -> None:
    fake = FakeAgent(1)
    learnt(fake, us=100)
    fake.give(10, 0, 3)
    fake.now += 1.0
    fake.handle(ev.Tick())
    kept = recall(fake)
    fake.control.clear()
    cancel(fake, 10, 0, 3)
    wanted = recall(fake)
    assert fake.control == [(0, wm.Recall(wanted, 0, last=fake.runs[0][0].dispatch))]
    (run,) = fake.runs[0]
    fake.worker(0, wm.Returned(kept, [wm.ReturnedSpan(run.dispatch, C, 10, 1, 3)], None))
    assert ends(fake) == [(10, 2, 3, CANCELLED), (10, 1, 2, CANCELLED)]
    assert fake.heard(TaskRunning) == []
    fake.worker(0, wm.Returned(wanted, [wm.ReturnedSpan(run.dispatch, C, 10, 0, 1)], None))
    assert ends(fake) == [(10, 0, 1, CANCELLED)]
    assert fake.heard(TaskRunning) == []


# ---- workers come and go ---------------------------------------------------------------------------------------------
def test_a_row_that_dies_with_its_worker_is_lost_and_the_others_wait_for_the_next_one() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    fake.dies(0)
    assert ends(fake) == [(10, 0, 1, LOST)]
    assert fake.core.state.queued == 4
    assert fake.started == [0, 0]


def test_rows_of_a_worker_that_leaves_come_back_and_none_is_lost() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    fake.worker(0, wm.Leaving())
    fake.give(20, 0, 1)
    fake.dies(0)
    assert ends(fake) == []
    assert fake.core.state.queued == 6
    assert fake.started == [0, 0]


def test_a_worker_that_dies_while_starting_is_started_again_ever_later() -> None:
    fake = FakeAgent(1, ready=False)
    for started, wait in ((1, 0.1), (2, 0.2)):
        fake.dies(0)
        assert len(fake.started) == started
        fake.now += wait + 0.001
        fake.handle(ev.Tick())
        assert len(fake.started) == started + 1


def test_another_worker_takes_the_place_of_a_blocked_one() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.worker(0, wm.Blocked())
    assert fake.started == [0, 1]
    fake.worker(1, wm.Ready(101))
    fake.give(20, 0, 1)
    assert fake.running(1) == [(20, 0, 1)]
    fake.finish(1)
    fake.worker(0, wm.Unblocked())
    assert fake.core.state.workers.records[1].state == "parked"


def test_rows_handed_to_a_worker_that_blocks_are_taken_back() -> None:
    fake = FakeAgent(1)
    learnt(fake, us=100)
    fake.give(10, 0, 20)
    fake.worker(0, wm.Blocked())
    assert [(slot, type(message)) for slot, message in fake.control] == [(0, wm.Recall)]
    fake.give_back(0, recall(fake))
    assert fake.core.state.queued == 19


def test_spare_workers_beyond_a_few_are_told_to_quit_and_never_used_again() -> None:
    fake = FakeAgent(1)
    for slot in range(SPARE + 2):
        fake.give(10 + slot, 0, 1)
        fake.worker(slot, wm.Blocked())
        fake.worker(slot + 1, wm.Ready(1))
    for slot in range(SPARE + 2):
        fake.worker(slot, wm.Unblocked())
        fake.finish(slot)
    quitting = [worker for worker in fake.core.state.workers.records.values() if worker.kill_reason is not None]
    assert len(quitting) == 2
    fake.give(50, 0, 1)
    (slot,) = [slot for slot in fake.runs if fake.runs[slot]]
    assert fake.core.state.workers.records[slot].kill_reason is None


def test_a_row_past_its_timeout_ends_its_worker_and_says_so() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1, timeout=2.0)
    fake.now += 2.1
    fake.handle(ev.Tick())
    assert fake.killed == [0]
    fake.dies(0)
    (message,) = fake.heard(TaskResult)
    assert list(message.outcomes) == [ERROR]
    assert "longer than its timeout of 2 s" in str(decode_error(bytes(message.bodies[0])))


@pytest.mark.parametrize("what", ["time", "memory"])
def test_a_limit_is_no_fault_of_a_row_that_its_worker_has_not_even_loaded(what: str) -> None:
    fake = FakeAgent(1, worker=1_000)
    fake.give(10, 0, 1, timeout=2.0)
    for pid, is_begun in ((100, False), (101, True)):
        (run,) = fake.runs.pop(0)
        fake.now += 2.0 if what == "time" else 0.1
        fake.handle(ev.Sampled({0: 0 if what == "time" else 2_000}))
        assert len(fake.killed) == 1 + is_begun
        assert ends(fake) == []
        fake.handle(ev.WorkerExited(0, pid, 9, (run.dispatch, 0) if is_begun else (run.dispatch - 1, -1)))
        if not is_begun:
            fake.worker(0, wm.Ready(101))
    assert ends(fake) == [(10, 0, 1, ERROR)]


# ---- taking rows back ------------------------------------------------------------------------------------------------
def test_queued_rows_are_cancelled_at_once() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 5)
    cancel(fake, 10, 3, 5)
    assert ends(fake) == [(10, 3, 5, CANCELLED)]


def calls_to_cancel_one(others: int) -> int:
    """Calls of functions for a row of one batch, while so many other batches are queued."""
    fake = FakeAgent(1)
    for number in range(others):
        fake.give(10 + number, 0, 1)
    fake.tell(TaskCancel(spans(Spans, C, (9 + others, 0, 1))))

    calls = calls_of(lambda: cancel(fake, 10 + others // 2, 0, 1))
    assert ends(fake)[-1] == (10 + others // 2, 0, 1, CANCELLED)
    return calls


def test_a_row_is_cancelled_among_many_batches_at_the_price_of_few() -> None:
    """8,000 single rows took an agent 2.9 s, and four times that for twice as many: it was lost meanwhile."""
    calls_to_cancel_one(20)  # the first one compiles the constructors of messages
    assert calls_to_cancel_one(400) == calls_to_cancel_one(20)


def test_a_row_that_runs_is_not_cancelled() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    cancel(fake, 10, 0, 1)
    fake.give_back(0, recall(fake))
    assert list(fake.heard(TaskRunning)[0]) == [(C, 10, 0, 1)]
    fake.finish(0)
    assert ends(fake) == [(10, 0, 1, VALUES_LIST)]


def test_a_row_behind_it_is() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    cancel(fake, 10, 2, 3)
    fake.give_back(0, recall(fake))
    assert ends(fake) == [(10, 2, 3, CANCELLED)]


def test_a_row_that_its_worker_has_not_read_yet_is_asked_for_again() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 3)
    fake.give(20, 0, 2)
    first, second = fake.runs[0]
    cancel(fake, 20, 0, 1)
    cancel(fake, 20, 1, 2, force=True)
    token = recall(fake)
    fake.control.clear()
    fake.worker(0, wm.Returned(token, [wm.ReturnedSpan(first.dispatch, C, 10, 1, 3)], (first.dispatch, 0)))
    assert (fake.heard(TaskRunning), fake.killed) == ([], [])
    assert fake.control == [(0, wm.Recall(recall(fake), 0, last=second.dispatch))]
    fake.runs[0][0] = first._replace(hi=1)
    fake.give_back(0, recall(fake))
    assert sorted(ends(fake)) == [(20, 0, 1, CANCELLED), (20, 1, 2, CANCELLED)]


def test_force_ends_the_worker_that_runs_the_row() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    cancel(fake, 10, 0, 1, force=True)
    look(fake)
    assert fake.killed == [0]
    fake.dies(0)
    assert ends(fake) == [(10, 0, 1, CANCELLED)]


def test_force_for_a_row_that_has_just_ended_does_not_end_the_worker_that_runs_anothers() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 1)
    fake.give(20, 0, 1, client=C + 1)
    cancel(fake, 10, 0, 1, force=True)
    goes_on_with_the_second(fake)
    assert [each[0] for each in ends(fake)] == [10, 20]


def test_force_for_a_row_that_waits_does_not_cost_another_its_worker() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    cancel(fake, 10, 4, 5, force=True)
    assert fake.killed == []
    fake.give_back(0, recall(fake))
    assert ends(fake) == [(10, 4, 5, CANCELLED)]


def test_a_worker_that_does_not_answer_is_looked_at_and_ended_if_it_runs_what_was_cancelled() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    number = fake.runs[0][0].dispatch
    cancel(fake, 10, 2, 3, force=True)
    fake.now += FORCE_PATIENCE
    fake.handle(ev.Tick())
    assert fake.looks == [0]
    fake.handle(ev.Looked(0, (number, 1)))  # another one, that has nothing to do with it
    assert fake.killed == []
    fake.now += FORCE_PATIENCE
    fake.handle(ev.Tick())
    fake.handle(ev.Looked(0, (number, 2)))
    assert fake.killed == [0]
    fake.handle(ev.WorkerExited(0, 100, 9, (number, 2)))
    assert ends(fake) == [(10, 2, 3, CANCELLED)]


def test_a_worker_that_keeps_results_back_for_a_long_row_is_asked_for_them_once() -> None:
    fake = FakeAgent(1)
    learnt(fake, us=50_000)  # long: nothing would be taken back for a tenth of a second
    fake.give(10, 0, 1)
    fake.give(11, 0, 1)
    first, second = fake.runs[0]
    fake.now += QUIET_SECONDS / 2
    fake.handle(ev.Tick())
    assert fake.looks == []
    fake.now += QUIET_SECONDS
    fake.handle(ev.Tick())
    assert fake.looks == [0]
    fake.handle(ev.Looked(0, (first.dispatch, 0)))
    assert fake.control == [], "it still runs the first row"
    fake.handle(ev.Looked(0, (second.dispatch, 0)))
    assert [(slot, type(message)) for slot, message in fake.control] == [(0, wm.Flush)]
    fake.now += 2 * QUIET_SECONDS
    fake.handle(ev.Tick())
    assert fake.looks == [0], "a row that ends later than that is told of before the next one begins"
    fake.worker(0, wm.Results([], []))
    fake.now += QUIET_SECONDS
    fake.handle(ev.Tick())
    assert fake.looks == [0, 0]


def test_a_worker_with_one_row_is_not_looked_at() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.now += 10 * QUIET_SECONDS
    fake.handle(ev.Tick())
    assert fake.looks == []


def test_a_worker_that_answers_is_not_looked_at() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    cancel(fake, 10, 2, 3, force=True)
    fake.give_back(0, recall(fake))
    fake.now += FORCE_PATIENCE
    fake.handle(ev.Tick())
    assert fake.looks == []


def test_a_row_whose_worker_was_ended_for_anothers_sake_runs_again_and_is_not_lost() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    cancel(fake, 10, 0, 1, force=True)
    look(fake)
    number = fake.runs.pop(0)[0].dispatch
    fake.handle(ev.WorkerExited(0, 100, 9, (number, 1)))  # row 0 had just ended: row 1 was running
    assert ends(fake) == [(10, 0, 1, CANCELLED)]
    assert fake.core.state.queued == 4


def test_a_worker_that_ends_behind_all_of_its_rows_without_a_word_is_lost_by_the_last_one() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    fake.handle(ev.WorkerExited(0, 100, 1 << 8, (fake.runs[0][0].dispatch, -1)))
    assert ends(fake) == [(10, 4, 5, LOST)]
    assert fake.core.state.queued == 4


def test_what_a_worker_gave_back_before_it_was_ended_is_not_lost() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    cancel(fake, 10, 1, 2)
    cancel(fake, 10, 0, 1, force=True)
    token = recall(fake)
    number = fake.runs[0][0].dispatch
    fake.give_back(0, token)
    fake.finish(0)
    fake.handle(ev.WorkerExited(0, 100, 9, (number, -1)))
    assert sorted(ends(fake)) == [(10, 0, 1, VALUES_LIST), (10, 1, 2, CANCELLED)]
    assert fake.core.state.queued == 3


@pytest.mark.parametrize("second", ["cancel", "claim"])
def test_a_row_that_is_to_end_even_if_it_runs_is_ended_whatever_else_is_asked_for(second: str) -> None:
    fake = FakeAgent()
    fake.give(10, 0, 1)
    cancel(fake, 10, 0, 1, force=True)
    token = recall(fake)
    fake.said.clear()
    if second == "cancel":
        cancel(fake, 10, 0, 1)
    else:
        fake.tell(spans(TaskClaim, C, (10, 0, 1)))
    refused = [list(said.refused) for said in fake.said if isinstance(said, TaskClaimResponse)]
    assert refused == ([] if second == "cancel" else [[(C, 10, 0, 1)]])
    fake.give_back(0, token)
    assert fake.killed == [0]
    assert not [said for said in fake.said if isinstance(said, TaskRunning)]


def test_claimed_rows_are_granted_unless_they_run() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 3)
    fake.tell(spans(TaskClaim, C, (10, 0, 3)))
    fake.give_back(0, recall(fake))
    answers = fake.heard(TaskClaimResponse)
    assert {row for answer in answers for _, _, lo, hi in answer.granted for row in range(lo, hi)} == {1, 2}
    assert [span for answer in answers for span in answer.refused] == [(C, 10, 0, 1)]


def test_a_claim_of_a_row_that_has_ended_is_refused() -> None:
    fake = FakeAgent(1)
    fake.tell(spans(TaskClaim, C, (10, 0, 1)))
    assert list(fake.heard(TaskClaimResponse)[0].refused) == [(C, 10, 0, 1)]


# ---- balance ---------------------------------------------------------------------------------------------------------
def test_queued_rows_are_given_back_from_the_end() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 5)
    fake.tell(BalanceRequest(2))
    assert list(fake.heard(BalanceResponse)[0]) == [(C, 10, 3, 5)]


def test_the_least_urgent_rows_are_given_back() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.give(20, 0, 2)
    fake.give(30, 0, 2, priority=1)
    fake.tell(BalanceRequest(1))
    assert list(fake.heard(BalanceResponse)[0]) == [(C, 20, 1, 2)]


def test_an_agent_with_nothing_to_give_says_so() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.tell(BalanceRequest(2))
    assert [list(message) for message in fake.heard(BalanceResponse)] == [[]]


def some_of(rows: int, *batches: int, threads: int = 0) -> BalanceRequest:
    """The scheduler wants rows of these batches."""
    return BalanceRequest(rows, threads, u32([C for _ in batches]), u64(batches))


def test_rows_are_given_back_of_the_batches_that_are_named() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.give(20, 0, 3)
    fake.give(30, 0, 2, priority=-1)
    fake.give(40, 0, 2)
    fake.give(50, 0, 2, threads=2)
    fake.tell(some_of(3, 20, 40, 50))
    assert list(fake.heard(BalanceResponse)[0]) == [(C, 40, 0, 2), (C, 20, 2, 3)]
    fake.tell(some_of(3, 20, 30, 50))
    assert list(fake.heard(BalanceResponse)[0]) == [(C, 30, 0, 2), (C, 20, 1, 2)]
    fake.tell(some_of(9, 20, 50, threads=2))
    assert list(fake.heard(BalanceResponse)[0]) == [(C, 50, 0, 2)]


def test_an_agent_without_rows_of_the_batches_that_are_named_says_so_and_asks_no_worker() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 1)
    fake.give(20, 0, 5)
    fake.tell(some_of(3, 10, 99))
    assert [list(message) for message in fake.heard(BalanceResponse)] == [[]]
    assert fake.control == []


def test_of_what_workers_give_back_the_batches_that_are_named_are_passed_on() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 4)
    fake.give(20, 0, 4)
    fake.tell(some_of(9, 10))
    assert fake.heard(BalanceResponse) == []
    fake.give_back(0, recall(fake))
    assert list(fake.heard(BalanceResponse)[0]) == [(C, 10, 1, 4)]


def test_rows_that_workers_give_back_are_passed_on() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    fake.tell(BalanceRequest(3))
    assert fake.heard(BalanceResponse) == []
    fake.give_back(0, recall(fake))
    assert sum(hi - lo for _, _, lo, hi in fake.heard(BalanceResponse)[0]) == 3


def test_the_scheduler_is_answered_when_the_worker_dies_instead() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    fake.tell(BalanceRequest(3))
    fake.dies(0)
    assert len(fake.heard(BalanceResponse)) == 1


# ---- coming and going ------------------------------------------------------------------------------------------------
def test_a_client_that_leaves_ends_the_workers_that_run_its_rows() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 5)
    fake.tell(ClientDeparture(C))
    look(fake)
    assert fake.killed == [0]
    fake.dies(0)
    assert ends(fake) == []
    assert fake.core.state.queued == fake.core.state.running == fake.core.state.objects.count == 0


def test_a_worker_that_has_told_of_all_rows_of_a_client_that_leaves_goes_on_with_those_of_others() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 1)
    fake.give(20, 0, 1, client=C + 1)
    fake.worker(0, wm.Results([ended(fake)], []))
    fake.tell(ClientDeparture(C))
    assert fake.killed == []
    fake.worker(0, wm.Results([], [fake.runs[0].pop(0).dispatch]))
    fake.finish(0)
    assert ends(fake)[-1] == (20, 0, 1, VALUES_LIST)


def test_a_worker_that_has_ended_a_row_of_a_client_that_leaves_goes_on_before_it_has_told_of_that() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 1)
    fake.give(20, 0, 1, client=C + 1)
    fake.tell(ClientDeparture(C))
    goes_on_with_the_second(fake)
    assert ends(fake) == [(20, 0, 1, VALUES_LIST)]


def test_a_row_of_a_client_that_leaves_comes_back_if_it_has_not_begun() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 2)
    fake.tell(ClientDeparture(C))
    fake.handle(ev.Looked(fake.looks.pop(), (0, -1)))
    message = fake.control[0][1]
    assert isinstance(message, wm.Recall)
    assert message.keep == 0
    fake.worker(0, wm.Returned(recall(fake), [wm.ReturnedSpan(fake.runs[0][0].dispatch, C, 10, 0, 2)], None))
    assert fake.killed == []
    assert (fake.core.state.queued, fake.core.state.running) == (0, 0)


def test_another_clients_row_is_not_lost_with_them() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 1, client=C + 1)
    fake.give(20, 0, 3)
    fake.tell(ClientDeparture(C))
    assert fake.killed == []  # the other's row runs: what waits behind it is taken back
    fake.give_back(0, recall(fake))
    assert (fake.core.state.queued, fake.core.state.running) == (0, 1)
    fake.finish(0)
    assert ends(fake) == [(10, 0, 1, VALUES_LIST)]


def test_another_clients_row_is_not_lost_with_rows_that_its_worker_has_not_read_yet() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 1, client=C + 1)
    fake.give(20, 0, 3)
    fake.tell(ClientDeparture(C))
    token = recall(fake)
    fake.control.clear()
    fake.worker(0, wm.Returned(token, [], (fake.runs[0][0].dispatch, 0)))
    assert fake.killed == []
    fake.give_back(0, recall(fake))
    assert fake.killed == []
    assert fake.core.state.running == 1


def test_an_agent_that_the_scheduler_forgot_begins_anew() -> None:
    fake = FakeAgent(2)
    fake.give(10, 0, 5)
    fake.handle(ev.Welcomed(False, 1.0))
    assert sorted(fake.killed) == [0, 1]
    for slot in (0, 1):
        fake.dies(slot)
    assert ends(fake) == []
    assert fake.core.state.queued == fake.core.state.running == fake.core.state.objects.count == 0


def test_an_agent_that_goes_on_keeps_what_it_has() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 5)
    fake.handle(ev.Welcomed(True, 1.0))
    assert fake.killed == []
    assert fake.core.state.queued + fake.core.state.running == 5


def test_heartbeats_tell_how_busy_it_is() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 5)
    fake.said.clear()
    fake.now += 1.1
    fake.handle(ev.Tick())
    (heartbeat,) = fake.heard(Heartbeat)
    assert (heartbeat.workers, heartbeat.queued + heartbeat.running) == (1, 5)


def test_output_is_told_to_clients_that_want_it() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1, flags=STREAM)
    fake.worker(0, wm.Output(C, 10, 1, "f", "hello\n"))
    assert [message.text for message in fake.heard(TaskOutput)] == ["hello\n"]


def test_what_a_worker_calls_its_task_is_cut_where_names_of_tasks_end() -> None:
    """It is in each line of the log; and the scheduler would take a message with a longer one for none."""
    fake = FakeAgent(1)
    fake.give(10, 0, 1, flags=STREAM)
    fake.worker(0, wm.Output(C, 10, 1, "f" * 100_000, "hello\n"))
    (said,) = fake.heard(TaskOutput)
    assert len(said.name) == LONGEST_NAME
    with pytest.raises(ProtocolError, match="a function's name has at most 1,000 characters"):
        as_heard(replace(said, name="f" * (LONGEST_NAME + 1)))


# ---- workers that are not to be believed -----------------------------------------------------------------------------
def ended(fake: FakeAgent, slot: int = 0, **other: int) -> wm.EndedSpan:
    """How the rows of a worker's oldest dispatch ended, or others."""
    run = fake.runs[slot][0]
    whole = wm.EndedSpan(run.dispatch, run.client, run.batch, run.lo, run.hi, VALUES_LIST, 1, 0, u32([4]), b"data")
    return whole._replace(**other)


def test_a_worker_that_sends_no_message_is_replaced_and_its_row_is_lost() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    fake.handle(ev.Garbled(0, "it is cut off"))
    assert fake.killed == [0]
    (line,) = fake.logged
    assert line == (
        "worker 0, which ran f, sent what is no message (it is cut off): it is ended, and another one is started"
    )
    fake.handle(ev.Garbled(0, "it is cut off"))
    assert len(fake.logged) == 1
    fake.dies(0)
    (message,) = fake.heard(TaskResult)
    assert (list(message.outcomes), list(message.spans)) == ([LOST], [0, 1])
    assert bytes(message.bodies[0]) == b"its worker (pid 100) was ended: it sent what is no message (it is cut off)"
    assert fake.core.state.queued == 4
    assert fake.started == [0, 0]


def test_a_worker_that_has_hung_up_is_ended_and_its_row_is_lost() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    fake.handle(ev.HungUp(0))
    assert fake.killed == [0]
    (line,) = fake.logged
    assert line == (
        "worker 0, which ran f, closed its connection (has it called exec?): it is ended, and another one is started"
    )
    fake.handle(ev.HungUp(0))
    assert (fake.killed, len(fake.logged)) == ([0], 1)
    fake.dies(0)
    (message,) = fake.heard(TaskResult)
    assert (list(message.outcomes), list(message.spans)) == ([LOST], [0, 1])
    assert bytes(message.bodies[0]) == b"its worker (pid 100) was ended: it closed its connection (has it called exec?)"
    assert fake.core.state.queued == 4
    assert fake.started == [0, 0]
    fake.handle(ev.HungUp(5))


def test_a_worker_that_has_ended_by_itself_after_it_had_hung_up_is_lost_as_any() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.handle(ev.HungUp(0))
    fake.dies(0, status=3 << 8)
    (message,) = fake.heard(TaskResult)
    assert bytes(message.bodies[0]) == b"its worker (pid 100) ended with exit code 3"


def test_a_worker_that_hangs_up_before_it_is_ready_or_when_it_was_to_quit_is_ended() -> None:
    fake = FakeAgent(1)
    fake.handle(ev.HungUp(0))
    assert fake.killed == [0]
    fake.dies(0)
    fake.now += 1.0
    fake.handle(ev.Tick())
    assert fake.started == [0, 0]
    worker = fake.core.state.workers.records[0]
    worker.kill_reason = KillReason(KillKind.SURPLUS, "")
    fake.handle(ev.HungUp(0))
    assert fake.killed == [0, 0]


def test_a_worker_whose_main_thread_is_seen_to_have_ended_twice_is_ended_and_its_row_is_lost() -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 1)
    halted = ev.Sampled({0: 0}, halted=frozenset([0]))
    fake.handle(halted)
    fake.handle(ev.Sampled({0: 1000}))
    fake.handle(halted)
    assert not fake.killed, "a process that ends may look like that for a moment"
    fake.handle(halted)
    fake.handle(halted)
    assert fake.killed == [0]
    fake.dies(0)
    (message,) = fake.heard(TaskResult)
    assert bytes(message.bodies[0]) == b"its worker (pid 100) was ended: it ended its main thread"


@pytest.mark.parametrize(
    "lie",
    [
        lambda fake: wm.Results([ended(fake, batch=11)], []),
        lambda fake: wm.Results([ended(fake, client=C + 1)], []),
        lambda fake: wm.Results([ended(fake, lo=4, hi=6)], []),
        lambda fake: wm.Results([ended(fake, dispatch=99)], []),
        lambda fake: wm.Results([ended(fake, lo=0, hi=1)] * 2, []),
        lambda fake: wm.Results([], [fake.runs[0][0].dispatch]),
        lambda fake: wm.Returned(0, [wm.ReturnedSpan(fake.runs[0][0].dispatch, C, 10, 4, 6)], None),
        lambda fake: wm.Returned(0, [wm.ReturnedSpan(99, C, 10, 4, 5)], None),
        lambda fake: wm.Ready(1),
    ],
)
def test_a_worker_that_tells_what_cannot_be_is_replaced_and_no_row_is_lost_or_doubled(
    lie: Callable[[FakeAgent], wm.FromWorker],
) -> None:
    fake = FakeAgent(1)
    learnt(fake)
    fake.give(10, 0, 5)
    fake.worker(0, lie(fake))
    assert fake.killed == [0]
    assert len(fake.logged) == 1
    fake.worker(0, wm.Results([ended(fake, hi=5, lo=4)], []))  # not believed any more
    reported = ends(fake)
    fake.runs.clear()
    fake.handle(ev.WorkerExited(0, 100, 9, (0, -1)))
    reported += ends(fake)
    assert sum(hi - lo for _, lo, hi, _ in reported) + fake.core.state.queued == 5
    assert {(batch, outcome) for batch, _, _, outcome in reported} <= {(10, VALUES_LIST), (10, LOST)}
    fake.worker(0, wm.Ready(2))
    while fake.running(0):
        fake.finish(0)
    reported += ends(fake)
    assert sorted(row for _, lo, hi, _ in reported for row in range(lo, hi)) == list(range(5))


def test_workers_that_cannot_start_are_tried_again_ever_more_rarely_and_for_ever() -> None:
    """The pause was doubled without a bound of the exponent: after 1,024 failures the agent ended by an overflow."""
    fake = FakeAgent(2, ready=False)
    pauses = []
    for _ in range(1_100):
        for slot in (0, 1):
            fake.handle(ev.WorkerExited(slot, 100, 1 << 8, (0, -1)))
        due = fake.core.state.workers.start_at
        assert fake.wake <= min(due.values())
        pauses.append(due[0] - fake.now)
        fake.now = max(due.values())
        fake.handle()
    assert pauses[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert pauses[-1] == pytest.approx(max(pauses)) == pytest.approx(60.0)
    assert fake.logged[0] == "worker 0 could not start: it ended with exit code 1; another try in 0.1 s"


def test_a_row_that_two_samples_find_running_is_told_as_begun_once() -> None:
    fake = FakeAgent(2)
    fake.give(10, 0, 4)
    (first, *_), (second, *_) = fake.runs[0], fake.runs[1]
    busy = {0: (first.dispatch, first.lo), 1: (second.dispatch, -1)}
    for _ in range(4):
        fake.handle(ev.Sampled({0: 1, 1: 1}, begun=busy))
    (begun,) = fake.heard(TaskBegun)
    assert list(begun) == [(FakeAgent.CLIENT, 10, first.lo, first.lo + 1)]


def test_a_row_that_ended_between_two_samples_is_not_told_as_begun() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 2)
    (run, *_) = fake.runs[0]
    fake.handle(ev.Sampled({0: 1}, begun={0: (run.dispatch, run.lo)}))
    fake.handle(ev.Sampled({0: 1}, begun={0: (run.dispatch, run.lo + 1)}))
    assert not fake.heard(TaskBegun)


# ---- rows that take several slots ------------------------------------------------------------------------------------
def begun(fake: FakeAgent) -> dict[int, list[tuple[int, int, int]]]:
    """What each worker that has rows has."""
    return {slot: fake.running(slot) for slot in sorted(fake.runs) if fake.runs[slot]}


def test_a_row_begins_when_so_many_slots_are_free_and_keeps_them() -> None:
    fake = FakeAgent(4)
    fake.give(10, 0, 2, timeout=9.0)
    fake.give(20, 0, 1, threads=3)
    fake.give(30, 0, 3, timeout=9.0)
    assert begun(fake) == {0: [(10, 0, 1)], 1: [(10, 1, 2)]}, "what came later doesn't take what it waits for"
    fake.finish(0)
    assert begun(fake) == {0: [(20, 0, 1)], 1: [(10, 1, 2)]}
    assert fake.runs[0][0].threads == 3
    fake.finish(1)
    assert begun(fake) == {0: [(20, 0, 1)], 1: [(30, 0, 1)]}
    fake.finish(0)
    assert len(begun(fake)) == 3


def test_two_rows_of_half_the_slots_run_at_once() -> None:
    fake = FakeAgent(4)
    fake.give(10, 0, 3, threads=2)
    assert begun(fake) == {0: [(10, 0, 1)], 1: [(10, 1, 2)]}
    fake.finish(1)
    assert begun(fake) == {0: [(10, 0, 1)], 1: [(10, 2, 3)]}


def test_priority_goes_before_width() -> None:
    fake = FakeAgent(2)
    fake.give(10, 0, 2)
    fake.give(20, 0, 1, threads=2)
    fake.give(30, 0, 1, priority=1)
    fake.finish(0)
    assert begun(fake) == {0: [(30, 0, 1)], 1: [(10, 1, 2)]}
    fake.give(40, 0, 1, priority=2, threads=2)
    fake.finish(0)
    fake.finish(1)
    assert begun(fake) == {0: [(40, 0, 1)]}
    fake.finish(0)
    assert begun(fake) == {0: [(20, 0, 1)]}


def test_rows_that_come_later_do_not_overtake_even_if_they_come_without_end() -> None:
    fake = FakeAgent(2)
    learnt(fake, us=1)
    fake.give(10, 0, 100)
    fake.give(20, 0, 1, threads=2)
    for batch in range(1_000, 2_000, 100):
        fake.give(batch, 0, 100)
        for slot in (0, 1):
            if fake.running(slot) and not any(run.threads > 1 for run in fake.runs[slot]):
                fake.finish(slot, us=1)
        if any(run.threads > 1 for runs in fake.runs.values() for run in runs):
            break
    assert [(20, 0, 1)] in begun(fake).values()


def test_rows_that_take_several_slots_share_the_time_with_those_of_other_roots() -> None:
    """They came before all others, and there are many of them."""
    fake = FakeAgent(2)
    for client in (C, C + 1):
        fake.core.state.estimates.note_duration((client, "f"), 20_000)
    fake.give(10, 0, 6, threads=2, root=7)
    fake.give(20, 0, 24, client=C + 1, root=8)
    order = []
    for _ in range(12):
        for slot in sorted(slot for slot, runs in fake.runs.items() if runs):
            order.append(fake.running(slot)[0][0])
            fake.finish(slot, us=20_000)
    assert "".join("w" if batch == 10 else "." for batch in order[:12]) == "ww..w..w..w.", (
        "the first alone, one behind it"
    )


def test_a_row_that_takes_more_slots_than_there_are_takes_all() -> None:
    fake = FakeAgent(2)
    fake.give(10, 0, 1, threads=9)
    fake.give(20, 0, 1)
    assert begun(fake) == {0: [(10, 0, 1)]}
    assert fake.runs[0][0].threads == 2


def test_a_task_that_waits_leaves_its_slots_to_others() -> None:
    fake = FakeAgent(2)
    fake.give(10, 0, 1, threads=2)
    fake.give(20, 0, 1, threads=2)
    fake.worker(0, wm.Blocked())
    assert begun(fake) == {0: [(10, 0, 1)], 1: [(20, 0, 1)]}
    fake.now = 1.0
    fake.handle(ev.Tick())
    assert fake.heard(Heartbeat)[-1].workers == 4, "what waits takes two slots that the scheduler counts"
    fake.worker(0, wm.Unblocked())
    fake.give(30, 0, 1)
    fake.finish(1)
    assert begun(fake) == {0: [(10, 0, 1)]}
    fake.finish(0)
    assert [(30, 0, 1)] in begun(fake).values()


def test_slots_of_a_task_that_waits_are_free_when_it_has_given_back_what_is_behind_it() -> None:
    fake = FakeAgent(2)
    learnt(fake, us=1_000)
    fake.give(10, 0, 8)
    fake.finish(1)
    assert len(fake.runs[0]) + len(fake.runs.get(1, [])) >= 2
    fake.give(20, 0, 1, threads=2, priority=1)
    fake.worker(0, wm.Blocked())
    while fake.runs.get(1):
        fake.finish(1)
    assert [(20, 0, 1)] not in begun(fake).values(), "a row behind may begin yet"
    fake.give_back(0, recall(fake))
    assert [(20, 0, 1)] in begun(fake).values()


def test_a_worker_that_dies_leaves_its_slots() -> None:
    fake = FakeAgent(3)
    fake.give(10, 0, 1, threads=3)
    fake.give(20, 0, 2)
    fake.dies(0)
    assert ends(fake) == [(10, 0, 1, LOST)]
    assert begun(fake) == {1: [(20, 0, 1)], 2: [(20, 1, 2)]}


def test_a_row_that_waits_for_slots_can_be_cancelled_and_others_go_on() -> None:
    fake = FakeAgent(2)
    fake.give(10, 0, 1)
    fake.give(20, 0, 1, threads=2)
    fake.give(30, 0, 1)
    assert begun(fake) == {0: [(10, 0, 1)]}
    cancel(fake, 20, 0, 1)
    assert ends(fake) == [(20, 0, 1, CANCELLED)]
    assert begun(fake) == {0: [(10, 0, 1)], 1: [(30, 0, 1)]}


def test_the_scheduler_gets_back_rows_of_the_width_that_it_asks_for() -> None:
    fake = FakeAgent(2)
    fake.give(10, 0, 1, threads=2)
    fake.give(20, 0, 4)
    fake.give(30, 0, 3, threads=2)
    fake.tell(BalanceRequest(2))
    assert list(fake.heard(BalanceResponse)[0]) == [(C, 20, 2, 4)]
    fake.tell(BalanceRequest(2, 2))
    assert list(fake.heard(BalanceResponse)[0]) == [(C, 30, 1, 3)]
    fake.tell(BalanceRequest(2, 4))
    assert list(fake.heard(BalanceResponse)[0]) == []


def test_rows_beside_one_of_several_slots_are_not_taken_back_for_workers_that_are_left_without() -> None:
    fake = FakeAgent(4)
    learnt(fake, us=1_000)
    fake.give(10, 0, 1, threads=3)
    fake.give(20, 0, 40)
    assert len(begun(fake)) == 2
    fake.now = 0.001
    fake.handle(ev.Tick())
    assert not any(isinstance(message, wm.Recall) for _, message in fake.control)


def test_a_worker_is_handed_no_more_rows_than_it_may_run_and_then_ends() -> None:
    fake = FakeAgent(1, tasks=5)
    fake.give(10, 0, 1)
    fake.finish(0)  # what a row takes is known now
    fake.give(20, 0, 10)
    assert fake.running(0) == [(20, 0, 4)]
    fake.finish(0)
    assert fake.running(0) == []
    fake.dies(0)
    fake.worker(fake.started[-1], wm.Ready(200))
    assert fake.running(fake.started[-1]) == [(20, 4, 9)]


def test_a_row_that_wants_a_fresh_worker_costs_no_other_one_its_process() -> None:
    fake = FakeAgent(4)
    for slot in range(3):
        fake.give(10 + slot, 0, 1)
    for slot in range(3):
        fake.finish(slot)
    fake.give(20, 0, 1, flags=FRESH)
    workers = fake.core.state.workers.records
    assert (fake.running(3), [worker.is_worn for worker in workers.values()]) == ([(20, 0, 1)], [0, 0, 0, 1])
    fake.give(30, 0, 1, flags=FRESH)
    fake.give(31, 0, 1, flags=FRESH)
    assert [worker.is_worn for worker in workers.values()] == [1, 1, 0, 1], "one for each row"
    for slot in (0, 1):
        fake.dies(slot, status=0)
        fake.worker(slot, wm.Ready(200 + slot))
    assert sorted(fake.running(0) + fake.running(1)) == [(30, 0, 1), (31, 0, 1)]


def test_a_row_that_wants_a_fresh_worker_waits_for_one_and_is_its_only_row() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.finish(0)
    fake.give(20, 0, 2, flags=FRESH)
    assert fake.running(0) == []
    worker = fake.core.state.workers.records[0]
    assert worker.kill_reason is not None, "the worn worker is told to end in the same step"
    for row in range(2):
        fake.dies(0)
        fake.worker(0, wm.Ready(200 + row))
        assert fake.running(0) == [(20, row, row + 1)]
        fake.finish(0)
    fake.give(30, 0, 1)
    assert fake.running(0) == []
    fake.dies(0)
    fake.worker(0, wm.Ready(300))
    assert fake.running(0) == [(30, 0, 1)]


def test_a_row_that_wants_a_fresh_worker_gets_one_though_rows_of_others_wait_as_well() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 4)
    fake.give(20, 0, 1, client=fake.CLIENT + 1, flags=FRESH)
    while fake.running(0):
        fake.finish(0, us=10_000)
    assert fake.core.state.ready.rows == 3, "the other client, which came later, has its turn"
    assert fake.core.state.workers.records[0].kill_reason is not None
    fake.dies(0)
    fake.worker(0, wm.Ready(200))
    assert fake.running(0) == [(20, 0, 1)]


def test_rows_do_not_wait_for_room_that_only_a_task_which_waits_for_them_could_make() -> None:
    fake = FakeAgent(2, total=20_000_000)
    fake.give(10, 0, 1)
    fake.makes(0, size=8_000_000)
    fake.give(20, 0, 1)
    ((parent, _),) = [(slot, runs) for slot, runs in fake.runs.items() if runs]
    fake.worker(parent, wm.Blocked())
    for slot in [slot for slot in fake.started if slot not in (0, 1)]:
        fake.worker(slot, wm.Ready(100 + slot))
    fake.give(30, 0, 1)
    assert [run.batch for slot, runs in fake.runs.items() if slot != parent for run in runs] == [30]
