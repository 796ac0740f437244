"""Functions with a state of their own: each row has the one that was submitted, whatever other rows have done to it."""

import functools
import io
import itertools
import operator
import pickle
import random
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy
import pytest
from support.runner import CLIENT, Agent

from scaler.errors import FunctionNotFound, SerializationError
from scaler.extension import fresh_function
from scaler.protocol.messages import EACH, GRAPH, SPREAD, TOGETHER
from scaler.serialize import Serializer
from scaler.serialize.call import (
    decode_function,
    encode_call,
    encode_entries,
    encode_function,
    pack_entries,
    pack_function,
)
from scaler.serialize.entry import functions_of, with_keywords
from scaler.serialize.fresh_functions import FreshFunction, fresh, has_state, reopened
from scaler.worker import context, elsewhere


class Count:
    """Counts its calls."""

    def __init__(self, size: int = 1) -> None:
        self.calls = 0
        self.numbers = numpy.zeros(size)

    def run(self, by: int = 1) -> int:
        self.calls += by
        self.numbers[0] += by
        assert self.numbers[0] == self.calls
        return self.calls

    __call__ = run

    def __run(self, by: int) -> int:
        return self.run(by)

    def private(self) -> Callable[[int], int]:
        return self.__run


def grown(items: list[int], by: int) -> int:
    items.append(by)
    return len(items)


def grown_by(by: int, items: list[int]) -> int:
    return grown(items, by)


def script(source: str) -> dict[str, Any]:
    names = {"__name__": "__main__"}
    exec(source, names)
    return names


MADE: dict[str, Callable[[], Callable[[int], Any]]] = {
    "a method": lambda: Count().run,
    "a method with a private name": lambda: Count().private(),
    "an object": Count,
    "a partial with a list": lambda: functools.partial(grown, []),
    "a partial of a partial": lambda: functools.partial(functools.partial(grown, [])),
    "a partial with a list by name": lambda: functools.partial(grown_by, items=[1]),
    "a method of a script": lambda: script(
        "class C:\n  n = 0\n  def run(self, by):\n    self.n += by\n    return self.n\nrun = C().run"
    )["run"],
    "a partial of a function of a script": lambda: functools.partial(
        script("def f(items, by):\n  items.append(by)\n  return len(items)")["f"], []
    ),
    "a method of a class in a function": lambda: type("Count", (Count,), {"__module__": "__main__"})().run,
    "a builtin method": lambda: io.BytesIO(bytes(range(99))).read,
    "a generator of random numbers": lambda: random.Random(1).randrange,
}
FORMS = {"submit": (EACH, 0), "map": (TOGETHER, 0), "map of single items": (TOGETHER, SPREAD), "graph": (GRAPH, 0)}


class Plain(Serializer):
    """Writes everything by itself."""

    @staticmethod
    def serialize(obj: Any) -> bytes:
        return pickle.dumps(obj)

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        return pickle.loads(payload)


@pytest.fixture
def agent() -> Iterator[Agent]:
    yield Agent()
    context.uninstall()


def hand_out(agent: Agent, number: int, function: Any, rows: range, form: str, argument: Any) -> None:
    """Rows of one form, each with an argument."""
    code, flags = FORMS[form]
    if code == GRAPH:
        step = ("key", function, [argument], (), ())
        agent.hand_out(number, encode_entries([step] * rows.stop), rows, form=GRAPH)
    elif code == EACH:
        calls = [encode_call((argument,), {})] * len(rows)
        agent.hand_out(number, encode_function(function), rows, form=EACH, calls=calls)
    else:
        items = [argument if flags & SPREAD else (argument,)] * rows.stop
        agent.hand_out(number, encode_function(function), rows, arguments=items, flags=flags)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MADE)
def test_each_row_has_the_state_that_was_submitted(agent: Agent, name: str, form: str) -> None:
    hand_out(agent, 1, MADE[name](), range(4), form, 5)
    agent.run()
    assert agent.outcomes() == dict.fromkeys(range(4), MADE[name]()(5))


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_later_dispatches_have_it_too(agent: Agent, form: str) -> None:
    hand_out(agent, 1, Count().run, range(2), form, 3)
    hand_out(agent, 2, Count().run, range(2, 4), form, 3)
    agent.run()
    assert agent.outcomes() == dict.fromkeys(range(4), 3)


