"""What an agent does about rows that their workers could not begin, and about workers that tasks have spoilt."""

from simulator.scripted import FakeAgent, ended

from scaler.agent.state.doubts import SECONDS, TRIES
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import DOUBTFUL, ERROR, ClientDeparture, TaskResult, u32
from scaler.worker_protocol import messages as wm

C = FakeAgent.CLIENT


def doubtful(fake: FakeAgent, slot: int, rows: int = 1) -> None:
    """A worker can't begin the first rows of its oldest dispatch, which are all of it."""
    run = fake.runs[slot].pop(0)
    record = ErrorRecord(ErrorKind.SERIALIZATION, "no descriptors").encode()
    spans = [ended(run, row, row + 1, DOUBTFUL, 10, u32([len(record)]), record) for row in range(run.lo, run.lo + rows)]
    fake.worker(slot, wm.Results(spans, [run.dispatch]))


def outcomes(fake: FakeAgent) -> list[int]:
    return [outcome for message in fake.heard(TaskResult) for outcome in message.outcomes]


def is_ending(fake: FakeAgent, slot: int) -> bool:
    return fake.core.state.workers.records[slot].kill_reason is not None


def replaced(fake: FakeAgent, slot: int) -> None:
    """The worker of a slot ends, and what comes in its place is ready."""
    fake.dies(slot)
    fake.worker(slot, wm.Ready(500 + slot))


def used() -> FakeAgent:
    """An agent whose worker has run a row of another function."""
    fake = FakeAgent(1)
    fake.give(5, 0, 1, name="another")
    fake.finish(0)
    fake.said.clear()
    return fake


def test_a_row_that_a_used_worker_could_not_begin_goes_to_another_one_and_that_worker_ends() -> None:
    fake = FakeAgent(2)
    fake.give(1, 0, 2)
    fake.finish(0)
    fake.said.clear()
    fake.give(10, 0, 1)
    doubtful(fake, 0)
    assert is_ending(fake, 0)
    assert not outcomes(fake)
    fake.finish(1)
    assert fake.running(1) == [(10, 0, 1)]
    assert fake.logged == ["worker 0 can't load what f needs, as tasks have left it: another one takes its place"]


def test_in_a_fresh_worker_it_is_the_rows_own_error() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    doubtful(fake, 0)
    assert outcomes(fake) == [ERROR]
    assert not is_ending(fake, 0)


def test_what_a_fresh_worker_has_confirmed_is_the_error_of_further_rows_of_the_function_at_once() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    doubtful(fake, 0)
    for batch in range(20, 40):
        fake.give(batch, 0, 1)
        doubtful(fake, 0)
    assert outcomes(fake) == [ERROR] * 21
    assert not is_ending(fake, 0)


def test_a_function_costs_so_many_workers_and_no_more_until_a_while_has_gone_by() -> None:
    fake = used()
    fake.give(10, 0, 1)
    for _ in range(TRIES):
        doubtful(fake, 0)
        assert is_ending(fake, 0)
        fake.dies(0)
        fake.give(5, 0, 1, priority=9, name="another")
        fake.worker(0, wm.Ready(500))
        fake.finish(0)
        fake.said.clear()
    doubtful(fake, 0)
    assert outcomes(fake) == [ERROR]
    assert not is_ending(fake, 0)
    fake.now += SECONDS
    fake.give(20, 0, 1)
    doubtful(fake, 0)
    assert is_ending(fake, 0)


def test_rows_that_fail_behind_the_first_one_come_back_too_and_count_as_one_failure() -> None:
    fake = used()
    fake.give(1, 0, 1)
    fake.finish(0, us=1)
    fake.said.clear()
    fake.give(10, 0, 8)
    assert fake.running(0) == [(10, 0, 8)]
    doubtful(fake, 0, rows=8)
    assert not outcomes(fake)
    assert fake.core.state.queued == 8
    ((_, count),) = fake.core.state.doubts.tries.values()
    assert count == 1


def test_rows_behind_it_that_have_not_begun_are_recalled() -> None:
    fake = used()
    fake.give(1, 0, 1)
    fake.finish(0, us=1)
    fake.give(10, 0, 8)
    run = fake.runs[0][0]
    record = ErrorRecord(ErrorKind.SERIALIZATION, "no descriptors").encode()
    fake.worker(0, wm.Results([ended(run, 0, 1, DOUBTFUL, 10, u32([len(record)]), record)], []))
    (recall,) = [message for _, message in fake.control if isinstance(message, wm.Recall)]
    assert recall.keep == 0


def test_a_worker_that_is_unfit_ends_when_it_has_nothing_to_do() -> None:
    fake = used()
    fake.worker(0, wm.Unfit("has no descriptors"))
    assert is_ending(fake, 0)
    assert fake.logged == ["worker 0 has no descriptors, as tasks have left it: another one takes its place"]
    replaced(fake, 0)
    fake.give(10, 0, 1)
    assert fake.running(0) == [(10, 0, 1)]


def test_one_that_is_unfit_while_it_runs_a_row_gets_no_other() -> None:
    fake = FakeAgent(1)
    fake.give(1, 0, 1)
    fake.worker(0, wm.Unfit("has no descriptors"))
    fake.give(10, 0, 1)
    assert fake.running(0) == [(1, 0, 1)]
    fake.finish(0)
    assert is_ending(fake, 0)
    assert fake.running(0) == []


def test_a_row_that_spoils_each_worker_before_its_function_begins_ends() -> None:
    fake = used()
    fake.give(10, 0, 1)
    fake.worker(0, wm.Unfit("has no descriptors"))
    doubtful(fake, 0)
    replaced(fake, 0)
    fake.worker(0, wm.Unfit("has no descriptors"))
    doubtful(fake, 0)
    assert outcomes(fake) == [ERROR]


def test_nothing_is_kept_of_a_client_that_is_gone() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    doubtful(fake, 0)
    assert fake.core.state.doubts.tries
    fake.tell(ClientDeparture(C))
    assert not fake.core.state.doubts.tries
