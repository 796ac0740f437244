"""What dask's callbacks are told of a computation, and what is kept for them; futures are played by the test."""

import weakref
from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("dask")

from dask._task_spec import Alias, DataNode, Task, TaskRef
from dask.callbacks import Callback
from dask.local import get_sync

from scaler_dask.callbacks import CallbackRun


class Value:
    """Can be seen to be gone."""


def made(*_: Any) -> Value:
    return Value()


def chain() -> dict[Any, Any]:
    """One value is given; b, c and d are computed one after the other."""
    return {
        "a": DataNode("a", 1),
        "b": Task("b", made, TaskRef("a")),
        "c": Task("c", made, TaskRef("b")),
        "d": Task("d", made, TaskRef("c"), TaskRef("b")),
    }


def ended(value: Any) -> Future[Any]:
    """A future that has this value."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def run(
    callback: Callback, graph: dict[Any, Any], wanted: list[Any], values: dict[Any, Any]
) -> tuple[list[Any], list[Future[Any]]]:
    """Compute a graph, whose keys have these values; the keys that are asked for, and the futures that are left."""
    with CallbackRun([callback._callback], graph, wanted) as callbacks:
        asked = callbacks.asked_for(wanted)
        futures = [ended(values.get(key)) for key in asked]
        callbacks.follow(asked, futures)
    return asked, futures


class Watch(Callback):
    """Notes what it is told, and the state at that moment."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def note(self, what: str, key: Any, state: Any) -> None:
        names = ("running", "finished", "released", "cache")
        self.seen.append((what, key, *(sorted(state[name]) for name in names)))

    def _pretask(self, key: Any, dsk: Any, state: Any) -> None:
        self.note("before", key, state)

    def _posttask(self, key: Any, value: Any, dsk: Any, state: Any, worker: Any) -> None:
        self.note("after", key, state)

    def _finish(self, dsk: Any, state: Any, failed: bool) -> None:
        self.note("finish", failed, state)


def test_the_state_is_that_of_dasks_own_schedulers() -> None:
    watch, theirs = Watch(), Watch()
    run(watch, chain(), ["d"], {})
    with theirs:
        get_sync(chain(), "d")
    assert watch.seen == theirs.seen


def test_what_is_ready_is_told_in_dasks_order() -> None:
    graph = {name: Task(name, made) for name in "cab"} | {"all": Task("all", made, *map(TaskRef, "bca"))}
    watch, theirs = Watch(), Watch()
    run(watch, graph, ["all"], {})
    with theirs:
        get_sync(graph, "all")
    keys = [[key for what, key, *_ in seen if what == "before"] for seen in (watch.seen, theirs.seen)]
    assert keys[0] == keys[1]


class Holds(Callback):
    """Says which values are there when one more has come."""

    def __init__(self, values: dict[Any, Any]) -> None:
        self.values = values
        self.left: list[tuple[Any, list[Any]]] = []
        self.refs = {key: weakref.ref(value) for key, value in values.items()}

    def _posttask(self, key: Any, value: Any, dsk: Any, state: Any, worker: Any) -> None:
        self.values.clear()
        self.left.append((key, [name for name, ref in self.refs.items() if ref() is not None]))


def test_values_are_let_go_of_when_all_that_need_them_have_ended() -> None:
    values = {key: Value() for key in "bcd"}
    holds = Holds(values)
    asked, futures = run(holds, chain(), ["d"], values)
    assert (asked[0], len(asked)) == ("d", 3)
    assert [future.done() for future in futures] == [True]
    assert holds.left[-1] == ("d", ["d"])


def test_futures_that_have_not_ended_are_left_where_a_task_failed() -> None:
    with CallbackRun([Callback()._callback], chain(), ["d"]) as callbacks:
        futures: list[Any] = [Future() for _ in callbacks.asked_for(["d"])]
        futures[-1].set_exception(ValueError("no"))
        unended = futures[:-1]
        with pytest.raises(ValueError, match="no"):
            callbacks.follow(callbacks.asked_for(["d"]), futures)
    assert set(unended) <= set(futures)
    assert len(futures) == len(set(futures))


def test_what_a_callback_knows_is_not_computed_nor_what_it_was_made_of() -> None:
    class Knows(Callback):
        def _start(self, dsk: dict[Any, Any]) -> None:
            dsk["c"] = 3  # as `dask.cache.Cache` puts it: the bare value

    graph = chain()
    graph["d"] = Task("d", made, TaskRef("c"))
    asked, _ = run(Knows(), graph, ["d"], {})
    assert asked == ["d"]


def test_another_name_is_a_task_as_well() -> None:
    graph = {"a": Task("a", made), "b": Alias("b", "a")}
    watch, theirs = Watch(), Watch()
    run(watch, graph, ["b"], {})
    with theirs:
        get_sync(graph, "b")
    assert watch.seen == theirs.seen
