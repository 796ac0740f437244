"""What an agent knows: its tables of moves, what it tells of them, and what it finds out when it looks at itself."""

from collections.abc import Callable

import pytest
from simulator.scripted import FakeAgent, task
from support.counting import calls_of

from scaler.agent.core import events as ev
from scaler.agent.core.agent_core import AgentCore
from scaler.agent.core.phases import PHASES
from scaler.agent.state import object_moves, worker_moves
from scaler.agent.state.host import HostState
from scaler.agent.state.object_moves import OBJECT_TRANSITIONS, IllegalObjectMove
from scaler.agent.state.object_records import ObjectState
from scaler.agent.state.validate import validate
from scaler.agent.state.worker_moves import WORKER_TRANSITIONS, IllegalWorkerMove
from scaler.agent.state.worker_records import HISTORY, WorkerState
from scaler.common.findings import InvalidState
from scaler.common.validating import ValidatingCore
from scaler.protocol.codes import WithdrawalKind
from scaler.protocol.messages import HeartbeatEcho, Neighbours, ObjectGone, u32

C, MB = FakeAgent.CLIENT, 1_000_000


def careless(workers: int) -> FakeAgent:
    """An agent as it is in production: it mends what it can."""
    fake = FakeAgent(workers)
    fake.core.state.strict = False
    return fake


# ---- moves -----------------------------------------------------------------------------------------------------------
def test_every_state_can_be_left_but_the_last() -> None:
    assert {before for before, _ in WORKER_TRANSITIONS} == set(WorkerState) - {WorkerState.GONE}
    assert (
        {before for before, _ in OBJECT_TRANSITIONS} == set(ObjectState) == {after for _, after in OBJECT_TRANSITIONS}
    )


def test_a_move_that_no_table_has_is_raised_in_tests() -> None:
    fake = FakeAgent(1)
    state = fake.core.state
    state.workers.records[0].blocked = True  # else it would be handed rows, which is not the point
    worker_moves.move(state, state.workers.records[0], WorkerState.PARKED)
    with pytest.raises(IllegalWorkerMove, match="worker 0 went from parked to busy"):
        worker_moves.move(state, state.workers.records[0], WorkerState.BUSY)
    with pytest.raises(IllegalObjectMove, match="from absent to on disk"):
        object_moves.move(state, (C, 5), state.objects.record((C, 5)), ObjectState.ON_DISK, size=MB)


def test_in_production_a_worker_in_disorder_is_replaced_and_the_log_has_its_last_moves() -> None:
    fake = careless(1)
    fake.give(10, 0, 1)
    state = fake.core.state
    worker = state.workers.records[0]
    worker_moves.move(state, worker, WorkerState.PARKED)
    fake.handle(ev.Tick())
    assert fake.killed == [0]
    story, line = fake.logged
    assert story.splitlines()[0] == "a defect of the agent: worker 0 went from busy to parked. Its last moves:"
    assert "idle -> busy: rows were handed to it" in story
    assert "worker 0, which ran f, is in disorder: it is ended" in line
    fake.dies(0)
    assert fake.started == [0, 0]
    assert validate(state) == []


def test_in_production_rows_without_what_they_need_fail_and_the_agent_goes_on() -> None:
    fake = careless(1)
    fake.tell(task(10, 1, client=C))
    assert [run.objects for run in fake.runs[0]] == [[]]  # its worker says that the function is not there
    assert fake.logged == ["a defect of the cluster: rows of f came without object (7, 1): they fail"]
    assert validate(fake.core.state) == []


def test_in_production_an_object_in_disorder_is_let_go() -> None:
    fake = careless(1)
    fake.give(10, 0, 1)
    (key,) = fake.makes(0)
    state = fake.core.state
    object_moves.move(state, key, state.objects.records[key], ObjectState.RESTORING)
    fake.handle(ev.Tick())
    assert "was to go from stored to restoring; the object is let go" in fake.logged[0]
    assert [list(message) for message in fake.heard(ObjectGone)] == [[key]]
    assert fake.asked(ev.DropObject) == [key]
    assert validate(state) == []


