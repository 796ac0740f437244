"""What an agent does about rows of which one has ended their worker, when it is not known which."""

from simulator.scripted import FakeAgent

from scaler.agent.core import events as ae
from scaler.agent.state.suspects import MOST, Suspects
from scaler.protocol.messages import ERROR, LOST, NESTINGS, ClientDeparture, TaskResult, u32
from scaler.worker_protocol import messages as wm

C = FakeAgent.CLIENT


def learnt(workers: int = 1) -> FakeAgent:
    """An agent that knows how long the function takes: it hands out rows together."""
    fake = FakeAgent(workers)
    fake.give(1, 0, 1)
    fake.finish(0)
    fake.said.clear()
    return fake


def ends_at(fake: FakeAgent, row: int, dispatch: int = 0, claimed: int = -1) -> None:
    """The worker's process ends, in a row of one of its dispatches or behind that; another one is ready.

    What that row has claimed runs then, if it was submitted in so many tasks.
    """
    number = fake.runs.pop(0)[dispatch].dispatch
    fake.handle(ae.WorkerExited(0, 100, 1 << 8, (number, row), claimed=claimed))
    fake.now += 1.0
    fake.handle(ae.Tick())
    fake.worker(0, wm.Ready(500))


def lost(fake: FakeAgent) -> list[tuple[int, int]]:
    return [
        (batch, lo)
        for message in fake.heard(TaskResult)
        for batch, lo, outcome in zip(message.batches, message.spans[::2], message.outcomes, strict=True)
        if outcome == LOST
    ]


def test_rows_that_had_begun_when_their_worker_ended_run_one_by_one_and_the_others_together() -> None:
    fake = learnt()
    fake.give(10, 0, 8)
    assert fake.running(0) == [(10, 0, 8)]
    ends_at(fake, 2)
    assert lost(fake) == [(10, 2)]
    for row in (0, 1):
        assert fake.running(0) == [(10, row, row + 1)], "nothing is behind it"
        fake.finish(0)
    assert fake.running(0) == [(10, 3, 8)]


def test_a_row_that_comes_again_runs_alone_and_nobody_pays_for_it_a_second_time() -> None:
    fake = learnt()
    fake.give(10, 0, 8)
    ends_at(fake, 2)  # row 1 did it: row 2 is blamed
    assert lost(fake) == [(10, 2)]
    fake.give(10, 2, 3)
    for _ in range(3):
        while fake.running(0) != [(10, 1, 2)]:
            fake.finish(0)
        ends_at(fake, 1)
        assert lost(fake) == [(10, 1)]
        fake.give(10, 1, 2)


def test_what_a_suspect_has_before_it_is_reported_before_it_begins() -> None:
    fake = learnt()
    fake.give(10, 0, 8)
    ends_at(fake, 7)
    fake.give(10, 7, 8)
    fake.give(20, 0, 2, priority=1)
    seen = []
    while fake.running(0):
        seen.append(fake.running(0))
        fake.finish(0)
    assert all(len(runs) == 1 for runs in seen)
    assert {(10, row, row + 1) for row in range(8)} <= {runs[0] for runs in seen}


def test_rows_of_all_dispatches_that_had_begun_are_suspected() -> None:
    fake = learnt()
    fake.give(10, 0, 1)
    fake.give(20, 0, 1)
    assert fake.running(0) == [(10, 0, 1), (20, 0, 1)]
    ends_at(fake, 0, dispatch=1)
    assert lost(fake) == [(20, 0)]
    fake.give(20, 0, 1)
    assert fake.running(0) in ([(10, 0, 1)], [(20, 0, 1)])
    fake.finish(0)
    fake.finish(0)
    assert fake.core.state.suspects.count == 0, "both have ended well"


def test_a_worker_that_was_ended_for_another_reason_leaves_no_suspects() -> None:
    fake = learnt()
    fake.give(10, 0, 3)
    fake.tell(ClientDeparture(C))
    fake.dies(0)
    assert fake.core.state.suspects.count == 0


