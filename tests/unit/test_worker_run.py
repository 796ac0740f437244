import contextlib
import ctypes
import errno
import marshal
import os
import pickle
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from support.runner import ARGUMENTS, BATCH, CLIENT, FUNCTION, Agent
from support.signals_at import signals_at_each_point

from scaler.errors import SerializationError
from scaler.protocol.messages import (
    DOUBTFUL,
    EACH,
    ERROR,
    GRAPH,
    KEEP,
    PROFILE,
    SPREAD,
    TOGETHER,
    VALUES_EACH,
    VALUES_LIST,
)
from scaler.serialize import payload
from scaler.serialize.call import encode_call, encode_entries, encode_function
from scaler.serialize.record import decode_error
from scaler.serialize.serializer import Serializer
from scaler.worker import context, elsewhere, inline
from scaler.worker.context import TaskContext
from scaler.worker_protocol import messages as wm
from scaler.worker_protocol.encoding import from_worker, read_by_agent, read_by_worker, to_worker
from scaler.worker_protocol.progress import BEGUN_CELL, CLAIMED_CELL, DISPATCH_CELL, REVOKED_CELL, ROW_CELL


@pytest.fixture
def agent() -> Iterator[Agent]:
    yield Agent()
    context.uninstall()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results wait for company however long the rows take."""
    monkeypatch.setattr("scaler.worker.row_runner.FLUSH_NS", 1 << 60)


def double(x: int) -> int:
    return 2 * x


def pair(x: int) -> list[int]:
    return [x, x]


def odd_raises(x: int) -> int:
    if x % 2:
        raise IndexError(x)
    return x


@pytest.mark.usefixtures("patient")
def test_rows_together_give_one_pickled_list(agent: Agent) -> None:
    agent.hand_out(1, double, range(3, 8), arguments=[(i,) for i in range(8)])
    agent.run()
    assert agent.outcomes() == {row: 2 * row for row in range(3, 8)}
    assert [span[3:6] for span in agent.spans()] == [(3, 8, VALUES_LIST)]
    assert agent.done() == [1]


def test_spread_items_are_single_arguments(agent: Agent) -> None:
    agent.hand_out(1, pair, range(2), arguments=[(1, 2), 3], flags=SPREAD)
    agent.run()
    assert agent.outcomes() == {0: [(1, 2), (1, 2)], 1: [3, 3]}


def test_an_error_splits_the_span_and_the_other_rows_run(agent: Agent) -> None:
    agent.hand_out(1, odd_raises, range(5), arguments=[(i,) for i in range(5)])
    agent.run()
    outcomes = agent.outcomes()
    assert [outcomes[row] for row in (0, 2, 4)] == [0, 2, 4]
    assert [(type(outcomes[row]), outcomes[row].args) for row in (1, 3)] == [(IndexError, (1,)), (IndexError, (3,))]
    assert agent.done() == [1]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_no_exception_of_a_task_ends_the_worker(agent: Agent, kind: type[BaseException]) -> None:
    def fail(x: int) -> int:
        if x == 0:
            raise kind
        return x

    agent.hand_out(1, fail, range(2), arguments=[(0,), (1,)])
    agent.run()
    outcomes = agent.outcomes()
    assert isinstance(outcomes[0], BaseException)
    assert outcomes[1] == 1


class Unreadable:
    """Unpickling it runs into a limit of its process, or into the user's mistake."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return raising, (self.error,)


def raising(error: BaseException) -> None:
    raise error


SHORT = OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize(("error", "outcome"), [(SHORT, DOUBTFUL), (MemoryError(), DOUBTFUL), (ValueError(), ERROR)])
@pytest.mark.parametrize("form", [EACH, TOGETHER])
def test_a_row_that_does_not_begin_for_a_shortage_is_in_doubt(
    agent: Agent, form: int, error: BaseException, outcome: int
) -> None:
    if form == TOGETHER:
        agent.hand_out(1, double, range(2), arguments=[(0,), (Unreadable(error),)])
    else:
        agent.hand_out(1, double, range(2), form=EACH, calls=[encode_call((Unreadable(error),), {})] * 2)
    agent.run()
    assert [span.outcome for span in agent.spans()] == [outcome] * 2
    assert all(isinstance(failure, SerializationError) for failure in agent.outcomes().values())
    assert agent.done() == [1]


