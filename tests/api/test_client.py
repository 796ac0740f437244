"""The client's calls: submit, map, graphs, objects, captured functions, serializers."""

import builtins
import gc
import io
import math
import os
import pickle
import re
import signal
import sys
import time
from typing import NamedTuple

import pytest

from scaler import Client, ClientClosed, Executor, Serializer
from scaler.client.client import parts_of, shared_client

WITH_SERIALIZERS = True


def add(a, b, c=0):
    return a + b + c


def inc(x):
    return x + 1


def test_a_cluster_object_is_an_address(cluster):
    with Client(cluster) as client:
        assert client.address == cluster.address
        assert client.submit(abs, -1).result(20) == 1


def test_submit_passes_positional_and_keyword_arguments(client):
    assert client.submit(add, 1, b=2, c=3).result(20) == 6
    assert client.submit(math.sqrt, 16).result(20) == 4.0


def test_map_takes_tuples_as_arguments_and_zips_iterables(client):
    assert client.map(add, [(1, 2), (3, 4)]) == [3, 7]
    assert client.map(inc, range(1000)) == list(range(1, 1001))
    assert client.map(add, [1, 2], [3, 4], [5, 6]) == [9, 12]
    assert client.starmap(add, [[1, 2], [3, 4]]) == [3, 7]


def test_map_raises_what_the_first_failing_call_raised(client):
    with pytest.raises(ZeroDivisionError):
        client.map(lambda x: 1 / (x - 50), range(100))
    assert client.map(inc, [1]) == [2]


def test_only_plain_tuples_are_argument_lists(client):
    class Point(NamedTuple):
        x: int
        y: int

    class Pair(tuple):
        __slots__ = ()

    points = [Point(1, 2), Point(3, 4)]
    assert client.map(lambda point: point.x * point.y, points) == [2, 12]
    assert client.map(lambda *given: len(given), [Point(1, 2), (1, 2), Pair((1, 2)), 5, ()]) == [1, 2, 1, 1, 0]
    assert client.map(lambda pair: type(pair).__name__, [Pair((1, 2))]) == ["Pair"]
    assert client.map(lambda a, b: (a.x, b), points, [5, 6]) == [(1, 5), (3, 6)]
    assert client.starmap(add, points) == [3, 7]


class Unshowable:
    def __repr__(self):
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("items", "note"),
    [
        ([2, 1, 0, 4], r"while mapping item \[2\]: 0"),
        ([*range(1, 5000), 0], r"while mapping item \[4999\]: 0"),
        ([(1, 2), (4, 0)], r"while mapping item \[1\]: \(4, 0\)"),
        ([1, (4, 0)], r"while mapping item \[1\]: \(4, 0\)"),
        ([1, "x" * 300_000], r"while mapping item \[1\]: 'x+\.\.\.x+'"),
        ([Unshowable()], r"while mapping item \[0\]: <Unshowable instance at \w+>"),
        ([list(range(300_000))], r"while mapping item \[0\]: \[0, 1, 2, 3, 4, 5, \.\.\.\]"),
    ],
    ids=["few", "many", "arguments", "mixed", "text", "unshowable", "large"],
)
def test_an_error_in_a_map_says_which_item(client, items, note):
    def divide(x, y=None):
        return 1 / x if y is None else x / y

    with pytest.raises((ZeroDivisionError, TypeError)) as caught:
        client.map(divide, items)
    (said,) = [text for text in caught.value.__notes__ if text.startswith("while mapping")]
    assert len(said) < 250
    assert re.fullmatch(note, said)


def test_a_map_with_a_reference_says_which_item(client):
    table = client.send_object([1, 0])
    with pytest.raises(ZeroDivisionError) as caught:
        client.map(lambda values, i: 1 / values[i], [(table, 0), (table, 1)])
    assert caught.value.__notes__[-1].startswith("while mapping item [1]: (<ObjectRef")


def test_a_map_that_is_late_says_nothing_of_items(client):
    with pytest.raises(TimeoutError) as caught:
        client.map(time.sleep, [0.3], timeout=0.01)
    assert not hasattr(caught.value, "__notes__")