def test_a_worker_remembers_its_last_moves_and_no_more() -> None:
    fake = FakeAgent(1)
    for batch in range(10):
        fake.give(10 + batch, 0, 1)
        fake.finish(0)
    history = fake.core.state.workers.records[0].history
    assert len(history) == HISTORY
    assert [after for _, _, after, _ in history] == ["busy", "idle"] * (HISTORY // 2)


# ---- phases ----------------------------------------------------------------------------------------------------------
def test_phases_run_in_this_order() -> None:
    """Objects are tried again before room is made for them, and rows are staged before they are handed out."""
    names = [phase.name for phase in PHASES]
    assert len(set(names)) == len(names)
    for before, after in (
        ("start workers", "keep the number of workers"),
        ("try objects again", "make room"),
        ("make room", "stage waiting rows"),
        ("stage waiting rows", "hand out rows"),
        ("hand out rows", "attend to workers"),
    ):
        assert names.index(before) < names.index(after)


def test_an_agent_with_nothing_to_do_wants_nothing_and_is_not_woken_again_and_again() -> None:
    core = AgentCore(0)
    assert core.handle([ev.Tick()], 1.0) == []
    core = FakeAgent(2).core
    assert core.handle([ev.Tick()], 0.5) == []


def calls_of_an_echo(workers: int) -> int:
    """Calls of functions in the step of an idle agent that hears that its scheduler is there."""
    fake = FakeAgent(workers)
    fake.now = 0.5
    return calls_of(lambda: fake.tell(HeartbeatEcho(0.0, workers)))


def test_an_echo_costs_an_idle_agent_of_many_workers_what_it_costs_one_of_few() -> None:
    calls_of_an_echo(1)  # the first instances of classes have their constructors compiled
    assert calls_of_an_echo(64) == calls_of_an_echo(2)


# ---- looking at itself -----------------------------------------------------------------------------------------------
def prepared() -> HostState:
    """An agent with rows in a worker, ready and waiting, and with objects in some states, all as it must be."""
    fake = FakeAgent(2)
    fake.give(10, 0, 1)
    fake.makes(0, live=True)
    fake.give(20, 0, 1)
    fake.makes(0)
    fake.give(30, 0, 40, timeout=9.0)
    fake.handle(ev.Requested((C, 10)))
    fake.tell(Neighbours(u32([9]), ("tcp://other:1",)))
    fake.give_dependents(40, [[5]], holders=[9])
    assert validate(fake.core.state) == []
    assert fake.core.state.ready.rows
    assert fake.core.state.waiting.rows
    return fake.core.state


def a_worker(state: HostState, kind: WorkerState) -> int:
    """The slot of a worker in this state."""
    return next(slot for slot, worker in state.workers.records.items() if worker.state is kind)


def spoil_row_twice(state: HostState) -> None:
    worker = state.workers.records[a_worker(state, WorkerState.BUSY)]
    state.ready.put(worker.first.origin, *worker.first.left[0], None, False)


def spoil_row_lost(state: HostState) -> None:
    state.waiting.rows += 1


def spoil_worker_state(state: HostState) -> None:
    state.workers.records[a_worker(state, WorkerState.BUSY)].state = WorkerState.IDLE


def spoil_pins(state: HostState) -> None:
    state.objects.index.pin((C, 20))


def spoil_object_state(state: HostState) -> None:
    state.objects.records[C, 20].state = ObjectState.ON_DISK


def spoil_object_record(state: HostState) -> None:
    del state.objects.records[C, 20]


def spoil_waiter(state: HostState) -> None:
    state.objects.records[C, 10].wanted = False


def spoil_leaving(state: HostState) -> None:
    state.objects.leaving += 1


def spoil_backing_off(state: HostState) -> None:
    state.objects.backing_off[C, 20] = state.objects.records[C, 20]


def spoil_withdrawal(state: HostState) -> None:
    state.withdrawals.withdrawing[C, 99, 0] = WithdrawalKind.CANCEL


def spoil_return(state: HostState) -> None:
    state.withdrawals.rows_to_return = 1


def spoil_coming(state: HostState) -> None:
    state.waiting.coming += 1


def spoil_local_queue(state: HostState) -> None:
    worker = state.workers.records[a_worker(state, WorkerState.BUSY)]
    state.ready.put(worker.first.origin, 30, 31, 77, False)


def spoil_follow_ups(state: HostState) -> None:
    state.follow_ups.arrived.append((C, 10))


def spoil_starts(state: HostState) -> None:
    state.workers.start_at[0] = 0.0


def spoil_ending(state: HostState) -> None:
    state.workers.ending.add(77)


def spoil_idle(state: HostState) -> None:
    worker = state.workers.records[a_worker(state, WorkerState.BUSY)]
    worker.dispatches.clear()
    worker.state = WorkerState.IDLE


def spoil_open_dispatches(state: HostState) -> None:
    state.workers.open_dispatches -= 1


def spoil_wide(state: HostState) -> None:
    state.workers.wide += 1


def spoil_slots(state: HostState) -> None:
    worker = state.workers.records[a_worker(state, WorkerState.BUSY)]
    worker.first.origin.slots = 2
    state.workers.wide += 1
    other = next(record for record in state.workers.records.values() if record is not worker)
    other.state, other.dispatches = WorkerState.BUSY, dict(worker.dispatches)


@pytest.mark.parametrize("spoil", [value for name, value in sorted(globals().items()) if name.startswith("spoil_")])
def test_each_thing_that_does_not_hold_is_found(spoil: Callable[[HostState], None]) -> None:
    state = prepared()
    spoil(state)
    assert validate(state), f"{spoil.__name__} was not found"


def test_a_core_that_validates_goes_on_while_all_is_well_and_names_what_is_not() -> None:
    fake = FakeAgent(1)
    core = ValidatingCore(fake.core, validate)
    core.handle([ev.Tick()], 1.0)
    fake.core.state.waiting.rows += 1
    with pytest.raises(InvalidState, match="after Tick: counts 1 rows queued, and has 0"):
        core.handle([ev.Tick()], 1.1)
