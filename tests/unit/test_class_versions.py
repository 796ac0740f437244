"""Classes of a script that change while tasks are queued: each row finds them as they were when it was submitted."""

import gc
import itertools
import operator
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.elsewhere import Elsewhere
from support.runner import CLIENT, Agent

from scaler.extension import forget_run, run_once
from scaler.protocol.messages import EACH, GRAPH, TOGETHER
from scaler.serialize import payload
from scaler.serialize.call import Slot, encode_call, encode_entries
from scaler.serialize.function import FunctionCache
from scaler.worker import context


class Script:
    """A program whose tasks a worker of its own runs, when all of them are queued."""

    def __init__(self, source: str) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.run(source)
        self._functions = FunctionCache()
        self._agent = Agent()
        self._elsewhere = Elsewhere()
        self._sent: set[int] = set()
        self._numbers = itertools.count(1)
        #: what hands out each row, in the order in which they were submitted
        self._queued: list[Callable[[], None]] = []
        self._objects = itertools.count(1 << 20)

    def run(self, source: str) -> None:
        exec(source, self.names)

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    def submit(self, function: Any, *args: Any, refs: tuple[tuple[tuple[int, int], bytes], ...] = ()) -> int:
        """Queue a row; references stand before other arguments. Returns its number."""
        call = encode_call((*map(Slot, range(len(refs))), *args), {})
        return self._queue(
            self._functions.capture(function), form=EACH, calls=[call], deps=[[(key, -1) for key, _ in refs]],
            objects=refs,
        )  # fmt: skip

    def map(self, function: Any, *args: Any) -> int:
        """Queue a map of one row. Returns its number."""
        number = self._queue(self._functions.capture(function), form=TOGETHER, rows=1, arguments=[args])
        return number

    def scatter(self, value: Any) -> tuple[tuple[int, int], bytes]:
        return (CLIENT, next(self._objects)), payload.dumps(value)

    def compute(self, entries: list[tuple[Any, ...]], refs: list[Any]) -> int:
        """Queue a graph of one row."""
        payload, key = encode_entries(entries), next(self._objects)
        captured = types.SimpleNamespace(payload=payload, token=key)
        return self._queue(captured, form=GRAPH, deps=[[(key, -1) for key, _ in refs]], objects=tuple(refs))

    def _queue(self, captured: Any, rows: int = 1, arguments: Any = None, **more: Any) -> int:
        number = next(self._numbers)
        key = (CLIENT, captured.token)
        if arguments is not None:
            place = (CLIENT, next(self._objects))
            more["objects"] = ((place, payload.dumps([()] * number + arguments)),)
            more["arguments_key"] = place

        def hand_out(dispatch: int) -> None:
            function = None if captured.token in self._sent else captured.payload
            self._sent.add(captured.token)
            self._agent.hand_out(dispatch, function, range(number, number + 1), function_key=key, **more)

        self._queued.append(hand_out)
        return number

    def finish(self, order: Callable[[list[Any]], None] = lambda _: None) -> dict[int, Any]:
        """Have the worker run what is queued; what it gives by number."""
        queued, self._queued = self._queued, []
        order(queued)
        with self._elsewhere.inside():
            for dispatch, hand_out in enumerate(queued, 1):
                hand_out(dispatch)
            self._agent.run()
        return self._agent.outcomes()

    def drop_functions(self) -> None:
        """Have the worker, which has nothing to do, forget all functions that it was given."""
        inputs = self._agent.runner._inputs
        with self._elsewhere.inside():
            inputs.settle()
            inputs.drop([(CLIENT, token) for token in self._sent])
        self._sent.clear()

    def classes_there(self) -> list[type]:
        """Those of the script that the worker has."""
        return list(self._elsewhere.states._present)


@pytest.fixture(autouse=True)
def no_worker() -> Iterator[None]:
    yield
    context.uninstall()


