import gc
import os
import threading

import pytest

from scaler.common.collector import collector_paused
from scaler.errors import CycleError
from scaler.graph import from_tuples, plan


@pytest.fixture(autouse=True)
def _collector_on():
    assert gc.isenabled()
    yield
    gc.enable()


def test_the_collector_is_paused_until_the_last_block_ends():
    with collector_paused:
        with collector_paused:
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with collector_paused:
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_it_is_on_again_after_an_error():
    nodes = from_tuples({"a": (abs, "b"), "b": (abs, "a")})
    with pytest.raises(CycleError):
        plan(nodes, ["a"])
    with pytest.raises(KeyError):
        plan(nodes, ["nowhere"])
    assert gc.isenabled()


def test_blocks_of_several_threads_overlap():
    inside, leave = threading.Barrier(3), threading.Event()

    def hold():
        with collector_paused:
            inside.wait(20)
            leave.wait(20)

    threads = [threading.Thread(target=hold) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(20)
    with collector_paused:
        pass
    assert not gc.isenabled()
    leave.set()
    for thread in threads:
        thread.join(20)
    assert gc.isenabled()


def test_a_child_that_is_forked_meanwhile_collects():
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with collector_paused:
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(20)
    child = os.fork()
    if not child:
        with collector_paused:
            is_paused = not gc.isenabled()
        os._exit(not (is_paused and gc.isenabled()))
    leave.set()
    thread.join(20)
    assert os.waitpid(child, 0)[1] == 0
