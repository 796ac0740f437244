"""What users may rely on when they submit graphs."""

import operator
import os
import time
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path

import pytest

DEADLINE = 20


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
    from scaler import Client

    def build(n):
        graph = {("leaf", i): (inc, i) for i in range(n)}
        graph["sum"] = (sum, list(graph))
        with Client() as inner:
            return inner.get(graph, ["sum"])["sum"]

    graph = {"n": 10, "total": (build, "n"), "more": (inc, "total")}
    assert client.get(graph, ["more"]) == {"more": 56}


def test_missing_keys_and_cycles_are_named_before_anything_runs(client, tmp_path):
    from scaler import CycleError

    log = str(tmp_path / "log")
    graph = {"first": (note, log, "A"), "b": (note, log, "B", "c"), "c": (note, log, "C", "b", "first")}
    with pytest.raises(CycleError, match="b -> c -> b"):
        client.get(graph, ["b"])
    with pytest.raises(KeyError, match="nowhere"):
        client.get(graph, ["first", "nowhere"])
    assert not os.path.exists(log)
