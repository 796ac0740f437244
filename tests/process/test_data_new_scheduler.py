"""The scheduler is killed and started again: large values that its clients still need are written once more."""

import signal
import time

import numpy as np
import pytest
from support import until

from scaler import ObjectLost
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


def test_a_result_that_nobody_had_looked_at_is_lost_and_says_so(daemons, client):
    future = client.submit(np.ones, NUMBERS)
    until(future.done)
    restart(daemons)
    client.submit(abs, -1).result(20)
    with pytest.raises(ObjectLost, match=r"the result of task numpy.ones .* is lost"):
        future.result(20)


def test_a_value_that_was_changed_meanwhile_is_lost_and_not_another_one(daemons, client):
    array = np.ones(NUMBERS)
    blocking = [client.submit(time.sleep, 1.0) for _ in range(2)]
    future = client.submit(work, array, 0 * array, 0)
    array[:] = 7
    restart(daemons)
    with pytest.raises(ObjectLost, match="has changed since"):
        future.result(30)
    assert [future.result(20) for future in blocking] == [None, None]
    assert client.submit(work, array, 0 * array, 0).result(20) == 7.0 * NUMBERS