def claims_below(fake: FakeAgent) -> list[int]:
    return [run.claims_below for run in fake.runs.get(0, [])]


def test_a_row_that_was_lost_elsewhere_runs_alone_and_claims_nothing() -> None:
    """It may have been lost with what it had claimed: it hears of the loss of that, which runs in another worker."""
    fake = learnt()
    fake.give(10, 0, 4, lost=u32([1, 2]))
    seen = []
    while fake.running(0):
        seen += [(lo, hi, below) for (_, lo, hi), below in zip(fake.running(0), claims_below(fake), strict=True)]
        fake.finish(0)
    assert seen == [(0, 1, NESTINGS), (1, 2, 0), (2, 4, NESTINGS)]
    assert fake.core.state.suspects.count == 0


def test_a_row_whose_worker_ended_claims_nothing_after_that() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    assert claims_below(fake) == [NESTINGS]
    ends_at(fake, 0)
    fake.give(10, 0, 1, lost=u32([0, 1]))
    assert claims_below(fake) == [0]


def test_where_a_claimed_row_ended_the_worker_only_what_is_as_deep_is_not_claimed_again() -> None:
    """What is above it, of a stack of rows that wait, did nothing: all of it may run in one stack once more."""
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    for claimed, below in ((4, 4), (7, 4), (2, 2), (-1, 0)):  # no worker is believed that has claimed what is deeper
        ends_at(fake, 0, claimed=claimed)
        (message,) = fake.heard(TaskResult)
        is_its_own = bytes(message.bodies[0]).endswith(b"exit code 1 while it ran a task that this one waited for")
        assert is_its_own == (claimed >= 0)
        fake.give(10, 0, 1, lost=u32([0, 1]))
        assert claims_below(fake) == [below]


def test_a_row_whose_claimed_row_took_too_much_memory_runs_again_without_it() -> None:
    fake = FakeAgent(1, worker=1_000)
    fake.give(10, 0, 1)
    fake.handle(ae.Sampled({0: 2_000}))
    assert fake.killed == [0]
    ends_at(fake, 0, claimed=1)
    (message,) = fake.heard(TaskResult)
    assert list(message.outcomes) == [LOST]
    assert b" may take 1,000 bytes (worker_memory_limit), while it ran a task that this one" in bytes(message.bodies[0])
    fake.give(10, 0, 1, lost=u32([0, 1]))
    assert claims_below(fake) == [1]


def test_what_a_row_before_had_claimed_is_not_said_of_the_one_that_is_suspected() -> None:
    """Its process's page still had it of the row before, as that of the next one was being loaded."""
    fake = FakeAgent(1, worker=1_000)
    fake.give(10, 0, 1)
    fake.handle(ae.Sampled({0: 2_000}))
    number = next(iter(fake.core.state.workers.records[0].dispatches))
    fake.handle(ae.WorkerExited(0, 100, 1 << 8, (number, -1), claimed=1))
    (message,) = fake.heard(TaskResult)
    assert list(message.outcomes) == [ERROR]
    assert b"a task that this one" not in bytes(message.bodies[0])


def test_suspects_are_bounded_and_go_with_their_client() -> None:
    suspects = Suspects()
    suspects.add((C, 1), 0, MOST)
    suspects.add((C, 1), 5, 10)
    suspects.add((C + 1, 1), 0, 3)
    assert suspects.count == MOST
    assert suspects.first((C, 1), 0, 10) == 3
    assert suspects.first((C, 1), 0, 2) == 2
    suspects.drop_client(C)
    assert suspects.count == 3
    suspects.clear_row((C + 1, 1), 1)
    suspects.clear_row((C + 1, 1), 1)
    assert [row for row in range(3) if suspects.first((C + 1, 1), row, row + 1) == row] == [0, 2]
