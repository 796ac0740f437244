"""Trees of tasks on workers of an agent, and rows of others that come meanwhile."""

from simulator.scripted import FakeAgent

from scaler.agent.core import events as ae
from scaler.agent.core import yielding
from scaler.agent.state.worker_records import BUSY, PARKED
from scaler.worker_protocol import messages as wm

C = FakeAgent.CLIENT


def with_trees(workers: int, **more: object) -> FakeAgent:
    """Each worker runs a row of root 7 that waits for tasks of its own now and then."""
    fake = FakeAgent(workers)
    fake.give(10, 0, workers, root=7, **more)
    for slot in range(workers):
        fake.give_back(slot, 0)
    pass_slice(fake)
    return fake


def pass_slice(fake: FakeAgent) -> None:
    """Each task has gone on for so long that it yields."""
    fake.now += yielding.SLICE
    fake.handle(ae.Tick())


def asked(fake: FakeAgent) -> list[tuple[int, bool]]:
    """The workers that were told whether they are to yield, and what, since the last time."""
    found = [(slot, message.is_wanted) for slot, message in fake.control if isinstance(message, wm.Yield)]
    fake.control = [item for item in fake.control if not isinstance(item[1], wm.Yield)]
    return found


def test_a_row_of_another_root_has_trees_yield_and_runs_in_the_worker_that_takes_the_first_ones_place() -> None:
    fake = with_trees(2)
    assert asked(fake) == []
    fake.give(20, 0, 1, client=C + 1)
    assert asked(fake) == [(0, True), (1, True)]
    fake.worker(1, wm.Blocked())
    assert asked(fake) == [(0, False), (1, False)], "one is on its way"
    fake.worker(2, wm.Ready(102))
    assert fake.running(2) == [(20, 0, 1)]
    fake.worker(1, wm.Unblocked())
    fake.finish(2)
    assert fake.core.state.workers.records[2].state is PARKED
    assert (asked(fake), fake.core.state.workers.nesting) == ([], {0: None, 1: None})


def test_trees_keep_no_more_workers_than_others_have_as_long_as_those_have_rows() -> None:
    fake = with_trees(4)
    fake.give(20, 0, 100, client=C + 1, timeout=9.0)
    for slot, spare in ((0, 4), (1, 5)):
        assert (slot, True) in asked(fake)
        fake.worker(slot, wm.Blocked())
        assert (slot, False) in asked(fake)
        fake.worker(spare, wm.Ready(100 + spare))
        assert len(fake.running(spare)) == 1
    assert asked(fake) == [], "two have a tree, two have others' rows"


def test_a_tree_on_the_only_worker_yields_each_time_another_ones_row_waits() -> None:
    fake = with_trees(1)
    for at, slot in ((20, 0), (30, 1)):
        fake.give(at, 0, 1, client=C + 1)
        assert asked(fake) == [(slot, True)]
        fake.worker(slot, wm.Blocked())
        fake.worker(slot + 1, wm.Ready(100))
        assert fake.running(slot + 1) == [(at, 0, 1)]
        fake.give(11 + at, 0, 1, root=7)
        fake.finish(slot + 1)
        assert fake.running(slot + 1) == [(11 + at, 0, 1)]
        fake.give_back(slot + 1, 0)
        pass_slice(fake)
        assert asked(fake) == [(slot, False)]


def test_more_urgent_rows_of_the_same_root_have_trees_yield_too_and_less_urgent_ones_of_others_do_not() -> None:
    fake = with_trees(1, priority=1)
    fake.give(20, 0, 1, client=C + 1)
    fake.give(30, 0, 1, root=7, priority=1, nesting=1)
    assert asked(fake) == []
    fake.give(40, 0, 1, root=7, priority=2)
    assert asked(fake) == [(0, True)]


def test_rows_that_take_several_slots_have_trees_yield_until_so_many_are_free() -> None:
    fake = with_trees(2)
    fake.give(20, 0, 1, client=C + 1, threads=2)
    assert asked(fake) == [(0, True), (1, True)]
    fake.worker(0, wm.Blocked())
    fake.worker(2, wm.Ready(102))
    assert fake.core.state.workers.nesting == {0: None, 1: fake.now}
    fake.worker(1, wm.Blocked())
    fake.worker(3, wm.Ready(103))
    assert [slot for slot in (2, 3) if fake.running(slot) == [(20, 0, 1)]]


def test_a_row_that_waits_for_nothing_is_not_asked() -> None:
    fake = FakeAgent(2)
    fake.give(10, 0, 2, root=7)
    fake.give(20, 0, 1, client=C + 1)
    assert (asked(fake), fake.core.state.workers.nesting) == ([], {})


def test_none_is_asked_while_many_workers_wait_already() -> None:
    fake = with_trees(1)
    for slot in range(yielding.MOST_EXTRA):
        fake.worker(slot, wm.Blocked())
        fake.worker(slot + 1, wm.Ready(100))
        fake.give(100 + slot, 0, 1, root=7)
        fake.give_back(slot + 1, 0)
    pass_slice(fake)
    fake.give(20, 0, 1, client=C + 1)
    assert asked(fake) == []


def test_a_tree_that_has_just_begun_or_gone_on_yields_after_a_slice_of_time_and_to_urgent_rows_at_once() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1, root=7)
    fake.give_back(0, 0)
    fake.give(20, 0, 1, client=C + 1)
    assert asked(fake) == []
    assert fake.wake <= fake.now + yielding.SLICE
    pass_slice(fake)
    assert asked(fake) == [(0, True)]
    fake.worker(0, wm.Blocked())
    fake.worker(1, wm.Ready(101))
    fake.give(30, 0, 1, client=C + 1)
    fake.worker(0, wm.Unblocked())
    fake.finish(1)
    assert asked(fake) == [(0, False)]
    fake.give(40, 0, 1, client=C + 1, priority=1)
    assert asked(fake) == [(0, True)]


def test_what_a_row_waits_for_others_is_none_of_what_its_root_has_had() -> None:
    """Its worker is another one's meanwhile: a row that has waited for a second would cost its root a second."""
    fake = FakeAgent(1)
    fake.give(10, 0, 1, root=7)
    fake.worker(0, wm.Blocked())
    fake.worker(1, wm.Ready(101))
    fake.now += 1.0
    fake.worker(0, wm.Unblocked())
    fake.now += 0.002
    fake.finish(0, us=1_002_000)
    estimates = fake.core.state.estimates
    assert [round(each) for each in estimates.durations.values()] == [1_002_000]
    assert [round(each) for each in estimates.running.values()] == [2_000]


def test_what_was_asked_of_a_row_is_not_left_to_the_next_one() -> None:
    fake = with_trees(1)
    fake.give(20, 0, 1, client=C + 1)
    assert asked(fake) == [(0, True)]
    fake.finish(0)
    assert (fake.running(0), fake.core.state.workers.nesting) == ([(20, 0, 1)], {})
    assert fake.core.state.workers.records[0].state is BUSY


def test_a_row_for_the_worker_of_a_tree_has_it_yield_and_runs_elsewhere() -> None:
    fake = FakeAgent(1)
    fake.give(5, 0, 1)
    (value,) = fake.makes(0, live=True)
    fake.give(10, 0, 1, root=7)
    fake.give_back(0, 0)
    pass_slice(fake)
    fake.give_dependents(30, [[value[1]]], root=8)
    assert fake.core.state.ready.local.keys() == {0}
    assert asked(fake) == [(0, True)]
    fake.worker(0, wm.Blocked())
    assert fake.told(0, wm.Publish) == [value]
