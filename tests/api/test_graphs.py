"""What users may rely on when they submit graphs."""

import operator
import os
import time
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path

import numpy
import pytest
from support.serializers import Prefixed

from scaler import Client
from scaler.extension import serializer_of

DEADLINE = 20

WITH_SERIALIZERS = True


def inc(x):
    return x + 1


def refuse(x):
    raise LookupError(f"no {x}")


def note(path, name, *_):
    """Write down that this ran."""
    with open(path, "a") as file:
        file.write(f"{name}\n")
    return name


def when_there(path, value):
    """Return the value once a file is there."""
    deadline = time.monotonic() + DEADLINE
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(path)
        time.sleep(0.005)
    return value


def test_only_what_is_needed_runs(client, tmp_path):
    log = str(tmp_path / "log")
    graph = {"a": (note, log, "A"), "b": (note, log, "B", "a"), "aside": (note, log, "C"), "broken": (refuse, "b")}
    assert client.get(graph, ["b"]) == {"b": "B"}
    assert Path(log).read_text().split() == ["A", "B"]


def test_what_depends_on_a_failure_fails_with_it_and_the_rest_goes_on(client):
    graph = {"x": 1, "bad": (refuse, "x"), "after": (inc, "bad"), "later": (operator.add, "after", "good")}
    graph |= {"good": (inc, "x"), "better": (inc, "good")}
    futures = dict(zip(graph, client.submit_graph(graph, list(graph)), strict=True))
    for key in ("bad", "after", "later"):
        with pytest.raises(LookupError, match="no 1") as caught:
            futures[key].result(DEADLINE)
        assert "while computing 'bad'" in caught.value.__notes__
    assert [futures[key].result(DEADLINE) for key in ("x", "good", "better")] == [1, 2, 3]


def test_in_a_large_graph_too(client):
    groups, size = 100, 20
    graph = {("leaf", g, i): (refuse if (g, i) == (7, 11) else inc, i) for g in range(groups) for i in range(size)}
    graph |= {("sum", g): (sum, [("leaf", g, i) for i in range(size)]) for g in range(groups)}
    graph |= {("pair", g): (operator.add, ("sum", g), ("sum", g + 1)) for g in range(groups - 1)}
    futures = client.submit_graph(graph, [("pair", g) for g in range(groups - 1)])
    for g, future in enumerate(futures):
        if g in (6, 7):
            with pytest.raises(LookupError, match="no 11"):
                future.result(DEADLINE)
        else:
            assert future.result(DEADLINE) == 2 * sum(range(1, size + 1))


def test_results_come_as_they_are_made(client, tmp_path):
    steps = [str(tmp_path / f"step{i}") for i in range(4)]
    graph = {("part", i): (when_there, path, i) for i, path in enumerate(steps)}
    graph["all"] = (sum, list(graph))
    *parts, everything = client.submit_graph(graph, list(graph))
    for i in (0, 1):  # two workers, two rows that wait for one file each
        open(steps[i], "w").close()
        assert parts[i].result(DEADLINE) == i
        assert not everything.done()
    open(steps[3], "w").close()
    done, waiting = wait(parts[2:], DEADLINE, FIRST_COMPLETED)
    assert (done, waiting) == ({parts[3]}, {parts[2]})
    open(steps[2], "w").close()
    assert everything.result(DEADLINE) == 6


def test_a_task_builds_a_graph_and_runs_it(cluster, client):
    def build(n):
        graph = {("leaf", i): (inc, i) for i in range(n)}
        graph["sum"] = (sum, list(graph))
        with Client() as inner:
            return inner.get(graph, ["sum"])["sum"]

    graph = {"n": 10, "total": (build, "n"), "more": (inc, "total")}
    assert client.get(graph, ["more"]) == {"more": 56}


def test_a_client_made_in_a_task_has_the_serializer_of_the_tasks_client(client, serializer):
    def look(inner):
        with Client() as made:
            one = made.submit(operator.mul, 2, 3)
            (two,) = made.submit_graph({"a": one, "b": (operator.add, "a", 1)}, ["b"])
            return [kind and kind.__name__ for kind in map(serializer_of, (made, inner))], two.result(DEADLINE)

    name = serializer and serializer.__name__
    assert client.submit(look, client).result(DEADLINE) == ([name, name], 7)
    assert client.get({"seen": (look, client)}, ["seen"]) == {"seen": ([name, name], 7)}
    assert client.submit(lambda: client.submit(look, client).result()).result(DEADLINE) == ([name, name], 7)


def test_a_client_of_another_kind_stays_what_it_is_in_a_task(client, cluster):
    def look(other):
        kind = serializer_of(other)
        return kind and kind.__name__, other.submit(inc, 1).result()

    for kind, name in ((None, None), (Prefixed, "Prefixed")):
        with Client(cluster.address, serializer=kind) as other:
            assert client.submit(look, other).result(DEADLINE) == (name, 2)


def test_large_values_of_all_kinds_are_in_graphs(client):
    array, factor = numpy.arange(100_000), bytes(200_000)
    sent = client.send_object(array)
    graph = {
        "constant": array, "sum": (numpy.sum, "constant"), "inside": (numpy.sum, array), "again": (numpy.sum, sent),
        "closure": (lambda x: x + len(factor), "sum"), "made": (numpy.negative, "constant"), "end": (numpy.sum, "made"),
        "listed": (sum, [(len, array), "sum", 1]), ("text", 1): "x" * 150_000, "length": (len, ("text", 1)),
    }  # fmt: skip
    total = int(array.sum())
    assert client.get(graph, ["sum", "inside", "again", "closure", "end", "listed", "length"]) == {
        "sum": total, "inside": total, "again": total, "closure": total + 200_000, "end": -total,
        "listed": 100_000 + total + 1, "length": 150_000,
    }  # fmt: skip
    made, constant = client.submit_graph(graph, ["made", "constant"])
    assert (made.result(DEADLINE) == -array).all()
    assert (constant.result(DEADLINE) == array).all()


def test_missing_keys_and_cycles_are_named_before_anything_runs(client, tmp_path):
    from scaler import CycleError

    log = str(tmp_path / "log")
    graph = {"first": (note, log, "A"), "b": (note, log, "B", "c"), "c": (note, log, "C", "b", "first")}
    with pytest.raises(CycleError, match="b -> c -> b"):
        client.get(graph, ["b"])
    with pytest.raises(KeyError, match="nowhere"):
        client.get(graph, ["first", "nowhere"])
    assert not os.path.exists(log)


def test_the_calls_of_a_chain_are_tried_again_one_by_one(client, tmp_path):
    """So they have each the time of a timeout, too."""
    log = tmp_path / "log"

    def first(log=log):
        with log.open("a") as file:
            file.write("first ")

    def second(_, log=log):
        with log.open("a") as file:
            file.write("second ")
        if log.read_text().count("second") == 1:
            raise OSError("not yet")

    client.with_options(retries=1).get({"a": (first,), "b": (second, "a"), "c": (type, "b")}, "c")
    assert log.read_text() == "first second second "
