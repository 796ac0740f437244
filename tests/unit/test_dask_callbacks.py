"""What dask's callbacks are told of a computation, and what is kept for them; futures are played by the test."""

import threading
import weakref
from typing import Any

import pytest

pytest.importorskip("dask")

from dask._task_spec import Alias, DataNode, Task, TaskRef
from dask.callbacks import Callback
from dask.local import get_sync
from support import until

from scaler.client.future import Future
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


class Owner:
    """A client that has nothing to do about those who wait."""

    def prepare_to_block(self, future: Future) -> None:
        pass


def pending() -> Future:
    return Future(Owner())  # type: ignore[arg-type]


def ended(value: Any) -> Future:
    """A future that has this value."""
    future = pending()
    future.fulfil(value)
    return future


def run(
    callback: Callback, graph: dict[Any, Any], wanted: list[Any], values: dict[Any, Any]
) -> tuple[list[Any], list[Future]]:
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
    with CallbackRun([Callback(pretask=lambda *_: None)._callback], chain(), ["d"]) as callbacks:
        futures: list[Any] = [pending() for _ in callbacks.asked_for(["d"])]
        futures[-1].fail(ValueError("no"))
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


def test_one_that_measures_the_process_alone_asks_for_no_key_more_than_is_wanted() -> None:
    diagnostics = pytest.importorskip("dask.diagnostics")
    pytest.importorskip("psutil")
    for others, asked in (([], ["d"]), ([Callback(finish=lambda *_: None)], ["d", "b", "c"])):
        callbacks = [each._callback for each in (diagnostics.ResourceProfiler(dt=0.01), *others)]
        with CallbackRun(callbacks, chain(), ["d"]) as run_:
            found = run_.asked_for(["d"])
            run_.follow(found, [ended(1) for _ in found])
        assert sorted(found) == sorted(asked)


class Stored:
    """A value in a store, which can't be read."""

    def held(self, timeout: float | None) -> Any:
        raise AssertionError("somebody wants it")


@pytest.mark.parametrize("is_given", [False, True])
def test_large_values_that_no_callback_is_given_stay_in_their_stores(is_given: bool) -> None:
    finished: list[Any] = []
    posttask = (lambda *_: None) if is_given else None
    callback = Callback(pretask=lambda key, dsk, state: finished.append(len(state["finished"])), posttask=posttask)
    with CallbackRun([callback._callback], chain(), ["d"]) as callbacks:
        asked = callbacks.asked_for(["d"])
        futures = [ended(1) if key == "d" else pending() for key in asked]
        for future in futures[1:]:
            future.fulfil_stored(Stored())  # type: ignore[arg-type]
        if is_given:
            with pytest.raises(AssertionError, match="somebody wants it"):
                callbacks.follow(asked, futures)
        else:
            callbacks.follow(asked, futures)
            assert finished == [0, 1, 2]


def test_what_ends_while_it_is_waited_for_is_told_as_it_ends() -> None:
    told: list[Any] = []
    with CallbackRun([Callback(posttask=lambda key, *_: told.append(key))._callback], chain(), ["d"]) as callbacks:
        asked = callbacks.asked_for(["d"])
        futures = {key: pending() for key in asked}
        thread = threading.Thread(target=callbacks.follow, args=(asked, list(futures.values())))
        thread.start()
        for n, key in enumerate("bcd", 1):
            futures[key].fulfil(key)
            until(lambda n=n: len(told) == n, "a key that is told of")
        thread.join()
    assert told == ["b", "c", "d"]
