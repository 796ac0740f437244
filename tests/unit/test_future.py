"""Waiting for a future, without a client."""

from __future__ import annotations

import concurrent.futures
import gc
import json
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from support.counting import calls_of

from scaler.client import future as future_module
from scaler.client.callbacks import callbacks_collected
from scaler.client.future import Future, as_ended, fulfil_all
from scaler.client.values.stored_results import StoredResult
from scaler.common.interrupts import LOOK, wait_in_steps
from scaler.executor.map_results import given_up, in_order
from scaler.worker import context


class Gate:
    """A waiter's lock; when it opens, the waiter takes it out at once, as a thread that is quick to wake does."""

    def __init__(self, gates: list[Any]) -> None:
        self._gates = gates
        self._lock = threading.Lock()
        self._lock.acquire()
        gates.append(self)

    def locked(self) -> bool:
        return self._lock.locked()

    def release(self) -> None:
        self._lock.release()
        self._gates.remove(self)


def test_every_thread_that_waits_is_woken_however_fast_the_others_go() -> None:
    future = Future(Mock())
    gates = [Gate(future._gates) for _ in range(3)]
    future.fulfil(1)
    assert [gate.locked() for gate in gates] == [False, False, False]


@pytest.mark.parametrize(
    "end",
    [
        lambda future: future.fulfil(1),
        lambda future: future.fulfil_from(b"1", lambda _: [1], "f"),
        lambda future: future.fulfil_stored(Mock()),
        lambda future: future.fail(ValueError()),
        lambda future: future.mark_cancelled("with others"),
    ],
)
def test_a_future_needs_no_dict_of_its_own(end: Callable[[Future], None]) -> None:
    future = [Future(Mock()) for _ in range(40)][-1]  # from the first thirty Python learns what places futures need
    future.id = 5
    assert not future.has_callbacks
    assert not future.is_awaited()
    future.add_done_callback(lambda _: None)
    future._gates.append(threading.Lock())
    future._eager = True
    future.profile(1, 2, 3)
    future.mark_running()
    end(future)
    assert future.done()
    assert dict not in map(type, gc.get_referents(future))
    future.more, future.even_more = 1, 2  # for these it has no places
    assert dict in map(type, gc.get_referents(future)) or sys.version_info >= (3, 13)


def test_a_map_keeps_no_result_that_was_taken_though_another_thread_has_its_future() -> None:
    held = [Future(Mock()) for _ in range(3)]
    for future in held:
        future.fulfil(set())
    waiting = iter(held)
    for value in in_order(Mock(), lambda *_: next(waiting), iter([()] * 3), None, None):
        gone = weakref.ref(value)
        del value
        assert gone() is None