def test_one_whose_function_runs_into_a_shortage_has_failed(agent: Agent) -> None:
    agent.hand_out(1, raising, range(1), arguments=[(SHORT,)])
    agent.run()
    assert [span.outcome for span in agent.spans()] == [ERROR]


@pytest.mark.usefixtures("patient")
def test_mutable_results_are_pickled_at_once(agent: Agent) -> None:
    shared: list[int] = []

    def grow(x: int) -> Any:
        if x == 0:
            return "first"
        collected.append(x)
        return collected

    collected = shared
    agent.hand_out(1, grow, range(4), arguments=[(i,) for i in range(4)])
    agent.run()
    assert agent.outcomes() == {0: "first", 1: [1], 2: [1, 2], 3: [1, 2, 3]}
    assert [span[5] for span in agent.spans()] == [VALUES_LIST, VALUES_EACH]


def test_kept_results_come_one_by_one(agent: Agent) -> None:
    agent.hand_out(1, double, range(3), arguments=[(i,) for i in range(3)], flags=KEEP)
    agent.run()
    assert agent.outcomes() == {0: 0, 1: 2, 2: 4}
    assert {span[5] for span in agent.spans()} == {VALUES_EACH}


def test_large_results_are_sent_before_the_dispatch_ends(agent: Agent) -> None:
    sent_before: list[int] = []

    def large(x: int) -> bytearray:
        sent_before.append(len(agent.sent))
        return bytearray(1 << 20)

    agent.runner._inputs._functions[FUNCTION] = (large, None)
    agent.hand_out(1, b"", range(3), arguments=[(i,) for i in range(3)])
    agent.run()
    assert sent_before == [0, 1, 2]


def test_rows_with_their_own_arguments(agent: Agent) -> None:
    calls = [encode_call((1,), {"base": 10}), encode_call(("101",), {"base": 2}), encode_call(("x",), {"base": 2})]
    agent.hand_out(1, int, range(4, 7), form=EACH, calls=calls)
    agent.run()
    outcomes = agent.outcomes()
    assert isinstance(outcomes[4], TypeError)
    assert outcomes[5] == 5
    assert isinstance(outcomes[6], ValueError)


class Explosive:
    def __reduce__(self) -> tuple[Any, ...]:
        return divmod, (1, 0)


def test_an_argument_that_raises_while_unpickled_fails_its_row_alone(agent: Agent) -> None:
    calls = [encode_call((1,), {}), b"P" + pickle.dumps(((Explosive(),), {})), encode_call((3,), {})]
    agent.hand_out(1, double, range(3), form=EACH, calls=calls)
    agent.run()
    outcomes = agent.outcomes()
    assert (outcomes[0], outcomes[2]) == (2, 6)
    assert isinstance(outcomes[1], SerializationError)
    assert "ZeroDivisionError" in str(outcomes[1])


def test_dependencies_are_whole_objects_or_elements_of_lists(agent: Agent) -> None:
    from scaler.serialize.call import Slot

    whole, listed = (CLIENT, 50), (CLIENT, 51)
    agent.hand_out(
        1,
        divmod,
        range(2),
        form=EACH,
        calls=[encode_call((Slot(0), Slot(1)), {}), encode_call((Slot(0), 4), {})],
        deps=[[(whole, -1), (listed, 1)], [(listed, 2)]],
        objects=((whole, payload.dumps(17)), (listed, payload.dumps([0, 5, 9]))),
    )
    agent.run()
    assert agent.outcomes() == {0: (3, 2), 1: (2, 1)}


def test_a_missing_object_is_named(agent: Agent) -> None:
    agent.hand_out(1, double, range(1), form=EACH, calls=[encode_call((), {})], deps=[[((CLIENT, 99), -1)]])
    agent.run()
    assert "object 99" in str(agent.outcomes()[0])


def add_up(*values: int) -> int:
    return sum(values)


