"""Functions that came by value have the globals of their module in common, where they belong to one space."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from scaler.serialize import payload
from scaler.serialize.module_globals import InSpace, begin_in_space, enter, inside, space_here

_keys = map(str, itertools.count())


class Script:
    """Functions of a program, and what a worker has of them."""

    def __init__(self, text: str, name: str = "__main__") -> None:
        self.names: dict[str, Any] = {"__name__": name}
        self.key = next(_keys)
        exec(text, self.names)

    def arrived(self, name: str) -> InSpace:
        """Decode a function as what is to be called."""
        pickled = payload.dumps(self.names[name])
        brought = begin_in_space(self.key)
        made = Called(self.key, brought, payload.loads(pickled))
        enter(None)
        return made

    def initialize(self, name: str, *args: Any) -> None:
        """Call a function as an initializer."""
        made = self.arrived(name)
        enter(made)
        made.keep(made.brought)
        made(*args)


class Called(InSpace):
    def __init__(self, key: str, brought: Any, function: Any) -> None:
        super().__init__(key, brought)
        self.function = function

    def __call__(self, *args: Any) -> Any:
        self.enter()
        return self.function(*args)


@pytest.fixture(autouse=True)
def nothing_runs() -> Iterator[None]:
    yield
    enter(None)


def test_a_function_sees_what_another_one_of_its_module_has_bound() -> None:
    script = Script("x = 1\ndef f(): return x\ndef g(v):\n  global x\n  x = v")
    f, g = script.arrived("f"), script.arrived("g")
    assert f() == 1
    g(2)
    assert f() == script.arrived("f")() == 2


def test_modules_are_apart_and_so_are_spaces_and_what_is_in_none() -> None:
    text = "x = {0!r}\ndef f(): return x\ndef g(v):\n  global x\n  x = v"
    one, other = Script(text.format("one")), Script(text.format("other"))
    one.initialize("g", 2)
    assert (one.arrived("f")(), other.arrived("f")()) == (2, "other")
    other.names["__name__"], other.key = "elsewhere", one.key
    assert other.arrived("f")() == "other"
    enter(None)
    assert payload.loads(payload.dumps(one.names["f"]))() == "one"


def test_functions_that_are_defined_anew_are_those_of_the_call_but_not_those_that_an_initializer_has_bound() -> None:
    script = Script(
        "def used(): return 1\ndef bound(): return 1\ndef f(): return used(), bound()\n"
        "def init():\n  global bound\n  used()\n  def bound(): return 'bound'"
    )
    before = script.arrived("f")
    script.initialize("init")
    exec("def used(): return 2\ndef bound(): return 2", script.names)
    after = script.arrived("f")
    assert [each() for each in (before, after, before)] == [(1, "bound"), (2, "bound"), (1, "bound")]


def test_numbers_are_those_of_the_call_unless_they_were_bound() -> None:
    script = Script("limit, count = 1, 1\ndef f(): return limit, count\ndef init():\n  global count\n  count += limit")
    before = script.arrived("f")
    script.initialize("init")
    script.names.update(limit=5, count=5)
    after = script.arrived("f")
    assert [each() for each in (before, after, before)] == [(1, 2), (5, 2), (1, 2)]


def test_what_an_initializer_has_filled_is_there_for_all() -> None:
    script = Script("table = {}\ndef f(): return table\ndef init(): table['k'] = 1")
    before = script.arrived("f")
    script.initialize("init")
    assert before() is script.arrived("f")()
    assert before() == {"k": 1}


def test_functions_in_arguments_are_of_the_space_and_leave_what_the_function_that_runs_has() -> None:
    script = Script(
        "x = limit = 1\ndef f(g): return limit, g()\ndef g(): return x, limit\ndef init():\n  global x\n  x = 2"
    )
    f = script.arrived("f")
    script.initialize("init")
    script.names["limit"] = 3
    enter(f)
    assert f(payload.loads(payload.dumps(script.names["g"]))) == (1, (2, 1))


def test_a_function_inside_of_another_one_is_of_its_own_space() -> None:
    script = Script("x = 1\ndef f(): return x")
    f = script.arrived("f")
    enter(f)
    with inside():
        assert space_here() is None
        script.names["x"] = 2
        assert script.arrived("f")() == 2
    assert space_here() is f.space
    assert f.function() == 1


def test_cloudpickle_names_what_makes_functions_as_it_did() -> None:
    """Pickles of functions name these two, and so do those that a worker makes."""
    script = Script("def f(): return 1")
    before = payload.dumps(script.names["f"])
    script.arrived("f")
    assert payload.dumps(script.names["f"]) == before
    assert space_here() is None