def test_a_map_that_is_late_takes_back_what_has_not_begun(client, tmp_path):
    def begin(number):
        (tmp_path / f"{number}").touch()
        while not (tmp_path / "open").exists():
            time.sleep(0.01)

    with pytest.raises(TimeoutError):
        client.map(begin, range(40), timeout=0.3)
    (tmp_path / "open").touch()
    assert client.map(abs, range(40)) == list(range(40))
    assert len(list(tmp_path.iterdir())) < 40


def test_arguments_that_do_not_fit_are_refused_where_they_are_given(client):
    for args, kwargs in (((), {}), ((1, 2, 3, 4), {}), ((1,), {"d": 2}), ((1, 2), {"a": 3})):
        with pytest.raises(TypeError, match=r"test_client\.add\(\) does not take these arguments"):
            client.submit(add, *args, **kwargs)
    with pytest.raises(TypeError, match="missing a required argument: 'b'"):
        client.submit(add, 1, profiling=True)
    assert client.submit(add, 1, b=2).result(20) == client.submit(add, c=0, b=1, a=2).result(20) == 3
    assert client.submit(add, client.submit(inc, 1), 1).result(20) == 3
    with pytest.raises(TypeError):  # by the task
        client.submit(math.sqrt, 1, 2).result(20)


def test_a_graph_gives_what_was_asked_of_it(client):
    graph = {"a": 2, "b": 3, "c": (inc, "a"), "d": (add, "a", "b"), "e": (add, "d", "c"), "unneeded": (math.sqrt, -1)}
    assert client.get(graph, ["e", "a"]) == {"e": 8, "a": 2}
    assert [future.result(20) for future in client.submit_graph(graph, ["c", "d"])] == [3, 5]
    assert client.get(graph, ["e"], block=False)["e"].result(20) == 8


def test_a_graph_fails_with_the_tasks_error(client):
    with pytest.raises(ValueError, match=r"math domain|nonnegative"):
        client.get({"a": (math.sqrt, -1), "b": (inc, "a")}, ["b"])


def test_an_object_is_sent_once_and_used_by_many(client):
    reference = client.send_object(list(range(1000)), name="numbers")
    futures = [client.submit(lambda values, i: values[i], reference, i) for i in range(100)]
    assert [future.result(20) for future in futures] == list(range(100))
    assert client.map(lambda values, i: values[i], [(reference, i) for i in range(10)]) == list(range(10))


def test_the_older_order_of_send_object_is_accepted_with_a_warning(client):
    with pytest.warns(DeprecationWarning, match="old order"):
        reference = client.send_object("numbers", [1, 2, 3])
    assert client.submit(len, reference).result(20) == 3


def test_a_function_is_captured_again_when_what_it_names_changes(client):
    scope = {"factor": 2}
    exec("def scale(x):\n    return factor * x", scope)
    assert client.submit(scope["scale"], 5).result(20) == 10
    scope["factor"] = 3
    assert client.submit(scope["scale"], 5).result(20) == 15
    exec("def scale(x):\n    return -x", scope)
    assert client.submit(scope["scale"], 5).result(20) == -5


def test_a_closure_is_captured_as_it_is_when_it_is_submitted(client):
    value = 1

    def look():
        return value

    first = client.submit(look)
    value = 2
    second = client.submit(look)
    assert (first.result(20), second.result(20)) == (1, 2)


def test_a_custom_serializer_is_called_for_function_arguments_and_result_one_by_one(cluster, tmp_path):
    import cloudpickle

    log = str(tmp_path / "log")

    class Counting(Serializer):
        @staticmethod
        def serialize(obj):
            with open(log, "a") as file:
                file.write(f"w {'function' if callable(obj) else obj}\n")
            return b"C" + cloudpickle.dumps(obj)

        @staticmethod
        def deserialize(payload):
            assert payload[:1] == b"C"
            value = pickle.loads(payload[1:])
            with open(log, "a") as file:
                file.write(f"r {'function' if callable(value) else value}\n")
            return value

    with Client(cluster.address, serializer=Counting) as client:
        assert client.submit(lambda a, b: a * b, 11, 22).result(20) == 242
    with open(log) as file:
        lines = sorted(file.read().splitlines())
    assert lines == sorted(f"{way} {what}" for way in "wr" for what in ("function", 11, 22, 242))