def test_graph_rows_run_their_entry_with_the_values_of_their_dependencies(agent: Agent) -> None:
    agent.hand_out(
        1,
        encode_entries([("a", divmod), ("b", add_up), ("c", add_up)]),
        range(1, 3),
        form=GRAPH,
        deps=[[], [((CLIENT, 60), -1), ((CLIENT, 61), 0)]],
        objects=(((CLIENT, 60), payload.dumps(10)), ((CLIENT, 61), payload.dumps([100]))),
        flags=KEEP,
    )
    agent.run()
    assert agent.outcomes() == {1: 0, 2: 110}


def test_rows_that_run_elsewhere_have_their_portion_alone_decoded(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "_forward", lambda function, args, kwargs: function(*args, **kwargs))
    good, bad = pickle.dumps([("a", add_up), ("b", add_up)]), b"cno_such_module\nf\n."
    agent.hand_out(1, b"L" + marshal.dumps((2, [bad, good])), range(2, 4), form=GRAPH, deps=[[]] * 2, flags=KEEP)
    agent.run()
    assert agent.outcomes() == {2: 0, 3: 0}


def test_rows_of_a_portion_whose_module_is_missing_fail_alone(agent: Agent) -> None:
    good, bad = pickle.dumps([("a", add_up), ("b", add_up)]), b"cno_such_module\nf\n."
    function = b"L" + marshal.dumps((2, [good, bad, good]))
    agent.hand_out(1, function, range(1, 6), form=GRAPH, deps=[[]] * 5, flags=KEEP)
    agent.hand_out(2, None, range(2, 4), form=GRAPH, deps=[[]] * 2, flags=KEEP)
    agent.run()
    kinds = {(span.dispatch, span.lo): span.outcome == ERROR for span in agent.spans() for _ in range(span.lo, span.hi)}
    assert kinds == {(1, 1): False, (1, 2): True, (1, 3): True, (1, 4): False, (2, 2): True, (2, 3): True}
    errors = [decode_error(bytes(span.body)) for span in agent.spans() if span.outcome == ERROR]
    assert {type(error).__name__ for error in errors} == {"FunctionNotFound"}


def test_a_function_of_a_missing_module_fails_its_rows_only_and_names_the_module(agent: Agent) -> None:
    agent.hand_out(1, b"Pcno_such_module\nf\n.", range(2), arguments=[(1,), (2,)])
    agent.run()
    for error in agent.outcomes().values():
        assert type(error).__name__ == "FunctionNotFound"
        assert "no_such_module" in str(error)
    assert agent.done() == [1]


def test_results_that_cannot_be_pickled_are_reported(agent: Agent) -> None:
    agent.hand_out(1, threading.Lock, range(1), arguments=[()])
    agent.run()
    error = agent.outcomes()[0]
    assert isinstance(error, SerializationError)
    assert "the result of mod.fn" in str(error)


def test_of_a_list_the_element_that_cannot_be_pickled_is_named(agent: Agent) -> None:
    agent.hand_out(1, lambda: [1, threading.Lock()], range(1), arguments=[()])
    agent.run()
    assert "the result of mod.fn: element 1 of the list: an object of type _thread.lock " in str(agent.outcomes()[0])


class Tagged(Serializer):
    @staticmethod
    def serialize(obj: Any) -> bytes:
        return pickle.dumps(("tag", obj) if isinstance(obj, int) else obj)

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        obj = pickle.loads(payload)
        return obj[1] if isinstance(obj, tuple) else obj


def test_a_serializer_of_the_user_writes_and_reads_everything(agent: Agent) -> None:
    from scaler.serialize.call import Slot

    agent.hand_out(
        1,
        encode_function(divmod, Tagged),
        range(1),
        form=EACH,
        calls=[encode_call((Slot(0), 4), {}, Tagged)],
        deps=[[((CLIENT, 5), -1)]],
        objects=(((CLIENT, 5), Tagged.serialize(9)),),
    )
    agent.run()
    assert agent.outcomes() == {0: (2, 1)}


