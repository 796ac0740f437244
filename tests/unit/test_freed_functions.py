"""What a client keeps of functions that were submitted: nothing that only they have, and so many bytes in all."""

from __future__ import annotations

import functools
import gc
import types
import weakref
from typing import Any
from unittest.mock import Mock

import pytest

from scaler.client.core.options import Options
from scaler.client.core.task_template import TaskTemplate
from scaler.client.liveness import Liveness
from scaler.client.submitting import templates
from scaler.client.submitting.templates import Templates
from scaler.serialize import function as capturing
from scaler.serialize.call import decode_function
from scaler.serialize.function import FunctionCache
from scaler.serialize.recent import Recent


class Held:
    """A list that can be seen to go."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)


@pytest.fixture
def cache() -> FunctionCache:
    return FunctionCache(large=1 << 17)


def closure(held: Held) -> Any:
    return lambda: len(held)


def wrapped(held: Held) -> Any:
    @functools.wraps(closure)
    def function() -> int:
        return len(held)

    return function


def part(held: Held) -> Any:
    return functools.partial(closure(held))


def method(held: Held) -> Any:
    class Model:
        def predict(self) -> int:
            return len(self.held)

    model: Any = Model()
    model.held = held
    return model.predict


def recursive(held: Held) -> Any:
    def function(deep: bool = False) -> int:
        return len(held) if deep else function(True)

    return function


def owned(held: Held) -> Any:
    owner = types.SimpleNamespace(held=held)
    owner.function = lambda: len(owner.held)
    return owner.function


@pytest.mark.parametrize("items", [10, 50_000])
@pytest.mark.parametrize("made", [closure, wrapped, part, method])
def test_what_only_a_function_has_goes_with_it(cache: FunctionCache, made: Any, items: int) -> None:
    """The list travels; a function with 50,000 items is pickled each time, one with 10 is watched."""
    held = Held([1] * items)
    function, gone = made(held), weakref.ref(held)
    cache.capture(function)
    cache.capture(function)
    del held, function
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("made", [recursive, owned])
def test_of_functions_that_what_they_take_along_leads_back_to_a_few_stay(cache: FunctionCache, made: Any) -> None:
    gone = []
    for number in range(2 * capturing.FEW):
        held = Held([number])
        cache.capture(made(held))
        gone.append(weakref.ref(held))
    del held
    gc.collect()
    assert sum(each() is not None for each in gone) <= capturing.FEW


def test_functions_of_programs_that_were_run_by_exec_go_but_for_a_few(cache: FunctionCache) -> None:
    gone = []
    for number in range(2 * capturing.FEW):
        names = {"__name__": "__main__"}
        exec(f"N = {number}\ndef f(): return N", names)
        cache.capture(names["f"])
        gone.append(weakref.ref(names["f"]))
    del names
    gc.collect()
    assert sum(each() is not None for each in gone) <= capturing.FEW


def test_a_function_in_the_place_of_one_that_has_died_is_not_taken_for_it(cache: FunctionCache) -> None:
    ids, reused = set(), 0
    for number in range(200):
        function = (lambda value: lambda: value)(number)
        reused += id(function) in ids
        ids.add(id(function))
        assert decode_function(cache.capture(function).payload)[0]() == number
        del function
    assert reused > 0, "the test has seen nothing"


def test_a_function_with_attributes_is_recognised_and_seen_to_change(cache: FunctionCache, monkeypatch: Any) -> None:
    function = wrapped(Held([1]))
    function.__wrapped__ = None
    before = cache.capture(function)
    function.__defaults__ = (1,)
    after = cache.capture(function)
    assert after is not before
    function.__dict__["__wrapped__"] = len
    assert cache.capture(function) is not after
    known = cache.capture(function)
    monkeypatch.setattr(cache, "_capture_anew", None)
    assert cache.capture(function) is known


def test_payloads_are_kept_up_to_so_many_bytes(cache: FunctionCache) -> None:
    size = 100_000
    functions = [functools.partial(len, f"{number:0{size}}") for number in range(400)]
    for function in functions:
        cache.capture(function)
    kept = [*cache._captured.fresh.values(), *cache._captured._stale.values()]
    assert 0 < sum(len(one.payload) for one in kept) <= 2 * capturing.PAYLOAD_BYTES
    watched = [*cache._known.fresh.values(), *cache._known._stale.values()]
    assert 0 < sum(len(one.captured.payload) for one in watched) <= 2 * capturing.WATCHED_BYTES


def test_entries_are_weighed_and_those_used_stay() -> None:
    recent: Recent[int, bytes] = Recent(100, 10, len)
    recent.put(0, b"4444")
    for number in range(1, 30):
        recent.put(number, b"333")
        assert recent.get(0) == b"4444"
    assert sum(map(len, recent.fresh.values())) <= 10
    assert recent.get(1) is None


def test_an_entry_larger_than_all_is_kept_by_itself() -> None:
    recent: Recent[int, bytes] = Recent(100, 10, len)
    recent.put(1, b"1" * 50)
    recent.put(2, b"2" * 50)
    recent.put(3, b"3" * 50)
    assert recent.get(3) == b"3" * 50
    assert recent.get(1) is None


def test_what_is_forgotten_weighs_nothing() -> None:
    recent: Recent[int, bytes] = Recent(100, 10, len)
    recent.put(0, b"1")
    for number in range(1, 100):
        recent.put(number, b"333")
        recent.forget(number)
    assert recent.fresh.keys() == {0}


# ---- at the scheduler ----------------------------------------------------------------------------------------------
@pytest.fixture
def released() -> list[int]:
    """Ids of functions that the scheduler need not keep."""
    return []


@pytest.fixture
def known(released: list[int]) -> Templates:
    driver = Mock()
    driver.welcome.limit = 1 << 20
    driver.release = released.append
    return Templates(driver, Liveness(), Mock(), None)


def sent(known: Templates, function: Any, number: int) -> TaskTemplate:
    template = known.of(function, Options.make())
    template.object_id = template.object_id or number
    return template


def test_functions_that_nobody_has_are_released_after_some_bytes(known: Templates, released: list[int]) -> None:
    kept = functools.partial(len, "x" * 50_000)
    sent(known, kept, 1000)
    for number in range(1, 200):
        sent(known, functools.partial(len, f"{number:0100000}"), number)
        assert number - len(released) <= templates.SENT_BYTES // 100_000 + 1
    assert 1000 not in released
    assert sent(known, kept, 2000).object_id == 1000


def test_functions_that_somebody_has_are_released_oldest_first(known: Templates, released: list[int]) -> None:
    functions = [functools.partial(len, f"{number:0100000}") for number in range(300)]
    for number, function in enumerate(functions):
        sent(known, function, number + 1)
    assert released == list(range(1, len(released) + 1))
    assert 300 - len(released) == templates.MOST_BYTES // 100_050


def test_a_function_that_was_made_anew_is_not_sent_again(known: Templates, released: list[int]) -> None:
    numbers = {sent(known, functools.partial(len, "x" * 100_000), number + 1).object_id for number in range(100)}
    assert numbers == {1}
    assert not released


def test_a_template_lets_go_of_its_function_and_can_call_it_all_the_same(known: Templates) -> None:
    held = Held([1, 2, 3])
    function, gone = closure(held), weakref.ref(held)
    template = known.of(function, Options.make())
    assert template.function() is function
    del held, function
    gc.collect()
    assert gone() is None
    assert template.function()() == 3


def test_a_template_has_a_method_as_long_as_there_is_its_object(known: Templates) -> None:
    function = method(Held([1, 2]))
    template = known.of(function, Options.make())
    owner = function.__self__
    del function
    assert template.is_alive
    assert template.function()() == 2
    del owner
    assert not template.is_alive


def test_a_template_of_what_takes_no_weak_references_calls_one_like_it(known: Templates) -> None:
    template = known.of(Slotted(4), Options.make())
    assert template.function()() == 4


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    def __call__(self) -> int:
        return self.value


def test_a_function_that_goes_as_python_ends_is_forgotten_in_silence(
    cache: FunctionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", complaints.append)
    function = closure(Held([1]))
    cache.capture(function)
    with monkeypatch.context() as end:
        for name in vars(capturing).keys() - {"__builtins__"}:
            end.setitem(vars(capturing), name, None)
        del function
        gc.collect()
    assert not complaints