ORDERS: dict[str, Callable[[list[Any]], None]] = {
    "in order": lambda queued: None,
    "the last one first": lambda queued: queued.reverse(),
    "at random": random.Random(3).shuffle,
}
CHANGES = {
    "an attribute": ("class C: rate = 1\ndef f(): return C.rate", ["C.rate = 2", "C.rate = 1"]),
    "an attribute that goes and comes": (
        "class C: rate = 1\ndef f(): return getattr(C, 'rate', None), getattr(C, 'more', None)",
        ["del C.rate", "C.more = 3", "C.rate = 1", "del C.more"],
    ),
    "what a list of it has": (
        "class C: rates = [1]\ndef f(): return sum(C.rates)", ["C.rates.append(2)", "C.rates.pop()"],
    ),
    "more than is looked into": (
        "class C: rates = [1] * 5000\ndef f(): return sum(C.rates)", ["C.rates[2500] = 2", "C.rates[2500] = 1"],
    ),
    "an array": (
        "import numpy as np\nclass C: rates = np.ones(5)\ndef f(): return float(C.rates.sum())",
        ["C.rates[2] = 2", "C.rates[2] = 1"],
    ),
    "a method": (
        "class C:\n  def m(self): return 1\ndef f(): return C().m()",
        ["def m(self): return 2\nC.m = m", "C.m = lambda self: 3"],
    ),
    "a property, a class method, a static method": (
        "class C:\n  @property\n  def p(self): return 1\n  @classmethod\n  def c(cls): return 1\n"
        "  @staticmethod\n  def s(): return 1\ndef f(): return C().p, C.c(), C.s()",
        ["C.p = property(lambda self: 2)", "C.c = classmethod(lambda cls: 2)", "C.s = staticmethod(lambda: 2)"],
    ),
    "a global of a method": (
        "X = 1\nclass C:\n  def m(self): return X\ndef f(): return C().m()", ["X = 2", "X = 3", "X = 1"],
    ),
    "the class by another": (
        "class C: rate = 1\nc = C()\ndef f(): return C.rate, type(c).rate, isinstance(c, C)",
        ["class C: rate = 2", "c = C()", "C.rate = 3"],
    ),
    "a class inside": (
        "class C:\n  class D: rate = 1\n  def m(self): return self.D.rate\ndef f(): return C().m()",
        ["C.D.rate = 2", "class D: rate = 3\nC.D = D", "C.D.rate = 4"],
    ),
    "a base and what derives from it": (
        "class B: one, two = 1, 1\nclass C(B): two = 2\ndef f(): return C.one, C.two, B.two, issubclass(C, B)",
        ["B.one = 3", "B.two = 4; C.two = 5", "del C.two", "C.two = 6; B.one = 1"],
    ),
    "an enumeration": (
        "import enum\nclass E(enum.Enum):\n  A = 1\n  B = 2\nE.rate = 1\n"
        "def f(): return E.rate, [each.name for each in E], E(2) is E.B",
        ["E.rate = 2", "E.rate = 1"],
    ),
    "a dataclass": (
        "from dataclasses import dataclass, fields\n@dataclass\nclass C:\n  x: int = 1\n  rate = 1\n"
        "  def m(self): return self.x * self.rate\ndef f(): return C(3).m(), len(fields(C)), C() == C(1)",
        ["C.rate = 2", "C.m = lambda self: -1", "C.rate = 3"],
    ),
    "a class with slots": (
        "class C:\n  __slots__ = ('x',)\n  rate = 1\nc = C()\nc.x = 5\ndef f(): return c.x * c.rate",
        ["C.rate = 2", "C.rate = 3"],
    ),
    "an abstract class": (
        "import abc\nclass B(abc.ABC):\n  rate = 1\n  @abc.abstractmethod\n  def m(self): ...\n"
        "class C(B):\n  def m(self): return self.rate\ndef f(): return C().m(), isinstance(C(), B)",
        ["B.rate = 2", "C.m = lambda self: 3", "B.rate = 4"],
    ),
    "its metaclass": (
        "class M(type):\n  rate = 1\n  def m(cls): return cls.rate\nclass C(metaclass=M): pass\ndef f(): return C.m()",
        ["M.rate = 2", "C.rate = 3", "del C.rate"],
    ),
    "what was patched for a while": (
        "from unittest import mock\nclass C: rate = 1\ndef f(): return C.rate",
        ["patch = mock.patch.object(C, 'rate', 2); patch.start()", "patch.stop()"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize(("source", "changes"), CHANGES.values(), ids=CHANGES)
def test_each_row_finds_the_class_as_it_was_when_it_was_submitted(
    source: str, changes: list[str], order: Callable[[list[Any]], None]
) -> None:
    script = Script(source)
    expected = {}
    for change in ["", *changes, *changes[:1]]:
        script.run(change)
        for _ in range(3):
            expected[script.submit(script["f"])] = script["f"]()
    assert script.finish(order) == expected
    assert len(set(map(repr, expected.values()))) > 1


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_what_another_function_brought_and_has_changed_back_is_as_it_was(order: Callable[[list[Any]], None]) -> None:
    script = Script("class C: rate = 1\ndef f(): return C.rate\ndef g(): return -C.rate")
    expected = {script.submit(script["f"]): 1}
    script["C"].rate = 2
    expected[script.submit(script["g"])] = -2
    script["C"].rate = 1
    expected[script.submit(script["f"])] = 1
    assert script.finish(order) == expected


@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("source", ["def f(c): return c.rate", "def f(c): return C.rate, c.rate, isinstance(c, C)"])
def test_arguments_are_of_the_class_as_it_was(source: str, order: Callable[[list[Any]], None], is_mapped: bool) -> None:
    script = Script(f"class C: rate = 1\n{source}")
    submit = script.map if is_mapped else script.submit
    expected = {}
    for rate in (1, 2, 2, 1, 3):
        script["C"].rate = rate
        expected[submit(script["f"], script["C"]())] = script["f"](script["C"]())
        expected[submit(operator.attrgetter("rate"), script["C"]())] = rate
    assert script.finish(order) == expected


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_value_that_was_scattered_before_a_change_is_of_the_class_as_the_function_has_it(
    order: Callable[[list[Any]], None],
) -> None:
    script = Script("class C: rate = 1\ndef f(c, d): return c.x, c.rate, C.rate, isinstance(c, C), type(c) is type(d)")
    held = script["C"]()
    held.x = 7
    ref = script.scatter(held)
    expected = {}
    for rate in (1, 2, 1, 3):
        script["C"].rate = rate
        for _ in range(2):
            expected[script.submit(script["f"], script["C"](), refs=(ref,))] = (7, rate, rate, True, True)
    assert script.finish(order) == expected


def test_what_rows_of_graphs_share_is_of_the_class_as_it_came() -> None:
    script = Script("class C: rate = 1")
    expected, refs = {}, []
    for rate in (1, 2):
        script["C"].rate = rate
        refs.append(script.scatter(script["C"]()))
    for number in range(6):
        row = script.compute([("key", operator.attrgetter("rate"))] * 7, refs[number % 2 :][:1])
        expected[row] = number % 2 + 1
    assert script.finish() == expected


def test_results_are_of_the_program_s_own_class_whichever_version_it_was() -> None:
    script = Script("class C:\n  rate = 1\n  def __init__(self): self.seen = self.rate\ndef f(): return C()")
    rows = []
    for rate in (1, 2, 1):
        script["C"].rate = rate
        rows.append(script.submit(script["f"]))
    script["C"].rate = 9
    outcomes = script.finish()
    assert [type(outcomes[row]) for row in rows] == [script["C"]] * 3
    assert [(outcomes[row].seen, outcomes[row].rate) for row in rows] == [(1, 9), (2, 9), (1, 9)]


def test_methods_see_the_globals_of_the_function_that_runs() -> None:
    script = Script(
        "N = 0\nclass C:\n  def add(self):\n    global N\n    N += 1\n"
        "def f():\n  C().add()\n  return 'f', N\ndef g():\n  C().add()\n  return 'g', N"
    )
    rows = [script.submit(script[name]) for name in "fggffg"]
    outcomes = script.finish()
    assert [outcomes[row] for row in rows] == [("f", 1), ("g", 1), ("g", 2), ("f", 2), ("f", 3), ("g", 3)]


def test_what_tasks_keep_on_a_class_lasts_from_one_function_to_another_as_long_as_it_is_the_same() -> None:
    """Some load a model when it is first used, which takes long and much memory."""
    script = Script(
        "class Model:\n  path, loaded = 'a', None\n  @classmethod\n  def get(cls):\n"
        "    if cls.loaded is None: cls.loaded = [cls.path]\n    return cls.loaded\n"
        "def f(): return id(Model.get()), *Model.get()\ndef g(): return id(Model.get()), *Model.get()"
    )
    same = [script.submit(script[name]) for name in "fgfg"]
    script["Model"].path = "b"
    other = script.submit(script["f"])
    outcomes = script.finish()
    assert len({outcomes[row] for row in same}) == 1
    assert [outcomes[same[0]][1], outcomes[other][1]] == ["a", "b"]


@pytest.mark.parametrize("given", ["x", "[x, double]"], ids=["an object", "an object and a function"])
def test_what_tasks_keep_on_a_class_lasts_though_arguments_bring_it(given: str) -> None:
    script = Script(
        "class Sum:\n  total = 0\n  def add(self):\n    Sum.total += 1\n    return Sum.total\n"
        f"x = Sum()\ndef double(n): return 2 * n\ngiven = {given}\n"
        "def f(given): return (given if type(given) is not list else given[0]).add()\ndef g(given): return f(given)"
    )
    rows = [script.submit(script[name], script["given"]) for name in "fgfg"]
    outcomes = script.finish()
    assert [outcomes[row] for row in rows] == [1, 2, 3, 4]


def test_a_method_that_a_task_has_replaced_stays_replaced() -> None:
    script = Script(
        "class C:\n  def m(self): return 1\ndef f(): return C().m()\ndef h(): return C().m()\n"
        "def g():\n  C.m = lambda self: 2\n"
    )
    rows = [script.submit(script[name]) for name in "fgffh"]
    outcomes = script.finish()
    assert [outcomes[row] for row in rows] == [1, None, 2, 2, 2]


def test_a_class_that_is_used_no_more_is_let_go() -> None:
    script = Script("class C:\n  def m(self): return 1\ndef f(): return C().m()")
    row = script.submit(script["f"])
    assert script.finish()[row] == 1
    script.drop_functions()
    gc.collect()
    assert not script.classes_there()


def test_what_a_task_has_kept_on_a_class_is_there_for_what_is_decoded_later() -> None:
    script = Script(
        "class C:\n  model = None\ndef keep(): C.model = 'loaded'\n"
        "def seen(): return C.model\ndef taken(c): return c.model"
    )
    rows = [script.submit(script[name]) for name in ("keep", "seen")] + [script.submit(script["taken"], script["C"]())]
    outcomes = script.finish()
    assert [outcomes[row] for row in rows] == [None, "loaded", "loaded"]


def initialized(initializer: bytes, function: Any, *args: Any) -> Any:
    run_once("key", lambda: payload.loads(initializer)())
    return function(*args)


@pytest.mark.parametrize("is_changed", [False, True])
def test_what_an_initializer_brings_does_not_turn_the_class_back(is_changed: bool) -> None:
    script = Script(
        "class C:\n  rate, model, more = 1, None, 1\n"
        "def f(c): return c.rate, c.model, getattr(c, 'more', 0), C.found\n"
        "def initialize(): C.model, C.found = 'loaded', C.rate"
    )
    initializer = payload.dumps(script["initialize"])
    if is_changed:
        script["C"].rate = 2
        del script["C"].more
    row = script.submit(initialized, initializer, script["f"], script["C"]())
    try:
        assert script.finish()[row] == ((2, None, 0, 1) if is_changed else (1, "loaded", 1, 1))
    finally:
        forget_run("key")
