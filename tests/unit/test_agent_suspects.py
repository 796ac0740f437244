"""What an agent does about rows of which one has ended their worker, when it is not known which."""

from simulator.scripted import FakeAgent

from scaler.agent.core import events as ae
from scaler.agent.state.suspects import MOST, Suspects
from scaler.protocol.messages import LOST, ClientDeparture, TaskResult
from scaler.worker_protocol import messages as wm

C = FakeAgent.CLIENT


def learnt(workers: int = 1) -> FakeAgent:
    """An agent that knows how long the function takes: it hands out rows together."""
    fake = FakeAgent(workers)
    fake.give(1, 0, 1)
    fake.finish(0)
    fake.said.clear()
    return fake


def ends_at(fake: FakeAgent, row: int, dispatch: int = 0) -> None:
    """The worker's process ends, in a row of one of its dispatches or behind that; another one is ready."""
    number = fake.runs.pop(0)[dispatch].dispatch
    fake.handle(ae.WorkerExited(0, 100, 1 << 8, (number, row)))
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