def test_a_map_keeps_no_large_item_that_was_sent_but_its_error_says_which_it_was() -> None:
    class Grid:
        nbytes, shape = 1 << 20, (512, 256)

    items: list[Any] = [Grid(), 3, Grid()]
    gone = [weakref.ref(item) for item in items if isinstance(item, Grid)]
    sent: list[bool] = []

    def submit(item: Any) -> Future:
        sent.append(all(ref() is None for ref in gone[: (len(sent) + 1) // 2]))
        future = Future(Mock())
        future.fail(ValueError("too large")) if isinstance(item, Grid) else future.fulfil(item)
        return future

    results = in_order(Mock(), submit, given_up(items, True), None, None)
    assert sent == [True, True, True]
    assert [ref() for ref in gone] == [None, None]
    with pytest.raises(ValueError, match="too large") as raised:
        next(results)
    assert raised.value.__notes__[0].startswith("while mapping item [0]: <a ")
    assert raised.value.__notes__[0].endswith("Grid of shape (512, 256)>")


def test_futures_come_as_they_end_once_each_and_nothing_keeps_them() -> None:
    class Owner:
        blocked = 0

        def prepare_to_block(self, future: Future) -> None:
            Owner.blocked += 1

    futures = [Future(Owner()) for _ in range(4)]  # type: ignore[arg-type]
    places = {id(future): n for n, future in enumerate(futures)}
    refs = [weakref.ref(future) for future in futures]
    futures[1].fulfil(set())
    coming = as_ended([*futures, futures[2]])

    def end_others() -> None:
        futures[3].fail(ValueError())
        futures[0].mark_cancelled()

    seen = [places[id(next(coming))]]
    thread = threading.Thread(target=end_others)
    thread.start()
    seen += [places[id(next(coming))] for _ in range(2)]
    thread.join()
    assert seen == [1, 3, 0]
    futures[2].fulfil(set())
    futures.clear()
    assert [ref() is None for ref in refs] == [True, True, False, True]
    seen = [places[id(future)] for future in coming]
    assert seen == [2]
    assert Owner.blocked <= 2


def test_callbacks_are_called_when_all_that_came_together_has_ended() -> None:
    futures = [Future(Mock()) for _ in range(3)]
    seen: list[list[bool]] = []
    for future in futures:
        future.add_done_callback(lambda _: seen.append([other.done() for other in futures]))
    with callbacks_collected:
        with callbacks_collected:
            fulfil_all(futures[:2], [1, 2])
        futures[2].mark_cancelled()
        assert seen == []
    assert seen == [[True] * 3] * 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_a_callback_on_the_main_thread_raises_is_raised_when_all_were_called(error: type[BaseException]) -> None:
    futures = [Future(Mock()) for _ in range(3)]
    called: list[Future] = []

    def fail(future: Future) -> None:
        called.append(future)
        raise error(futures.index(future))

    for future in futures:
        future.add_done_callback(fail)
        future.add_done_callback(called.append)
    with pytest.raises(error, match="0"), callbacks_collected:
        fulfil_all(futures, range(3))
    assert called == [each for future in futures for each in (future, future)]


def test_the_handler_of_a_signal_may_look_at_a_future_that_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    future, make = Future(Mock()), future_module._LAZY["_condition"]
    called: list[Future] = []

    def interrupted(future: Future) -> threading.Condition:
        monkeypatch.setitem(future_module._LAZY, "_condition", make)
        future.add_done_callback(called.append)
        return make(future)

    monkeypatch.setitem(future_module._LAZY, "_condition", interrupted)
    thread = threading.Thread(target=future.add_done_callback, args=(called.append,), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    future.fulfil(1)
    assert called == [future, future]


@pytest.mark.parametrize("ends", [lambda future: future.fail(KeyError(1)), lambda future: future.mark_cancelled()])
@pytest.mark.parametrize(
    "late",
    [
        lambda future: fulfil_all([future], [1]),
        lambda future: future.fulfil(1),
        lambda future: future.fulfil_from(b"[]", json.loads, "f"),
        lambda future: future.fulfil_stored(Mock()),
        lambda future: future.fail(ValueError(2)),
        lambda future: future.mark_cancelled(),
    ],
)
def test_a_future_ends_once_whatever_comes_late(ends: Callable[[Future], None], late: Callable[[Future], None]) -> None:
    future, called = Future(Mock()), Mock()
    future.add_done_callback(called)
    ends(future)
    was_cancelled = future.cancelled()
    late(future)
    assert future.cancelled() == was_cancelled
    with pytest.raises((KeyError, CancelledError)):
        future.result(0)
    called.assert_called_once_with(future)


class Overtaken(threading.Condition):
    """Another thread, which ends the future too, has it first."""

    def __init__(self, first: Callable[[], None]) -> None:
        super().__init__()
        self._first = [first]

    def __enter__(self) -> bool:
        if self._first:
            self._first.pop()()
        return super().__enter__()


@pytest.mark.parametrize("first", [lambda future: future.fail(KeyError(1)), lambda future: future.mark_cancelled()])
@pytest.mark.parametrize(
    "second",
    [
        lambda future: fulfil_all([future], [1]),
        lambda future: future.fulfil(1),
        lambda future: future.fulfil_stored(Mock(defer=lambda callback: callback())),
        lambda future: future.mark_cancelled(),
    ],
)
def test_a_future_that_two_threads_end_at_once_ends_once(
    first: Callable[[Future], None], second: Callable[[Future], None]
) -> None:
    """As when results are on their way in the I/O thread while another one calls clear()."""
    future, called = Future(Mock()), Mock()
    future.add_done_callback(called)
    future._condition = Overtaken(lambda: first(future))
    ended = concurrent.futures.as_completed([future], timeout=10)
    second(future)
    assert list(ended) == [future]
    called.assert_called_once_with(future)
    with pytest.raises((KeyError, CancelledError)):
        future.result(0)


class Frozen(Exception):
    """Takes no notes, as frozen dataclasses do not."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")


def test_a_value_that_fails_as_it_is_unpickled_ends_its_future_whatever_it_raises() -> None:
    def load(_: bytes) -> None:
        raise Frozen

    future = Future(Mock())
    future.fulfil_from(b"", load, "f")
    assert isinstance(future.exception(0), Frozen)


def test_in_a_worker_a_callback_acts_for_the_program_whose_task_has_added_it(monkeypatch: pytest.MonkeyPatch) -> None:
    running = [5]
    monkeypatch.setattr(context, "_worker", None)
    context.install(lambda: None, lambda: running[0], Mock(), Mock())
    first, second = Future(Mock()), Future(Mock())
    roots: list[int] = []
    first.add_done_callback(lambda _: second.add_done_callback(lambda _: roots.append(context.root())))
    for future in (first, second):  # while a task of another program runs there
        running[0] = 6
        future.fulfil(1)
    assert roots == [5]
    assert context.root() == 6


def test_a_future_that_ends_in_a_callback_calls_its_own_at_once() -> None:
    first, second = Future(Mock()), Future(Mock())
    order: list[str] = []
    second.add_done_callback(lambda _: order.append("second"))

    def end_second(_: Any) -> None:
        second.fulfil(2)
        order.append("first")

    first.add_done_callback(end_second)
    with callbacks_collected:
        first.fulfil(1)
    assert order == ["second", "first"]


def interrupt(*args: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "wait", [concurrent.futures.wait, lambda futures: list(concurrent.futures.as_completed(futures))]
)
def test_an_interrupted_wait_of_the_standard_library_tells_the_owners_of_all_futures_once(
    wait: Callable[[list[Any]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = [Mock(), Mock()]
    futures = [Future(owner) for owner in (*owners, owners[0])]
    others: list[Any] = [concurrent.futures.Future()]
    monkeypatch.setattr(threading.Event, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        wait(futures + others)
    assert [len(owner.abandon.mock_calls) for owner in owners] == [1, 1]
    abandoned, waiter = owners[0].abandon.mock_calls[0].args
    assert set(abandoned) == {futures[0], futures[2]}
    assert waiter is not None


def test_who_is_interrupted_at_the_gate_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    future = Future(Mock())
    monkeypatch.setattr("scaler.client.future.wait_in_steps", interrupt)
    with pytest.raises(KeyboardInterrupt):
        future.wait_at_gate(None)
    assert not future.is_awaited()


def test_a_wait_without_a_limit_wakes_now_and_then_to_hear_of_signals() -> None:
    steps: list[float] = []

    def wait(seconds: float) -> bool:
        steps.append(seconds)
        return len(steps) == 3

    assert wait_in_steps(wait, None)
    assert steps == [LOOK] * 3


@pytest.mark.parametrize("ask", [Future.result, Future.exception, Future.fresh_result])
def test_what_is_left_of_a_limit_is_what_loading_the_value_may_take(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[Future, float], Any]
) -> None:
    now = [100.0]
    monkeypatch.setattr("scaler.client.future.time.monotonic", lambda: now[0])
    stored, owner = Mock(held=nullcontext), Mock()
    future = Future(owner)

    def wait(future: Future, timeout: float) -> None:
        now[0] += 3.0
        future.fulfil_stored(stored)

    owner.wait = wait
    ask(future, 5.0)
    stored.load.assert_called_once_with(2.0)


@pytest.mark.parametrize("ask", [Future.result, Future.exception, Future.fresh_result])
def test_a_limit_holds_while_another_thread_loads_the_value(ask: Callable[[Future, float], Any]) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def read(*_: object) -> bytes:
        begun.set()
        assert may_end.wait(30)
        return b""

    results: Any = SimpleNamespace(read=read, unpack=lambda _: "value", forget=lambda _: None)
    future = Future(Mock())
    future.fulfil_stored(StoredResult(results, 1, 10, "f"))
    other = threading.Thread(target=future.result)
    other.start()
    try:
        assert begun.wait(30)
        for limit in (0, 0.01):
            with pytest.raises(TimeoutError):
                ask(future, limit)
    finally:
        may_end.set()
        other.join()
    assert future.result(0) == "value"


def test_a_wait_with_a_limit_ends_there() -> None:
    steps: list[float] = []
    assert not wait_in_steps(lambda seconds: bool(steps.append(seconds)), 0.0)
    assert steps == [0.0]


def test_who_waits_for_a_future_is_known() -> None:
    future, mine, other = Future(Mock()), Mock(), Mock()
    future._waiters.append(mine)
    assert future.is_awaited()
    assert not future.is_awaited(mine)
    future._waiters.append(other)
    assert future.is_awaited(mine)


def test_a_window_of_futures_costs_a_wait_and_the_ends_of_them_no_more_than_one_of_standard_ones() -> None:
    ours = [Future(Mock(spec_set=["prepare_to_block"])) for _ in range(100)]
    standard: list[Any] = [concurrent.futures.Future() for _ in range(100)]

    def calls_of_a_wait(futures: list[Any]) -> int:
        concurrent.futures.wait(futures, 0)  # from now on they have what they make when they are first looked at
        return calls_of(lambda: concurrent.futures.wait(futures, 0, concurrent.futures.FIRST_COMPLETED))

    assert calls_of_a_wait(ours) < 1.01 * calls_of_a_wait(standard)
    end_ours = calls_of(lambda: [future.fulfil(1) for future in ours])
    assert end_ours < 1.01 * calls_of(lambda: [future.set_result(1) for future in standard])
    assert not any(future.has_callbacks for future in ours)


class Contended(threading.Condition):
    """While it is held by `acquire`, as in `wait` and `as_completed`, a thread ends the future, and has it next."""

    def __init__(self, end: Callable[[], None]) -> None:
        super().__init__()
        self._acquire, self._release = self.acquire, self.release
        self._ender_came = threading.Event()
        self._ender = threading.Thread(target=end)
        self.acquire, self.release = self._let_end, self._let_go  # type: ignore[method-assign]

    def _let_end(self) -> bool:
        self._acquire()
        self._ender.start()
        return self._ender_came.wait(10)

    def _let_go(self) -> None:
        self._release()
        self._ender.join(10)

    def __enter__(self) -> bool:
        if threading.current_thread() is self._ender:
            self._ender_came.set()
        return super().__enter__()


def _fulfil_one_of(future: Future) -> None:
    fulfil_all([future], [1])


@pytest.mark.parametrize(
    "end",
    [
        lambda future: future.fulfil(1),
        _fulfil_one_of,
        lambda future: future.fulfil_from(b"", lambda _: 1, "f"),
        lambda future: future.fulfil_stored(Mock()),
        lambda future: future.fail(ValueError()),
        lambda future: future.mark_cancelled(),
    ],
)
def test_a_future_that_ends_while_it_is_looked_at_is_told_of_once(end: Callable[[Future], None]) -> None:
    future, last = Future(Mock()), Future(Mock())
    future._condition = Contended(lambda: end(future))
    future._made, future._watched = frozenset({"_condition"}), True
    ended = concurrent.futures.as_completed([future, last])
    assert next(ended) is future
    last.fulfil(2)
    assert list(ended) == [last]