def test_profiled_rows_are_reported_one_by_one_with_what_they_use(agent: Agent) -> None:
    def allocate(size: int) -> int:
        return len(bytearray(size))

    size = 160 << 20  # more than malloc keeps for the next ones, unless tests before have left it more
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    if os.path.exists("/proc/self/clear_refs"):
        with open("/proc/self/clear_refs", "w") as peak_of_earlier_tests:
            peak_of_earlier_tests.write("5")
    agent.hand_out(1, allocate, range(2), arguments=[(size,), (1,)], flags=PROFILE)
    agent.run()
    first, second = agent.spans()
    assert agent.outcomes() == {0: size, 1: 1}
    assert first[6] > 0
    assert first[7] > second[7] + (32 << 20)
    assert first.processor_time > 0


def test_the_context_is_of_the_row_that_runs_and_of_the_main_thread_alone(agent: Agent) -> None:
    seen: list[TaskContext | None] = []

    def look(x: int) -> None:
        seen.append(context.current())
        thread = threading.Thread(target=lambda: seen.append(context.current()))
        thread.start()
        thread.join()

    agent.runner._inputs._functions[FUNCTION] = (look, None)
    agent.hand_out(1, b"", range(1, 2), arguments=[(0,), (1,)], priority=-3)
    agent.run()
    assert seen == [TaskContext(CLIENT, BATCH + 1, "mod.fn", -3), None]
    assert context.current() is None


