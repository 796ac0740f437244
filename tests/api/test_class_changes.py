"""A script changes its classes while tasks that use them are queued: each is what it was at its submit."""

import operator
import random

import pytest
from support.waiting import until

from scaler import Executor

SOURCE = """
class Base:
    rate = 0
class C(Base):
    def __init__(self, x): self.x = x
    def value(self): return self.x, self.rate
def use(x): return C(x).value()
def use_other(x): return [C.rate, *C(x).value()]
def take(c): return isinstance(c, C), c.value()
def make(x): return C(x)
"""


@pytest.fixture
def script():
    names = {"__name__": "__main__"}
    exec(SOURCE, names)
    return names


@pytest.fixture
def hold(client, tmp_path):
    """Has the only worker wait; returns what lets it go on."""
    began, end = tmp_path / "began", tmp_path / "end"

    def wait():
        import time

        began.touch()
        while not end.exists():
            time.sleep(0.01)

    waiting = client.with_options(priority=100).submit(wait)
    until(began.exists, "the worker to be busy")
    yield end.touch
    end.touch()
    waiting.result(20)


@pytest.fixture
def client(start_cluster, connect):
    return connect(start_cluster(1))


def test_rows_that_are_queued_find_their_class_as_it_was(client, hold, script):
    chance, expected = random.Random(1), []
    held = client.send_object(script["C"](7))
    for row in range(200):
        script["Base"].rate = chance.choice([1, 2, 3])
        urgent = client.with_options(priority=chance.choice([0, 0, 1]))
        name = chance.choice(["use", "use_other", "take", "held", "by name"])
        rate = script["Base"].rate
        if name in ("use", "use_other"):
            expected.append((urgent.submit(script[name], row), script[name](row)))
        elif name == "take":
            expected.append((urgent.submit(script["take"], script["C"](row)), (True, (row, rate))))
        elif name == "held":
            expected.append((urgent.submit(script["take"], held), (True, (7, rate))))
        else:
            expected.append((urgent.submit(operator.methodcaller("value"), script["C"](row)), (row, rate)))
    hold()
    assert [future.result(60) for future, _ in expected] == [wanted for _, wanted in expected]


def test_instances_pass_from_task_to_task_and_come_back_whatever_has_changed(client, hold, script):
    made, taken = [], []
    for rate in (1, 2, 1, 3):
        script["C"].rate = rate
        made.append(client.submit(script["make"], rate))
        taken.append(client.submit(script["take"], made[-1]))
    hold()
    assert [type(each.result(20)) for each in made] == [script["C"]] * 4
    assert [each.result(20) for each in taken] == [(True, (rate, rate)) for rate in (1, 2, 1, 3)]


def test_graphs_that_are_queued_find_their_class_as_it_was(client, hold, script):
    results = []
    for rate in (1, 2, 1, 3):
        script["C"].rate = rate
        graph = {"made": (script["make"], 5), "taken": (script["take"], "made")}
        results.append(client.get(graph, ["taken", "made"], block=False))
    hold()
    for rate, found in zip((1, 2, 1, 3), results, strict=True):
        taken, made = (found[key].result(20) for key in ("taken", "made"))
        assert taken == (True, (5, rate))
        assert type(made) is script["C"]


def test_calls_of_an_executor_that_are_queued_find_their_class_as_it_was(start_cluster, script):
    with Executor(address=start_cluster(1).address, initializer=script["use"], initargs=(1,)) as executor:
        expected = []
        for rate in (1, 2, 1, 3) * 5:
            script["C"].rate = rate
            expected.append((executor.submit(script["use"], rate), (rate, rate)))
            expected.append((executor.submit(script["take"], script["C"](rate)), (True, (rate, rate))))
        assert [call.result(20) for call, _ in expected] == [wanted for _, wanted in expected]


def test_maps_of_an_executor_that_are_queued_find_their_class_as_it_was(start_cluster, script):
    with Executor(address=start_cluster(1).address) as executor:
        maps = []
        for rate in (1, 2, 1, 3) * 3:
            script["C"].rate = rate
            items = [script["C"](x) for x in range(5)]
            maps.append((executor.map(script["take"], items, chunksize=2), [(True, (x, rate)) for x in range(5)]))
            maps.append((executor.map(script["use"], range(5)), [(x, rate) for x in range(5)]))
        for found, wanted in maps:
            assert list(found) == wanted


def test_rows_that_a_task_runs_while_it_waits_for_them_find_their_class_as_it_was(client, script):
    exec(
        "def outer(rates):\n"
        "  import operator\n  from scaler import Client\n  client, futures = Client(), []\n"
        "  for rate in rates:\n"
        "    C.rate = rate\n"
        "    futures.append(client.submit(operator.methodcaller('value'), C(rate)))\n"
        "  C.rate, C.more = 9, 10\n"
        "  return [future.result() for future in futures], C.rate, C.more\n",
        script,
    )
    assert client.submit(script["outer"], [1, 2, 3]).result(20) == ([(1, 1), (2, 2), (3, 3)], 9, 10)