def test_a_client_finds_its_address_in_the_environment(cluster, monkeypatch):
    monkeypatch.setenv("SCALER_ADDRESS", cluster.address)
    with Client() as client:
        assert client.address == cluster.address
        assert client.n_workers == 2
        assert client.submit(inc, 1).result(20) == 2


def test_views_share_everything_and_pickle_with_their_options(connect, start_cluster):
    client = connect(start_cluster(), reconnect=1.0)
    view = client.with_options(priority=3).with_options(retries=1)
    table = view.send_object([1, 2, 3])
    assert client.submit(sum, table).result(20) == client.submit(inc, view.submit(add, 2, 3)).result(20) == 6
    assert (view.address, view.n_workers, repr(view)) == (client.address, client.n_workers, repr(client))
    copy = pickle.loads(pickle.dumps(view))
    plain = pickle.loads(pickle.dumps(client))
    assert parts_of(copy) == (parts_of(plain)[0], parts_of(view)[1])
    assert copy.submit(inc, 1).result(20) == 2
    shared_client(client.address, client._parts.serializer).disconnect()
    view.disconnect()
    assert client.closed
    with pytest.raises(ClientClosed):
        client.submit(inc, 1)


def test_a_message_that_is_interrupted_is_sent_first(client, monkeypatch):
    driver = parts_of(client)[0].driver
    before, sent = driver._line.connection, []
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in jobs in the background
    flush = driver._flush

    def interrupt():
        signal.raise_signal(signal.SIGINT)
        flush()
        sent.append(True)

    with driver.lock, monkeypatch.context() as patch:
        patch.setattr(driver, "_flush", interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                driver.tell()
        finally:
            signal.signal(signal.SIGINT, handler)
    assert sent
    assert client.submit(pow, 2, 3).result(20) == 8
    assert driver._line.connection is before


def test_what_a_task_changes_in_its_process_is_put_back_before_the_next(start_cluster):
    client = Client(start_cluster(1).address)

    def seen():
        mask = os.umask(0)
        os.umask(mask)
        handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)]
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return (
            os.getpid(), os.getcwd(), mask, handlers, blocked, signal.getitimer(signal.ITIMER_REAL)[0],
            type(sys.stdout).__name__, type(sys.stderr).__name__, dict(os.environ),
            sys.getrecursionlimit(), sys.gettrace(), sys.getprofile(), gc.isenabled(), callable(builtins.__import__),
        )  # fmt: skip

    def change_all(raises):
        os.chdir("/")
        os.umask(0o777)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, print)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        signal.setitimer(signal.ITIMER_REAL, 1000)
        sys.stdout = sys.stderr = io.StringIO()
        os.environ["NEW"] = "left behind"
        sys.setrecursionlimit(150)
        del os.environ["PATH"]
        gc.disable()
        sys.settrace(lambda *_: None)
        sys.setprofile(lambda *_: None)
        if raises:
            raise ValueError("on purpose")
        builtins.__import__ = None  # without which what it raised would arrive as text

    before = client.submit(seen).result()
    client.submit(change_all, False).result()
    assert client.submit(seen).result() == before
    with pytest.raises(ValueError, match="on purpose"):
        client.submit(change_all, True).result()
    assert client.submit(seen).result() == before
    client.disconnect()


def test_what_is_done_once_in_a_worker_lasts(start_cluster):
    def set_up():
        os.environ["SET"] = "up"
        os.chdir("/")

    cluster = start_cluster(1)
    with Executor(address=cluster.address, initializer=set_up) as pool:
        assert list(pool.map(lambda _: (os.environ.get("SET"), os.getcwd()), range(3))) == [("up", "/")] * 3
