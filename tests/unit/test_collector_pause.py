import gc
import os
import threading
from collections.abc import Iterator

import pytest
from support.signals_at import signals_at_each_point

from scaler.common.collector import collector_paused, pause_collector, resume_collector
from scaler.errors import CycleError
from scaler.graph import from_tuples, plan


@pytest.fixture(autouse=True)
def _collector_on() -> Iterator[None]:
    before = gc.get_threshold()
    assert collects()
    yield
    gc.set_threshold(*before)
    gc.enable()


def collects() -> bool:
    """Collections begin by themselves."""
    return gc.isenabled() and gc.get_threshold()[0] > 0


@collector_paused
def hold(inside: threading.Event, leave: threading.Event) -> None:
    inside.set()
    leave.wait(20)


@collector_paused
def nested(depth: int) -> bool:
    is_paused = not collects()
    return nested(depth - 1) and is_paused and not collects() if depth else is_paused


def test_the_collector_is_paused_until_the_last_call_ends() -> None:
    assert nested(2)
    assert collects()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    assert nested(1)
    assert not collects()


def test_what_is_imported_meanwhile_finds_it_enabled() -> None:
    """As `dask.array` asks, once, and has it so whenever something is sliced."""
    assert collector_paused(gc.isenabled)()


def test_processes_forked_off_one_that_never_collects_do_when_they_say_so() -> None:
    pause_collector()
    child = os.fork()
    if not child:
        rested = not collects() and gc.isenabled() and nested(1) and not collects()
        resume_collector()
        os._exit(not (rested and collects()))
    resume_collector()
    assert os.waitpid(child, 0)[1] == 0
    assert collects()


def test_it_is_on_again_after_an_error() -> None:
    nodes = from_tuples({"a": (abs, "b"), "b": (abs, "a")})
    with pytest.raises(CycleError):
        plan(nodes, ["a"])
    with pytest.raises(KeyError):
        plan(nodes, ["nowhere"])
    assert collects()


def test_calls_of_several_threads_overlap() -> None:
    inside, leave = [threading.Event() for _ in range(2)], threading.Event()
    threads = [threading.Thread(target=hold, args=(event, leave)) for event in inside]
    for thread, event in zip(threads, inside, strict=True):
        thread.start()
        event.wait(20)
    assert nested(0)
    assert not collects()
    leave.set()
    for thread in threads:
        thread.join(20)
    assert collects()


def test_a_child_that_is_forked_meanwhile_collects() -> None:
    inside, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, args=(inside, leave))
    thread.start()
    inside.wait(20)
    child = os.fork()
    if not child:
        os._exit(not (collects() and nested(1) and collects()))
    leave.set()
    thread.join(20)
    assert os.waitpid(child, 0)[1] == 0


def test_a_handler_that_raises_at_any_point_of_a_call_leaves_the_collector_as_it_was() -> None:
    def look() -> None:
        assert collects()
        gc.disable()
        nested(1)
        assert not collects()
        gc.enable()

    assert signals_at_each_point(lambda: nested(1), look) > 100


def test_a_handler_that_makes_a_graph_at_any_point_of_a_call_leaves_the_collector_as_it_was() -> None:
    made = []

    def look() -> None:
        assert collects()

    signals_at_each_point(lambda: nested(1), look, handle=lambda: made.append(nested(1)))
    assert len(made) > 100
    assert all(made)