def padded(function: Any) -> tuple[Any, ...]:
    """An entry of 64 steps, the last of which calls a function."""
    return "key", None, [("first", abs, (5,), (), ()), *[("next", abs)] * 62, ("key", function)]


@pytest.mark.parametrize("entry_of", [lambda function: ("key", function, (5,), (), ()), padded], ids=["step", "steps"])
@pytest.mark.parametrize("name", MADE)
def test_it_has_it_however_many_steps_a_graph_has(
    agent: Agent, name: str, entry_of: Callable[[Any], tuple[Any, ...]]
) -> None:
    packed = pack_entries([("other", divmod), *[entry_of(MADE[name]())] * 6])
    assert (packed.inband[:1], packed.buffers) == (b"G", [])
    agent.hand_out(1, packed.inband, range(1, 5), form=GRAPH)
    agent.run()
    assert agent.outcomes() == dict.fromkeys(range(1, 5), MADE[name]()(5))


def test_all_functions_of_entries_are_found_once() -> None:
    one, two, three, four, five = (Count().run for _ in range(5))
    deep = (two, (None, [1]), (), ((0, (with_keywords, (three, ("by",), None), (), ((2, (one, (), (), ())),))),))
    entries = [
        ("a", one),
        ("b", None, [("c", one, (None,), (0, 0), ()), ("b", with_keywords, (four, ("by",), 2), (), ())], [(), (-1,)]),
        ("d", five, (None,), (), ((0, deep),)),
    ]
    found = functions_of(entries)
    assert {id(function) for function in found} == {*map(id, (one, two, three, four, five, with_keywords))}
    assert len(found) == 6


def test_a_function_of_a_graph_that_is_called_with_keywords_has_it_too(agent: Agent) -> None:
    run = Count().run
    steps = [("key", with_keywords, [run, ("by",), 2], (), ())] * 3
    agent.hand_out(1, encode_entries(steps), range(3), form=GRAPH)
    agent.run()
    assert agent.outcomes() == dict.fromkeys(range(3), 2)


def test_a_serializer_of_the_user_s_is_asked_for_each_row(agent: Agent) -> None:
    agent.hand_out(1, encode_function(Count().run, Plain), range(3), form=EACH,
                   calls=[encode_call((2,), {}, Plain)] * 3)  # fmt: skip
    steps = [("key", Count().run, [4], (), ())]
    agent.hand_out(2, encode_entries(steps * 6, Plain), range(3, 6), form=GRAPH, function_key=(CLIENT, 9))
    agent.run()
    assert agent.outcomes() == {**dict.fromkeys(range(3), 2), **dict.fromkeys(range(3, 6), 4)}


@pytest.mark.parametrize("form", FORMS)
def test_globals_and_classes_of_a_script_are_those_of_all_rows(agent: Agent, form: str) -> None:
    """A model is loaded once into a global, or kept on a class."""
    names = script(
        "LOADED = 0\nclass C:\n  rows = 0\n  def run(self, by):\n    C.rows += by\n    return C.rows\n"
        "def f(items, c, by):\n  global LOADED\n  LOADED += 1\n  items.append(by)\n"
        "  return len(items), LOADED, c.run(by)\n"
    )
    hand_out(agent, 1, functools.partial(names["f"], [], names["C"]()), range(3), form, 2)
    agent.run()
    assert agent.outcomes() == {row: (1, row + 1, 2 * row + 2) for row in range(3)}


class Unreadable:
    """Can't be unpickled when its turn comes."""

    errors: ClassVar[list[Exception | None]] = []

    def __call__(self, _: Any) -> str:
        return "read"

    def __setstate__(self, state: Any) -> None:
        if error := Unreadable.errors.pop(0):
            raise error

    def __getstate__(self) -> Any:
        return {"some": 1}


