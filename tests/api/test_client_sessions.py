"""Sessions of clients: they end with who has them, and those of clients inside tasks are shared."""

import gc
import os
import pickle
import threading
import time
import weakref

import pytest
from support.waiting import until

from scaler import Client, ClientClosed
from scaler.client.client import parts_of, shared_client

MB = 1_000_000


def work(x, client):
    with client:
        return client.submit(abs, x).result(20)


def fail():
    raise LookupError("on purpose")


def fails(client):
    try:
        client.submit(fail).result(20)
    except LookupError:
        return client


def awaited(client):
    client.submit(abs, -1).add_done_callback(print)
    return client.submit(abs, -1).result(20)


@pytest.fixture
def cluster_address(cluster):
    until(lambda: not io_threads(cluster.address), "clients of other tests have ended")
    return cluster.address


def io_threads(address):
    """Those of clients of this address."""
    return [thread for thread in threading.enumerate() if thread.name == f"scaler-client-{address}"]


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client,
        lambda client: client.submit(abs, -1).result(20),
        lambda client: client.submit(abs, -1),
        lambda client: client.submit(bytes, 2 * MB).result(20),
        lambda client: client.map(abs, range(300)),
        lambda client: client.get({"a": 1, "b": (abs, "a")}, ["b"]),
        lambda client: client.send_object(bytes(MB)),
        lambda client: client.with_options(retries=1).submit(abs, -1).result(20),
        fails,
        awaited,
    ],
    ids=["unused", "result", "unread", "large", "map", "graph", "object", "view", "error", "callback"],
)
def test_a_client_that_nobody_has_any_more_leaves(cluster_address, use):
    descriptors = len(os.listdir("/proc/self/fd"))
    use(Client(cluster_address))
    until(lambda: not io_threads(cluster_address), "its threads have ended")
    until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "its descriptors are closed")


def test_it_stays_for_who_has_a_future_or_a_reference_of_it(cluster_address, tmp_path):
    client = Client(cluster_address)
    future, reference = client.submit(lambda: until((tmp_path / "go").exists) and 3), client.send_object([1, 2])
    parts, gone = parts_of(client)[0], weakref.ref(client)
    liveness = parts.liveness
    del client, parts
    gc.collect()
    assert gone() is None
    (tmp_path / "go").touch()
    assert future.result(20) == 3
    del future
    gc.collect()
    assert not liveness.is_closed
    del reference
    until(lambda: liveness.is_closed)


def test_what_a_client_has_under_way_goes_on_without_anybody(cluster_address, tmp_path):
    Client(cluster_address).submit(lambda: until((tmp_path / "go").exists) and (tmp_path / "done").touch())
    gc.collect()
    assert io_threads(cluster_address)
    (tmp_path / "go").touch()
    until(lambda: not io_threads(cluster_address))
    assert (tmp_path / "done").exists()


def test_clients_that_a_task_makes_share_the_session_of_its_worker(cluster):
    def makes_many():
        for number in range(10):
            with Client() as made:
                assert made.submit(abs, -number).result(20) == number
            assert Client(profiling=True).with_options(priority=1).submit(abs, -number).result(20) == number
        return os.getpid(), threading.active_count(), len(os.listdir("/proc/self/fd"))

    with Client(cluster.address) as client:
        seen = {client.submit(makes_many).result(20) for _ in range(6)}
    assert len(seen) == len({pid for pid, *_ in seen})  # it takes no more each time


@pytest.mark.parametrize("levels", [1, 2])
def test_who_leaves_a_client_that_it_was_given_takes_it_from_nobody_else(cluster, levels):
    def parent(client, levels):
        if levels > 1:
            return sum(client.map(parent, [(client, levels - 1)] * 2))
        return sum(future.result(20) for future in [client.submit(work, -x, client) for x in range(5)])

    with Client(cluster.address) as client:
        assert client.submit(parent, client, levels).result(20) == 10 * 2 ** (levels - 1)


def test_a_client_that_leaves_takes_back_what_it_has_submitted_itself(cluster):
    def task(given):
        one, other = Client(), Client()
        mine = [one.submit(time.sleep, 60), one.with_options(retries=1).submit(time.sleep, 60)]
        mine += one.submit_graph({"a": (time.sleep, 60)}, ["a"])
        others = other.submit(time.sleep, 60)
        one.disconnect()
        assert all(future.cancelled() for future in mine)
        assert not others.done()
        assert (one.closed, other.closed, given.closed) == (True, False, False)
        for use in (
            lambda: one.submit(abs, -1), lambda: one.map(abs, [1]), lambda: one.starmap(abs, [(1,)]),
            lambda: one.get({"a": 1}, ["a"]), lambda: one.send_object(1), one.clear, one.jobs,
            lambda: one.with_options(retries=1).submit(abs, -1),
        ):  # fmt: skip
            with pytest.raises(ClientClosed, match="make a new Client"):
                use()
        one.disconnect()
        other.clear()
        assert others.cancelled()
        return other.submit(abs, -1).result(20), given.submit(abs, -2).result(20)

    with Client(cluster.address) as client:
        assert client.submit(task, client).result(20) == (1, 2)


def test_pickled_clients_share_a_session_in_any_process(cluster):
    with Client(cluster.address) as client:
        one, other = (pickle.loads(pickle.dumps(client)) for _ in range(2))
        assert parts_of(one)[0] is parts_of(other)[0] is not parts_of(client)[0]
        with one:
            assert one.submit(abs, -1).result(20) == 1
        assert other.submit(abs, -1).result(20) == 1
    shared_client(cluster.address).disconnect()
