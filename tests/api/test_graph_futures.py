"""Graphs that refer to futures and to objects that were sent; and options for some of their tasks."""

from __future__ import annotations

import gc
import operator
import os
import threading

import numpy
import pytest
from support.stores import objects_of
from support.waiting import until

from scaler import Client
from scaler.graph import from_tuples

WITH_SERIALIZERS = True


def add(*values):
    return sum(values)


def fail(words):
    raise LookupError(words)


def after(path, value):
    """The value, as soon as there is such a file."""
    until(lambda: os.path.exists(path))
    return value


def test_futures_and_references_stand_for_their_values(client):
    small, large, sent = client.submit(add, 1, 2), client.submit(numpy.arange, 200_000), client.send_object(10)
    graph = {
        "small": small, "large": large, "sent": sent, "same": "sent",
        "sum": (add, "small", "same", 5), "as arguments": (add, small, sent), "total": (numpy.sum, "large"),
        "inside": (add, (add, small, small), "sum"),
    }  # fmt: skip
    keys = ["small", "sent", "same", "sum", "as arguments", "total", "inside"]
    values = {"small": 3, "sent": 10, "same": 10, "sum": 18, "as arguments": 13, "total": 19999900000, "inside": 24}
    for _ in range(2):  # while they are under way, and when they are there
        assert client.get(graph, keys) == values
        large.result()
        small.result()


def test_what_is_pending_is_waited_for_by_the_tasks_alone(client, tmp_path):
    pending = client.submit(after, str(tmp_path / "go"), 7)
    futures = client.submit_graph({"a": pending, "b": (add, "a", 1), "c": (add, "b", "b")}, ["c", "a"])
    assert futures[1] is pending
    assert not futures[0].done()
    (tmp_path / "go").touch()
    assert futures[0].result(10) == 16


def test_a_future_that_failed_fails_what_needs_it(client):
    failed = client.submit(fail, "early")
    behind = client.submit(add, failed, 1)
    for _ in range(2):
        graph = {"a": failed, "b": (add, "a", 1), "c": (add, "b"), "d": (add, behind, 1), "ok": (add, 1)}
        c, d, fine = client.submit_graph(graph, ["c", "d", "ok"])
        with pytest.raises(LookupError, match="early"):
            c.result(10)
        with pytest.raises(LookupError, match="early"):
            d.result(10)
        assert fine.result(10) == 1
        assert failed.exception(10) is not None


def test_a_cancelled_future_fails_what_needs_it(client, tmp_path):
    holding = [client.submit(after, str(tmp_path / "go"), n) for n in range(client.n_workers + 2)]
    cancelled = holding.pop()
    assert cancelled.cancel()
    (future,) = client.submit_graph({"b": (add, cancelled, 1)}, ["b"])
    with pytest.raises(Exception, match=r"(?i)cancel|^$"):
        future.result(10)
    (tmp_path / "go").touch()
    assert [one.result(10) for one in holding] == [*range(len(holding))]


def test_values_of_one_graph_serve_another_and_are_let_go_then(start_cluster):
    cluster = start_cluster(n_workers=2)
    with Client(cluster.address, security=cluster.security) as client:
        pid = client.submit(os.getppid).result(10)
        graph = {"a": (numpy.ones, 300_000), "b": (numpy.negative, "a"), "c": (numpy.sum, "b")}
        first = client.submit_graph(graph, ["a", "b", "c"])
        for _ in range(3):
            again = {"a": first[0], "b": first[1], "c": (operator.add, "a", "b"), "d": (numpy.sum, "c")}
            assert client.submit_graph(again, ["d"])[0].result(10) == 0
        second = client.submit_graph({"x": (numpy.multiply, first[0], 2), "y": (numpy.sum, "x")}, ["y"])
        del first, again
        gc.collect()
        assert second[0].result(10) == 600_000
        del second
        gc.collect()
        until(lambda: not objects_of(pid))


def test_a_graph_may_follow_calls_at_once(client):
    """The calls are still queued when the graph is made: it names them by ids that they do not have yet."""
    for n in range(100):
        calls = [client.submit(add, n, i) for i in range(5)]
        (total,) = client.submit_graph({"t": (add, *calls)}, ["t"])
        assert total.result(10) == 5 * n + 10


def test_threads_may_build_on_each_others_futures(client):
    found = []

    def work(n):
        future = client.submit(add, n)
        for _ in range(20):
            (future,) = client.submit_graph({"a": future, "b": (add, "a", 1)}, ["b"])
        found.append(future.result(30))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [20, 21, 22, 23]


def test_futures_of_another_client_are_refused(client, cluster):
    with Client(cluster.address, security=cluster.security) as other:
        future, sent = other.submit(numpy.arange, 200_000), other.send_object(1)
        for graph in ({"a": future, "b": (add, "a")}, {"b": (add, future)}, {"b": sent}):
            with pytest.raises(ValueError, match="belongs to another client"):
                client.submit_graph(graph, ["b"])


def test_options_hold_for_the_tasks_of_their_keys_alone(start_cluster, tmp_path):
    cluster = start_cluster(n_workers=2)

    def flaky(name):
        path = tmp_path / name
        path.touch()
        with path.open("a+") as file:
            file.write("x")
        if path.stat().st_size < 3:
            raise OSError(name)
        return name

    with Client(cluster.address, security=cluster.security) as client:
        graph = {"a": (flaky, "one"), "b": (flaky, "two"), "c": (str.upper, "a"), "d": (add, 1)}
        options = {"a": {"retries": 2}, "d": {"priority": 5}, "none of the graph": {"retries": 1}}
        a, b, c, d = client.submit_nodes(from_tuples(graph), ["a", "b", "c", "d"], options=options)
        assert (a.result(10), c.result(10), d.result(10)) == ("one", "ONE", 1)
        with pytest.raises(OSError, match="two"):
            b.result(10)
        with pytest.raises(ValueError, match="retries must be 0 or more, not -1"):
            client.submit_nodes(from_tuples(graph), ["a"], options={"a": {"retries": -1}})


def test_tasks_of_one_graph_run_where_their_options_say(daemons):
    """Two capabilities that no host has both of."""
    daemons.start_scheduler()
    for name in ("disk", "gpu"):
        daemons.start_agent(1, "--capabilities", name)
    with daemons.client() as client:
        nodes = from_tuples({"load": (os.getppid,), "use": (lambda pid: (pid, os.getppid()), "load")})
        options = {"load": {"capabilities": ["disk"]}, "use": {"capabilities": ["gpu"]}}
        (future,) = client.submit_nodes(nodes, ["use"], options=options)
        loaded, used = future.result(20)
        assert loaded != used