@pytest.mark.parametrize("form", FORMS)
def test_a_state_that_cannot_be_read_fails_its_row(agent: Agent, form: str) -> None:
    Unreadable.errors[:] = [None, ValueError("odd"), ModuleNotFoundError("no xyz", name="xyz"), None]
    hand_out(agent, 1, Unreadable(), range(4), form, 1)
    agent.run()
    outcomes = agent.outcomes()
    assert (outcomes[0], outcomes[3]) == ("read", "read")
    assert isinstance(outcomes[1], SerializationError)
    assert "ValueError: odd" in str(outcomes[1])
    assert isinstance(outcomes[2], FunctionNotFound)


def test_an_error_of_the_user_s_is_told_without_the_engine_s_frames(agent: Agent) -> None:
    hand_out(agent, 1, functools.partial(grown, {}), range(1), "submit", 1)
    agent.run()
    error = agent.outcomes()[0]
    assert isinstance(error, AttributeError)
    assert "serialize/fresh_functions" not in str(error.__cause__)


def test_a_function_that_runs_elsewhere_is_handed_over_as_the_user_has_it(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "_forward", lambda function, args, _: (type(function).__name__, function(*args)))
    hand_out(agent, 1, Count().run, range(2), "submit", 1)
    agent.run()
    assert agent.outcomes() == {0: ("method", 1), 1: ("method", 1)}


class Slotted:
    __slots__ = ("x",)

    def run(self) -> None:
        """Nothing."""


def shown(function: Any) -> str:
    """Its words without addresses, which differ from process to process."""
    return re.sub(r" at 0x\w+", "", repr(function))


@pytest.mark.parametrize(
    "function",
    [
        len, grown, Count, Count.run, dict.fromkeys, list.append, "abc".upper, re.compile("a").match, numpy.sin,
        functools.lru_cache(grown), operator.itemgetter(1), int.from_bytes,
        functools.partial(grown, 1, by="x"), functools.partial(grown, (1, (2.0, None))), functools.partial(map, grown),
    ],
    ids=shown,
)  # fmt: skip
def test_what_has_no_state_travels_as_it_is(function: Any) -> None:
    assert not has_state(function)
    assert fresh(function) is function


@pytest.mark.parametrize(
    "function",
    [
        Count().run, Count(), [1].pop, functools.partial(grown, []), functools.partial(grown, ([],)), Slotted().run,
        functools.partial(Count().run, 1), itertools.count().__next__, io.BytesIO(b"a").read,
    ],
    ids=shown,
)  # fmt: skip
def test_what_has_a_state_is_made_anew(function: Any) -> None:
    assert isinstance(fresh(function), FreshFunction)
    made = fresh_function(function)
    assert isinstance(made, FreshFunction)
    assert type(made.made()) is type(function)


def test_who_has_no_state_is_not_made_anew() -> None:
    assert fresh_function(len) is len


def test_a_state_that_cannot_be_pickled_is_told_as_that_of_any_function() -> None:
    with pytest.raises(SerializationError, match="lock"):
        encode_function(functools.partial(grown, [threading.Lock()]))


def test_large_buffers_stay_where_they_are_and_are_opened_for_each_row() -> None:
    function = Count(100_000).run
    packed = pack_function(function)
    assert [buffer.nbytes for buffer in packed.buffers] == [800_000]
    assert len(packed.inband) < 2_000
    opened: list[list[memoryview]] = []

    def open_them() -> list[memoryview]:
        opened.append([memoryview(bytearray(buffer)) for buffer in packed.buffers])
        return opened[-1]

    buffers = open_them()
    with reopened(buffers, open_them):
        there, _ = decode_function(packed.inband, buffers)
    assert [there(), there(), there(2)] == [1, 1, 2]
    assert len(opened) == 4
    alone, _ = decode_function(packed.inband, [bytearray(buffer) for buffer in packed.buffers])
    assert [alone(), alone()] == [1, 1]
    whole, _ = decode_function(encode_function(function))
    assert [whole(), whole()] == [1, 1]
