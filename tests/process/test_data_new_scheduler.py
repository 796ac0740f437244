"""The scheduler is killed and started again: large values are where they were."""

import signal
import time

import numpy as np
import pytest
from support import until

from scaler.extension import submit_map

QUICK = ("--heartbeat-interval", "0.2", "--agent-timeout", "1", "--client-timeout", "2")
NUMBERS = 300_000


def work(array, other, seconds):
    time.sleep(seconds)
    return float(array.sum() + other.sum())


@pytest.fixture
def client(daemons):
    daemons.start_scheduler(*QUICK)
    daemons.start_agent(2)
    return daemons.client()


def restart(daemons):
    daemons.scheduler.signal(signal.SIGKILL)
    daemons.scheduler.ends(5)
    daemons.start_scheduler(*QUICK)


def test_what_is_under_way_ends_and_what_was_sent_can_be_used_again(daemons, client):
    array, sent = np.ones(NUMBERS), client.send_object(np.ones(NUMBERS))
    loaded = client.submit(np.ones, NUMBERS)
    assert loaded.result(20).shape == (NUMBERS,)
    futures = [client.submit(work, array, sent, 0.2) for _ in range(8)]
    futures += [client.submit(lambda n: work(array, array, 0) + n, n) for n in range(3)]  # a large function
    job = submit_map(client, lambda a: float(a.sum()), [np.full(30_000, n) for n in range(20)], True)
    constants = client.submit_graph({"a": array, "b": (work, "a", "a", 0.2)}, ["b"])
    until(lambda: futures[0].done())
    restart(daemons)
    assert [future.result(30) for future in futures[:8]] == [2.0 * NUMBERS] * 8
    assert [future.result(30) for future in futures[8:]] == [2.0 * NUMBERS + n for n in range(3)]
    assert job.results(30) == [30_000.0 * n for n in range(20)]
    assert constants[0].result(30) == 2.0 * NUMBERS
    assert client.submit(work, array, sent, 0).result(30) == 2.0 * NUMBERS
    assert client.submit(work, loaded, sent, 0).result(30) == 2.0 * NUMBERS  # the value that was received


def test_a_result_that_nobody_had_looked_at_is_still_there(daemons, client):
    future = client.submit(np.ones, NUMBERS)
    until(future.done)
    restart(daemons)
    assert future.result(30).sum() == NUMBERS


def test_what_a_task_was_given_is_still_there_though_it_was_changed_meanwhile(daemons, client):
    array = np.ones(NUMBERS)
    blocking = [client.submit(time.sleep, 1.0) for _ in range(2)]
    future = client.submit(work, array, 0 * array, 0)
    array[:] = 7
    restart(daemons)
    assert future.result(30) == NUMBERS
    assert [future.result(20) for future in blocking] == [None, None]
    assert client.submit(work, array, 0 * array, 0).result(20) == 7.0 * NUMBERS


@pytest.fixture
def makers(daemons):
    """A scheduler, and two agents that may be given what is to be made."""
    daemons.start_scheduler(*QUICK)
    return daemons, [daemons.start_agent(1, "--capabilities", name) for name in ("one", "other")]


def kill(agent):
    agent.signal(signal.SIGKILL)
    agent.ends(5)


def test_a_result_is_made_again_if_scheduler_and_host_die_one_after_the_other(makers):
    daemons, (one, _) = makers
    client = daemons.client()
    future = client.with_options(capabilities=["one"]).submit(np.full, NUMBERS, 3.0)
    until(future.done)
    restart(daemons)
    kill(one)
    daemons.start_agent(1, "--capabilities", "one")
    assert client.submit(np.sum, future).result(60) == 3.0 * NUMBERS
    assert future.result(30).sum() == 3.0 * NUMBERS


def test_so_is_what_it_was_made_of_though_nobody_refers_to_that_any_more(makers):
    daemons, (one, _) = makers
    client = daemons.client()
    on_one = client.with_options(capabilities=["one"])
    sent, small = client.send_object(4.0), client.submit(abs, -2.0)
    made = on_one.submit(np.full, NUMBERS, sent)
    doubled = on_one.submit(np.multiply, made, small)
    until(doubled.done)
    del made, sent, small
    for _ in range(2):
        restart(daemons)
        assert client.submit(abs, -1).result(30) == 1
    kill(one)
    daemons.start_agent(1, "--capabilities", "one")
    assert doubled.result(60).sum() == 8.0 * NUMBERS


def test_and_values_of_graphs(makers):
    daemons, (one, _) = makers
    client = daemons.client()
    graph = {f"made {n}": (np.full, NUMBERS, float(n)) for n in range(4)}
    graph |= {f"sum {n}": (np.add, f"made {n}", f"made {(n + 1) % 4}") for n in range(4)}
    futures = client.with_options(capabilities=["one"]).submit_graph(graph, [f"sum {n}" for n in range(4)])
    until(lambda: all(future.done() for future in futures))
    restart(daemons)
    kill(one)
    daemons.start_agent(1, "--capabilities", "one")
    assert [future.result(60)[0] for future in futures] == [1.0, 3.0, 5.0, 3.0]
