"""A program that makes functions with ever new names for weeks leaves no more than a bounded record of them."""

from typing import Any

import pytest
from simulator.scripted import FakeScheduler, result, task
from support.weight import objects_below

from scaler.agent.state import doubts, estimates
from scaler.agent.state.doubts import SECONDS, Doubts
from scaler.agent.state.estimates import Estimates
from scaler.protocol.messages import STORED, u32, u64
from scaler.protocol.messages.cluster_view import FunctionColumns, RowCounts
from scaler.scheduler.state import function_records
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.function_records import OTHERS
from scaler.scheduler.state.validate import validate
from scaler.scheduler.views import cluster_view

MOST = 64


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_records, "MOST", MOST)
    monkeypatch.setattr(estimates, "MOST", MOST)
    monkeypatch.setattr(doubts, "MANY", MOST)
    monkeypatch.setattr(cluster_view, "FUNCTIONS", 8)


class Program:
    """A client at a scheduler with one agent, and what has been counted of it."""

    def __init__(self) -> None:
        self.fake = FakeScheduler(4)
        (self.agent,) = self.fake.agents
        self.client = self.fake.client()
        self.record.most_functions = MOST
        self._batch = 0

    @property
    def record(self) -> ClientRecord:
        """What the scheduler knows of the client."""
        return self.fake.core.state.clients[self.client]

    def submit(self, name: str, rows: int = 1, **more: Any) -> int:
        self._batch += 100
        self.fake.say(self.client, task(self._batch, rows, name=name, **more))
        return self._batch

    def call(self, name: str, us: int = 50) -> None:
        batch = self.submit(name)
        self.fake.report(self.agent, self.client, result(batch, 0, 1, us=us))
        self.fake.heard(self.agent)
        self.fake.heard(self.client)

    def shown(self) -> tuple[RowCounts, FunctionColumns]:
        view, _ = cluster_view.cluster_view(self.fake.core.state)
        return view.rows, view.functions


def test_names_that_are_ever_new_leave_bounded_records_and_all_counts() -> None:
    program = Program()
    sizes = []
    for n in range(6 * MOST):
        program.call(f"task-{n}")
        if n % MOST == MOST - 1:
            sizes.append(objects_below(program.record))  # that of the last facts has a bound of its own
            rows, functions = program.shown()
            assert rows.finished == sum(functions.done) == n + 1
            assert sum(functions.total_us) == 50 * (n + 1)
            validate(program.fake.core.state)
    assert len(program.record.functions) <= MOST
    assert max(sizes[2:]) < sizes[1] * 1.1


def test_what_is_put_together_is_shown_among_the_others() -> None:
    program = Program()
    for n in range(2 * MOST):
        program.call(f"task-{n}")
    assert program.record.functions[OTHERS].finished > 0
    _, functions = program.shown()
    assert OTHERS not in functions.names
    assert (functions.clients[-1], functions.names[-1]) == (0, "other")
    assert sum(functions.done) == 2 * MOST


def test_functions_in_use_and_those_that_took_most_time_stay() -> None:
    program = Program()
    program.call("long ago", us=1_000_000)
    program.submit("queued", rows=50, capabilities=("gpu",))
    for n in range(5 * MOST):
        program.call(f"task-{n}")
        program.call("again and again")
    functions = program.record.functions
    assert functions["again and again"].finished == 5 * MOST
    assert functions["long ago"].finished == 1
    assert functions["queued"].outstanding == 50


def test_functions_whose_values_may_have_to_be_computed_again_stay() -> None:
    program = Program()
    fake = program.fake
    kept = program.submit("kept")
    fake.report(program.agent, program.client, result(kept, 0, 1, STORED))
    for n in range(5 * MOST):
        program.call(f"task-{n}")
    assert program.record.functions["kept"].finished == 1
    fake.lose(program.agent)
    fake.say(program.client, task(100_000, 1, dependencies=u64([kept]), dependency_counts=u32([1])))
    validate(fake.core.state)


def test_more_functions_than_that_with_rows_all_stay() -> None:
    program = Program()
    for n in range(3 * MOST):
        program.submit(f"task-{n}")
    assert len(program.record.functions) == 3 * MOST
    validate(program.fake.core.state)


def test_an_agent_knows_what_the_functions_take_that_it_has_seen_last() -> None:
    known = Estimates()
    for n in range(10 * MOST):
        known.note_duration((1, f"task-{n}"), 10.0)
        known.note_duration((1, "again and again"), 5.0)
        known.note_size((1, f"task-{n}"), 1000.0)
    assert len(known.durations) <= MOST
    assert len(known.sizes) <= MOST
    assert known.durations[1, "again and again"] == 5.0
    assert known.durations[1, f"task-{10 * MOST - 1}"] == 10.0


def test_an_agent_forgets_in_time_whose_rows_have_failed_before_they_began() -> None:
    doubted = Doubts(many=MOST)
    for n in range(10 * MOST):
        assert doubted.is_of_worker((1, f"task-{n}"), n * SECONDS / 10)
    assert len(doubted.tries) <= 2 * MOST