def test_the_root_is_that_of_the_row_that_runs_or_ran_last_for_all_threads(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def look(x: int) -> None:
        seen.append(context.root())
        thread = threading.Thread(target=lambda: seen.append(context.root()))
        thread.start()
        thread.join()
        with context.entered(TaskContext(CLIENT, 77, "inner", root=9)):
            seen.append(context.root())

    assert context.root() == 0
    agent.runner._inputs._functions[FUNCTION] = (look, None)
    agent.hand_out(1, b"", range(1), arguments=[(0,)], root=7)
    agent.hand_out(2, b"", range(1), arguments=[(0,)], root=8)
    agent.run()
    assert seen == [7, 7, 9, 8, 8, 9]
    assert context.root() == 8
    monkeypatch.setattr(context, "_root", 0)
    context.uninstall()  # as in a process that it has forked
    assert context.root() == 8


def test_an_inline_row_runs_as_its_own_task(agent: Agent) -> None:
    inner = TaskContext(CLIENT, 77, "inner")
    seen: list[Any] = []

    def look(fail: bool) -> int:
        seen.append(context.current())
        if fail:
            raise SystemExit(3)
        return 5

    def outer(_: int) -> None:
        outcome, body = inline.run_inline(inner, look, (False,))
        seen.append((outcome, pickle.loads(body)))
        outcome, body = inline.run_inline(inner, look, kwargs={"fail": True})
        seen.append((outcome, type(decode_error(body, "x"))))
        seen.append(context.current())

    agent.runner._inputs._functions[FUNCTION] = (outer, None)
    agent.hand_out(1, b"", range(1), arguments=[(0,)])
    agent.run()
    deeper = TaskContext(CLIENT, 77, "inner", 0, 1)
    assert seen == [deeper, (VALUES_EACH, 5), deeper, (ERROR, SystemExit), TaskContext(CLIENT, BATCH, "mod.fn")]


def test_the_page_says_how_deep_the_row_is_that_runs_inside_the_wait_of_another_one(agent: Agent) -> None:
    seen: list[int] = []

    def look(deeper: bool) -> None:
        seen.append(agent.page[CLAIMED_CELL])
        if deeper:
            inline.run_inline(TaskContext(CLIENT, 78, "inner", nesting=5), look, (False,))
            seen.append(agent.page[CLAIMED_CELL])

    def outer(_: int) -> None:
        look(False)
        inline.run_inline(TaskContext(CLIENT, 77, "inner", nesting=4), look, (True,))
        look(False)

    agent.runner._inputs._functions[FUNCTION] = (outer, None)
    agent.hand_out(1, b"", range(1), arguments=[(0,)])
    agent.run()
    assert seen == [0, 5, 6, 5, 0]


def test_blocked_is_said_once_however_many_wait(agent: Agent) -> None:
    one, other = object(), object()
    context.blocked(one)
    context.blocked(other)
    context.unblocked(one)
    assert list(map(type, agent.sent)) == [wm.Blocked]
    context.unblocked(other)
    context.unblocked(one)
    assert list(map(type, agent.sent)) == [wm.Blocked, wm.Unblocked]


def test_a_signal_at_any_point_of_a_wait_leaves_the_agent_with_what_is_so(agent: Agent) -> None:
    wait = object()

    def waits() -> None:
        try:
            context.blocked(wait)
        finally:
            context.unblocked(wait)

    def is_told() -> None:
        context.unblocked(wait)  # as the end of the row does
        told = list(map(type, agent.sent))
        assert told == [wm.Blocked, wm.Unblocked] * (len(told) // 2)

    assert signals_at_each_point(waits, is_told) > 100


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_row_has_left_waiting_ends_with_it(agent: Agent, fails: bool) -> None:
    wait = object()

    def function(x: int) -> int:
        context.blocked(wait)
        return 1 // (not fails)

    agent.runner._inputs._functions[FUNCTION] = (function, None)
    agent.hand_out(1, b"", range(1), arguments=[(0,)])
    agent.run()
    context.unblocked(wait)  # too late
    assert [type(said) for said in agent.sent if isinstance(said, (wm.Blocked, wm.Unblocked, wm.Results))] == [
        wm.Blocked, wm.Unblocked, wm.Results
    ]  # fmt: skip


def test_rows_that_were_asked_to_yield_and_never_wait_again_leave_that_to_no_later_dispatch(agent: Agent) -> None:
    asked = []

    def function(x: int) -> int:
        asked.append(context.take_yield())
        context.note_yield(True)
        return x

    agent.runner._inputs._functions[FUNCTION] = (function, None)

    def hand_out_another() -> None:
        agent.hand_out(2, b"", range(1, 2), arguments=[(0,), (0,)])
        agent.when_idle = agent.quit

    agent.hand_out(1, b"", range(1), arguments=[(0,), (0,)])
    agent.when_idle = hand_out_another
    agent.run()
    context.note_yield(True)
    asked += [context.take_yield(), context.take_yield()]
    assert asked == [False, False, True, False]


def in_row(agent: Agent, row: int, act: Callable[[], None]) -> Callable[[int], int]:
    """Return a function that calls `act` while `row` runs."""

    def function(x: int) -> int:
        if x == row:
            act()
        return x

    agent.runner._inputs._functions[FUNCTION] = (function, None)
    return function


def in_control_thread(act: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()

    return call


@pytest.mark.usefixtures("patient")
def test_a_recall_inside_a_row_sends_what_is_finished_and_returns_the_rest(agent: Agent) -> None:
    in_row(agent, 3, in_control_thread(lambda: agent.runner.recall(wm.Recall(9, 2))))
    agent.hand_out(1, b"", range(10), arguments=[(i,) for i in range(10)])
    agent.run()
    assert list(map(type, agent.sent)) == [wm.Results, wm.Returned, wm.Results]
    assert [span[3:5] for span in agent.spans()[:1]] == [(0, 3)]
    assert agent.returned() == [wm.Returned(9, [wm.ReturnedSpan(1, CLIENT, BATCH, 5, 10)], (1, 3))]
    assert sorted(agent.outcomes()) == list(range(5))
    assert agent.done() == [1]


@pytest.mark.parametrize("keep", [0, 1])
def test_a_recall_while_the_function_is_loaded_leaves_the_first_row_if_it_shall(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, keep: int
) -> None:
    loops = agent.runner._loops
    decode = loops.of

    def decode_slowly(part: Any, objects: Any) -> Any:
        in_control_thread(lambda: agent.runner.recall(wm.Recall(1, keep)))()
        return decode(part, objects)

    monkeypatch.setattr(loops, "of", decode_slowly)
    agent.hand_out(1, double, range(4), arguments=[(i,) for i in range(4)])
    agent.run()
    assert agent.returned()[0] == wm.Returned(1, [wm.ReturnedSpan(1, CLIENT, BATCH, keep, 4)], None)
    assert sorted(agent.outcomes()) == list(range(keep))


def test_a_recall_reaches_dispatches_that_were_not_read_yet(agent: Agent) -> None:
    def act() -> None:
        agent.hand_out(2, b"", range(50, 60), arguments=[(i,) for i in range(60)])
        agent.runner.recall(wm.Recall(1, 0))

    in_row(agent, 1, in_control_thread(act))
    agent.hand_out(1, b"", range(5), arguments=[(i,) for i in range(60)])
    agent.run()
    assert agent.returned() == [
        wm.Returned(1, [wm.ReturnedSpan(2, CLIENT, BATCH, 50, 60), wm.ReturnedSpan(1, CLIENT, BATCH, 2, 5)], (1, 1)),
    ]
    assert sorted(agent.done()) == [1, 2]


def test_a_recall_that_is_heard_before_its_rows_takes_them_back(agent: Agent) -> None:
    def come() -> None:
        in_control_thread(lambda: agent.runner.recall(wm.Recall(5, 0, last=1)))()
        assert agent.returned() == []
        agent.hand_out(1, double, range(3), arguments=[(i,) for i in range(3)])

    steps = iter((come, agent.quit))
    agent.runner.run(lambda *_: next(steps)())
    assert agent.returned() == [wm.Returned(5, [wm.ReturnedSpan(1, CLIENT, BATCH, 0, 3)], None)]
    assert (agent.outcomes(), agent.done()) == ({}, [1])


def test_a_recall_of_rows_that_come_in_parts_is_answered_when_there_is_something_to_run(agent: Agent) -> None:
    steps = iter((
        lambda: agent.runner.recall(wm.Recall(5, 1, last=2)),
        lambda: agent.hand_out(1, double, range(3), arguments=[(i,) for i in range(3)]),
        lambda: agent.hand_out(2, double, range(3, 6), arguments=[(i,) for i in range(6)]),
        agent.quit,
    ))  # fmt: skip
    agent.runner.run(lambda *_: next(steps)())
    assert agent.returned() == [wm.Returned(5, [wm.ReturnedSpan(1, CLIENT, BATCH, 1, 3)], None)]
    assert sorted(agent.outcomes()) == [0, 3, 4, 5]


@pytest.mark.parametrize("revoked", [1, 2, 3])
def test_dispatches_that_are_revoked_before_they_begin_come_back(agent: Agent, revoked: int) -> None:
    def revoke() -> None:
        agent.page[REVOKED_CELL] = revoked

    in_row(agent, 1, revoke)
    for number in (1, 2, 3):
        rows = range(10 * number, 10 * number + 2) if number > 1 else range(2)
        agent.hand_out(number, b"" if number == 1 else None, rows, arguments=[(i,) for i in range(32)])
    agent.run()
    gone = range(2, revoked + 1)
    assert agent.returned() == [
        wm.Returned(0, [wm.ReturnedSpan(number, CLIENT, BATCH, 10 * number, 10 * number + 2)], None) for number in gone
    ]
    ran = [row for number in range(max(revoked, 1) + 1, 4) for row in range(10 * number, 10 * number + 2)]
    assert sorted(agent.outcomes()) == [0, 1, *ran]
    assert sorted(agent.done()) == [1, 2, 3]


def test_a_worker_says_which_dispatch_it_is_at_before_it_looks_whether_that_is_revoked(agent: Agent) -> None:
    order: list[tuple[str, int]] = []

    class Page:
        def __setitem__(self, cell: int, value: int) -> None:
            order.append(("writes", cell))
            agent.page[cell] = value

        def __getitem__(self, cell: int) -> int:
            order.append(("reads", cell))
            return agent.page[cell]

    agent.runner._page = agent.runner._ledger._page = Page()  # type: ignore[assignment]
    agent.hand_out(1, double, range(1), arguments=[(0,)])
    agent.run()
    assert order.index(("writes", DISPATCH_CELL)) < order.index(("reads", REVOKED_CELL))
    assert agent.outcomes() == {0: 0}


def test_a_recall_is_answered_when_nothing_can_be_returned(agent: Agent) -> None:
    agent.runner.recall(wm.Recall(4, 0))
    assert agent.returned() == agent.sent == [wm.Returned(4, [], None)]


def test_a_waiting_task_gives_back_the_rows_behind_it(agent: Agent) -> None:
    in_row(agent, 0, context.give_back_unbegun)
    agent.hand_out(1, b"", range(3), arguments=[(i,) for i in range(3)])
    agent.run()
    assert agent.returned() == [wm.Returned(0, [wm.ReturnedSpan(1, CLIENT, BATCH, 1, 3)], (1, 0))]
    assert agent.outcomes() == {0: 0}


def test_a_task_that_waits_again_says_nothing_unless_it_has_rows_to_give_back(agent: Agent) -> None:
    def wait_often() -> None:
        for _ in range(3):
            context.give_back_unbegun()
        agent.hand_out(2, b"", range(3, 5), arguments=[(i,) for i in range(5)])  # on its way meanwhile
        context.give_back_unbegun()

    in_row(agent, 0, wait_often)
    agent.hand_out(1, b"", range(1), arguments=[(0,)])
    agent.run()
    assert agent.returned() == [
        wm.Returned(0, [], (1, 0)),
        wm.Returned(0, [wm.ReturnedSpan(2, CLIENT, BATCH, 3, 5)], (1, 0)),
    ]


def test_a_long_row_is_not_charged_to_the_short_ones_before_it(agent: Agent) -> None:
    ticks = iter(range(0, 10**15, 1000))
    clock = agent.runner._clock = agent.runner._ledger._clock = lambda: next(ticks)
    agent.runner._loops._clock = clock

    def act() -> None:
        for _ in range(5000):  # the row takes 5 s
            next(ticks)
        agent.runner.recall(wm.Recall(1, 0))

    in_row(agent, 3, act)
    agent.hand_out(1, b"", range(6), arguments=[(i,) for i in range(6)])
    agent.run()
    short, long = agent.spans()
    assert short[3:5] == (0, 3)
    assert short[6] < 20
    assert long[3:5] == (3, 4)
    assert long[6] >= 5000


def test_the_first_result_after_a_silence_is_sent_before_the_next_row(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    loops = agent.runner._loops
    decode = loops.of

    def decode_slowly(part: Any, objects: Any) -> Any:
        loops.flush_at = 0
        return decode(part, objects)

    def look(x: int) -> int:
        told.append(len(agent.outcomes()))
        return x

    agent.runner._inputs._functions[FUNCTION] = (look, None)
    monkeypatch.setattr(loops, "of", decode_slowly)
    agent.hand_out(1, b"", range(3), arguments=[(i,) for i in range(3)])
    agent.run()
    assert told[:2] == [0, 1]


def test_an_exception_of_a_signal_handler_between_rows_harms_no_row(
    agent: Agent, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = iter([None, None, TimeoutError("late")])

    def flush() -> None:
        if error := next(late, None):
            raise error

    agent.runner.before_flush = flush
    monkeypatch.setattr("scaler.worker.row_runner.FLUSH_NS", -1)  # before each row
    agent.runner._inputs._functions[FUNCTION] = (abs, None)
    agent.hand_out(1, b"", range(6), arguments=[(i,) for i in range(6)])
    agent.run()
    outcomes = agent.outcomes()
    assert len(outcomes) == 6
    assert [type(value) for value in outcomes.values()].count(TimeoutError) == 1


def test_the_progress_page_names_the_row_that_runs(agent: Agent) -> None:
    seen: list[list[int]] = []

    def look(x: int) -> None:
        seen.append(agent.page.tolist()[:2])

    agent.runner._inputs._functions[FUNCTION] = (look, None)
    agent.hand_out(5, b"", range(1, 3), arguments=[(0,), (1,), (2,)])
    agent.run()
    assert seen == [[5, 2], [5, 3]]
    assert agent.page[ROW_CELL] == 0
    assert agent.page[BEGUN_CELL] > 0


def test_a_row_whose_function_is_being_loaded_has_not_begun(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    decode = agent.runner._loops.of

    def look(part: Any, objects: Any) -> Any:
        seen.append(agent.page.tolist()[:3])
        return decode(part, objects)

    monkeypatch.setattr(agent.runner._loops, "of", look)
    for number in (1, 2):
        agent.hand_out(number, double, range(1), arguments=[(0,)])
    agent.run()
    assert seen == [[1, 1, 0], [2, 1, 0]]


def test_messages_of_rows_pass_between_processes(agent: Agent) -> None:
    agent.hand_out(1, odd_raises, range(5), arguments=[(i,) for i in range(5)])
    inbox = list(agent.inbox)
    agent.run()
    assert [read_by_worker(to_worker(message)) for message in inbox] == inbox
    assert [read_by_agent(memoryview(from_worker(message))) for message in agent.sent] == agent.sent


class Switches:
    """Makes two threads take turns at random bytecodes of the worker's code, where the interpreter rarely would."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self.rng = random.Random(seed)
        self.agent = agent
        self.turn, self.acted, self.ran = (threading.Semaphore(0) for _ in range(3))

    def main(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace the main thread: let the control thread act here, and sometimes go on meanwhile."""
        return self._trace(frame, self.main, self._let_control_act)

    def control(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace the control thread: let the main thread run a row, if it can without the lock."""
        return self._trace(frame, self.control, lambda: self.ran.acquire(timeout=0.0002))

    def _trace(self, frame: FrameType, again: Any, switch: Callable[[], object]) -> Any:
        if "/scaler/worker/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if self.rng.random() < 0.02:
            switch()
        return again

    def _let_control_act(self) -> None:
        if not self.agent.runner._lock._is_owned():  # type: ignore[attr-defined]
            self.turn.release()
            if self.rng.random() < 0.7:
                self.acted.acquire(timeout=0.002)


@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_reported_exactly_once_whatever_the_interleaving(agent: Agent, seed: int) -> None:
    rng = random.Random(seed)
    dispatches, rows = 100, 40
    given = 0
    over = threading.Event()
    switches = Switches(agent, seed)

    def function(x: int) -> Any:
        switches.ran.release()
        if x % 13 == 5:
            raise ValueError(x)
        return [x] if x % 7 == 3 else x

    agent.runner._inputs._functions[FUNCTION] = (function, None)
    arguments = payload.dumps([(i,) for i in range(dispatches * rows)])

    def read() -> list[wm.ToWorker]:
        nonlocal given
        if given == dispatches:
            return [wm.Quit()]
        if rng.random() < 0.5:
            return []
        lo, given = given * rows, given + 1
        flags = rng.choice([0, 0, KEEP])
        return [
            wm.Run(given, CLIENT, BATCH, lo, lo + rows, TOGETHER, FUNCTION, ARGUMENTS, flags, 0,
                   "f", None, None, None, [(ARGUMENTS, arguments)], [], None)
        ]  # fmt: skip

    agent.runner._read = read

    def control() -> None:
        token = 0
        while not over.is_set():
            switches.turn.acquire(timeout=0.01)
            token += 1
            sys.settrace(switches.control)
            agent.runner.recall(wm.Recall(token, rng.choice([0, 1, 2, 10, 30, 100])))
            sys.settrace(None)
            switches.acted.release()

    before = sys.gettrace()
    thread = threading.Thread(target=control)
    thread.start()
    sys.settrace(switches.main)
    try:
        agent.runner.run(lambda: None)
    finally:
        sys.settrace(before)
        over.set()
        thread.join(10)
    outcomes = agent.outcomes()  # fails for a row that has two results
    back = Counter(row for message in agent.returned() for span in message.rows for row in range(span.lo, span.hi))
    assert set(back.values()) == {1}
    assert not back.keys() & outcomes.keys()
    assert back.keys() | outcomes.keys() == set(range(dispatches * rows))
    assert sorted(agent.done()) == list(range(1, dispatches + 1))
    for row, value in outcomes.items():
        if row % 13 == 5:
            assert isinstance(value, ValueError)
        else:
            assert value == ([row] if row % 7 == 3 else row)
    # What was said to be running is reported later, and is not given back.
    reported: set[int] = set()
    asked = 0
    for message in agent.sent:
        if isinstance(message, wm.Results):
            reported.update(row for ended in message.ended for row in range(ended.lo, ended.hi))
        elif isinstance(message, wm.Returned) and message.running is not None:
            asked += 1
            assert message.running[1] not in reported
            assert message.running[1] in outcomes
    assert asked
